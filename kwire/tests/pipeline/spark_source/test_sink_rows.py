"""Rows as records, and the sink's options, without Spark's processes."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from kwire_protocol.records import Record
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from kwire.pipeline.errors import PipelineError
from kwire.pipeline.spark_source.sink_options import SinkOptions, parse_sink_options
from kwire.pipeline.spark_source.sink_rows import check_columns, records
from kwire.pipeline.spark_source.source import KwireDataSource

HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
VALUE = {"value": StringType()}


def schema(**columns: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


@pytest.mark.parametrize("kind", [pa.string(), pa.binary(), pa.large_string(), pa.large_binary()])
def test_texts_and_bytes_become_bytes(kind: pa.DataType) -> None:
    rows = pa.record_batch({"VALUE": pa.array(["wért", None, ""]).cast(kind), "other": pa.array([1, 2, 3])})
    found = [record for _, _, record in records(rows, "t", 5)]
    assert found == [Record(0, 5, None, value) for value in ("wért".encode(), None, b"")]


def test_every_column_has_its_place() -> None:
    pairs: list[Any] = [[{"key": "a", "value": b"1"}, {"key": "b", "value": None}], None]
    rows = pa.record_batch(
        {
            "key": pa.array([b"k", None]),
            "value": pa.array([b"v", b"w"]),
            "topic": pa.array(["x", "y"]),
            "partition": pa.array([3, None], pa.int32()),
            "headers": pa.array(pairs),
        }
    )
    assert list(records(rows, None, 5)) == [
        ("x", 3, Record(0, 5, b"k", b"v", (("a", b"1"), ("b", None)))),
        ("y", None, Record(0, 5, None, b"w")),
    ]
    assert [to for to, _, _ in records(rows, "z", 5)] == ["z", "z"]


def test_a_row_that_cannot_be_placed_is_reported() -> None:
    with pytest.raises(PipelineError, match="column topic is null"):
        list(records(pa.record_batch({"value": ["v"], "topic": pa.array([None], pa.string())}), None, 5))
    with pytest.raises(PipelineError, match="column partition is -1"):
        list(records(pa.record_batch({"value": ["v"], "partition": [-1]}), "t", 5))


@pytest.mark.parametrize(
    ("columns", "topic", "message"),
    [
        ({"key": StringType()}, "t", "column value is missing: the rows have key"),
        (VALUE, None, "nothing says which topic"),
        ({"value": LongType()}, "t", "column value is bigint: it has to be string or binary"),
        ({**VALUE, "key": LongType()}, "t", "column key is bigint"),
        ({**VALUE, "topic": BinaryType()}, None, "column topic is binary: it has to be string"),
        ({**VALUE, "partition": LongType()}, "t", "column partition is bigint: it has to be int"),
        ({**VALUE, "headers": ArrayType(StringType())}, "t", "column headers is array<string>"),
    ],
)
def test_columns_of_another_type_are_refused(columns: dict[str, DataType], topic: str | None, message: str) -> None:
    with pytest.raises(PipelineError) as caught:
        check_columns(schema(**columns), topic)
    assert message in str(caught.value)


def test_columns_that_can_be_written_are_taken() -> None:
    check_columns(schema(KEY=BinaryType(), Value=StringType(), partition=IntegerType(), headers=HEADERS), "t")


def parse(*, streaming: bool = True, **given: str) -> SinkOptions:
    named = {name.replace("__", "."): value for name, value in given.items()}
    return parse_sink_options({"kafka.bootstrap.servers": "here:9092", **named}, streaming=streaming)


def test_a_stream_is_exactly_once_and_a_batch_at_least_once() -> None:
    assert parse().is_exactly_once
    assert not parse(kwire__sink__mode="at-least-once").is_exactly_once
    assert not parse(streaming=False).is_exactly_once


def test_every_option_has_its_place() -> None:
    found = parse(
        topic="t",
        kwire__sink__id="me",
        kwire__sink__ledger__topic="book",
        kafka__transaction__timeout__ms="5000",
        kafka__compression__type="lz4",
        kafka__request__timeout__ms="1000",
        kafka__delivery__timeout__ms="2000",
        kafka__client__id="client",
        kafka__acks="-1",
        checkpointlocation="anywhere",
    )
    assert found == SinkOptions(
        bootstrap="here:9092",
        topic="t",
        is_exactly_once=True,
        sink_id="me",
        ledger_topic="book",
        transaction_timeout_ms=5000,
        compression=3,
        timeout_s=2.0,
        client_id="client",
    )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"kafka__acks": "1"}, "option kafka.acks is '1': give one of all, -1"),
        ({"kafka__enable__idempotence": "false"}, "option kafka.enable.idempotence is 'false'"),
        ({"kafka__transactional__id": "x"}, "option kafka.transactional.id is not supported"),
        ({"kafka__compression__type": "brotli"}, "one of none, gzip, snappy, lz4, zstd"),
        ({"kafka__ssl__truststore__location": "x"}, "speaks plain text"),
        ({"kwire__sink__mode": "sometimes"}, "one of exactly-once, at-least-once"),
    ],
)
def test_a_wrong_option_is_named(given: dict[str, Any], message: str) -> None:
    with pytest.raises(PipelineError, match=message):
        parse(**given)


def test_a_topic_cannot_be_overwritten() -> None:
    source = KwireDataSource({"kafka.bootstrap.servers": "here:9092", "topic": "t"})
    with pytest.raises(PipelineError, match="a topic cannot be overwritten"):
        source.writer(schema(**VALUE), overwrite=True)
