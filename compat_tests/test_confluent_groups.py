"""Groups with confluent-kafka (librdkafka), as every client must find them, and cases of this client alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from confluent_kafka import OFFSET_INVALID, Consumer, KafkaError, TopicPartition

from testkit.basics.values import numbered
from testkit.basics.waiting import Deadline, eventually
from testkit.clients.confluent import CALL_TIMEOUT_S, consuming, error_of, error_of_reading, fill, reading, take
from testkit.clients.confluent_groups import settle
from testkit.clients.groups.client import Client, CooperativeClient
from testkit.clients.groups.librdkafka import Confluent
from testkit.clients.groups.scenes import (
    ClassicScenes,
    CooperativeScenes,
    MemberScenes,
    OffsetScenes,
    PatternScenes,
    ResetScenes,
    SleeperScenes,
    StaticScenes,
)
from testkit.raw import groups, topics
from testkit.servers.brokers import Broker

QUICK_MS = 1_000
"""A session."""


class TestClassicMembers(
    MemberScenes, SleeperScenes, PatternScenes, ResetScenes, ClassicScenes, StaticScenes, CooperativeScenes
):
    client: ClassVar[CooperativeClient] = Confluent(groups.CLASSIC)


class TestConsumerMembers(MemberScenes, SleeperScenes, ResetScenes, StaticScenes, CooperativeScenes):
    client: ClassVar[CooperativeClient] = Confluent(groups.CONSUMER)


class TestOffsets(OffsetScenes):
    client: ClassVar[Client] = Confluent()


def test_a_static_member_that_does_not_come_back_loses_its_partitions_when_its_session_ends(
    broker: Broker, new_topic: Callable[..., str], group: str, protocol: str
) -> None:
    topic = new_topic(partitions=4)
    config = groups.session(broker.bootstrap, group, protocol, QUICK_MS)
    with consuming(broker.bootstrap, topic, **config, **{"group.instance.id": "one"}) as one:
        with consuming(broker.bootstrap, topic, **config, **{"group.instance.id": "two"}) as two:
            settle([one, two], 4, most=2)
        settle([one], 4, most=4)


def test_a_second_member_with_the_same_instance_fences_the_first(
    broker: Broker, new_topic: Callable[..., str], group: str
) -> None:
    topic = new_topic(partitions=2)
    config = {"group.id": group, "group.instance.id": "the-one"}
    with (
        consuming(broker.bootstrap, topic, **config) as first,
        consuming(broker.bootstrap, **config) as second,
    ):
        settle([first], 2, most=2)
        second.subscribe([topic])
        settle([second], 2, most=2)
        error = error_of_reading(first)
        assert error.code() == KafkaError._FATAL
        assert "fenced" in error.str().lower()


def test_an_instance_that_is_in_use_is_not_released_to_another_member(
    broker: Broker, new_topic: Callable[..., str], group: str
) -> None:
    topic = new_topic(partitions=2)
    config = {"group.id": group, "group.protocol": groups.CONSUMER, "group.instance.id": "the-one"}
    with consuming(broker.bootstrap, topic, **config) as first:
        settle([first], 2, most=2)
        with consuming(broker.bootstrap, topic, **config) as second:
            error = error_of_reading(second)
            assert error.code() == KafkaError._FATAL
            assert "instance ID is still used by another member" in error.str()
        settle([first], 2, most=2)  # it has kept everything


def test_an_assignor_that_the_broker_does_not_have_is_refused(broker: Broker, topic: str, group: str) -> None:
    config = {"group.id": group, "group.protocol": groups.CONSUMER, "group.remote.assignor": "no-such-assignor"}
    with consuming(broker.bootstrap, topic, **config) as consumer:
        error = error_of_reading(consumer)
        assert error.code() == KafkaError._FATAL
        assert "assignor or its version range is not supported" in error.str()


def test_topics_that_match_a_pattern_come_and_go(
    broker: Broker, unique: Callable[[str], str], group: str, protocol: str
) -> None:
    prefix = unique("matched")
    for name in ("a", "b"):
        topics.create(broker.bootstrap, f"{prefix}-{name}", partitions=2)

    def reads(*names: str) -> None:
        deadline = Deadline()
        wanted = sorted((f"{prefix}-{name}", number) for name in names for number in range(2))
        while sorted((it.topic, it.partition) for it in consumer.assignment()) != wanted:
            assert deadline.not_over(f"{names}; it has {consumer.assignment()}")
            consumer.poll(0.05)

    config = {"group.id": group, "group.protocol": protocol}
    with consuming(broker.bootstrap, f"^{prefix}-[ac]$", **config) as consumer:
        reads("a")
        topics.create(broker.bootstrap, f"{prefix}-c", partitions=2)
        reads("a", "c")
        topics.delete(broker.bootstrap, f"{prefix}-a")
        reads("c")
        consumer.subscribe([f"^{prefix}-b", f"{prefix}-c"])
        reads("b", "c")


def test_an_assigned_consumer_commits_without_being_a_member(
    broker: Broker, topic: str, group: str, protocol: str
) -> None:
    fill(broker.bootstrap, topic, numbered(4))
    with reading(broker.bootstrap, topic, **{"group.id": group, "group.protocol": protocol}) as consumer:
        take(consumer, 4)
        consumer.commit(asynchronous=False)
    with consuming(broker.bootstrap, **{"group.id": group}) as consumer:
        assert consumer.committed([TopicPartition(topic, 0)], timeout=CALL_TIMEOUT_S)[0].offset == 4


def test_a_commit_from_outside_is_refused_while_the_group_has_members(
    broker: Broker, topic: str, group: str, protocol: str
) -> None:
    with (
        consuming(broker.bootstrap, topic, **{"group.id": group, "group.protocol": protocol}) as member,
        consuming(broker.bootstrap, **{"group.id": group}) as outsider,
    ):
        settle([member], 1, most=1)
        code = error_of(lambda: outsider.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False))
        assert code == KafkaError.UNKNOWN_MEMBER_ID


def test_the_offsets_of_a_deleted_topic_are_forgotten(
    broker: Broker, new_topic: Callable[..., str], group: str
) -> None:
    doomed, kept = new_topic(), new_topic()
    partitions = [TopicPartition(doomed, 0, 3), TopicPartition(kept, 0, 4)]

    def committed(consumer: Consumer) -> list[int]:
        topic_partitions = [TopicPartition(doomed, 0), TopicPartition(kept, 0)]
        return [found.offset for found in consumer.committed(topic_partitions, timeout=CALL_TIMEOUT_S)]

    with consuming(broker.bootstrap, **{"group.id": group}) as consumer:
        consumer.commit(offsets=partitions, asynchronous=False)
        assert committed(consumer) == [3, 4]
        topics.delete(broker.bootstrap, doomed)
        topics.create(broker.bootstrap, doomed)
        eventually(lambda: committed(consumer) == [OFFSET_INVALID, 4], "only the other topic's offset")
