"""The rows of a table, made from the connector's records.

    kafka    struct<partition, offset, timestamp, timestamp_type, key, headers>
    value    bytes, or the struct that the value was decoded to

`timestamp_type` is Kafka's: 0 for the producer's time, 1 for the broker's. The errors table has the value as it came:

    kafka    the same
    value    bytes
    reason   the reason why it is not in the table
    until    null; for a range of lost records the offset after it, and `kafka.offset` is where it begins
    noted_at the time when the job wrote the row
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from kwire.pipeline.tables.decoding import DECODED, REASON
from kwire.pipeline.tables.position import Gap

KAFKA_TYPE: Final = (
    "STRUCT<`partition`: INT, `offset`: BIGINT, `timestamp`: TIMESTAMP, timestamp_type: INT, key: BINARY, "
    "headers: ARRAY<STRUCT<key: STRING, value: BINARY>>>"
)
ERROR_COLUMNS: Final = f"kafka {KAFKA_TYPE}, value BINARY, reason STRING, until BIGINT, noted_at TIMESTAMP"

NO_KEY: Final = "no key, and the table is kept by key (--mode upsert)"


def with_kafka(decoded: DataFrame) -> DataFrame:
    """Decoded records with the column `kafka`, their values as `raw` and `decoded`, and `reason`."""
    kafka = F.struct(
        "partition", "offset", "timestamp", F.col("timestampType").alias("timestamp_type"), "key", "headers"
    )
    return decoded.select(kafka.alias("kafka"), F.col("value").alias("raw"), DECODED, REASON)


def good(rows: DataFrame) -> DataFrame:
    """The rows for the table."""
    return rows.where(F.col(REASON).isNull()).select("kafka", F.col(DECODED).alias("value"))


def bad(rows: DataFrame, *, since: Mapping[int, int]) -> DataFrame:
    """Returns the rows for the errors table, without those that it has already: `since` is its position."""
    return rows.where(F.col(REASON).isNotNull() & at_or_after(since)).select(
        "kafka",
        F.col("raw").alias("value"),
        REASON,
        F.lit(None).cast("bigint").alias("until"),
        F.current_timestamp().alias("noted_at"),
    )


def dead_letters(rows: DataFrame, *, since: Mapping[int, int], topic: str) -> DataFrame:
    """Returns these rows as records for the sink: key, value and headers as they came, the origin and the reason."""
    added = {
        "kwire.topic": F.lit(topic),
        "kwire.replicas.partition": F.col("kafka.partition").cast("string"),
        "kwire.offset": F.col("kafka.offset").cast("string"),
        "kwire.reason": F.col("reason"),
    }
    more = F.array(
        *(F.struct(F.lit(name).alias("key"), it.cast("binary").alias("value")) for name, it in added.items())
    )
    headers = F.when(F.col("kafka.headers").isNull(), more).otherwise(F.concat("kafka.headers", more))
    return bad(rows, since=since).select(F.col("kafka.key").alias("key"), "value", headers.alias("headers"))


def gap_rows(spark: SparkSession, gaps: Iterable[Gap]) -> DataFrame:
    """Lost ranges as rows of the errors table."""
    found = [
        ((gap.partition, gap.first, None, None, None, None), None, f"lost: {gap} were deleted unread", gap.until, None)
        for gap in gaps
    ]
    return spark.createDataFrame(found, ERROR_COLUMNS).withColumn("noted_at", F.current_timestamp())


def noted_gaps(errors: DataFrame) -> dict[int, int]:
    """The end of the lost ranges in an errors table, by partition."""
    found = errors.where("until IS NOT NULL").groupBy("kafka.partition").agg(F.max("until").alias("until")).collect()
    return {row["partition"]: row["until"] for row in found}


def require_key(rows: DataFrame) -> DataFrame:
    """Adds the missing key as the reason to rows without a key, unless they have a reason."""
    return rows.withColumn(
        REASON, F.when(F.col(REASON).isNull() & F.col("kafka.key").isNull(), NO_KEY).otherwise(F.col(REASON))
    )


def newest_by_key(rows: DataFrame) -> DataFrame:
    """Returns the last good row of each key; `deleted` is true for a tombstone.

    A key's records are in one partition, in order, or in two if the topic got more partitions. Then the later timestamp
    counts as newer. UPSERT does the same, because partitions are not read at the same pace.
    """

    newest = Window.partitionBy("kafka.key").orderBy(F.desc("kafka.timestamp"), F.desc("kafka.offset"))
    within = Window.partitionBy("kafka.key", "kafka.partition").orderBy(F.desc("kafka.offset"))
    last_of_partition = rows.where(F.col(REASON).isNull()).withColumn("_rank", F.row_number().over(within))
    last = last_of_partition.where("_rank = 1").withColumn("_rank", F.row_number().over(newest))
    return last.where("_rank = 1").select(
        "kafka", F.col(DECODED).alias("value"), F.col("raw").isNull().alias("deleted")
    )


_NEWER = """\
CASE WHEN mine.kafka.`partition` = theirs.kafka.`partition` THEN mine.kafka.`offset` < theirs.kafka.`offset`
    ELSE mine.kafka.`timestamp` <= theirs.kafka.`timestamp` END"""
UPSERT: Final = """\
MERGE INTO {draft} AS mine USING {rows} AS theirs ON mine.kafka.key = theirs.kafka.key
WHEN MATCHED AND theirs.deleted AND {newer} THEN DELETE
WHEN MATCHED AND {newer} THEN UPDATE SET kafka = theirs.kafka, value = theirs.value
WHEN NOT MATCHED AND NOT theirs.deleted THEN INSERT (kafka, value) VALUES (theirs.kafka, theirs.value)
""".replace("{newer}", _NEWER)


def at_or_after(offsets: Mapping[int, int], column: str = "kafka") -> Column:
    """A column: true if a row's offset is at or after that of its partition, or the partition is not in `offsets`."""
    return _compared(offsets, column, ">=", otherwise="TRUE")


def before(offsets: Mapping[int, int], column: str = "kafka") -> Column:
    """A column: true if a row's offset is before that of its partition; false if the partition is not in `offsets`."""
    return _compared(offsets, column, "<", otherwise="FALSE")


def _compared(offsets: Mapping[int, int], column: str, how: str, *, otherwise: str) -> Column:
    if not offsets:
        return F.expr(otherwise)
    prefix = f"{column}." if column else ""
    cases = " ".join(f"WHEN {number} THEN {offset}" for number, offset in sorted(offsets.items()))
    position = f"CASE {prefix}`partition` {cases} END"
    return F.expr(f"COALESCE({prefix}`offset` {how} {position}, {otherwise})")
