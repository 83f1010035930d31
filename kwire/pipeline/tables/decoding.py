"""Decodes a record's value into a table's value.

A decoder adds two columns to the connector's: `decoded`, the table's value, and `reason`, which is null if the value
was decoded. A null value (a tombstone) is no error: it stays null.

JSON is read strictly. A value is an error as a whole if it is not UTF-8, is not one object, is truncated, or has a
field of another type than the schema: half a row would be a row that no producer wrote. A text field takes any JSON
value as its text, and a decimal is rounded to its scale. A field that is not in the schema is left out, unless the job
lets the schema grow (`--evolve`). Names are case-sensitive: `ID` is not `id`.

Avro is either plain, written with the given schema, or in Confluent's wire format: a zero byte, the schema's id in four
bytes, the datum. A datum has to end where its schema does.

Spark's decoders do not notice bytes after a value, and cannot tell a broken datum from one whose fields are all null.
So both get their values in a wrapper that ends in a known value, which has to be found again.
"""

from __future__ import annotations

import json
from typing import Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.types import ArrayType, DataType, IntegerType, StringType, StructField, StructType

from kwire.pipeline.errors import PipelineError, first_line
from kwire.pipeline.tables.schemas import JSON_OPTIONS, as_nullable, conformed
from kwire.pipeline.tables.values import AvroSchemas

DECODED: Final = "decoded"
REASON: Final = "reason"

_CORRUPT = "_kwire_corrupt"
_END = b"kwireend"
_MAGIC_BYTES = 5  # a zero, and a schema id
_SHOWN_IDS = 5


def decode_bytes(records: DataFrame) -> DataFrame:
    return records.withColumns({DECODED: F.col("value"), REASON: F.lit(None).cast("string")})


def decode_json(records: DataFrame, schema: StructType) -> DataFrame:
    """Decodes JSON values. `schema` is the table's."""
    # Invalid UTF-8 becomes null, and is parsed as null. The text is not a column, which would copy each value again.
    text = F.try_validate_utf8(F.col("value").cast("string"))
    # In an array a second value is a second item; after a brace too many, the end is not reached.
    wrapped = F.concat(F.lit('{"it":['), text, F.lit('],"end":1}'))
    wrapping = StructType(
        [
            StructField("it", ArrayType(schema)),
            StructField("end", IntegerType()),
            StructField(_CORRUPT, StringType()),
        ]
    )
    options = {**JSON_OPTIONS, "mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    parsed = records.withColumn("_parsed", F.from_json(wrapped, wrapping, options))
    item = F.get("_parsed.it", F.lit(0))
    whole = (
        F.col(f"_parsed.{_CORRUPT}").isNull()
        & (F.col("_parsed.end") == 1)
        & (F.size("_parsed.it") == 1)
        & item.isNotNull()
    )
    reason = (
        F.when(F.col("value").isNull(), None)
        .when(F.col("_parsed").isNull(), "not UTF-8")
        .when(~F.coalesce(whole, F.lit(False)), "not JSON of the table's schema")
    )
    decoded = F.when(F.col("value").isNotNull(), item)
    return parsed.withColumns({DECODED: decoded, REASON: reason}).drop("_parsed")


def decode_avro(records: DataFrame, schemas: AvroSchemas, wanted: DataType) -> DataFrame:
    """Decodes Avro values. `wanted` is the table's type, which may have fields that the schemas lack."""
    if not schemas.by_id:
        decoded = _datum(F.col("value"), schemas.reader, schemas.reader)
        reason = F.when(F.col("value").isNotNull() & F.col(DECODED).isNull(), "not Avro of the table's schema")
        return conformed(records.withColumn(DECODED, decoded).withColumn(REASON, reason), DECODED, wanted)

    head = F.hex(F.substring("value", 1, _MAGIC_BYTES))
    datum = F.expr(f"substring(value, {_MAGIC_BYTES + 1})")
    chosen: Column | None = None
    for number, writer in schemas.by_id.items():
        one = _datum(datum, writer, schemas.reader)
        is_it = F.col("_head") == f"{number:010X}"
        chosen = F.when(is_it, one) if chosen is None else chosen.when(is_it, one)
    assert chosen is not None
    known = ", ".join(map(str, list(schemas.by_id)[-_SHOWN_IDS:]))
    shown_id = F.conv(F.substring("_head", 3, 8), 16, 10)
    reason = (
        F.when(F.col("value").isNull() | F.col(DECODED).isNotNull(), None)
        .when(
            ~F.col("_head").startswith("00") | (F.length("_head") < 2 * _MAGIC_BYTES), "not in Confluent's wire format"
        )
        .when(
            ~F.col("_head").isin([f"{number:010X}" for number in schemas.by_id]),
            F.concat(F.lit("unknown schema id "), shown_id, F.lit(f"; known are {known}")),
        )
        .otherwise("not Avro of its schema")
    )
    rows = records.withColumn("_head", head).withColumn(DECODED, chosen).withColumn(REASON, reason).drop("_head")
    return conformed(rows, DECODED, wanted)


def avro_type(spark: SparkSession, schemas: AvroSchemas) -> DataType:
    """Returns Spark's type of the reader's schema, all of it nullable. Raises PipelineError if Spark cannot read it."""
    found: DataType | None = None
    for name, writer in [*((f" {number}.avsc", it) for number, it in schemas.by_id.items()), ("", schemas.reader)]:
        try:
            datum = from_avro(F.lit(None).cast("binary"), writer)
            found = as_nullable(spark.range(0).select(datum.alias(DECODED)).schema[0].dataType)
        except (PySparkException, Py4JError) as error:
            raise PipelineError(f"Spark cannot read the Avro schema{name}: {first_line(error)}") from None
    assert found is not None
    if isinstance(found, StructType) and not found.fields:
        raise PipelineError("the Avro schema has no fields")
    return found


def _datum(value: Column, writer: str, reader: str) -> Column:
    """The decoded Avro datum; null if the bytes do not match the schema to the last byte.

    A record is its fields, one after the other, so bytes added after the datum are another field.
    """
    options = {"mode": "PERMISSIVE", "avroSchema": _wrapping(reader)}
    whole = from_avro(F.concat(value, F.lit(_END)), _wrapping(writer), options)
    return F.when(whole["end"] == F.lit(_END), whole["it"])


def _wrapping(schema: str) -> str:
    end = {"type": "fixed", "name": "kwire_pipeline_end", "namespace": "", "size": len(_END)}
    fields = [{"name": "it", "type": json.loads(schema)}, {"name": "end", "type": end}]
    return json.dumps({"type": "record", "name": "kwire_pipeline_wrapping", "namespace": "", "fields": fields})
