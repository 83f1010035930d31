"""Adds records again: a range of the topic (`backfill`), or records that could not be decoded before (`redo`).

Both check the tables first. A record whose partition and offset is in the table, or in the errors table, is not added.
So a backfill may be repeated, run beside the job, and be killed: existing rows stay, missing ones are added. Neither
moves the table's position. A range ends there at the latest, because the job reads the rest.

A table by key cannot take an old record alone, because its key may have been deleted later. There the range extends to
the table's position, and the newest record of each key counts, tombstones included.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from kwire.pipeline.errors import PipelineError
from kwire.pipeline.tables import rows
from kwire.pipeline.tables.decoding import REASON
from kwire.pipeline.tables.draft import Head, Table
from kwire.pipeline.tables.plan import TablePlan
from kwire.pipeline.tables.position import Position, same_topic
from kwire.pipeline.tables.reading import pinned, records_between
from kwire.pipeline.tables.writer import TableWriter
from kwire.pipeline.topic_state import TopicState

_POSITION = ("kafka.partition", "kafka.offset")
_DELETE_POSITIONS = """\
MERGE INTO {draft} AS mine USING {rows} AS theirs
ON mine.kafka.`partition` = theirs.kafka.`partition` AND mine.kafka.`offset` = theirs.kafka.`offset`
    AND mine.until IS NULL
WHEN MATCHED THEN DELETE
"""


@attrs.frozen(kw_only=True)
class Added:
    """`records` were checked; `rows` and `errors` were missing and have been added. In a table by key, `rows` is 0."""

    records: int
    rows: int
    errors: int


@attrs.frozen(kw_only=True)
class Redone:
    """Numbers of errors, and of those that are rows now. `too_old`: those of a table by key that the topic lacks."""

    errors: int
    rows: int
    too_old: int


def backfill(
    plan: TablePlan,
    writer: TableWriter,
    spark: SparkSession,
    topic: TopicState,
    first: Mapping[int, int],
    until: Mapping[int, int],
) -> Added:
    """Adds the missing records of a range. PipelineError if the table is not this topic's, or has no position."""
    position = _position(plan, writer, topic)
    if writer.upsert:
        until = {number: position.offsets[number] for number in first if number in position.offsets}
    ranges = {
        number: (at, max(at, min(until[number], position.offsets.get(number, at))))
        for number, at in first.items()
        if number in until
    }
    records = records_between(spark, plan.source(), topic, ranges)
    decoded = rows.with_kafka(writer.decode(records))
    if writer.upsert:
        decoded = rows.require_key(decoded)
    decoded = decoded.persist()
    try:
        (seen,) = decoded.agg(F.count(F.lit(1)).alias("records")).collect()
        bad_rows = decoded.where(F.col(REASON).isNotNull())
        errors = _add_errors(writer, spark, bad_rows) if not bad_rows.isEmpty() else 0
        added = 0
        if writer.upsert:
            _merge(writer, rows.newest_by_key(decoded))
        else:
            added = _add_rows(writer, spark, rows.good(decoded))
        return Added(records=seen.records, rows=added, errors=errors)
    finally:
        decoded.unpersist()


def redo(plan: TablePlan, writer: TableWriter, spark: SparkSession, topic: TopicState) -> Redone:
    """Decodes the errors again with the table's current schema.

    It adds the rows first, and then deletes the errors: a kill in between leaves both, and the next redo completes it.
    Raises PipelineError as `backfill` does.
    """
    position = _position(plan, writer, topic)
    head = writer.errors.head()
    assert head.snapshot_id is not None
    errors = pinned(spark, writer.errors.name, head.snapshot_id).where("until IS NULL")
    decoded = _decoded_errors(writer, errors)
    if writer.upsert:
        decoded = rows.require_key(decoded)
    decoded = decoded.persist()
    try:
        good = decoded.where(F.col(REASON).isNull())
        too_old = 0
        if writer.upsert:
            too_old = good.where(~rows.at_or_after(topic.starts)).count()
            good = good.where(rows.at_or_after(topic.starts))
        redone = good.count()
        if redone:
            if writer.upsert:
                _redo_by_key(plan, writer, spark, topic, position, good)
            else:
                _add_rows(writer, spark, rows.good(good))
            positions = good.select("kafka")
            writer.errors.commit(lambda _: writer.errors.merge(positions, _DELETE_POSITIONS, {}), with_position=False)
        return Redone(errors=decoded.count(), rows=redone, too_old=too_old)
    finally:
        decoded.unpersist()


def _redo_by_key(
    plan: TablePlan,
    writer: TableWriter,
    spark: SparkSession,
    topic: TopicState,
    position: Position,
    good: DataFrame,
) -> None:
    """Merges the rows with all later records, because a newer record or a tombstone has precedence."""
    lowest = good.groupBy("kafka.partition").agg(F.min("kafka.offset").alias("first")).collect()
    ranges = {row.partition: (row.first, position.offsets[row.partition]) for row in lowest}
    behind = rows.require_key(rows.with_kafka(writer.decode(records_between(spark, plan.source(), topic, ranges))))
    _merge(writer, rows.newest_by_key(behind.unionByName(good)))


def _decoded_errors(writer: TableWriter, errors: DataFrame) -> DataFrame:
    """The errors as the connector's records, decoded."""
    records = errors.select(
        "kafka.key",
        "value",
        "kafka.partition",
        "kafka.offset",
        "kafka.timestamp",
        F.col("kafka.timestamp_type").alias("timestampType"),
        "kafka.headers",
    )
    return rows.with_kafka(writer.decode(records))


def _add_rows(writer: TableWriter, spark: SparkSession, good: DataFrame) -> int:
    """Adds the missing rows, and returns their number."""
    added = 0

    def write(head: Head) -> None:
        nonlocal added
        assert head.snapshot_id is not None
        there = pinned(spark, writer.table.name, head.snapshot_id).select(*_positions())
        writer.table.append(_missing(good, there), {})
        added = int(writer.table.draft_summary().get("added-records", "0"))

    writer.table.commit(write, with_position=False)
    return added


def _add_errors(writer: TableWriter, spark: SparkSession, bad: DataFrame) -> int:
    added = 0
    errors: Table = writer.errors

    def write(head: Head) -> None:
        nonlocal added
        assert head.snapshot_id is not None
        there = pinned(spark, errors.name, head.snapshot_id).where("until IS NULL").select(*_positions())
        errors.append(_missing(rows.bad(bad, since={}), there), {})
        added = int(errors.draft_summary().get("added-records", "0"))

    errors.commit(write, with_position=False)
    return added


def _merge(writer: TableWriter, newest: DataFrame) -> None:
    writer.table.commit(lambda _: writer.table.merge(newest, rows.UPSERT, {}), with_position=False)


def _missing(wanted: DataFrame, there: DataFrame) -> DataFrame:
    same = [F.col(name) == F.col(alias) for name, alias in zip(_POSITION, ("_partition", "_offset"), strict=True)]
    return wanted.join(there, same, "left_anti")


def _positions() -> list[Column]:
    return [F.col(name).alias(alias) for name, alias in zip(_POSITION, ("_partition", "_offset"), strict=True)]


def _position(plan: TablePlan, writer: TableWriter, topic: TopicState) -> Position:
    position = writer.reached()
    if position is None or writer.errors.head().snapshot_id is None:
        raise PipelineError(f"table {plan.table} has no offsets yet: no job has written to it")
    same_topic(position, topic)
    return position
