"""The sink: the record of a row's columns, its topic and partition, and the options of the producer."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest
from kwire_protocol.records import BatchHeader, iter_headers
from pyspark.sql import Row
from pyspark.sql.functions import col, expr

from testkit.raw.topics import admin
from testkit.servers import brokers
from testkit.spark.records import consume, numbered, produce
from testkit.spark.tables import Tables, numbers, running, until, until_it_ends

pytestmark = pytest.mark.more

ROWS = "key binary, value binary"


def written_batches(broker: brokers.Broker, topic: str) -> list[BatchHeader]:
    """The headers of the record batches in the only partition's first log segment."""
    data = (broker.data_dir / f"{topic}-0" / f"{0:020}.log").read_bytes()
    return [header for _position, header in iter_headers(memoryview(data))]


def test_keys_and_values_arrive_with_their_nulls(tables: Tables, topic: str) -> None:
    given = [(b"k", b"v"), (None, b"v"), (b"k", None), (None, None), (b"", b"")]
    tables.write(tables.spark.createDataFrame(given, ROWS).coalesce(1), topic=topic)
    assert [(record.key, record.value) for record in consume(tables.bootstrap, topic)] == given


def test_text_is_written_as_utf8(tables: Tables, topic: str) -> None:
    tables.write(tables.spark.createDataFrame([("schlüssel", "wért")], "key string, value string"), topic=topic)
    (record,) = consume(tables.bootstrap, topic)
    assert (record.key, record.value) == ("schlüssel".encode(), "wért".encode())


def test_a_value_alone_is_enough(tables: Tables, topic: str) -> None:
    tables.write(tables.spark.createDataFrame([("v",)], "value string"), topic=topic)
    (record,) = consume(tables.bootstrap, topic)
    assert (record.key, record.value, record.headers) == (None, b"v", [])


def test_headers_arrive_in_order(tables: Tables, topic: str) -> None:
    headers = [("a", b"1"), ("b", None), ("a", b"")]
    schema = "value string, headers array<struct<key: string, value: binary>>"
    tables.write(tables.spark.createDataFrame([("with", headers), ("without", None)], schema).coalesce(1), topic=topic)
    with_headers, without = consume(tables.bootstrap, topic)
    assert with_headers.headers == headers
    assert without.headers == []


def test_the_partition_column_chooses_the_partition(tables: Tables, new_topic: Callable[..., str]) -> None:
    topic = new_topic(partitions=3)
    given = [("a", 2), ("b", 0), ("c", 2), ("d", 1)]
    tables.write(tables.spark.createDataFrame(given, "value string, partition int").coalesce(1), topic=topic)
    found = [(record.partition, record.value) for record in consume(tables.bootstrap, topic)]
    assert found == [(0, b"b"), (1, b"d"), (2, b"a"), (2, b"c")]


def test_rows_of_one_key_go_to_one_partition(tables: Tables, new_topic: Callable[..., str]) -> None:
    topic = new_topic(partitions=4)
    rows = tables.spark.range(400).selectExpr("CAST(id % 10 AS STRING) AS key", "CAST(id AS STRING) AS value")
    tables.write(rows, topic=topic)
    found = consume(tables.bootstrap, topic)
    assert len(found) == 400
    assert len({(record.key, record.partition) for record in found}) == 10


def test_the_topic_column_spreads_rows_over_topics(tables: Tables, new_topic: Callable[..., str]) -> None:
    first, second = new_topic(), new_topic()
    tables.write(
        tables.spark.createDataFrame([(first, "1"), (second, "2"), (first, "3")], "topic string, value string")
    )
    assert numbers(tables.read(subscribe=first)) == [1, 3]
    assert numbers(tables.read(subscribe=second)) == [2]


def test_the_topic_option_overrules_the_topic_column(tables: Tables, new_topic: Callable[..., str]) -> None:
    column, option = new_topic(), new_topic()
    tables.write(tables.spark.createDataFrame([(column, "1")], "topic string, value string"), topic=option)
    assert numbers(tables.read(subscribe=option)) == [1]
    assert numbers(tables.read(subscribe=column)) == []


def test_a_topic_that_is_not_there_is_created_by_writing(tables: Tables, unique: Callable[[str], str]) -> None:
    topic = unique("topic")
    tables.write(tables.spark.createDataFrame([("1",)], "value string"), topic=topic)
    assert numbers(tables.read(subscribe=topic)) == [1]
    assert topic in admin(tables.bootstrap).list_topics(timeout=20).topics


@pytest.mark.parametrize(("codec", "number"), [("none", 0), ("gzip", 1), ("snappy", 2), ("lz4", 3), ("zstd", 4)])
def test_the_codec_of_the_option_reaches_the_log(
    tables: Tables, broker: brokers.Broker, topic: str, codec: str, number: int
) -> None:
    rows = tables.spark.range(1000).selectExpr("CAST(id AS STRING) AS value")
    tables.write(rows, topic=topic, **{"kafka.compression.type": codec})
    assert numbers(tables.read(subscribe=topic)) == list(range(1000))
    assert {header.compression for header in written_batches(broker, topic)} == {number}


def test_the_producer_is_idempotent_by_default(tables: Tables, broker: brokers.Broker, topic: str) -> None:
    tables.write(tables.spark.range(100).selectExpr("CAST(id AS STRING) AS value").coalesce(1), topic=topic)
    headers = written_batches(broker, topic)
    assert all(header.producer_id >= 0 for header in headers)
    assert headers[0].base_sequence >= 0
    for before, after in itertools.pairwise(headers):
        assert after.base_sequence == before.last_sequence + 1


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_without_idempotence_each_kind_of_acknowledgement_works(
    tables: Tables, broker: brokers.Broker, topic: str, acks: str
) -> None:
    rows = tables.spark.range(100).selectExpr("CAST(id AS STRING) AS value")
    tables.write(rows, topic=topic, **{"kafka.enable.idempotence": False, "kafka.acks": acks})
    assert len(consume(tables.bootstrap, topic, expected=100)) == 100
    assert {header.producer_id for header in written_batches(broker, topic)} == {-1}


def test_many_rows_from_several_tasks_arrive_once(tables: Tables, new_topic: Callable[..., str]) -> None:
    topic = new_topic(partitions=4)
    tables.write(tables.spark.range(100_000, numPartitions=4).selectExpr("CAST(id AS STRING) AS value"), topic=topic)
    totals = tables.read(subscribe=topic).select(expr("CAST(CAST(value AS STRING) AS BIGINT)").alias("n"))
    (found,) = totals.selectExpr("count(*) AS rows", "count(DISTINCT n) AS numbers", "sum(n) AS sum").collect()
    assert found == Row(rows=100_000, numbers=100_000, sum=sum(range(100_000)))


def test_large_rows_are_written(tables: Tables, new_topic: Callable[..., str]) -> None:
    topic = new_topic(config={"max.message.bytes": str(12 << 20)})
    rows = tables.spark.range(3).selectExpr("repeat(CAST(id AS STRING), 5000000) AS value").coalesce(1)
    tables.write(rows, topic=topic, **{"kafka.max.request.size": 12 << 20})
    assert [record.value for record in consume(tables.bootstrap, topic)] == [b"%d" % n * 5_000_000 for n in range(3)]


def test_a_row_too_large_for_the_topic_fails_the_write(tables: Tables, new_topic: Callable[..., str]) -> None:
    topic = new_topic(config={"max.message.bytes": "1000"})
    rows = tables.spark.range(1).selectExpr("repeat('x', 2000) AS value")
    with pytest.raises(Exception, match="RecordTooLargeException"):
        tables.write(rows, topic=topic)


def test_a_topic_is_copied_with_all_that_its_records_have(tables: Tables, new_topic: Callable[..., str]) -> None:
    source, target = new_topic(partitions=2), new_topic(partitions=2)
    produce(tables.bootstrap, source, numbered(1000, partitions=2), compression_type="lz4")
    rows = tables.read(subscribe=source, includeHeaders=True)
    tables.write(rows.select("key", "value", "headers", "partition"), topic=target)

    def parts(topic: str) -> list[tuple[object, ...]]:
        found = consume(tables.bootstrap, topic)
        return [(record.partition, record.offset, record.key, record.value, record.headers) for record in found]

    assert parts(target) == parts(source)


def test_a_stream_flows_from_topic_to_topic(tables: Tables, new_topic: Callable[..., str], tmp_path: Path) -> None:
    source, target = new_topic(), new_topic()
    stream = tables.stream(subscribe=source, startingOffsets="earliest").select("key", "value")
    with running(tables.write_stream(stream, tmp_path, topic=target)) as query:
        for first in (0, 10):
            produce(tables.bootstrap, source, numbered(10, first=first))
            query.processAllAvailable()
            assert [record.value for record in consume(tables.bootstrap, target)] == [
                b"%d" % n for n in range(first + 10)
            ]


def test_a_stream_into_the_sink_resumes_where_it_ended(
    tables: Tables, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    source, target = new_topic(), new_topic()
    stream = tables.stream(subscribe=source, startingOffsets="earliest").select("value")
    for first in (0, 10, 20):
        produce(tables.bootstrap, source, numbered(10, first=first))
        with running(tables.write_stream(stream, tmp_path, topic=target).trigger(availableNow=True)) as query:
            until_it_ends(query)
    assert numbers(tables.read(subscribe=target)) == list(range(30))


def test_counts_are_written_as_they_change(tables: Tables, new_topic: Callable[..., str], tmp_path: Path) -> None:
    source, target = new_topic(), new_topic()
    produce(tables.bootstrap, source, numbered(100))
    counts = (
        tables.stream(subscribe=source, startingOffsets="earliest")
        .groupBy((col("value").cast("string").cast("int") % 3).alias("key"))
        .count()
        .selectExpr("CAST(key AS STRING) AS key", "CAST(count AS STRING) AS value")
    )
    writer = tables.write_stream(counts, tmp_path, topic=target).outputMode("update")
    with running(writer.trigger(availableNow=True)) as query:
        until_it_ends(query)
    assert {record.key: record.value for record in consume(tables.bootstrap, target)} == {
        b"0": b"34",
        b"1": b"33",
        b"2": b"33",
    }


def test_a_continuous_query_flows_from_topic_to_topic(
    tables: Tables, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    source, target = new_topic(), new_topic()
    produce(tables.bootstrap, source, numbered(10))
    stream = tables.stream(subscribe=source, startingOffsets="earliest").select("value")
    writer = tables.write_stream(stream, tmp_path, topic=target).trigger(continuous="100 milliseconds")
    with running(writer) as query:
        until(query, lambda: len(consume(tables.bootstrap, target)) == 10, "what was there arrives")
        produce(tables.bootstrap, source, numbered(10, first=10))
        until(query, lambda: len(consume(tables.bootstrap, target)) == 20, "what came later arrives")
    assert numbers(tables.read(subscribe=target)) == list(range(20))
