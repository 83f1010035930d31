"""The rows that are replayed: the column `kafka` of a record, and its value.

A user's condition applies to the rows as they are in the table: `kafka` and `value`, for an index also its fields, and
for an errors table `reason`. For a topic, `value` is bytes. The records are made after that.

Values that a table has as bytes are written as they came. Decoded values are encoded again. JSON is written as Spark
does, without fields that are null, so the text may differ from the original. Avro is written with the table's schema,
and in Confluent's wire format with the newest schema and its id.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import to_avro
from pyspark.sql.types import BinaryType

from kwire.pipeline.errors import PipelineError, first_line
from kwire.pipeline.replay.pinned import PinnedTable, PinnedTopic
from kwire.pipeline.replay.plan import TableSource, TopicSource
from kwire.pipeline.tables.decoding import DECODED, avro_type, decode_bytes
from kwire.pipeline.tables.draft import Table
from kwire.pipeline.tables.plan import AVRO_PROPERTY, TOPIC_PROPERTY, VALUE_PROPERTY
from kwire.pipeline.tables.preparing import exists
from kwire.pipeline.tables.reading import pinned as at_snapshot
from kwire.pipeline.tables.reading import records_between
from kwire.pipeline.tables.rows import good, with_kafka
from kwire.pipeline.tables.schemas import conformed
from kwire.pipeline.tables.values import AvroSchemas
from kwire.pipeline.topic_state import TopicState
from kwire.pipeline.warehouse import ERRORS_SUFFIX

_CONFLUENT_HEAD: Final = "00{:08X}"
"""A zero and the schema's id, in hexadecimal."""


def open_table(source: TableSource, spark: SparkSession, run_id: str) -> Table:
    """The table. Raises PipelineError unless a job of the pipeline made it."""
    name = source.warehouse.spark_name(source.table)
    if not exists(spark, name):
        raise PipelineError(f"table {source.table} not found in {source.warehouse}: kwire pipeline table makes it")
    table = Table(spark, name, run_id=run_id)
    if TOPIC_PROPERTY not in table.properties() and not source.table.endswith(ERRORS_SUFFIX):
        raise PipelineError(f"table {source.table} was not made by kwire: it has no property {TOPIC_PROPERTY}")
    return table


def table_rows(spark: SparkSession, table: Table, pinned: PinnedTable, where: str | None) -> DataFrame:
    """Raises PipelineError for a condition that Spark does not understand."""
    rows = at_snapshot(spark, table.name, pinned.snapshot_id)
    if "until" in rows.columns:  # an errors table: its rows with `until` are lost ranges, not records
        rows = rows.where("until IS NULL")
    rows = _where(rows.where(pinned.condition), where)
    return _records(_encoded(rows, spark, table.properties()))


def topic_rows(
    spark: SparkSession, source: TopicSource, topic: TopicState, pinned: PinnedTopic, where: str | None
) -> DataFrame:
    """The records that the topic has now in the pinned ranges. Raises PipelineError as `table_rows` does."""
    ranges = {
        number: (max(first, topic.starts[number]), max(until, topic.starts[number]))
        for number, (first, until) in pinned.ranges.items()
    }
    records = records_between(spark, source.spark_options(), topic, ranges)
    return _records(_where(good(with_kafka(decode_bytes(records))), where))


def _where(rows: DataFrame, where: str | None) -> DataFrame:
    if where is None:
        return rows
    try:
        return rows.where(where)
    except PySparkException as error:
        raise PipelineError(f"--where {where!r} cannot be evaluated: {first_line(error)}") from None


def _encoded(rows: DataFrame, spark: SparkSession, properties: Mapping[str, str]) -> DataFrame:
    """The rows with `value` as bytes."""
    if isinstance(rows.schema["value"].dataType, BinaryType):
        return rows
    match properties[VALUE_PROPERTY]:
        case "json":
            return rows.withColumn("value", F.to_json("value", {"ignoreNullFields": "true"}).cast("binary"))
        case "avro" | "confluent-avro":
            schemas = AvroSchemas.from_json(properties[AVRO_PROPERTY])
            # The table has all fields that its schemas ever had; the newest may have fewer.
            named = conformed(rows.withColumnRenamed("value", DECODED), DECODED, avro_type(spark, schemas))
            return named.withColumn("value", _avro(F.col(DECODED), schemas))
        case other:
            raise PipelineError(f"values of the kind {other} cannot be written by this kwire: upgrade it")


def _avro(value: Column, schemas: AvroSchemas) -> Column:
    datum = to_avro(value, schemas.reader)
    if not schemas.by_id:
        return datum
    head = bytes.fromhex(_CONFLUENT_HEAD.format(max(schemas.by_id)))
    return F.when(value.isNotNull(), F.concat(F.lit(head), datum))


def _records(rows: DataFrame) -> DataFrame:
    """The rows for the tasks. Headers are JSON text: as a list of structs, null in most rows, they took 0.2 ms a row
    on the way from Spark to Python."""
    headers = F.transform(
        "kafka.headers", lambda it: F.struct(it["key"].alias("key"), F.base64(it["value"]).alias("value"))
    )
    return rows.select(
        F.col("kafka.partition").alias("partition"),
        F.col("kafka.offset").alias("offset"),
        F.unix_millis("kafka.timestamp").alias("timestamp_ms"),
        F.col("kafka.key").alias("key"),
        "value",
        F.to_json(headers, {"ignoreNullFields": "true"}).alias("headers"),
    )
