"""A stream: each option for its start, the limits of a micro-batch, and later topics and partitions."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.functions import spark_partition_id

from testkit.spark.records import Record, an_hour_ago_ms, delete_records, numbered, produce, stamped
from testkit.spark.tables import Tables, by_partition, collecting, numbers, running, until, until_it_ends

pytestmark = pytest.mark.more

EARLIEST, LATEST = -2, -1


def test_from_earliest_it_reads_what_is_there_and_what_comes(tables: Tables, topic: str) -> None:
    produce(tables.bootstrap, topic, numbered(10))
    with collecting(tables.stream(subscribe=topic, startingOffsets="earliest")) as collected:
        assert collected.numbers() == list(range(10))
        produce(tables.bootstrap, topic, numbered(10, first=10))
        assert collected.numbers() == list(range(20))


def test_by_default_it_reads_only_what_comes(tables: Tables, topic: str) -> None:
    produce(tables.bootstrap, topic, numbered(10))
    with collecting(tables.stream(subscribe=topic)) as collected:
        assert collected.numbers() == []
        produce(tables.bootstrap, topic, numbered(5, first=10))
        assert collected.numbers() == list(range(10, 15))


def test_an_empty_topic_is_waited_for(tables: Tables, new_topic: Callable[..., str]) -> None:
    topic = new_topic(partitions=3)
    with collecting(tables.stream(subscribe=topic, startingOffsets="earliest")) as collected:
        assert collected.numbers() == []
        produce(tables.bootstrap, topic, [Record(b"7", partition=1)])
        assert collected.numbers() == [7]


def test_it_starts_at_the_offsets_given_per_partition(tables: Tables, new_topic: Callable[..., str]) -> None:
    topic = new_topic(partitions=3)
    produce(tables.bootstrap, topic, numbered(30, partitions=3))
    starts = by_partition(topic, {0: 9, 1: LATEST, 2: EARLIEST})
    with collecting(tables.stream(subscribe=topic, startingOffsets=starts)) as collected:
        assert collected.numbers() == [n for n in range(30) if n % 3 == 2 or n == 27]


def test_it_starts_at_the_log_start_when_that_was_moved(tables: Tables, topic: str) -> None:
    produce(tables.bootstrap, topic, numbered(10))
    delete_records(tables.bootstrap, topic, {0: 7})
    with collecting(tables.stream(subscribe=topic, startingOffsets="earliest")) as collected:
        assert collected.numbers() == [7, 8, 9]


def test_it_starts_at_a_timestamp(tables: Tables, new_topic: Callable[..., str]) -> None:
    topic = new_topic(partitions=2)
    start_ms = an_hour_ago_ms()
    produce(tables.bootstrap, topic, stamped(start_ms, [0, 10, 20], 0) + stamped(start_ms, [5, 15, 25], 1))
    with collecting(tables.stream(subscribe=topic, startingTimestamp=start_ms + 15_000)) as collected:
        assert collected.numbers() == [15, 20, 25]
        produce(tables.bootstrap, topic, stamped(start_ms, [1], 0))
        assert collected.numbers() == [1, 15, 20, 25]


def test_it_starts_at_a_timestamp_for_each_partition(tables: Tables, new_topic: Callable[..., str]) -> None:
    topic = new_topic(partitions=2)
    start_ms = an_hour_ago_ms()
    produce(tables.bootstrap, topic, stamped(start_ms, [0, 10, 20], 0) + stamped(start_ms, [5, 15, 25], 1))
    starts = by_partition(topic, {0: start_ms + 20_000, 1: start_ms + 1_000})
    with collecting(tables.stream(subscribe=topic, startingOffsetsByTimestamp=starts)) as collected:
        assert collected.numbers() == [5, 15, 20, 25]


def test_a_timestamp_after_every_record_fails_the_query(tables: Tables, topic: str) -> None:
    start_ms = an_hour_ago_ms()
    produce(tables.bootstrap, topic, stamped(start_ms, [0]))
    stream = tables.stream(subscribe=topic, startingTimestamp=start_ms + 60_000, **{"fetchOffset.numRetries": 1})
    with collecting(stream) as collected, pytest.raises(Exception, match="No offset matched from request"):
        until_it_ends(collected.query)


def test_a_timestamp_after_every_record_means_what_comes_with_the_strategy_latest(tables: Tables, topic: str) -> None:
    start_ms = an_hour_ago_ms()
    produce(tables.bootstrap, topic, stamped(start_ms, [0, 10]))
    stream = tables.stream(
        subscribe=topic, startingTimestamp=start_ms + 60_000, startingOffsetsByTimestampStrategy="latest"
    )
    with collecting(stream) as collected:
        assert collected.numbers() == []
        produce(tables.bootstrap, topic, stamped(start_ms, [20]))
        assert collected.numbers() == [20]


def test_assigned_partitions_are_read_and_no_others(tables: Tables, new_topic: Callable[..., str]) -> None:
    topic = new_topic(partitions=3)
    assigned = json.dumps({topic: [0, 2]})
    with collecting(tables.stream(assign=assigned, startingOffsets="earliest")) as collected:
        produce(tables.bootstrap, topic, numbered(30, partitions=3))
        assert collected.numbers() == [n for n in range(30) if n % 3 != 1]


def test_a_pattern_takes_in_topics_that_are_created_later(tables: Tables, new_topic: Callable[..., str]) -> None:
    first = new_topic(name="streamed-pattern-1")
    produce(tables.bootstrap, first, numbered(5))
    stream = tables.stream(subscribePattern="streamed-pattern-\\d", startingOffsets="earliest")
    with collecting(stream) as collected:
        assert collected.numbers() == list(range(5))
        second = new_topic(name="streamed-pattern-2")
        produce(tables.bootstrap, second, numbered(5, first=5))
        until(collected.query, lambda: collected.numbers() == list(range(10)), "both topics are read")
        assert {row.topic for row in collected.rows.select("topic").collect()} == {first, second}


def test_records_that_are_being_written_are_each_read_once(tables: Tables, new_topic: Callable[..., str]) -> None:
    topic = new_topic(partitions=3)
    enough = Event()

    def write() -> int:
        written = 0
        while not enough.is_set():
            produce(tables.bootstrap, topic, numbered(100, first=written, partitions=3))
            written += 100
        return written

    stream = tables.stream(subscribe=topic, startingOffsets="earliest")
    with ThreadPoolExecutor(1) as background, collecting(stream) as collected:
        writing = background.submit(write)
        try:
            until(collected.query, lambda: len(collected.batch_sizes()) >= 5, "micro-batches between the writes")
        finally:
            enough.set()
        written = writing.result()
        assert collected.numbers() == list(range(written))


def test_two_queries_read_a_topic_without_taking_from_each_other(tables: Tables, topic: str) -> None:
    stream = tables.stream(subscribe=topic, startingOffsets="earliest")
    with collecting(stream) as first, collecting(stream) as second:
        for start in (0, 10):
            produce(tables.bootstrap, topic, numbered(10, first=start))
            assert first.numbers() == second.numbers() == list(range(start + 10))


def test_headers_stream(tables: Tables, topic: str) -> None:
    headers = [("trace", b"\x01"), ("none", None), ("trace", b"")]
    produce(tables.bootstrap, topic, [Record(b"v", headers=headers)])
    with collecting(tables.stream(subscribe=topic, startingOffsets="earliest", includeHeaders=True)) as collected:
        collected.drain()
        (row,) = collected.rows.collect()
    assert [(header.key, None if header.value is None else bytes(header.value)) for header in row.headers] == headers


def test_a_micro_batch_holds_no_more_offsets_than_allowed(tables: Tables, new_topic: Callable[..., str]) -> None:
    topic = new_topic(partitions=2)
    produce(tables.bootstrap, topic, numbered(100, partitions=2))
    with collecting(tables.stream(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=30)) as collected:
        assert collected.numbers() == list(range(100))
        assert collected.batch_sizes() == [30, 30, 30, 10]


def test_a_micro_batch_waits_for_enough_offsets(tables: Tables, topic: str) -> None:
    produce(tables.bootstrap, topic, numbered(10))
    stream = tables.stream(subscribe=topic, startingOffsets="earliest", minOffsetsPerTrigger=50, maxTriggerDelay="10m")
    with collecting(stream) as collected:
        # The first batch does not wait: there is no earlier one to count the delay from.
        assert collected.numbers() == list(range(10))
        produce(tables.bootstrap, topic, numbered(20, first=10))
        assert collected.numbers() == list(range(10))
        produce(tables.bootstrap, topic, numbered(30, first=30))
        assert collected.numbers() == list(range(60))
        assert collected.batch_sizes() == [10, 50]


def test_a_micro_batch_waits_no_longer_than_allowed(tables: Tables, topic: str) -> None:
    produce(tables.bootstrap, topic, numbered(10))
    stream = tables.stream(subscribe=topic, startingOffsets="earliest", minOffsetsPerTrigger=1000, maxTriggerDelay="1s")
    with collecting(stream) as collected:
        collected.drain()
        produce(tables.bootstrap, topic, numbered(10, first=10))
        until(collected.query, lambda: numbers(collected.rows) == list(range(20)), "the delay is over")


def test_a_micro_batch_is_split_into_tasks_that_have_no_more_records_than_allowed(
    tables: Tables, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(partitions=2)
    produce(tables.bootstrap, topic, numbered(100, partitions=2))
    stream = tables.stream(subscribe=topic, startingOffsets="earliest", maxRecordsPerPartition=20)
    with collecting(stream.withColumn("task", spark_partition_id())) as collected:
        assert collected.numbers() == list(range(100))
        sizes = [row["count"] for row in collected.rows.groupBy("task").count().collect()]
    assert len(sizes) == 6  # 50 records of each partition in three tasks
    assert max(sizes) <= 20


def test_a_micro_batch_is_split_into_at_least_so_many_tasks(tables: Tables, topic: str) -> None:
    produce(tables.bootstrap, topic, numbered(100))
    stream = tables.stream(subscribe=topic, startingOffsets="earliest", minPartitions=4)
    with collecting(stream.withColumn("task", spark_partition_id())) as collected:
        assert collected.numbers() == list(range(100))
        assert collected.rows.select("task").distinct().count() == 4


def test_available_now_reads_what_is_there_and_ends(tables: Tables, new_topic: Callable[..., str]) -> None:
    topic = new_topic(partitions=2)
    produce(tables.bootstrap, topic, numbered(100, partitions=2))
    stream = tables.stream(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=40)
    with collecting(stream, availableNow=True) as collected:
        until_it_ends(collected.query)
        assert numbers(collected.rows) == list(range(100))
        assert collected.batch_sizes() == [40, 40, 20]


def test_available_now_on_an_empty_topic_ends_at_once(tables: Tables, topic: str) -> None:
    with collecting(tables.stream(subscribe=topic, startingOffsets="earliest"), availableNow=True) as collected:
        until_it_ends(collected.query)
        assert numbers(collected.rows) == []


def test_each_batch_may_be_handled_by_a_function(tables: Tables, topic: str) -> None:
    produce(tables.bootstrap, topic, numbered(30))
    seen: list[list[int]] = []
    stream = tables.stream(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=10)
    writer = stream.writeStream.foreachBatch(lambda rows, _number: seen.append(numbers(rows)))
    with running(writer.trigger(availableNow=True)) as query:
        until_it_ends(query)
    assert seen == [list(range(10)), list(range(10, 20)), list(range(20, 30))]


def test_progress_reports_the_position_and_the_lag(tables: Tables, new_topic: Callable[..., str]) -> None:
    topic = new_topic(partitions=2)
    produce(tables.bootstrap, topic, numbered(100, partitions=2))
    stream = tables.stream(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=40)
    with collecting(stream, availableNow=True) as collected:
        until_it_ends(collected.query)
        first = collected.query.recentProgress[0].sources[0]
        last = collected.query.recentProgress[-1].sources[0]
    assert json.loads(first.endOffset) == {topic: {"0": 20, "1": 20}}
    assert json.loads(last.endOffset) == {topic: {"0": 50, "1": 50}}
    assert first.metrics["maxOffsetsBehindLatest"] == "30"


def test_read_committed_streams_records_without_transactions(tables: Tables, topic: str) -> None:
    stream = tables.stream(subscribe=topic, startingOffsets="earliest", **{"kafka.isolation.level": "read_committed"})
    with collecting(stream) as collected:
        for first in (0, 10, 20):
            produce(tables.bootstrap, topic, numbered(10, first=first))
            assert collected.numbers() == list(range(first + 10))


@pytest.fixture
def deprecated_offset_fetching(spark: SparkSession) -> Iterator[None]:
    """Lets the driver list offsets by a consumer in a group of its own: the default before Spark 3.1, still in use."""
    name = "spark.sql.streaming.kafka.useDeprecatedOffsetFetching"
    spark.conf.set(name, "true")
    yield
    spark.conf.unset(name)


@pytest.mark.usefixtures("deprecated_offset_fetching")
def test_the_driver_may_list_offsets_as_a_member_of_a_group(tables: Tables, new_topic: Callable[..., str]) -> None:
    topic = new_topic(partitions=2)
    produce(tables.bootstrap, topic, numbered(10, partitions=2))
    with collecting(tables.stream(subscribe=topic, startingOffsets="earliest")) as collected:
        assert collected.numbers() == list(range(10))
        produce(tables.bootstrap, topic, numbered(10, first=10, partitions=2))
        assert collected.numbers() == list(range(20))
