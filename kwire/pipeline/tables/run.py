"""Runs a plan: one streaming query reads the topic, and commits each of its batches to the table.

The query starts at the table's position; `stream.py` makes Spark start there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import attrs
from pyspark.sql import DataFrame, SparkSession

from kwire.pipeline.errors import PipelineError
from kwire.pipeline.report import Report, Step
from kwire.pipeline.stream import BatchStream, StreamingRun
from kwire.pipeline.tables.plan import TablePlan
from kwire.pipeline.tables.position import Position, same_topic, start
from kwire.pipeline.tables.preparing import Sample, decoder, grown_by, open_tables
from kwire.pipeline.tables.writer import TableWriter
from kwire.pipeline.topics import Topics

Opener = Callable[[TablePlan, SparkSession, Sample, str], TableWriter]
"""Makes or finds a plan's tables: those of a topic, or of another layout. The last argument is the run's id."""


@attrs.define(eq=False)
class TableRun(StreamingRun):
    """A table as a run of a job, its only owner. Spark calls `_commit` in its own thread, one batch after the other."""

    plan: TablePlan
    spark: SparkSession
    topics: Topics
    run_id: str
    report: Report
    open_tables: Opener = open_tables
    advanced_s: float = 0.0
    """The time of the table's last progress, on the monotonic clock; at first, the time when the run began."""
    _writer: TableWriter | None = None
    _position: Position | None = None
    _ends: Mapping[int, int] = attrs.field(factory=dict)

    def __attrs_post_init__(self) -> None:
        self._stream = BatchStream(self.spark, self._commit)

    def start(self) -> None:
        """Starts the query at the table's position. Raises PipelineError, also if records were lost.

        May be called again when the query has ended.
        """
        state = self.topics.state(self.plan.topic, self.plan.isolation)
        if self._writer is None:
            self._writer = self.open_tables(self.plan, self.spark, self._sample, self.run_id)
            self._writer.drop_drafts_of_others()
            self.advanced_s = time.monotonic()
        begin_at = state.starts if self.plan.begin == "earliest" else state.ends
        begun = start(self._writer.reached(), state, begin_at=begin_at, on_gap=self.plan.on_gap)
        self._position = self._writer.open(self.spark, begun)
        # The table's own offsets, and those of partitions that are new to it.
        offsets = {**begun.position.offsets, **self._position.offsets}
        self._stream.start(
            f"{self.plan.table} {self.run_id}",
            self.plan.source(),
            {self.plan.topic: offsets},
            interval_s=None if self.plan.once else self.plan.interval_s,
            max_records=self.plan.max_records_per_commit,
        )

    def stop(self) -> None:
        """Lets the current batch finish, and ends the query. May be called twice."""
        self._stream.stop()

    def end(self) -> None:
        """Called after the last query: removes the run's drafts from the tables."""
        if self._writer is not None:
            self._writer.drop_drafts()

    def _commit(self, records: DataFrame, batch_id: int) -> None:
        assert self._writer is not None
        assert self._position is not None
        began_s = time.monotonic()
        reached, after = self._position, self._position.moved(self._stream.end_of(batch_id)[self.plan.topic])
        if after == reached:  # a job with --once always has a batch, even if it is empty
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
        """Stores the topic's ends. Raises PipelineError if the topic was replaced: the batch may be from either."""
        assert self._position is not None
        state = self.topics.state(self.plan.topic, self.plan.isolation)
        same_topic(self._position, state)
        self._ends = state.ends

    def _sample(self) -> DataFrame:
        """The first records of the topic."""
        records = self.spark.read.format("kafka").options(**self.plan.source())
        return records.option("startingOffsets", "earliest").load().limit(self.plan.sample_records)
