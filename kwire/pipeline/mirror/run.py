"""Runs a mirror on Spark: one streaming query reads all of its topics, and tasks write each batch.

`Driver` decides, and stores the state; Spark calls it in a thread of its own, one batch after the other. `Upkeep`
works in a second thread, parallel to it.
"""

from __future__ import annotations

import time
from functools import partial

import attrs
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from kwire.pipeline.arrow_tasks import map_in_arrow
from kwire.pipeline.brokers import TIMEOUT_S
from kwire.pipeline.errors import PipelineError
from kwire.pipeline.mirror.driver import Driver
from kwire.pipeline.mirror.handover import Handover
from kwire.pipeline.mirror.plan import MirrorPlan
from kwire.pipeline.mirror.task import COLUMNS, SCHEMA, MirrorTask
from kwire.pipeline.mirror.topics import TargetTopics
from kwire.pipeline.mirror.upkeep import Duties, Upkeep, UpkeepThread
from kwire.pipeline.report import Report
from kwire.pipeline.stream import BatchStream, StreamingRun

_TOPICS_INTERVAL_S = 60.0


@attrs.define(eq=False)
class MirrorRun(StreamingRun):
    """A mirror as a run of a job, its only owner."""

    plan: MirrorPlan
    spark: SparkSession
    run_id: str
    report: Report
    timeout_s: float = TIMEOUT_S
    topics_interval_s: float = _TOPICS_INTERVAL_S
    advanced_s: float = 0.0
    """The time of the last written batch, on the monotonic clock; at first, the time when the run began."""
    _driver: Driver = attrs.field(init=False)
    _upkeep: Upkeep = attrs.field(init=False)
    _upkeep_thread: UpkeepThread | None = None

    def __attrs_post_init__(self) -> None:
        handover = Handover(TargetTopics(self.plan.excluded_configs))
        self._stream = BatchStream(self.spark, self._batch)
        self._driver = Driver(self.plan, self.run_id, handover, self.report.warning, self.timeout_s)
        self._upkeep = Upkeep(self.plan, handover, self.timeout_s)

    def start(self) -> None:
        """Starts the query at the mirror's position. Raises PipelineError, also if records were lost.

        May be called again when the query has ended.
        """
        if self.spark.sparkContext.getConf().get("spark.speculation", "false") == "true":
            # The second try would take the partition from the first, which would look like another mirror.
            raise PipelineError("spark.speculation lets two tasks write one partition: set it to false for a mirror")
        self._driver.begin()
        if not self.advanced_s:
            self.advanced_s = time.monotonic()
        self._stream.start(
            f"mirror {self._driver.writing.name} {self.run_id}",
            self.plan.options(),
            {name: topic.offsets for name, topic in self._driver.topics.items()},
            interval_s=None if self.plan.once else self.plan.interval_s,
            max_records=self.plan.max_records_per_batch,
        )
        if self._upkeep_thread is None and not self.plan.once:
            self._upkeep_thread = UpkeepThread(self._duties())

    def stop(self) -> None:
        """Lets the current batch finish, and ends the query. May be called twice."""
        if self._upkeep_thread is not None:
            self._upkeep_thread.stop()
        self._stream.stop()

    def end(self) -> None:
        """Called after the last query: commits the groups' offsets again."""
        if self.failure is None and self._upkeep.cycle is None:
            self._upkeep.commit_groups()

    def _duties(self) -> Duties:
        acts = [(self._upkeep.follow_topics, self.topics_interval_s)]
        if self.plan.groups is not None:
            acts.append((self._upkeep.commit_groups, self.plan.groups_interval_s))
        return Duties(acts, self.report.warning)

    def _batch(self, records: DataFrame, batch_id: int) -> None:
        began_s = time.monotonic()
        counts = self._driver.write(self._stream.end_of(batch_id), partial(_copy, records))
        if not counts:  # a job with --once always has a batch, even if it is empty
            return
        self.advanced_s = time.monotonic()
        for topic, count in counts.items():
            self.report.step(self._driver.topics[topic].step(count, self.advanced_s - began_s))


def _copy(records: DataFrame, task: MirrorTask) -> list[str]:
    # From Spark to Python, a column of nulls only takes 20 times as long as one of empty lists.
    no_headers = F.array().cast(records.schema["headers"].dataType)
    rows = records.withColumn("headers", F.coalesce("headers", no_headers)).select(*COLUMNS)
    return [row.result for row in map_in_arrow(rows, task.copy, SCHEMA).collect()]
