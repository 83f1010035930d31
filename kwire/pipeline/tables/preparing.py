"""Creates tables, or opens and checks them, before the first record is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import cast

import attrs
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import BinaryType, DataType, StructType

from kwire.pipeline.errors import PipelineError, first_line
from kwire.pipeline.files import read_avro_schemas, read_schema_file
from kwire.pipeline.tables import decoding, schemas
from kwire.pipeline.tables.draft import Table
from kwire.pipeline.tables.plan import (
    AVRO_PROPERTY,
    ISOLATION_PROPERTY,
    MODE_PROPERTY,
    TOPIC_PROPERTY,
    VALUE_PROPERTY,
    Isolation,
    Mode,
    TablePlan,
)
from kwire.pipeline.tables.rows import ERROR_COLUMNS, KAFKA_TYPE, dead_letters
from kwire.pipeline.tables.values import AvroSchemas, ValueFormat
from kwire.pipeline.tables.writer import TableWriter
from kwire.pipeline.warehouse import NAMESPACE, Warehouse, errors_table_name

Sample = Callable[[], "DataFrame"]
"""A function that returns some of the topic's records, from which a schema is inferred."""


def open_tables(plan: TablePlan, spark: SparkSession, sample: Sample, run_id: str) -> TableWriter:
    """Creates or opens the plan's tables, and returns their writer. PipelineError for a table of something else."""
    make_namespace(plan, spark)
    name = plan.warehouse.spark_name(plan.table)
    wanted = _wanted_type(plan, spark)
    if exists(spark, name):
        plan.check_table({row.key: row.value for row in spark.sql(f"SHOW TBLPROPERTIES {name}").collect()})
        _grow(spark, name, wanted)
    else:
        _create(plan, spark, name, wanted or _inferred(plan, spark, sample))
    table, errors = Table(spark, name, run_id=run_id), open_errors(plan, spark, run_id)
    _remember_avro(plan, table)
    return TableWriter(
        table,
        errors,
        decoder(plan, spark, name),
        upsert=plan.mode == "upsert",
        send_bad=None if plan.dead_letter_topic is None else partial(_send_bad, plan),
    )


def make_namespace(plan: TablePlan, spark: SparkSession) -> None:
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS `{plan.warehouse.catalog}`.`{NAMESPACE}`")


def open_errors(plan: TablePlan, spark: SparkSession, run_id: str) -> Table:
    """Creates or opens the plan's errors table."""
    name = plan.warehouse.spark_name(plan.errors_table)
    spark.sql(
        f"CREATE TABLE IF NOT EXISTS {name} ({ERROR_COLUMNS}) USING iceberg TBLPROPERTIES ('format-version' = '2')"
    )
    return Table(spark, name, run_id=run_id)


def open_existing(
    warehouse: Warehouse, name: str, spark: SparkSession, *, bootstrap: str, options: Mapping[str, str], run_id: str
) -> tuple[TablePlan, TableWriter]:
    """Opens a table that a job made, and rebuilds its plan from its properties. Raises PipelineError."""
    full, errors_name = warehouse.spark_name(name), warehouse.spark_name(errors_table_name(name))
    if not exists(spark, full):
        raise PipelineError(f"table {name} not found in {warehouse}: kwire pipeline table makes it")
    table = Table(spark, full, run_id=run_id)
    properties = table.properties()
    if TOPIC_PROPERTY not in properties:
        raise PipelineError(f"table {name} was not made by kwire: it has no property {TOPIC_PROPERTY}")
    if properties[MODE_PROPERTY] == "index":
        raise PipelineError(f"table {name} is an index: it has no values of its topic's to look at")
    avro = properties.get(AVRO_PROPERTY)
    plan = TablePlan(
        bootstrap=bootstrap,
        topic=properties[TOPIC_PROPERTY],
        warehouse=warehouse,
        table=name,
        value=cast("ValueFormat", properties[VALUE_PROPERTY]),
        avro=None if avro is None else AvroSchemas.from_json(avro),
        mode=cast("Mode", properties[MODE_PROPERTY]),
        isolation=cast("Isolation", properties[ISOLATION_PROPERTY]),
        source_options=options,
    )
    errors = Table(spark, errors_name, run_id=run_id)
    return plan, TableWriter(table, errors, decoder(plan, spark, full), upsert=plan.mode == "upsert")


def grow_to(plan: TablePlan, writer: TableWriter, spark: SparkSession, schema: Path) -> TableWriter:
    """Extends the table by a schema file with more fields, and returns its writer. Raises PipelineError."""
    match plan.value:
        case "bytes":
            raise PipelineError(f"table {plan.table} holds bytes: there is no schema to make better")
        case "json":
            grown = attrs.evolve(plan, schema=read_schema_file(schema))
        case "avro" | "confluent-avro":
            grown = attrs.evolve(plan, avro=read_avro_schemas(schema, plan.value))
    _grow(spark, writer.table.name, _wanted_type(grown, spark))
    _remember_avro(grown, writer.table)
    return attrs.evolve(writer, decode=decoder(grown, spark, writer.table.name))


def decoder(plan: TablePlan, spark: SparkSession, name: str) -> Callable[[DataFrame], DataFrame]:
    """The function that decodes a topic's values with the table's current schema."""
    return _decoder(plan, spark.table(name).schema["value"].dataType)


def older_decoders(plan: TablePlan, table: Table) -> tuple[Callable[[DataFrame], DataFrame], ...]:
    """Returns decoders for the table's earlier schemas, whose values are converted to the current one."""
    kinds = [schema["value"].dataType for schema in table.schemas()]
    *older, today = [kind for index, kind in enumerate(kinds) if kind not in kinds[:index]]

    def as_then(then: DataType) -> Callable[[DataFrame], DataFrame]:
        decode = _decoder(plan, then)
        return lambda records: schemas.conformed(decode(records), decoding.DECODED, today)

    return tuple(as_then(kind) for kind in older)


def _decoder(plan: TablePlan, kind: DataType) -> Callable[[DataFrame], DataFrame]:
    match plan.value:
        case "bytes":
            return decoding.decode_bytes
        case "json":
            assert isinstance(kind, StructType)
            return lambda records: decoding.decode_json(records, kind)
        case "avro" | "confluent-avro":
            avro = plan.avro
            assert avro is not None
            return lambda records: decoding.decode_avro(records, avro, kind)


def _remember_avro(plan: TablePlan, table: Table) -> None:
    """Stores the schemas in the table's properties for verify and redo, which are started without schemas."""
    if plan.avro is not None and table.properties().get(AVRO_PROPERTY) != plan.avro.to_json():
        table.set_property(AVRO_PROPERTY, plan.avro.to_json())


def _send_bad(plan: TablePlan, decoded: DataFrame, since: Mapping[int, int]) -> None:
    letters = dead_letters(decoded, since=since, topic=plan.topic)
    letters.write.format("kafka").options(**plan.sink()).save()


def _wanted_type(plan: TablePlan, spark: SparkSession) -> DataType | None:
    """The type of `value` in the plan; None if it has to be inferred."""
    match plan.value:
        case "bytes":
            return BinaryType()
        case "json":
            return None if plan.schema is None else schemas.read_json_schema(plan.schema)
        case "avro" | "confluent-avro":
            assert isinstance(plan.avro, AvroSchemas)
            return decoding.avro_type(spark, plan.avro)


def _inferred(plan: TablePlan, spark: SparkSession, sample: Sample) -> DataType:
    found = schemas.infer(spark, sample(), with_nulls=not plan.evolve)
    if found is None:
        raise PipelineError(
            f"topic {plan.topic} has no JSON objects to infer a schema from: give one, --schema FILE, or let it be "
            "bytes (--value bytes)"
        )
    return found


def _create(plan: TablePlan, spark: SparkSession, name: str, value: DataType) -> None:
    parts = ", ".join(plan.partition_by)
    properties = ", ".join(f"'{key}' = '{value}'" for key, value in plan.table_properties.items())
    try:
        spark.sql(
            f"CREATE TABLE {name} (kafka {KAFKA_TYPE}, value {schemas.sql_type(value)}) USING iceberg "
            f"{f'PARTITIONED BY ({parts}) ' if parts else ''}TBLPROPERTIES ({properties})"
        )
    except (PySparkException, Py4JError) as error:
        raise PipelineError(f"the table {name} cannot be created: {first_line(error)}") from None


def _grow(spark: SparkSession, name: str, wanted: DataType | None) -> None:
    have = spark.table(name).schema["value"].dataType
    if isinstance(wanted, StructType) and isinstance(have, StructType):
        add_fields(spark, name, schemas.additions(have, wanted))


def grown_by(spark: SparkSession, name: str, records: DataFrame) -> bool:
    """Adds new fields of JSON values to the table. Returns True if there were any.

    An existing field keeps its type: a value with another type is an error.
    """
    found = schemas.infer(spark, records, with_nulls=False)
    have = spark.table(name).schema["value"].dataType
    assert isinstance(have, StructType)
    new = [] if found is None else schemas.additions(have, found, conflicts="skip")
    add_fields(spark, name, new)
    return bool(new)


def add_fields(spark: SparkSession, name: str, additions: list[schemas.Addition]) -> None:
    """Adds fields to the table's value: one change of its metadata."""
    if additions:
        columns = ", ".join(f"{_quoted(path)} {schemas.sql_type(kind)}" for path, kind in additions)
        spark.sql(f"ALTER TABLE {name} ADD COLUMNS ({columns})")


def _quoted(path: tuple[str, ...]) -> str:
    return ".".join("`{}`".format(part.replace("`", "``")) for part in path)


def exists(spark: SparkSession, name: str) -> bool:
    """Returns True if the table exists. Raises PipelineError if the catalog does not answer."""
    try:
        return spark.catalog.tableExists(name)
    except (PySparkException, Py4JError) as error:
        raise PipelineError(f"the catalog does not answer about {name}: {first_line(error)}") from None
