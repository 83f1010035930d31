"""A batch: its topics and partitions, and the columns for a record's parts."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from pyspark.sql.functions import expr

from testkit.raw.topics import admin
from testkit.spark.records import Record, an_hour_ago_ms, numbered, produce
from testkit.spark.tables import Tables, numbers, values


def test_a_row_has_every_part_of_its_record(tables: Tables, new_topic: Callable[..., str]) -> None:
    topic = new_topic(partitions=2)
    stamp_ms = an_hour_ago_ms() + 123
    produce(tables.bootstrap, topic, [Record(b"value", b"key", partition=1, timestamp_ms=stamp_ms)])
    rows = tables.read(subscribe=topic)
    assert dict(rows.dtypes) == {
        "key": "binary",
        "value": "binary",
        "topic": "string",
        "partition": "int",
        "offset": "bigint",
        "timestamp": "timestamp",
        "timestampType": "int",
    }
    (row,) = rows.withColumn("stamp_ms", expr("unix_millis(timestamp)")).collect()
    assert (bytes(row.key), bytes(row.value)) == (b"key", b"value")
    assert (row.topic, row.partition, row.offset) == (topic, 1, 0)
    assert (row.stamp_ms, row.timestampType) == (stamp_ms, 0)


def test_null_differs_from_empty_in_keys_and_values(tables: Tables, topic: str) -> None:
    given = [(None, None), (b"", b""), (None, b"v"), (b"k", None)]
    produce(tables.bootstrap, topic, [Record(value, key) for key, value in given])
    rows = tables.read(subscribe=topic).orderBy("offset").collect()
    assert [(row.key and bytes(row.key), row.value and bytes(row.value)) for row in rows] == [
        (None, None),
        (bytearray(), bytearray()),
        (None, b"v"),
        (b"k", None),
    ]


def test_headers_come_in_order_with_repeated_names_and_nulls(tables: Tables, topic: str) -> None:
    headers = [("a", b"1"), ("b", None), ("a", b""), ("ä", b"\x00\xff")]
    produce(tables.bootstrap, topic, [Record(b"with", headers=headers), Record(b"without")])
    rows = tables.read(subscribe=topic, includeHeaders=True).orderBy("offset").collect()
    found = [(header.key, None if header.value is None else bytes(header.value)) for header in rows[0].headers]
    assert found == headers
    assert not rows[1].headers


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_each_codec_is_read(tables: Tables, topic: str, codec: str) -> None:
    produce(tables.bootstrap, topic, numbered(2000), compression_type=codec, linger_ms=50)
    assert values(tables.read(subscribe=topic)) == [str(n).encode() for n in range(2000)]


def test_codecs_may_change_from_batch_to_batch(tables: Tables, topic: str) -> None:
    for turn, codec in enumerate(["zstd", "none", "snappy", "gzip", "lz4"]):
        produce(tables.bootstrap, topic, numbered(100, first=turn * 100), compression_type=codec)
    assert values(tables.read(subscribe=topic)) == [str(n).encode() for n in range(500)]


def test_several_topics_are_read_together(tables: Tables, new_topic: Callable[..., str]) -> None:
    first, second, other = new_topic(partitions=2), new_topic(), new_topic()
    produce(tables.bootstrap, first, numbered(10, partitions=2))
    produce(tables.bootstrap, second, numbered(5, first=10))
    produce(tables.bootstrap, other, numbered(5, first=100))
    rows = tables.read(subscribe=f"{first},{second}")
    assert numbers(rows) == list(range(15))
    assert {row.topic for row in rows.select("topic").collect()} == {first, second}


def test_a_pattern_finds_the_topics_whose_names_match(tables: Tables, new_topic: Callable[..., str]) -> None:
    for turn, name in enumerate(["pattern-a.orders", "pattern-b.orders", "pattern-c.refunds"]):
        produce(tables.bootstrap, new_topic(name=name), numbered(2, first=turn * 10))
    assert numbers(tables.read(subscribePattern="pattern-.\\.orders")) == [0, 1, 10, 11]


def test_a_pattern_that_matches_nothing_reads_nothing(tables: Tables) -> None:
    assert numbers(tables.read(subscribePattern="no-such-topic-.*")) == []


def test_assigned_partitions_are_read_and_no_others(tables: Tables, new_topic: Callable[..., str]) -> None:
    topic = new_topic(partitions=4)
    produce(tables.bootstrap, topic, numbered(40, partitions=4))
    rows = tables.read(assign=json.dumps({topic: [1, 3]}))
    assert numbers(rows) == [n for n in range(40) if n % 4 in (1, 3)]


def test_an_unknown_topic_fails_the_batch_and_is_not_created(tables: Tables, unique: Callable[[str], str]) -> None:
    missing = unique("missing")
    with pytest.raises(Exception, match="UnknownTopicOrPartition"):
        tables.read(subscribe=missing).collect()
    assert missing not in admin(tables.bootstrap).list_topics(timeout=20).topics


def test_an_empty_topic_is_an_empty_table(tables: Tables, new_topic: Callable[..., str]) -> None:
    assert tables.read(subscribe=new_topic(partitions=3)).count() == 0


def test_empty_partitions_among_full_ones_change_nothing(tables: Tables, new_topic: Callable[..., str]) -> None:
    topic = new_topic(partitions=5)
    produce(tables.bootstrap, topic, [Record(b"1", partition=1), Record(b"3", partition=3)])
    assert numbers(tables.read(subscribe=topic)) == [1, 3]


def test_a_hundred_partitions_are_read(tables: Tables, new_topic: Callable[..., str]) -> None:
    topic = new_topic(partitions=100)
    produce(tables.bootstrap, topic, numbered(1000, partitions=100))
    rows = tables.read(subscribe=topic)
    assert rows.rdd.getNumPartitions() == 100
    assert numbers(rows) == list(range(1000))


def test_records_are_read_across_segments(tables: Tables, new_topic: Callable[..., str]) -> None:
    topic = new_topic(config={"segment.bytes": str(1 << 20)})
    start_ms = an_hour_ago_ms()
    records = [Record(b"%0100d" % n, timestamp_ms=start_ms + n) for n in range(40_000)]
    produce(tables.bootstrap, topic, records, batch_size=1 << 16)
    assert numbers(tables.read(subscribe=topic)) == list(range(40_000))
    rows = tables.read(subscribe=topic, startingTimestamp=start_ms + 25_000, endingTimestamp=start_ms + 35_000)
    assert numbers(rows) == list(range(25_000, 35_000))


def test_one_partition_is_split_among_more_tasks_without_loss(tables: Tables, topic: str) -> None:
    produce(tables.bootstrap, topic, numbered(1000), linger_ms=50)
    rows = tables.read(subscribe=topic, minPartitions=4)
    assert rows.rdd.getNumPartitions() == 4
    assert numbers(rows) == list(range(1000))


def test_rows_larger_than_a_fetch_are_read(tables: Tables, new_topic: Callable[..., str]) -> None:
    topic = new_topic(config={"max.message.bytes": str(12 << 20)})
    sizes = [10, 5 << 20, 1 << 20, 10 << 20, 0]
    produce(tables.bootstrap, topic, [Record(bytes([n]) * size) for n, size in enumerate(sizes)])
    rows = tables.read(subscribe=topic, **{"kafka.max.partition.fetch.bytes": 1 << 20})
    found = rows.selectExpr("length(value) AS size", "hex(substr(value, -1)) AS last").orderBy("offset").collect()
    assert [row.size for row in found] == sizes
    assert [row.last for row in found] == ["00", "01", "02", "03", ""]


def test_read_committed_sees_records_without_transactions(tables: Tables, new_topic: Callable[..., str]) -> None:
    topic = new_topic(partitions=2)
    produce(tables.bootstrap, topic, numbered(100, partitions=2))
    rows = tables.read(subscribe=topic, **{"kafka.isolation.level": "read_committed"})
    assert numbers(rows) == list(range(100))


def test_a_topic_is_read_again_from_the_same_place(tables: Tables, topic: str) -> None:
    produce(tables.bootstrap, topic, numbered(10))
    rows = tables.read(subscribe=topic)
    assert numbers(rows) == numbers(rows) == list(range(10))
    produce(tables.bootstrap, topic, numbered(5, first=10))
    assert numbers(tables.read(subscribe=topic)) == list(range(15))


def test_reading_leaves_no_consumer_group_behind(tables: Tables, topic: str) -> None:
    produce(tables.bootstrap, topic, numbered(10))
    assert numbers(tables.read(subscribe=topic, groupIdPrefix="left-behind")) == list(range(10))
    groups = admin(tables.bootstrap).list_consumer_groups(request_timeout=20).result().valid
    assert not [group.group_id for group in groups if group.group_id.startswith("left-behind")]


def test_a_group_id_of_ones_own_is_accepted(tables: Tables, topic: str) -> None:
    produce(tables.bootstrap, topic, numbered(10))
    assert numbers(tables.read(subscribe=topic, **{"kafka.group.id": "of-ones-own"})) == list(range(10))
