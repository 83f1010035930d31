"""Verifies that every record is in the table, once and unchanged.

The topic is read again, from where it begins to the table's position, and decoded as the job decoded it. Each record
must be a row of the table or of its errors table: one of them, once, with the same content. A table by key must hold
the newest record of each key, and nothing for a tombstone.

The comparison has two steps. The first compares counts and sums of 64-bit hashes, by partition: one pass over each
side, without a shuffle of the rows. The second joins only the partitions where these differ, record by record, to find
the missing, doubled and different records.

What is not an error:

* records behind the table's position: that is its lag;
* rows below the topic's first offset: the topic no longer has them;
* rows that a compacted topic no longer has, in a table that keeps all records;
* rows as an older schema of the table made them, before it grew;
* errors that the current schema could decode: `redo` converts them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Final

import attrs
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, BinaryType, DataType, MapType, StructType

from kwire.pipeline.errors import PipelineError, first_line
from kwire.pipeline.tables import rows
from kwire.pipeline.tables.decoding import DECODED, REASON
from kwire.pipeline.tables.plan import TablePlan
from kwire.pipeline.tables.position import Position, same_topic
from kwire.pipeline.tables.preparing import older_decoders
from kwire.pipeline.tables.reading import pinned, records_between
from kwire.pipeline.tables.writer import TableWriter
from kwire.pipeline.topic_state import TopicState
from kwire.pipeline.topics import Topics

SHOWN: Final = 20
"""The maximum number of findings that are named."""

_ATTEMPTS = 3
_LOW = 0xFFFFFFFF


@attrs.frozen(kw_only=True)
class PartitionReport:
    """The result for one partition. Offsets from `first` to before `until` were compared."""

    partition: int
    first: int
    until: int
    lag: int
    records: int
    """The number of the topic's records; for a table by key, of the newest of each key."""
    rows: int
    errors: int
    missing: int = 0
    doubled: int = 0
    different: int = 0
    unexpected: int = 0
    """The number of rows in the table that are not in the topic."""
    compacted: int = 0
    """The number of such rows of a compacted topic, which are no error."""
    older_schema: int = 0
    topic_hash: str
    table_hash: str

    @property
    def sound(self) -> bool:
        return not (self.missing or self.doubled or self.different or self.unexpected)


@attrs.frozen(kw_only=True)
class Finding:
    """One record with a difference."""

    kind: str
    partition: int
    offset: int


@attrs.frozen(kw_only=True)
class Report:
    topic: str
    table: str
    snapshot_id: int
    partitions: tuple[PartitionReport, ...]
    findings: tuple[Finding, ...]

    @property
    def sound(self) -> bool:
        return all(partition.sound for partition in self.partitions)

    def to_json(self) -> str:
        return json.dumps({"sound": self.sound, **attrs.asdict(self)})


@attrs.frozen(kw_only=True)
class Sides:
    """The two sides of a comparison, pinned to offsets of the topic and to snapshots of the tables."""

    records: DataFrame
    """The topic's records, from the connector, from its first offset to the table's position."""
    table: DataFrame
    errors: DataFrame
    decode: Callable[[DataFrame], DataFrame]
    older: tuple[Callable[[DataFrame], DataFrame], ...]
    """The decoders of the table's earlier schemas, whose values are converted to the current one."""
    upsert: bool
    compacted: bool
    """True if the topic's cleanup.policy has "compact"."""


def compare(sides: Sides, *, table: str, snapshot_id: int, position: Position, topic: TopicState) -> Report:
    """Compares two pinned sides."""
    ranges = {
        partition: (first, max(first, position.offsets.get(partition, first)))
        for partition, first in sorted(topic.starts.items())
    }
    expected = _expected(sides, sides.decode)
    found = _found(sides, ranges)
    of_topic, of_table = _sums(expected), _sums(found)
    suspects = [number for number in ranges if _figures(of_topic.get(number)) != _figures(of_table.get(number))]
    details = _details(sides, ranges, suspects) if suspects else {}
    findings = tuple(finding for number in suspects for finding in details[number].findings)
    partitions = []
    for number, (first, until) in ranges.items():
        mine, theirs = of_table.get(number), of_topic.get(number)
        counts = details[number].counts if number in details else {}
        partitions.append(
            PartitionReport(
                partition=number,
                first=first,
                until=until,
                lag=max(0, topic.ends[number] - until),
                records=0 if theirs is None else theirs.records,
                rows=0 if mine is None else mine.records - mine.errors,
                errors=0 if mine is None else mine.errors,
                topic_hash=_hash_text(theirs),
                table_hash=_hash_text(mine),
                **counts,
            )
        )
    return Report(
        topic=topic.topic, table=table, snapshot_id=snapshot_id, partitions=tuple(partitions), findings=findings
    )


def verify(plan: TablePlan, writer: TableWriter, spark: SparkSession, topics: Topics) -> Report:
    """Compares a table with its topic. Raises PipelineError for a table that has no position, or is another topic's.

    Both sides are pinned: the table by its snapshot, the topic by the offsets in it. If retention deletes records
    meanwhile, the comparison is repeated without them.
    """
    head = writer.table.head()
    errors = writer.errors.head()
    if head.snapshot_id is None or head.position is None or errors.snapshot_id is None:
        raise PipelineError(f"table {plan.table} has no offsets yet: no job has written to it")
    for attempts_left in reversed(range(_ATTEMPTS)):
        state = topics.state(plan.topic, plan.isolation)
        same_topic(head.position, state)
        ranges = {number: (at, max(at, head.position.offsets.get(number, at))) for number, at in state.starts.items()}
        sides = Sides(
            records=records_between(spark, plan.source(), state, ranges),
            table=pinned(spark, writer.table.name, head.snapshot_id),
            errors=pinned(spark, writer.errors.name, errors.snapshot_id),
            decode=writer.decode,
            older=older_decoders(plan, writer.table),
            upsert=writer.upsert,
            compacted=topics.is_compacted(plan.topic),
        )
        try:
            return compare(sides, table=plan.table, snapshot_id=head.snapshot_id, position=head.position, topic=state)
        except (PySparkException, Py4JJavaError) as error:
            if not attempts_left or topics.state(plan.topic, plan.isolation).starts == state.starts:
                raise PipelineError(f"topic {plan.topic} cannot be read to its end: {first_line(error)}") from None
    raise AssertionError("the last attempt returns or raises")


@attrs.define
class _Details:
    counts: dict[str, int] = attrs.field(factory=dict)
    findings: list[Finding] = attrs.field(factory=list)


def _expected(sides: Sides, decode: Callable[[DataFrame], DataFrame]) -> DataFrame:
    """Returns the expected content of the tables. Columns: partition, offset, is_error, hash."""
    decoded = rows.with_kafka(decode(sides.records))
    if not sides.upsert:
        return decoded.select(*_position(), *_content(F.col(REASON).isNotNull(), DECODED, "raw", decoded))
    decoded = rows.require_key(decoded)
    newest = rows.newest_by_key(decoded).where("NOT deleted")
    bad = decoded.where(F.col(REASON).isNotNull())
    found = newest.select(*_position(), F.lit(False).alias("is_error"), _hash("value", newest).alias("hash"))
    return found.unionByName(bad.select(*_position(), F.lit(True).alias("is_error"), _hash("raw", bad).alias("hash")))


def _found(sides: Sides, ranges: Mapping[int, tuple[int, int]]) -> DataFrame:
    """Returns the actual content of the tables, with the same columns."""
    inside = rows.at_or_after({number: first for number, (first, _) in ranges.items()}) & rows.before(
        {number: until for number, (_, until) in ranges.items()}
    )
    table = sides.table.where(inside)
    errors = sides.errors.where(inside & F.col("until").isNull())
    found = table.select(*_position(), F.lit(False).alias("is_error"), _hash("value", table).alias("hash"))
    return found.unionByName(
        errors.select(*_position(), F.lit(True).alias("is_error"), _hash("value", errors).alias("hash"))
    )


def _position() -> list[Column]:
    return [F.col("kafka.partition").alias("partition"), F.col("kafka.offset").alias("offset")]


def _content(is_error: Column, good: str, bad: str, frame: DataFrame) -> list[Column]:
    return [
        is_error.alias("is_error"),
        F.when(is_error, _hash(bad, frame)).otherwise(_hash(good, frame)).alias("hash"),
    ]


def _hash(value: str, frame: DataFrame) -> Column:
    """Returns a hash of 64 bits over a whole row. Spark's hash ignores nulls, so their places are hashed, too."""
    parts = [
        *_leaves(F.col("kafka"), frame.schema["kafka"].dataType),
        *_leaves(F.col(value), frame.schema[value].dataType),
    ]
    return F.xxhash64(*parts, *(part.isNull() for part in parts))


def _leaves(column: Column, kind: DataType) -> list[Column]:
    match kind:
        case StructType():
            nested = [leaf for field in kind.fields for leaf in _leaves(column[field.name], field.dataType)]
            return [column.isNull(), *nested]
        case ArrayType(elementType=BinaryType()):
            return [F.transform(column, lambda item: F.hex(item)), F.transform(column, lambda item: item.isNull())]
        case ArrayType() | MapType():
            return [F.to_json(column)]
        case _:
            return [column]


def _sums(side: DataFrame) -> dict[int, Row]:
    grouped = side.groupBy("partition").agg(
        F.count(F.lit(1)).alias("records"),
        F.count(F.when(F.col("is_error"), 1)).alias("errors"),
        F.sum(F.shiftrightunsigned("hash", 32)).alias("high"),
        F.sum(F.col("hash").bitwiseAND(F.lit(_LOW))).alias("low"),
    )
    return {row.partition: row for row in grouped.collect()}


def _figures(row: Row | None) -> tuple[int, int, int, int] | None:
    return None if row is None else (row.records, row.errors, row.high, row.low)


def _hash_text(row: Row | None) -> str:
    return "-" if row is None else f"{row.high & _LOW:08x}{row.low & _LOW:08x}"


def _details(sides: Sides, ranges: Mapping[int, tuple[int, int]], suspects: list[int]) -> dict[int, _Details]:
    """Compares the partitions whose sums differ, record by record."""
    among = F.col("partition").isin(suspects)
    found = (
        _found(sides, ranges)
        .where(among)
        .groupBy("partition", "offset")
        .agg(F.count(F.lit(1)).alias("times"), F.max("is_error").alias("in_errors"), F.first("hash").alias("found"))
    )
    joined = _expected(sides, sides.decode).where(among).join(found, ["partition", "offset"], "full_outer")
    # An error that the current schema could decode is correct if it has the bytes of its record.
    raw = _raw(sides).where(among)
    joined = joined.join(raw, ["partition", "offset"], "left")
    for number, decode in enumerate(sides.older):
        of_then = (
            _expected(sides, decode).where(among).select("partition", "offset", F.col("hash").alias(f"older{number}"))
        )
        joined = joined.join(of_then, ["partition", "offset"], "left")
    matches_older = F.lit(False)
    for number in range(len(sides.older)):
        matches_older = matches_older | F.coalesce(F.col(f"older{number}") == F.col("found"), F.lit(False))
    gone = "compacted" if sides.compacted and not sides.upsert else "unexpected"
    of_an_error = (
        F.when(F.col("raw_hash").isNull(), gone)
        .when(F.col("raw_hash") == F.col("found"), "sound")
        .otherwise("different")
    )
    kind = (
        F.when(F.col("times").isNull(), "missing")
        .when(F.col("times") > 1, "doubled")
        .when(F.col("in_errors"), of_an_error)
        .when(F.col("hash") == F.col("found"), "sound")
        .when(matches_older, "older_schema")
        .when(F.col("raw_hash").isNull(), gone)
        .when(F.col("hash").isNull(), "unexpected")
        .otherwise("different")
    )
    judged = joined.select("partition", "offset", kind.alias("kind")).where("kind <> 'sound'").persist()
    try:
        details = {number: _Details() for number in suspects}
        for row in judged.groupBy("partition", "kind").count().collect():
            details[row.partition].counts[row.kind] = row["count"]
        wrong = judged.where("kind NOT IN ('compacted', 'older_schema')")
        for row in wrong.orderBy("partition", "offset").limit(SHOWN).collect():
            details[row.partition].findings.append(Finding(kind=row.kind, partition=row.partition, offset=row.offset))
        return details
    finally:
        judged.unpersist()


def _raw(sides: Sides) -> DataFrame:
    """Returns each record as the errors table would hold it. Columns: partition, offset, raw_hash."""
    kafka = rows.with_kafka(sides.records.withColumns({DECODED: F.lit(None), REASON: F.lit(None)}))
    return kafka.select(*_position(), _hash("raw", kafka).alias("raw_hash"))
