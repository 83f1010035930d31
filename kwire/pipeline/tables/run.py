"""A plan at work: one streaming query that reads the topic, and commits each of its batches to the table.

Spark keeps what it has read in a checkpoint; ours is an empty folder for each run, since the table says where to start.
What a batch reads is written there before the batch begins, and that is the one thing taken from it: where the batch
ends, behind control records and what was compacted away, which no row would tell.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import attrs
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from kwire.pipeline.errors import PipelineError
from kwire.pipeline.report import Report, Step
from kwire.pipeline.tables.plan import TablePlan
from kwire.pipeline.tables.position import Position, same_topic, start
from kwire.pipeline.tables.preparing import Sample, decoder, grown_by, open_tables
from kwire.pipeline.tables.writer import TableWriter
from kwire.pipeline.topics import Topics

_STOP_WITHIN_S = 120

Opener = Callable[[TablePlan, SparkSession, Sample, str], TableWriter]
"""Makes or finds a plan's tables: those of a topic, or of another layout. The last argument is the run's id."""


@attrs.define(eq=False)
class TableRun:
    """One owner, the job. Spark calls `_batch` in a thread of its own, one batch after the other."""

    plan: TablePlan
    spark: SparkSession
    topics: Topics
    run_id: str
    report: Report
    open_tables: Opener = open_tables
    query: StreamingQuery | None = None
    failure: Exception | None = None
    """What ended the query, where it was raised within a batch."""
    advanced_s: float = 0.0
    """When the table last moved on, on the monotonic clock; at first, when the run began."""
    _writer: TableWriter | None = None
    _position: Position | None = None
    _ends: Mapping[int, int] = attrs.field(factory=dict)
    _checkpoint: Path | None = None
    _busy: threading.Lock = attrs.field(factory=threading.Lock)
    _stopping: bool = False

    def start(self) -> None:
        """Starts the query where the table ends. Raises PipelineError, also where records were lost.

        May be called again when the query has ended.
        """
        self.forget_checkpoint()
        state = self.topics.state(self.plan.topic, self.plan.isolation)
        if self._writer is None:
            self._writer = self.open_tables(self.plan, self.spark, self._sample, self.run_id)
            self._writer.drop_drafts_of_others()
            self.advanced_s = time.monotonic()
        begin_at = state.starts if self.plan.begin == "earliest" else state.ends
        begun = start(self._writer.reached(), state, begin_at=begin_at, on_gap=self.plan.on_gap)
        self._position = self._writer.open(self.spark, begun)
        self.failure = None
        self._checkpoint = Path(tempfile.mkdtemp(prefix="kwire-pipeline-"))
        # The table's own offsets, and those of partitions that it has not heard of.
        offsets = {str(number): at for number, at in {**begun.position.offsets, **self._position.offsets}.items()}
        records = self.spark.readStream.format("kafka").options(**self.plan.source())
        if self.plan.max_records_per_commit:
            records = records.option("maxOffsetsPerTrigger", self.plan.max_records_per_commit)
        stream = records.option("startingOffsets", json.dumps({self.plan.topic: offsets})).load()
        writer = stream.writeStream.foreachBatch(self._batch).queryName(f"{self.plan.table} {self.run_id}")
        writer = writer.option("checkpointLocation", self._checkpoint.as_uri())
        if self.plan.once:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=f"{int(self.plan.interval_s * 1000)} milliseconds")
        self.query = writer.start()

    def stop(self) -> None:
        """Lets a batch that is being written come to its end, and ends the query. May be called twice."""
        self._stopping = True
        waited = self._busy.acquire(timeout=_STOP_WITHIN_S)
        try:
            if self.query is not None:
                self.query.stop()
        finally:
            if waited:
                self._busy.release()
        self.forget_checkpoint()

    def end(self) -> None:
        """After the last query: leaves nothing of the run in the tables."""
        if self._writer is not None:
            self._writer.drop_drafts()

    def forget_checkpoint(self) -> None:
        """Of a query that is over."""
        if self._checkpoint is not None:
            shutil.rmtree(self._checkpoint, ignore_errors=True)
            self._checkpoint = None

    def _batch(self, records: DataFrame, batch_id: int) -> None:
        # Who stops the query holds the lock until this thread has ended: to wait for it would be to wait for ever.
        if not self._busy.acquire(blocking=False):
            return
        try:
            if not self._stopping:
                self._commit(records, batch_id)
        except Exception as error:
            self.failure = error
            raise
        finally:
            self._busy.release()

    def _commit(self, records: DataFrame, batch_id: int) -> None:
        assert self._writer is not None
        assert self._position is not None
        began_s = time.monotonic()
        reached, after = self._position, self._position.moved(self._end_of(batch_id))
        if after == reached:  # a job that takes what is there always has a batch, if only an empty one
            return
        if self.plan.evolve and grown_by(self.spark, self._writer.table.name, records):
            self._writer.decode = decoder(self.plan, self.spark, self._writer.table.name)
        counts = self._writer.commit(records, reached=reached, after=after, still_so=self._check_topic)
        self._position = after
        self.advanced_s = time.monotonic()
        lag = {number: max(0, end - after.offsets.get(number, 0)) for number, end in sorted(self._ends.items())}
        self.report.step(
            Step(
                name=self.plan.table,
                records=counts.records,
                errors=counts.errors,
                took_s=self.advanced_s - began_s,
                offsets=after.offsets,
                lag=lag,
            )
        )
        try:
            self.topics.publish_group(self.plan.published_group, self.plan.topic, after.offsets)
        except PipelineError as error:
            self.report.warning(str(error))

    def _check_topic(self) -> None:
        """Notes the topic's ends. Raises PipelineError when it is another one by now: the batch may be of either."""
        assert self._position is not None
        state = self.topics.state(self.plan.topic, self.plan.isolation)
        same_topic(self._position, state)
        self._ends = state.ends

    def _end_of(self, batch_id: int) -> dict[int, int]:
        assert self._checkpoint is not None
        lines = Path(self._checkpoint, "offsets", str(batch_id)).read_text(encoding="utf-8").splitlines()
        return {int(partition): offset for partition, offset in json.loads(lines[-1])[self.plan.topic].items()}

    def _sample(self) -> DataFrame:
        """The first records that there are."""
        records = self.spark.read.format("kafka").options(**self.plan.source())
        return records.option("startingOffsets", "earliest").load().limit(self.plan.sample_records)
