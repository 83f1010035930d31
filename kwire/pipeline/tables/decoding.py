"""A record's value becomes a table's value.

A decoder adds two columns to the connector's: `decoded`, what the table will hold, and `reason`, null where the value
could be decoded. A null value (a tombstone) is no error: it stays null.

JSON is read strictly. A value that is not UTF-8, not an object, cut off, or has a field of another type than the schema
says is an error as a whole: half a row would be a row that nobody wrote. A field that the schema does not name is left
out, unless the job lets the schema grow (`--evolve`).

Avro comes plain, written with the schema that is given, or in Confluent's wire format: a zero byte, the schema's id in
four, the datum.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.types import DataType, StringType, StructField, StructType

from kwire.pipeline.errors import PipelineError
from kwire.pipeline.tables.schemas import as_nullable, conformed
from kwire.pipeline.tables.values import AvroSchemas

DECODED: Final = "decoded"
REASON: Final = "reason"

_CORRUPT = "_kwire_corrupt"
_MAGIC_BYTES = 5  # a zero, and a schema id
_SHOWN_IDS = 5


def decode_bytes(records: DataFrame) -> DataFrame:
    return records.withColumns({DECODED: F.col("value"), REASON: F.lit(None).cast("string")})


def decode_json(records: DataFrame, schema: StructType, leniency: Mapping[str, str] | None = None) -> DataFrame:
    """`leniency`: options of Spark's reader of JSON, where it is to take more or less than it does by itself."""
    text = F.try_validate_utf8(F.col("value").cast("string"))
    with_corrupt = StructType([*schema.fields, StructField(_CORRUPT, StringType())])
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT, **(leniency or {})}
    parsed = records.withColumn("_text", text).withColumn("_parsed", F.from_json("_text", with_corrupt, options))
    broken = F.col("_parsed").isNull() | F.col(f"_parsed.{_CORRUPT}").isNotNull()
    reason = (
        F.when(F.col("value").isNull(), None)
        .when(F.col("_text").isNull(), "not UTF-8")
        .when(broken, "not JSON of the table's schema")
    )
    decoded = F.when(F.col("value").isNotNull(), F.col("_parsed").dropFields(_CORRUPT))
    return parsed.withColumns({DECODED: decoded, REASON: reason}).drop("_text", "_parsed")


def decode_avro(records: DataFrame, schemas: AvroSchemas, wanted: DataType) -> DataFrame:
    """`wanted` is the table's type, which may have fields that the schemas lack."""
    options = {"mode": "PERMISSIVE"}
    if not schemas.by_id:
        decoded = from_avro("value", schemas.reader, options)
        reason = F.when(F.col("value").isNotNull() & F.col(DECODED).isNull(), "not Avro of the table's schema")
        return conformed(records.withColumn(DECODED, decoded).withColumn(REASON, reason), DECODED, wanted)

    head = F.hex(F.substring("value", 1, _MAGIC_BYTES))
    datum = F.expr(f"substring(value, {_MAGIC_BYTES + 1})")
    chosen: Column | None = None
    for number, writer in schemas.by_id.items():
        one = from_avro(datum, writer, {**options, "avroSchema": schemas.reader})
        is_it = F.col("_head") == f"{number:010X}"
        chosen = F.when(is_it, one) if chosen is None else chosen.when(is_it, one)
    assert chosen is not None
    known = ", ".join(map(str, list(schemas.by_id)[-_SHOWN_IDS:]))
    reason = (
        F.when(F.col("value").isNull() | F.col(DECODED).isNotNull(), None)
        .when(
            ~F.col("_head").startswith("00") | (F.length("_head") < 2 * _MAGIC_BYTES), "not in Confluent's wire format"
        )
        .when(
            ~F.col("_head").isin([f"{number:010X}" for number in schemas.by_id]),
            F.concat(F.lit("unknown schema id 0x"), F.substring("_head", 3, 8), F.lit(f"; known are {known}")),
        )
        .otherwise("not Avro of its schema")
    )
    rows = records.withColumn("_head", head).withColumn(DECODED, chosen).withColumn(REASON, reason).drop("_head")
    return conformed(rows, DECODED, wanted)


def avro_type(spark: SparkSession, schemas: AvroSchemas) -> DataType:
    """What Spark makes of the reader's schema, all of it nullable. Raises PipelineError for one that is none."""
    try:
        datum = from_avro(F.lit(None).cast("binary"), schemas.reader)
        return as_nullable(spark.range(0).select(datum.alias(DECODED)).schema[0].dataType)
    except (PySparkException, Py4JJavaError) as error:
        raise PipelineError(f"Spark cannot read the Avro schema: {str(error).splitlines()[0]}") from None
