"""Consuming with confluent-kafka: where it starts, how it seeks, and its errors when something is missing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, KafkaError, Message, TopicPartition

from testkit.basics.values import numbered
from testkit.basics.waiting import Deadline
from testkit.clients.confluent import (
    CALL_TIMEOUT_S,
    consuming,
    error_of_reading,
    fill,
    offsets_of,
    producing,
    read_all,
    reading,
    take,
    values_of,
)
from testkit.raw import topics
from testkit.servers.brokers import Broker

BEGAN_MS = 1_700_000_000_000


@pytest.mark.parametrize(
    ("start", "expected"), [(OFFSET_BEGINNING, [0, 1, 2, 3]), (2, [2, 3]), (OFFSET_END, [3])], ids=["start", "2", "end"]
)
def test_reading_starts_at_the_assigned_offset(broker: Broker, topic: str, start: int, expected: list[int]) -> None:
    fill(broker.bootstrap, topic, numbered(3))
    with consuming(broker.bootstrap, **{"enable.partition.eof": True}) as consumer:
        consumer.list_topics(topic, timeout=CALL_TIMEOUT_S)
        consumer.assign([TopicPartition(topic, 0, start)])
        before = up_to_the_end(consumer)
        fill(broker.bootstrap, topic, [b"later"])
        after = up_to_the_end(consumer)
    assert offsets_of(before + after) == expected


def up_to_the_end(consumer: Consumer) -> list[Message]:
    """Returns the records up to the consumer's end of the partition."""
    records: list[Message] = []
    while (message := consumer.poll(CALL_TIMEOUT_S)) is not None:
        error = message.error()
        if error is not None and error.code() == KafkaError._PARTITION_EOF:
            return records
        assert error is None
        records.append(message)
    raise AssertionError("the end did not come")


@pytest.mark.parametrize(("reset", "expected"), [("earliest", [0, 1, 2]), ("latest", [])])
def test_a_position_out_of_range_is_reset(broker: Broker, topic: str, reset: str, expected: list[int]) -> None:
    fill(broker.bootstrap, topic, numbered(3))
    config = {"auto.offset.reset": reset, "enable.partition.eof": True}
    with consuming(broker.bootstrap, **config) as consumer:
        consumer.list_topics(topic, timeout=CALL_TIMEOUT_S)
        consumer.assign([TopicPartition(topic, 0, 1_000)])
        assert offsets_of(up_to_the_end(consumer)) == expected


def test_watermarks_follow_what_is_written_and_deleted(broker: Broker, topic: str) -> None:
    partition = TopicPartition(topic, 0)
    with consuming(broker.bootstrap) as consumer:
        assert consumer.get_watermark_offsets(partition, timeout=CALL_TIMEOUT_S) == (0, 0)
        fill(broker.bootstrap, topic, numbered(9))
        assert consumer.get_watermark_offsets(partition, timeout=CALL_TIMEOUT_S) == (0, 9)
        topics.delete_records(broker.bootstrap, topic, 5)
        assert consumer.get_watermark_offsets(partition, timeout=CALL_TIMEOUT_S) == (5, 9)


def test_reading_below_the_log_start_continues_at_the_log_start(broker: Broker, topic: str) -> None:
    fill(broker.bootstrap, topic, numbered(9))
    with reading(broker.bootstrap, topic, **{"enable.partition.eof": True}) as consumer:
        up_to_the_end(consumer)
        topics.delete_records(broker.bootstrap, topic, 6)
        consumer.seek(TopicPartition(topic, 0, 2))
        assert offsets_of(up_to_the_end(consumer)) == [6, 7, 8]


@pytest.mark.parametrize("codec", ["none", "snappy", "lz4"])
def test_offsets_for_times_over_several_partitions(broker: Broker, new_topic: Callable[..., str], codec: str) -> None:
    topic = new_topic(partitions=3)
    with producing(broker.bootstrap, **{"compression.type": codec}) as producer:
        for partition in range(2):
            for number in range(10):
                producer.produce(topic, b"value", partition=partition, timestamp=BEGAN_MS + number * (partition + 1))
    partitions = [TopicPartition(topic, partition, BEGAN_MS + 5) for partition in range(3)]
    with consuming(broker.bootstrap) as consumer:
        found = consumer.offsets_for_times(partitions, timeout=CALL_TIMEOUT_S)
        assert [partition.offset for partition in found] == [5, 3, OFFSET_END]
        consumer.assign(found[:2])
        records = take(consumer, 5 + 7)
    assert min(record.timestamp()[1] for record in records) == BEGAN_MS + 5


def test_a_consumer_gets_the_end_of_each_partition(broker: Broker, new_topic: Callable[..., str]) -> None:
    topic = new_topic(partitions=3)
    fill(broker.bootstrap, topic, numbered(4), partition=1)
    ends: dict[int, int] = {}
    with reading(broker.bootstrap, topic, partitions=range(3), **{"enable.partition.eof": True}) as consumer:
        while len(ends) < 3:
            message = consumer.poll(CALL_TIMEOUT_S)
            assert message is not None
            if (error := message.error()) is not None:
                assert error.code() == KafkaError._PARTITION_EOF
                ends[message.partition()] = message.offset()
    assert ends == {0: 0, 1: 4, 2: 0}


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_many_records_over_many_partitions_all_come_once_in_order(
    broker: Broker, new_topic: Callable[..., str], codec: str
) -> None:
    topic = new_topic(partitions=12)
    values = numbered(6_000, size=200)
    config = {"compression.type": codec, "enable.idempotence": True, "batch.num.messages": 100}
    with producing(broker.bootstrap, **config) as producer:
        for number, value in enumerate(values):
            producer.produce(topic, value, partition=number % 12)
    records = read_all(broker.bootstrap, topic, len(values), partitions=range(12))
    for partition in range(12):
        own = [record for record in records if record.partition() == partition]
        assert offsets_of(own) == list(range(500))
        assert values_of(own) == values[partition::12]


def test_partitions_can_be_added_to_and_taken_from_an_assignment(broker: Broker, new_topic: Callable[..., str]) -> None:
    topic = new_topic(partitions=3)
    for partition in range(3):
        fill(broker.bootstrap, topic, numbered(3), partition=partition)
    with reading(broker.bootstrap, topic, partitions=[0]) as consumer:
        take(consumer, 3)
        consumer.incremental_assign([TopicPartition(topic, 2, 1)])
        assert [(record.partition(), record.offset()) for record in take(consumer, 2)] == [(2, 1), (2, 2)]
        consumer.incremental_unassign([TopicPartition(topic, 0)])
        fill(broker.bootstrap, topic, [b"for nobody"], partition=0)
        fill(broker.bootstrap, topic, [b"for us"], partition=2)
        assert values_of(take(consumer, 1)) == [b"for us"]


def test_an_unknown_topic_is_an_error_and_is_not_made(broker: Broker, unique: Callable[[str], str]) -> None:
    topic = unique("nobody-made-it")
    config = {"allow.auto.create.topics": False, "group.id": unique("group")}
    with consuming(broker.bootstrap, topic, **config) as consumer:
        assert error_of_reading(consumer).code() == KafkaError.UNKNOWN_TOPIC_OR_PART
    assert topic not in topics.names(broker.bootstrap)


def poll_until(consumer: Consumer, enough: Callable[[], bool], records: list[Message]) -> None:
    """Does what take_until does, but ignores errors that pass (the topic is being created)."""
    deadline = Deadline()
    while not enough() and deadline.not_over("the condition"):
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            records.append(message)


def test_a_topic_with_an_invalid_name_is_unknown_to_a_consumer(broker: Broker, group: str) -> None:
    with consuming(broker.bootstrap, "not/valid", **{"group.id": group}) as consumer:
        assert error_of_reading(consumer).code() == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_a_consumer_gets_an_error_when_its_topic_is_deleted(broker: Broker, topic: str, group: str) -> None:
    fill(broker.bootstrap, topic, numbered(3))
    config = {"group.id": group, "allow.auto.create.topics": False, "topic.metadata.refresh.interval.ms": 200}
    with consuming(broker.bootstrap, topic, **config) as consumer:
        take(consumer, 3)
        topics.delete(broker.bootstrap, topic)
        assert error_of_reading(consumer).code() == KafkaError.UNKNOWN_TOPIC_OR_PART
    assert topic not in topics.names(broker.bootstrap)


def test_a_consumer_continues_with_a_topic_that_was_made_again(broker: Broker, topic: str) -> None:
    fill(broker.bootstrap, topic, numbered(5))
    with reading(broker.bootstrap, topic, **{"topic.metadata.refresh.interval.ms": 200}) as consumer:
        take(consumer, 5)
        topics.delete(broker.bootstrap, topic)
        topics.create(broker.bootstrap, topic)
        fill(broker.bootstrap, topic, [b"new %d" % number for number in range(3)])
        records: list[Message] = []
        poll_until(consumer, lambda: len(records) == 3, records)
    assert [(record.offset(), record.value()) for record in records] == [(n, b"new %d" % n) for n in range(3)]


def test_a_record_wakes_every_consumer_that_waits_for_it(broker: Broker, topic: str) -> None:
    fill(broker.bootstrap, topic, [b"old"])
    config: dict[str, Any] = {"fetch.wait.max.ms": 40_000}
    with reading(broker.bootstrap, topic, **config) as first, reading(broker.bootstrap, topic, **config) as second:
        for consumer in (first, second):
            take(consumer, 1)
            assert consumer.poll(0.1) is None  # from here on its fetch waits at the broker
        fill(broker.bootstrap, topic, [b"news"])
        for consumer in (first, second):
            assert values_of(take(consumer, 1)) == [b"news"]
