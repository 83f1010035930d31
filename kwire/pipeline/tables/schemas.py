"""A table's value as a schema: given, inferred once, and growing by whole fields only.

The table itself remembers its schema; there is no other place for it. A schema that is given later may name more fields
(they are added, null in the rows before) and may leave fields out (they stay). One of another type is refused, since
rows that are there already would have to be read in two ways.
"""

from __future__ import annotations

import json
from typing import TypeVar

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from kwire.pipeline.errors import PipelineError

T = TypeVar("T", bound="DataType")

Addition = tuple[str, "DataType"]
"""A field's path, such as `value.address.zip`, and its type."""


def read_json_schema(text: str) -> StructType:
    """A schema in Spark's JSON, or as DDL (`id BIGINT, name STRING`). Raises PipelineError. DDL needs a session."""
    try:
        found = StructType.fromJson(json.loads(text)) if text.lstrip().startswith("{") else StructType.fromDDL(text)
    except (PySparkException, ValueError, KeyError, TypeError) as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise PipelineError(f"the schema cannot be read, neither as DDL nor as Spark's JSON: {first}") from None
    if not isinstance(found, StructType) or not found.fields:
        raise PipelineError("the schema names no fields: it wants some, such as id BIGINT, name STRING")
    return as_nullable(found)


def infer(spark: SparkSession, values: DataFrame) -> StructType | None:
    """The schema of the JSON objects in the column `value`; None where there is none."""
    texts = values.selectExpr("try_validate_utf8(cast(value as string)) AS text").where("text IS NOT NULL")
    reader = spark._jsparkSession.read().option("mode", "DROPMALFORMED").option("allowNonNumericNumbers", "false")
    assert spark._jvm is not None
    # Python's own reader of JSON takes rows from Python processes; Java's takes them where they are.
    strings = getattr(texts._jdf, "as")(spark._jvm.org.apache.spark.sql.Encoders.STRING())
    found = StructType.fromJson(json.loads(reader.json(strings).schema().json()))
    return as_nullable(found) if found.fields else None


def as_nullable(kind: T) -> T:
    """The same with every field, item and map value nullable: what comes by wire may always be missing."""
    found = _nullable(kind)
    assert isinstance(found, type(kind))
    return found


def conformed(rows: DataFrame, column: str, wanted: DataType) -> DataFrame:
    """The rows with a column that has every field of `wanted`, null where it had none."""
    have = rows.schema[column].dataType
    return rows if have == wanted else rows.withColumn(column, _conformed(rows[column], have, wanted))


def _conformed(value: Column, have: DataType, wanted: DataType) -> Column:
    if isinstance(wanted, StructType) and isinstance(have, StructType):
        mine = {field.name.lower(): field for field in have.fields}
        fields = [
            _conformed(value[mine[it.name.lower()].name], mine[it.name.lower()].dataType, it.dataType).alias(it.name)
            if it.name.lower() in mine
            else F.lit(None).cast(it.dataType).alias(it.name)
            for it in wanted.fields
        ]
        return F.when(value.isNotNull(), F.struct(*fields))
    if isinstance(wanted, ArrayType) and isinstance(have, ArrayType):
        of, to = have.elementType, wanted.elementType
        return F.transform(value, lambda item: _conformed(item, of, to))
    return value if have == wanted else value.cast(wanted)


def sql_type(kind: DataType) -> str:
    """A type as SQL writes it."""
    return StructType([StructField("it", kind)]).toDDL().removeprefix("it ")


def additions(table: StructType, wanted: StructType, path: str = "value") -> list[Addition]:
    """What has to be added to the table's schema so that it has all of `wanted`. Raises PipelineError."""
    found: list[Addition] = []
    have = {field.name.lower(): field for field in table.fields}
    for field in wanted.fields:
        at = f"{path}.{field.name}"
        mine = have.get(field.name.lower())
        if mine is None:
            found.append((at, field.dataType))
        else:
            found += _additions_within(mine.dataType, field.dataType, at)
    return found


def _additions_within(mine: DataType, other: DataType, at: str) -> list[Addition]:
    if isinstance(mine, StructType) and isinstance(other, StructType):
        return additions(mine, other, at)
    if isinstance(mine, ArrayType) and isinstance(other, ArrayType):
        return _additions_within(mine.elementType, other.elementType, f"{at}.element")
    if isinstance(mine, MapType) and isinstance(other, MapType) and mine.keyType == other.keyType:
        return _additions_within(mine.valueType, other.valueType, f"{at}.value")
    if mine != other:
        raise PipelineError(
            f"the schema wants {at} as {other.simpleString()}, and the table has it as {mine.simpleString()}: a "
            "field keeps its type. Give it another name, or write to another table (--table NAME)"
        )
    return []


def _nullable(kind: DataType) -> DataType:
    match kind:
        case StructType():
            return StructType([StructField(it.name, _nullable(it.dataType), True, it.metadata) for it in kind.fields])
        case ArrayType():
            return ArrayType(_nullable(kind.elementType), True)
        case MapType():
            return MapType(kind.keyType, _nullable(kind.valueType), True)
        case _:
            return kind
