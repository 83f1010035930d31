"""A batch by both formats: each part of each row is the same, whatever happened to the topic before."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import attrs
import pytest
from pyspark.errors import PySparkException

from testkit.clients.compacted_tables import CONFIG, Table, frequent_cleanings
from testkit.raw import topics
from testkit.spark.both import Both, failing
from testkit.spark.records import Record, an_hour_ago_ms, delete_records, numbered, produce, stamped
from testkit.spark.tables import by_partition
from testkit.spark.transactions import abort, commit, transaction

COMMITTED = {"kafka.isolation.level": "read_committed"}
NewTopic = Callable[..., str]


def the_values(rows: list[dict[str, Any]]) -> list[int]:
    return sorted(int(row["value"]) for row in rows)


def test_every_part_of_a_record_is_the_same(both: Both, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=3)
    hour_ms = an_hour_ago_ms()
    headers = [("a", b"1"), ("b", None), ("a", b""), ("ä", b"\x00\xff"), ("", b"")]
    given = [
        Record(b"value", b"key", timestamp_ms=hour_ms + 123),
        Record(None, None),
        Record(b"", b"", partition=1, timestamp_ms=hour_ms - 86_400_000),
        Record(None, b"k", headers=headers),
        Record("schlüssel".encode(), None, partition=1, headers=[("one", b"x" * 300)]),
        Record(b"x" * 1_000_000, b"k" * 10_000),
    ]
    produce(both.bootstrap, topic, given)
    found = both.read(subscribe=topic, includeHeaders=True)
    assert len(found) == 6
    assert {row["partition"] for row in found} == {0, 1}  # and nothing is in the third
    with_headers = next(row for row in found if row["key"] == b"k" and row["value"] is None)
    assert with_headers["headers"] == [{"key": name, "value": value} for name, value in headers]
    assert found[0]["timestamp_us"] == (hour_ms + 123) * 1000
    both.read(subscribe=topic)


def test_each_codec_and_a_change_of_the_codec_is_the_same(both: Both, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=2)
    for turn, codec in enumerate(["none", "gzip", "snappy", "lz4", "zstd", "none"]):
        records = numbered(500, first=turn * 500, partitions=2)
        produce(both.bootstrap, topic, records, compression_type=codec, linger_ms=20)
    assert the_values(both.read(subscribe=topic)) == list(range(3000))


def test_time_stamped_by_the_broker_is_the_same(both: Both, new_topic: NewTopic) -> None:
    topic = new_topic(config={"message.timestamp.type": "LogAppendTime"})
    start_ms = an_hour_ago_ms()
    produce(both.bootstrap, topic, stamped(start_ms, [0, 1, 2]), linger_ms=50)
    topics.configure(both.bootstrap, topic, {"message.timestamp.type": "CreateTime"})
    produce(both.bootstrap, topic, stamped(start_ms, [3, 4]))
    assert [row["timestampType"] for row in both.read(subscribe=topic)] == [1, 1, 1, 0, 0]


def test_a_compacted_topic_is_the_same_with_its_holes(both: Both, new_topic: NewTopic) -> None:
    with frequent_cleanings(both.bootstrap):
        table = Table(both.bootstrap, new_topic(config=CONFIG))
        table.write(("a", "1"), ("b", "1"), ("c", "1"))
        table.write(("b", "2"), ("a", "2"), ("a", "3"))
        table.write(("d", "1"))
        table.becomes([(2, "c", "1"), (3, "b", "2"), (5, "a", "3"), (6, "d", "1")])
    for start, stop in [(0, 7), (4, 6)]:
        found = both.read(
            subscribe=table.topic,
            startingOffsets=by_partition(table.topic, {0: start}),
            endingOffsets=by_partition(table.topic, {0: stop}),
        )
        assert [row["offset"] for row in found] == [offset for offset in (2, 3, 5, 6) if start <= offset < stop]


def test_transactions_are_the_same_committed_aborted_and_open(both: Both, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=3)
    produce(both.bootstrap, topic, numbered(30, partitions=3))
    commit(both.kafka, topic, numbered(30, first=30, partitions=3))
    abort(both.kafka, topic, numbered(30, first=60, partitions=3))
    commit(both.kafka, topic, numbered(30, first=90, partitions=3))
    committed = [*range(60), *range(90, 120)]
    with transaction(both.kafka, topic, [Record(b"1000", partition=1)]) as producer:
        behind = numbered(3, first=2000, partitions=3)  # 2000 to partition 2, and 2001 to 0; 2002 waits in 1
        produce(both.bootstrap, topic, [attrs.evolve(it, partition=(2, 0, 1)[n]) for n, it in enumerate(behind)])
        assert the_values(both.read(subscribe=topic, **COMMITTED)) == [*committed, 2000, 2001]
        assert len(both.read(subscribe=topic)) == 124
        producer.abort_transaction(20.0)


def test_topics_are_chosen_the_same_way(both: Both, new_topic: NewTopic) -> None:
    first, second = new_topic(name="chosen-a.orders", partitions=4), new_topic(name="chosen-b.orders")
    produce(both.bootstrap, first, numbered(40, partitions=4))
    produce(both.bootstrap, second, numbered(5, first=100))
    produce(both.bootstrap, new_topic(name="chosen-c.refunds"), numbered(5, first=200))
    assert the_values(both.read(subscribe=f"{first},{second}")) == [*range(40), *range(100, 105)]
    assert the_values(both.read(subscribePattern="osen-.\\.orders|^__.*")) == [*range(40), *range(100, 105)]
    assert the_values(both.read(assign=json.dumps({first: [1, 3]}))) == [n for n in range(40) if n % 4 in (1, 3)]
    assert both.read(subscribePattern="no-such-topic-.*") == []


def test_each_option_for_the_start_and_the_end_means_the_same(both: Both, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=2)
    start_ms = an_hour_ago_ms()
    produce(both.bootstrap, topic, stamped(start_ms, list(range(0, 100, 10)), 0), linger_ms=100, compression_type="lz4")
    produce(both.bootstrap, topic, stamped(start_ms, [5, 45, 25, 85], 1))

    def at(seconds: int) -> int:
        return start_ms + seconds * 1000

    def found(**options: object) -> list[int]:
        return the_values(both.read(subscribe=topic, **options))

    assert found(
        startingOffsets=by_partition(topic, {0: 3, 1: -2}), endingOffsets=by_partition(topic, {0: 6, 1: -1})
    ) == [5, 25, 30, 40, 45, 50, 85]
    assert found(startingTimestamp=at(20), endingTimestamp=at(50)) == [20, 25, 30, 40, 45]
    assert found(
        startingOffsetsByTimestamp=by_partition(topic, {0: at(81), 1: at(46)}),
        endingOffsetsByTimestamp=by_partition(topic, {0: at(1000), 1: at(1000)}),
    ) == [85, 90]
    assert found(startingTimestamp=at(86), startingOffsetsByTimestampStrategy="latest") == [90]
    both.fail("has no record of", subscribe=topic, startingTimestamp=at(86), **{"fetchOffset.numRetries": 1})


@pytest.mark.parametrize(
    "limits",
    [
        {"minPartitions": 7},
        {"minPartitions": 9, "maxRecordsPerPartition": 40},
    ],
)
def test_tasks_are_cut_the_same_way(both: Both, new_topic: NewTopic, limits: dict[str, int]) -> None:
    topic = new_topic(partitions=4)
    sizes = [100, 60, 3, 0]
    produce(both.bootstrap, topic, [Record(b"x", partition=p) for p, size in enumerate(sizes) for _ in range(size)])
    assert sum(both.tasks(subscribe=topic, **limits)) == 163


def test_what_is_gone_fails_both_and_is_passed_over_by_both(both: Both, topic: str) -> None:
    produce(both.bootstrap, topic, numbered(10))
    delete_records(both.bootstrap, topic, {0: 5})
    from_two = {"subscribe": topic, "startingOffsets": by_partition(topic, {0: 2})}
    both.fail(f"offsets 2 to 9 of {topic}-0 cannot be read", **from_two)
    assert the_values(both.read(**from_two, failOnDataLoss=False)) == [5, 6, 7, 8, 9]
    beyond = {"endingOffsets": by_partition(topic, {0: 12}), "kafkaConsumer.pollTimeoutMs": 700}
    both.fail("nothing has come", subscribe=topic, **beyond)


def test_a_topic_that_is_not_there_is_named_and_not_made(both: Both, unique: Callable[[str], str]) -> None:
    missing = unique("missing")
    both.fail(f"there is no topic '{missing}'", subscribe=missing)
    assert missing not in topics.names(both.bootstrap)


def test_an_option_that_is_not_known_is_named(both: Both, topic: str) -> None:
    refused = {"kafka.sasl.mechanism": "PLAIN"}
    message = failing(both.kwire, "PipelineError: option kafka.sasl.mechanism", subscribe=topic, **refused)
    assert "speaks plain text" in message


def test_other_columns_are_refused(both: Both, topic: str) -> None:
    options = {"kafka.bootstrap.servers": both.bootstrap, "subscribe": topic}
    rows = both.kwire.spark.read.format("kwire").schema("value string").options(**options).load()
    with pytest.raises(PySparkException, match=r"leave out .schema"):
        rows.collect()


def test_columns_that_are_not_selected_change_nothing(both: Both, topic: str) -> None:
    produce(both.bootstrap, topic, numbered(10))
    rows = both.kwire.read(subscribe=topic, includeHeaders=True)
    assert rows.where("offset >= 5").selectExpr("sum(offset)").first()[0] == 35  # type: ignore[index]
    assert rows.count() == 10
