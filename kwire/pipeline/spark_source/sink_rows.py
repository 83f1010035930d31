"""Rows as records: the sink's columns, which are those of Spark's Kafka connector.

The column value is required; key, topic, partition and headers are optional. Others are ignored. Text becomes UTF-8.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from kwire_protocol.records import Record
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructType,
)

from kwire.pipeline.errors import PipelineError

_TEXT_OR_BYTES = "string or binary"
_HEADERS = "array<struct<key: string, value: binary>>"


def check_columns(schema: StructType, topic: str | None) -> None:
    """Raises PipelineError for a column that is missing, or of a type that cannot be written."""
    found = {field.name.lower(): field.dataType for field in schema.fields}
    if "value" not in found:
        raise PipelineError(f"column value is missing: the rows have {', '.join(schema.fieldNames()) or 'none at all'}")
    if topic is None and "topic" not in found:
        raise PipelineError("nothing says which topic the rows go to: set the option topic, or give a column of it")
    for name, wanted, is_right in (
        ("key", _TEXT_OR_BYTES, _is_text_or_bytes),
        ("value", _TEXT_OR_BYTES, _is_text_or_bytes),
        ("topic", "string", lambda kind: isinstance(kind, StringType)),
        ("partition", "int", lambda kind: isinstance(kind, IntegerType)),
        ("headers", _HEADERS, _is_headers),
    ):
        if name in found and not is_right(found[name]):
            raise PipelineError(f"column {name} is {found[name].simpleString()}: it has to be {wanted}, so cast it")


def records(rows: pa.RecordBatch, topic: str | None, now_ms: int) -> Iterator[tuple[str, int | None, Record]]:
    """The topic, the partition (if the row has one) and the record of each row, in order. Raises PipelineError.

    topic: the topic of all rows, regardless of the column topic.
    """
    columns = {name.lower(): column for name, column in zip(rows.schema.names, rows.columns, strict=True)}
    count = rows.num_rows
    nothing: list[Any] = [None] * count
    keys = _octets(columns["key"]) if "key" in columns else nothing
    values = _octets(columns["value"])
    topics = [topic] * count if topic is not None else columns["topic"].to_pylist()
    partitions = columns["partition"].to_pylist() if "partition" in columns else nothing
    headers = columns["headers"].to_pylist() if "headers" in columns else nothing
    for key, value, to, partition, its_headers in zip(keys, values, topics, partitions, headers, strict=True):
        if to is None:
            raise PipelineError("column topic is null in a row: set the option topic, or give each row one")
        if partition is not None and partition < 0:
            raise PipelineError(f"column partition is {partition} in a row: partitions are counted from 0")
        pairs = tuple((it["key"], it["value"]) for it in its_headers) if its_headers else ()
        yield to, partition, Record(0, now_ms, key, value, pairs)


def _octets(column: pa.Array) -> list[bytes | None]:
    if pa.types.is_string(column.type):
        column = column.cast(pa.binary())
    elif pa.types.is_large_string(column.type):
        column = column.cast(pa.large_binary())
    found: list[bytes | None] = column.to_pylist()
    return found


def _is_text_or_bytes(kind: DataType) -> bool:
    return isinstance(kind, (StringType, BinaryType))


def _is_headers(kind: DataType) -> bool:
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StructType):
        return False
    fields = kind.elementType.fields
    return (
        [it.name for it in fields] == ["key", "value"]
        and isinstance(fields[0].dataType, StringType)
        and isinstance(fields[1].dataType, BinaryType)
    )
