"""The schema of a table's value: given, or inferred once. It grows only by whole fields.

Only the table itself stores its schema. A schema given later may have more fields (they are added, and are null in
earlier rows) and may lack fields (they stay). A field with another type is refused, because existing rows would have to
be read differently.
"""

from __future__ import annotations

import json
from typing import Final, Literal, TypeVar

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from kwire.pipeline.errors import PipelineError, first_line

T = TypeVar("T", bound="DataType")

Addition = tuple[tuple[str, ...], "DataType"]
"""A field's path, such as ("value", "address", "zip"), and its type."""

JSON_OPTIONS: Final = {
    # Spark accepts these, JSON does not.
    "allowSingleQuotes": "false",
    "allowNonNumericNumbers": "false",
}


def read_json_schema(text: str) -> StructType:
    """A schema in Spark's JSON, or as DDL (`id BIGINT, name STRING`). Raises PipelineError. DDL needs a session."""
    try:
        found = StructType.fromJson(json.loads(text)) if text.lstrip().startswith("{") else StructType.fromDDL(text)
    except (PySparkException, Py4JError, ValueError, KeyError, TypeError) as error:
        raise PipelineError(
            f"the schema cannot be read, neither as DDL nor as Spark's JSON: {first_line(error)}"
        ) from None
    if not isinstance(found, StructType) or not found.fields:
        raise PipelineError("the schema names no fields: it wants some, such as id BIGINT, name STRING")
    if _distinct(found) != found:
        raise PipelineError("the schema has a field twice (small and capital letters are the same to SQL)")
    return as_nullable(found)


def infer(spark: SparkSession, values: DataFrame, *, with_nulls: bool) -> StructType | None:
    """The schema of the JSON objects in the column `value`; None if there are none.

    Of fields whose names differ only by case, one is used. With `with_nulls` a field that is null everywhere is text;
    without it such a field is left out until it has a value.
    """
    texts = values.selectExpr("try_validate_utf8(cast(value as string)) AS text").where(r"text RLIKE '^\\s*\\{'")
    reader = spark._jsparkSession.read().option("mode", "DROPMALFORMED")
    for name, value in {**JSON_OPTIONS, "dropFieldIfAllNull": "false" if with_nulls else "true"}.items():
        reader = reader.option(name, value)
    assert spark._jvm is not None
    # PySpark's reader of JSON would move the rows through Python processes; Java's reads them in place.
    strings = getattr(texts._jdf, "as")(spark._jvm.org.apache.spark.sql.Encoders.STRING())
    found = StructType.fromJson(json.loads(reader.json(strings).schema().json()))
    return as_nullable(_distinct(found)) if found.fields else None


def as_nullable(kind: T) -> T:
    """Returns the type with every field, item and map value nullable: any of them may be missing in a record."""
    found = _nullable(kind)
    assert isinstance(found, type(kind))
    return found


def conformed(rows: DataFrame, column: str, wanted: DataType) -> DataFrame:
    """The rows with a column that has every field of `wanted`; missing ones are null."""
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
    """Returns the type in SQL."""
    return StructType([StructField("it", kind)]).toDDL().removeprefix("it ")


def additions(
    table: StructType,
    wanted: StructType,
    path: tuple[str, ...] = ("value",),
    *,
    conflicts: Literal["raise", "skip"] = "raise",
) -> list[Addition]:
    """The fields that the table's schema lacks of `wanted`.

    Raises PipelineError for an existing field with another type, or leaves the table's type as it is.
    """
    found: list[Addition] = []
    have = {field.name.lower(): field for field in table.fields}
    for field in wanted.fields:
        mine = have.get(field.name.lower())
        if mine is None:
            found.append(((*path, field.name), field.dataType))
        else:
            # Under the table's own name of the field, because SQL adds to the field of that name.
            found += _additions_within(mine.dataType, field.dataType, (*path, mine.name), conflicts)
    return found


def _additions_within(
    mine: DataType, other: DataType, at: tuple[str, ...], conflicts: Literal["raise", "skip"]
) -> list[Addition]:
    if isinstance(mine, StructType) and isinstance(other, StructType):
        return additions(mine, other, at, conflicts=conflicts)
    if isinstance(mine, ArrayType) and isinstance(other, ArrayType):
        return _additions_within(mine.elementType, other.elementType, (*at, "element"), conflicts)
    if isinstance(mine, MapType) and isinstance(other, MapType) and mine.keyType == other.keyType:
        return _additions_within(mine.valueType, other.valueType, (*at, "value"), conflicts)
    if mine != other and conflicts == "raise":
        raise PipelineError(
            f"the schema wants {'.'.join(at)} as {other.simpleString()}, and the table has it as "
            f"{mine.simpleString()}: a field keeps its type. Give it another name, or write to another table "
            "(--table NAME)"
        )
    return []


def _distinct(kind: T) -> T:
    """Returns the type with one field of each name, regardless of case, at every depth."""
    found = _distinct_type(kind)
    assert isinstance(found, type(kind))
    return found


def _distinct_type(kind: DataType) -> DataType:
    match kind:
        case StructType():
            by_name: dict[str, StructField] = {}
            for it in kind.fields:
                by_name.setdefault(
                    it.name.lower(), StructField(it.name, _distinct_type(it.dataType), it.nullable, it.metadata)
                )
            return StructType(list(by_name.values()))
        case ArrayType():
            return ArrayType(_distinct_type(kind.elementType), kind.containsNull)
        case MapType():
            return MapType(kind.keyType, _distinct_type(kind.valueType), kind.valueContainsNull)
        case _:
            return kind


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
