"""A batch: each option for the start and the end of reading."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from testkit.spark.records import an_hour_ago_ms, delete_records, numbered, produce, stamped
from testkit.spark.tables import DATA_LOSS, Tables, by_partition, numbers, values

pytestmark = pytest.mark.more

EARLIEST, LATEST = -2, -1


def test_everything_is_read_by_default(tables: Tables, topic: str) -> None:
    produce(tables.bootstrap, topic, numbered(10))
    assert values(tables.read(subscribe=topic)) == [str(n).encode() for n in range(10)]


def test_earliest_begins_at_the_log_start_and_latest_ends_at_the_high_watermark(tables: Tables, topic: str) -> None:
    produce(tables.bootstrap, topic, numbered(10))
    delete_records(tables.bootstrap, topic, {0: 4})
    rows = tables.read(subscribe=topic, startingOffsets="earliest", endingOffsets="latest")
    assert numbers(rows) == [4, 5, 6, 7, 8, 9]


def test_offsets_given_per_partition_bound_each_partition(tables: Tables, new_topic: Callable[..., str]) -> None:
    topic = new_topic(partitions=2)
    produce(tables.bootstrap, topic, numbered(20, partitions=2))
    rows = tables.read(
        subscribe=topic,
        startingOffsets=by_partition(topic, {0: 3, 1: 8}),
        endingOffsets=by_partition(topic, {0: 5, 1: 10}),
    )
    assert numbers(rows) == [6, 8, 17, 19]


def test_the_words_for_earliest_and_latest_work_as_offsets(tables: Tables, new_topic: Callable[..., str]) -> None:
    topic = new_topic(partitions=2)
    produce(tables.bootstrap, topic, numbered(20, partitions=2))
    rows = tables.read(
        subscribe=topic,
        startingOffsets=by_partition(topic, {0: EARLIEST, 1: 9}),
        endingOffsets=by_partition(topic, {0: 1, 1: LATEST}),
    )
    assert numbers(rows) == [0, 19]


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_offsets_in_the_middle_of_a_record_batch_cut_it_there(tables: Tables, topic: str, codec: str) -> None:
    produce(tables.bootstrap, topic, numbered(1000), compression_type=codec, linger_ms=200)
    rows = tables.read(
        subscribe=topic, startingOffsets=by_partition(topic, {0: 333}), endingOffsets=by_partition(topic, {0: 666})
    )
    assert numbers(rows) == list(range(333, 666))


def test_a_start_at_the_end_reads_nothing(tables: Tables, topic: str) -> None:
    produce(tables.bootstrap, topic, numbered(5))
    assert numbers(tables.read(subscribe=topic, startingOffsets=by_partition(topic, {0: 5}))) == []


def test_a_topic_whose_records_were_all_deleted_is_empty(tables: Tables, topic: str) -> None:
    produce(tables.bootstrap, topic, numbered(10))
    delete_records(tables.bootstrap, topic, {0: 10})
    assert numbers(tables.read(subscribe=topic)) == []
    produce(tables.bootstrap, topic, numbered(1, first=10))
    (row,) = tables.read(subscribe=topic).collect()
    assert (row.offset, bytes(row.value)) == (10, b"10")


def test_an_end_beyond_the_high_watermark_is_waited_for_in_vain(tables: Tables, topic: str) -> None:
    produce(tables.bootstrap, topic, numbered(5))
    rows = tables.read(
        subscribe=topic, endingOffsets=by_partition(topic, {0: 9}), **{"kafkaConsumer.pollTimeoutMs": 700}
    )
    with pytest.raises(Exception, match=DATA_LOSS):
        rows.collect()


def test_a_start_below_the_log_start_fails_the_batch(tables: Tables, topic: str) -> None:
    produce(tables.bootstrap, topic, numbered(10))
    delete_records(tables.bootstrap, topic, {0: 5})
    rows = tables.read(subscribe=topic, startingOffsets=by_partition(topic, {0: 2}))
    with pytest.raises(Exception, match=DATA_LOSS):
        rows.collect()


def test_a_start_below_the_log_start_skips_ahead_when_loss_is_allowed(tables: Tables, topic: str) -> None:
    produce(tables.bootstrap, topic, numbered(10))
    delete_records(tables.bootstrap, topic, {0: 5})
    rows = tables.read(subscribe=topic, startingOffsets=by_partition(topic, {0: 2}), failOnDataLoss=False)
    assert numbers(rows) == [5, 6, 7, 8, 9]


def test_a_starting_timestamp_begins_at_the_first_record_not_older(tables: Tables, topic: str) -> None:
    start_ms = an_hour_ago_ms()
    produce(tables.bootstrap, topic, stamped(start_ms, [0, 10, 20, 30]), linger_ms=200)
    exactly = tables.read(subscribe=topic, startingTimestamp=start_ms + 10_000)
    between = tables.read(subscribe=topic, startingTimestamp=start_ms + 10_001)
    assert numbers(exactly) == [10, 20, 30]
    assert numbers(between) == [20, 30]


def test_an_ending_timestamp_ends_before_the_first_record_not_older(tables: Tables, topic: str) -> None:
    start_ms = an_hour_ago_ms()
    produce(tables.bootstrap, topic, stamped(start_ms, [0, 10, 20, 30]), linger_ms=200)
    exactly = tables.read(subscribe=topic, endingTimestamp=start_ms + 20_000)
    between = tables.read(subscribe=topic, endingTimestamp=start_ms + 20_001)
    assert numbers(exactly) == [0, 10]
    assert numbers(between) == [0, 10, 20]


def test_an_ending_timestamp_after_every_record_reads_to_the_end(tables: Tables, topic: str) -> None:
    start_ms = an_hour_ago_ms()
    produce(tables.bootstrap, topic, stamped(start_ms, [0, 10]))
    assert numbers(tables.read(subscribe=topic, endingTimestamp=start_ms + 60_000)) == [0, 10]


def test_timestamps_bound_each_partition(tables: Tables, new_topic: Callable[..., str]) -> None:
    topic = new_topic(partitions=2)
    start_ms = an_hour_ago_ms()
    produce(tables.bootstrap, topic, stamped(start_ms, [0, 10, 20, 30], 0) + stamped(start_ms, [5, 15, 25, 35], 1))
    rows = tables.read(
        subscribe=topic,
        startingOffsetsByTimestamp=by_partition(topic, {0: start_ms + 10_000, 1: start_ms + 20_000}),
        endingOffsetsByTimestamp=by_partition(topic, {0: start_ms + 30_000, 1: start_ms + 30_000}),
    )
    assert numbers(rows) == [10, 20, 25]


@pytest.mark.parametrize("codec", ["none", "gzip", "lz4"])
def test_a_timestamp_is_found_inside_a_record_batch(tables: Tables, topic: str, codec: str) -> None:
    start_ms = an_hour_ago_ms()
    produce(tables.bootstrap, topic, stamped(start_ms, list(range(500))), compression_type=codec, linger_ms=200)
    rows = tables.read(subscribe=topic, startingTimestamp=start_ms + 250_000, endingTimestamp=start_ms + 260_000)
    assert numbers(rows) == list(range(250, 260))


def test_out_of_the_order_of_time_the_first_record_that_is_late_enough_counts(tables: Tables, topic: str) -> None:
    start_ms = an_hour_ago_ms()
    for seconds in ([50, 10], [40, 70], [20, 60]):  # a record batch each
        produce(tables.bootstrap, topic, stamped(start_ms, seconds), linger_ms=100)
    early, late = (tables.read(subscribe=topic, startingTimestamp=start_ms + s * 1000) for s in (45, 55))
    assert values(early) == [b"50", b"10", b"40", b"70", b"20", b"60"]
    assert values(late) == [b"70", b"20", b"60"]


def test_timestamps_may_come_from_the_time_of_appending(tables: Tables, new_topic: Callable[..., str]) -> None:
    topic = new_topic(config={"message.timestamp.type": "LogAppendTime"})
    start_ms = an_hour_ago_ms()
    produce(tables.bootstrap, topic, stamped(start_ms, [0, 1]))
    produce(tables.bootstrap, topic, stamped(start_ms, [2, 3]))
    rows = tables.read(subscribe=topic)
    assert {row.timestampType for row in rows.collect()} == {1}
    assert rows.where(f"timestamp >= timestamp_millis({start_ms + 3_000_000})").count() == 4
    assert numbers(tables.read(subscribe=topic, startingTimestamp=start_ms + 1_000)) == [0, 1, 2, 3]


def test_a_starting_timestamp_after_every_record_fails_the_batch(tables: Tables, topic: str) -> None:
    start_ms = an_hour_ago_ms()
    produce(tables.bootstrap, topic, stamped(start_ms, [0, 10]))
    with pytest.raises(Exception, match="No offset matched from request of topic-partition"):
        tables.read(subscribe=topic, startingTimestamp=start_ms + 60_000, **{"fetchOffset.numRetries": 1}).collect()


def test_a_timestamp_after_every_record_reads_nothing_with_the_strategy_latest(tables: Tables, topic: str) -> None:
    start_ms = an_hour_ago_ms()
    produce(tables.bootstrap, topic, stamped(start_ms, [0, 10]))
    rows = tables.read(
        subscribe=topic, startingTimestamp=start_ms + 60_000, startingOffsetsByTimestampStrategy="latest"
    )
    assert numbers(rows) == []


def test_the_strategy_latest_is_for_each_partition_alone(tables: Tables, new_topic: Callable[..., str]) -> None:
    topic = new_topic(partitions=3)
    start_ms = an_hour_ago_ms()
    produce(tables.bootstrap, topic, stamped(start_ms, [0, 10], 0) + stamped(start_ms, [0, 70], 1))
    rows = tables.read(
        subscribe=topic,
        startingOffsetsByTimestamp=by_partition(topic, dict.fromkeys(range(3), start_ms + 60_000)),
        startingOffsetsByTimestampStrategy="latest",
    )
    assert numbers(rows) == [70]
