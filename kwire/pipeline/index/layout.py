"""The index as a table: creates or opens it, and makes its rows.

JSON has only these few types, and Spark's reader would turn any value in a STRING field into text. So such a field is
read as a variant, which preserves its type.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, cast

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    BooleanType,
    DataType,
    DoubleType,
    LongType,
    StringType,
    StructField,
    StructType,
    VariantType,
)

from kwire.pipeline.errors import PipelineError, first_line
from kwire.pipeline.index.fields import (
    TYPES,
    Field,
    FieldType,
    fields_from_json,
    fields_to_json,
    ordered,
    with_columns,
)
from kwire.pipeline.index.plan import FIELDS_PROPERTY, IndexPlan
from kwire.pipeline.tables import schemas
from kwire.pipeline.tables.decoding import DECODED, REASON, decode_json
from kwire.pipeline.tables.draft import Table
from kwire.pipeline.tables.plan import TablePlan
from kwire.pipeline.tables.preparing import Sample, exists, make_namespace, open_errors
from kwire.pipeline.tables.rows import KAFKA_TYPE
from kwire.pipeline.tables.writer import TableWriter

_ORDERED: Final = "write.distribution-mode"
_READ_AS: Final[dict[FieldType, DataType]] = {
    "BIGINT": LongType(),
    "DOUBLE": DoubleType(),
    "STRING": VariantType(),
    "BOOLEAN": BooleanType(),
}
_INFERRED: Final[dict[DataType, FieldType]] = {
    LongType(): "BIGINT",
    DoubleType(): "DOUBLE",
    StringType(): "STRING",
    BooleanType(): "BOOLEAN",
}


def open_index(plan: TablePlan, spark: SparkSession, sample: Sample, run_id: str) -> TableWriter:
    """Creates or opens the plan's index, and returns its writer. PipelineError for a table of something else."""
    assert isinstance(plan, IndexPlan)
    make_namespace(plan, spark)
    name = plan.warehouse.spark_name(plan.table)
    if exists(spark, name):
        properties = {row.key: row.value for row in spark.sql(f"SHOW TBLPROPERTIES {name}").collect()}
        plan.check_table(properties)
        fields = fields_from_json(properties[FIELDS_PROPERTY])
    else:
        properties = {}
        fields = _create(plan, spark, name, sample)
    table = Table(spark, name, run_id=run_id)
    if _ORDERED not in properties:  # also after a kill between this and the line above
        columns = ", ".join(f"`{it.column}`" for it in fields)
        by_bucket = "DISTRIBUTED BY PARTITION " if table.is_partitioned() else ""
        spark.sql(f"ALTER TABLE {name} WRITE {by_bucket}LOCALLY ORDERED BY {columns}")
    return TableWriter(
        table,
        open_errors(plan, spark, run_id),
        decode=lambda records: decode_fields(records, fields),
        arrange=lambda decoded: arrange(decoded, fields),
    )


def decode_fields(records: DataFrame, fields: Sequence[Field]) -> DataFrame:
    """Adds `decoded`, a struct of the fields' columns, and `reason`."""
    parsed = decode_json(records, _json_schema(fields))
    columns, not_strings = [], []
    for it in fields:
        found = F.col(".".join(f"`{step}`" for step in (DECODED, *it.steps)))
        if it.type == "STRING":
            kind = F.schema_of_variant(found)
            not_strings.append(F.when(~kind.isin("STRING", "VOID"), F.lit(it.path)))
            found = F.try_variant_get(found, "$", "string")
        columns.append(found.alias(it.column))
    reason: Column = F.col(REASON)
    if not_strings:
        wrong = F.coalesce(*not_strings)
        reason = F.coalesce(reason, F.when(wrong.isNotNull(), F.concat(wrong, F.lit(" is no string"))))
    return parsed.withColumns({DECODED: F.struct(*columns), REASON: reason})


def arrange(decoded: DataFrame, fields: Sequence[Field]) -> DataFrame:
    """The index's rows, made from decoded records."""
    columns = [F.col(f"{DECODED}.`{it.column}`").alias(it.column) for it in fields]
    return decoded.where(F.col(REASON).isNull()).select("kafka", *columns, F.col("raw").alias("value"))


def _json_schema(fields: Sequence[Field]) -> StructType:
    """The schema for reading a value: only the fields, at their paths."""
    tree: dict[str, Any] = {}
    for it in fields:
        at = tree
        for step in it.steps[:-1]:
            at = at.setdefault(step, {})
        at[it.steps[-1]] = _READ_AS[it.type]

    def struct(of: dict[str, Any]) -> StructType:
        return StructType(
            [StructField(name, struct(it) if isinstance(it, dict) else cast("DataType", it)) for name, it in of.items()]
        )

    return struct(tree)


def _create(plan: IndexPlan, spark: SparkSession, name: str, sample: Sample) -> tuple[Field, ...]:
    """Makes the table; returns its fields in the order in which it is sorted. Raises PipelineError."""
    seen = sample().persist()
    try:
        given = with_columns(_typed(plan, spark, seen))
        different = _count_values(seen, given)
    finally:
        seen.unpersist()
    fields, in_buckets = ordered(given, different, plan.buckets)
    columns = ", ".join(f"`{it.column}` {it.type}" for it in fields)
    properties = ", ".join(f"'{key}' = '{value}'" for key, value in plan.properties_for(fields).items())
    buckets = "" if in_buckets is None else f"PARTITIONED BY (bucket({plan.buckets}, `{in_buckets.column}`)) "
    try:
        spark.sql(
            f"CREATE TABLE {name} (kafka {KAFKA_TYPE}, {columns}, value BINARY) USING iceberg {buckets}"
            f"TBLPROPERTIES ({properties}, '{FIELDS_PROPERTY}' = '{fields_to_json(fields)}')"
        )
    except PySparkException as error:
        raise PipelineError(f"the index {name} cannot be created: {first_line(error)}") from None
    return fields


def _count_values(sample: DataFrame, fields: Sequence[Field]) -> dict[str, int]:
    """Returns the number of different values of each field in the sample, by its column."""
    decoded = decode_fields(sample, fields).where(F.col(REASON).isNull())
    counts = [F.count_distinct(F.col(f"{DECODED}.`{it.column}`")).alias(it.column) for it in fields]
    (row,) = decoded.agg(*counts).collect()
    return dict(row.asDict())


def _typed(plan: IndexPlan, spark: SparkSession, sample: DataFrame) -> list[tuple[str, FieldType]]:
    """The plan's fields with their types: as given, or as a sample of the topic has them. Raises PipelineError."""
    inferred = None
    if any(it.type is None for it in plan.fields):
        inferred = schemas.infer(spark, sample, with_nulls=False)
    found: list[tuple[str, FieldType]] = []
    for it in plan.fields:
        if it.type is not None:
            found.append((it.path, it.type))
            continue
        kind = _type_at(inferred, it.path.split("."))
        if kind not in _INFERRED:
            what = "in none of them" if kind is None else f"{kind.simpleString()} there"
            raise PipelineError(
                f"the type of {it.path} was looked for in the first {plan.sample_records:,} records of topic "
                f"{plan.topic}, and it is {what}: give it one, --fields {it.path}:{TYPES[0]} ({', '.join(TYPES)})"
            )
        found.append((it.path, _INFERRED[kind]))
    return found


def _type_at(kind: DataType | None, steps: list[str]) -> DataType | None:
    for step in steps:
        if not isinstance(kind, StructType):
            return None
        kind = next((it.dataType for it in kind.fields if it.name == step), None)
    return kind
