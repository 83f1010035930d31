"""Consuming with kafka-python without a group: where it starts, how it seeks, and how much it gets at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from kafka import TopicPartition, errors

from testkit.basics.values import numbered
from testkit.basics.waiting import Deadline, eventually
from testkit.clients.kafka_python import (
    consuming,
    fill,
    poll_for_ever,
    producing,
    read_all,
    reading,
    send_all,
    take,
    values_of,
)
from testkit.raw import topics
from testkit.servers.brokers import Broker


@pytest.mark.parametrize(("reset", "expected"), [("earliest", [0, 1, 2, 3]), ("latest", [3])])
def test_without_a_position_reading_starts_according_to_auto_offset_reset(
    broker: Broker, topic: str, reset: str, expected: list[int]
) -> None:
    fill(broker.bootstrap, topic, numbered(3))
    with reading(broker.bootstrap, topic, auto_offset_reset=reset) as consumer:
        consumer.position(TopicPartition(topic, 0))
        fill(broker.bootstrap, topic, [b"later"])
        assert [record.offset for record in take(consumer, len(expected))] == expected


def test_without_a_position_and_a_reset_policy_reading_fails(broker: Broker, topic: str, group: str) -> None:
    with (
        reading(broker.bootstrap, topic, auto_offset_reset="none", group_id=group) as consumer,
        pytest.raises(errors.NoOffsetForPartitionError),
    ):
        poll_for_ever(consumer)


@pytest.mark.parametrize(("reset", "expected"), [("earliest", 0), ("latest", 10)])
def test_a_seek_past_the_end_is_reset(broker: Broker, topic: str, reset: str, expected: int) -> None:
    fill(broker.bootstrap, topic, numbered(10))
    partition = TopicPartition(topic, 0)
    with reading(broker.bootstrap, topic, auto_offset_reset=reset) as consumer:
        consumer.seek(partition, 1_000)
        deadline = Deadline()
        records: list[Any] = []
        while consumer.position(partition) == 1_000 and deadline.not_over("the reset"):
            records += [record for batch in consumer.poll(timeout_ms=100).values() for record in batch]
        first = records[0].offset if records else consumer.position(partition)
        assert first == expected


def test_reading_at_the_very_end_waits_for_the_next_record(broker: Broker, topic: str) -> None:
    fill(broker.bootstrap, topic, numbered(3))
    with reading(broker.bootstrap, topic) as consumer, producing(broker.bootstrap) as producer:
        consumer.seek(TopicPartition(topic, 0), 3)
        for number in range(5):
            assert consumer.poll(timeout_ms=20) == {}
            send_all(producer, topic, [b"next %d" % number])
            assert values_of(take(consumer, 1)) == [b"next %d" % number]


def test_beginning_and_end_offsets_of_several_partitions(broker: Broker, new_topic: Callable[..., str]) -> None:
    topic = new_topic(partitions=3)
    fill(broker.bootstrap, topic, numbered(4), partition=0)
    fill(broker.bootstrap, topic, numbered(7), partition=2)
    partitions = [TopicPartition(topic, number) for number in range(3)]
    with consuming(broker.bootstrap) as consumer:
        assert consumer.beginning_offsets(partitions) == dict.fromkeys(partitions, 0)
        assert consumer.end_offsets(partitions) == dict(zip(partitions, (4, 0, 7), strict=True))


def test_an_empty_topic_has_no_times_and_ends_where_it_begins(broker: Broker, topic: str) -> None:
    partition = TopicPartition(topic, 0)
    with reading(broker.bootstrap, topic) as consumer:
        assert consumer.offsets_for_times({partition: 0}) == {partition: None}
        assert consumer.end_offsets([partition]) == consumer.beginning_offsets([partition]) == {partition: 0}
        assert consumer.poll(timeout_ms=200) == {}
        assert consumer.position(partition) == 0


def test_an_unknown_topic_has_no_partitions(broker: Broker, unique: Callable[[str], str]) -> None:
    with consuming(broker.bootstrap) as consumer:
        assert not consumer.partitions_for_topic(unique("nobody-made-it"))


def test_a_consumer_that_may_make_topics_makes_what_it_subscribes_to(
    broker: Broker, unique: Callable[[str], str], group: str
) -> None:
    topic = unique("made-by-the-consumer")
    with consuming(broker.bootstrap, topic, group_id=group, allow_auto_create_topics=True) as consumer:
        eventually(lambda: not consumer.poll(timeout_ms=500) and topic in topics.names(broker.bootstrap), "the topic")


def test_a_new_topic_is_seen_by_the_next_question(broker: Broker, new_topic: Callable[..., str]) -> None:
    with consuming(broker.bootstrap) as consumer:
        consumer.topics()
        topic = new_topic(partitions=3)
        assert topic in consumer.topics()
        assert consumer.partitions_for_topic(topic) == {0, 1, 2}


def test_a_poll_gives_no_more_than_max_poll_records(broker: Broker, topic: str) -> None:
    fill(broker.bootstrap, topic, numbered(50))
    with reading(broker.bootstrap, topic, max_poll_records=7) as consumer:
        records: list[Any] = []
        deadline = Deadline()
        while len(records) < 50 and deadline.not_over("50 records"):
            batch = consumer.poll(timeout_ms=100).get(TopicPartition(topic, 0), [])
            assert len(batch) <= 7
            records += batch
    assert values_of(records) == numbered(50)


def test_every_partition_is_read_in_its_own_order(broker: Broker, new_topic: Callable[..., str]) -> None:
    topic = new_topic(partitions=6)
    with producing(broker.bootstrap, linger_ms=5) as producer:
        for number, value in enumerate(numbered(600)):
            producer.send(topic, value=value, partition=number % 6)
        producer.flush()
    records = read_all(broker.bootstrap, topic, 600, partitions=range(6))
    for partition in range(6):
        own = [record for record in records if record.partition == partition]
        assert [record.offset for record in own] == list(range(100))
        assert values_of(own) == numbered(600)[partition::6]


@pytest.mark.parametrize("sessions", [True, False], ids=["in a session", "without a session"])
def test_many_polls_over_many_partitions_miss_nothing(
    broker: Broker, new_topic: Callable[..., str], sessions: bool
) -> None:
    topic = new_topic(partitions=8)
    config = {"enable_incremental_fetch_sessions": sessions, "fetch_max_wait_ms": 20}
    with (
        producing(broker.bootstrap) as producer,
        reading(broker.bootstrap, topic, partitions=range(8), **config) as consumer,
    ):
        for turn in range(40):  # a few partitions have news each time, the others are quiet
            chosen = {turn % 8, (turn * 3) % 8}
            for partition in chosen:
                producer.send(topic, value=b"turn %d" % turn, partition=partition)
            producer.flush()
            records = take(consumer, len(chosen))
            assert {(record.partition, record.value) for record in records} == {(p, b"turn %d" % turn) for p in chosen}


def test_a_session_follows_seeks_pauses_and_changes_of_assignment(
    broker: Broker, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(partitions=3)
    partitions = [TopicPartition(topic, number) for number in range(3)]
    for number in range(3):
        fill(broker.bootstrap, topic, numbered(4), partition=number)
    with reading(broker.bootstrap, topic, partitions=[0, 1], fetch_max_wait_ms=20) as consumer:
        take(consumer, 8)
        consumer.assign(partitions[1:])
        consumer.seek(partitions[1], 4)
        consumer.seek(partitions[2], 1)
        assert [(record.partition, record.offset) for record in take(consumer, 3)] == [(2, 1), (2, 2), (2, 3)]
        consumer.assign(partitions)
        for partition, offset in zip(partitions, (3, 2, 4), strict=True):
            consumer.seek(partition, offset)
        got = sorted((record.partition, record.offset) for record in take(consumer, 3))
        assert got == [(0, 3), (1, 2), (1, 3)]


def test_small_limits_of_the_fetch_lose_nothing(broker: Broker, new_topic: Callable[..., str]) -> None:
    topic = new_topic(partitions=3)
    with producing(broker.bootstrap, batch_size=500) as producer:
        for partition in range(3):
            send_all(producer, topic, numbered(100, size=100), partition=partition)
    config = {"fetch_max_bytes": 3_000, "max_partition_fetch_bytes": 1_500, "fetch_max_wait_ms": 20}
    records = read_all(broker.bootstrap, topic, 300, partitions=range(3), **config)
    for partition in range(3):
        assert values_of(r for r in records if r.partition == partition) == numbered(100, size=100)


def test_a_fetch_waits_until_fetch_min_bytes_are_there(broker: Broker, topic: str) -> None:
    config = {"fetch_min_bytes": 5_000, "fetch_max_wait_ms": 20_000}
    with reading(broker.bootstrap, topic, **config) as consumer, producing(broker.bootstrap) as producer:
        send_all(producer, topic, [b"few"])
        assert consumer.poll(timeout_ms=300) == {}
        send_all(producer, topic, [bytes(6_000)])
        assert len(take(consumer, 2)) == 2


def test_the_high_watermark_comes_with_the_records(broker: Broker, topic: str) -> None:
    fill(broker.bootstrap, topic, numbered(12))
    with reading(broker.bootstrap, topic) as consumer:
        take(consumer, 12)
        assert consumer.highwater(TopicPartition(topic, 0)) == 12


def test_deleting_a_topic_while_it_is_read_leaves_the_others_readable(
    broker: Broker, new_topic: Callable[..., str]
) -> None:
    doomed, kept = new_topic(), new_topic()
    fill(broker.bootstrap, doomed, numbered(3))
    fill(broker.bootstrap, kept, numbered(3))
    with consuming(broker.bootstrap) as consumer:
        consumer.assign([TopicPartition(doomed, 0), TopicPartition(kept, 0)])
        take(consumer, 6)
        topics.delete(broker.bootstrap, doomed)
        fill(broker.bootstrap, kept, [b"still here"])
        assert values_of(take(consumer, 1)) == [b"still here"]


def test_a_topic_made_again_with_the_same_name_starts_empty(broker: Broker, topic: str) -> None:
    fill(broker.bootstrap, topic, numbered(10))
    topics.delete(broker.bootstrap, topic)
    eventually(lambda: _created_again(broker, topic), "the name is free again")
    fill(broker.bootstrap, topic, [b"new"])
    assert [(record.offset, record.value) for record in read_all(broker.bootstrap, topic, 1)] == [(0, b"new")]


def _created_again(broker: Broker, topic: str) -> bool:
    topics.create(broker.bootstrap, topic)
    return True
