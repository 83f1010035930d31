"""Groups with kafka-python, as every client must find them, and cases of this client alone.

2.2 has neither static members nor cooperative ones: test_newer_kafka_python.py has them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import pytest
from kafka import ConsumerRebalanceListener, errors
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor

from testkit.basics.values import numbered
from testkit.clients.groups.client import Client
from testkit.clients.groups.kafka_python import KafkaPython
from testkit.clients.groups.scenes import ClassicScenes, MemberScenes, OffsetScenes, PatternScenes, SleeperScenes
from testkit.clients.kafka_python import consuming, fill, poll_for_ever, take
from testkit.clients.kafka_python_groups import settle
from testkit.servers.brokers import Broker


class TestMembers(MemberScenes, SleeperScenes, PatternScenes, ClassicScenes):
    client: ClassVar[Client] = KafkaPython()


class TestOffsets(OffsetScenes):
    client: ClassVar[Client] = KafkaPython()


def test_each_record_goes_to_one_member_and_to_every_group(
    broker: Broker, new_topic: Callable[..., str], unique: Callable[[str], str]
) -> None:
    topic = new_topic(partitions=4)
    for partition in range(4):
        fill(broker.bootstrap, topic, numbered(25), partition=partition)
    everything = [(partition, offset) for partition in range(4) for offset in range(25)]
    for group in (unique("one"), unique("other")):
        with (
            consuming(broker.bootstrap, topic, group_id=group, max_poll_records=5) as first,
            consuming(broker.bootstrap, topic, group_id=group, max_poll_records=5) as second,
        ):
            settle([first, second], 4, most=2)
            for consumer in (first, second):  # what came while they settled comes again
                consumer.seek_to_beginning()
            got = [(record.partition, record.offset) for one in (first, second) for record in take(one, 50)]
            assert sorted(got) == everything


def test_a_listener_is_notified_of_revoked_and_assigned_partitions(
    broker: Broker, new_topic: Callable[..., str], group: str
) -> None:
    topic = new_topic(partitions=2)
    notified: list[tuple[str, list[int]]] = []

    class Listener(ConsumerRebalanceListener):
        def on_partitions_revoked(self, revoked: Any) -> None:
            notified.append(("revoked", sorted(partition.partition for partition in revoked)))

        def on_partitions_assigned(self, assigned: Any) -> None:
            notified.append(("assigned", sorted(partition.partition for partition in assigned)))

    with consuming(broker.bootstrap, group_id=group) as first:
        first.subscribe([topic], listener=Listener())
        settle([first], 2, most=2)
        assert notified[-1] == ("assigned", [0, 1])
        with consuming(broker.bootstrap, topic, group_id=group) as second:
            (mine, _) = settle([first, second], 2, most=1)
            assert ("revoked", [0, 1]) in notified
            assert notified[-1] == ("assigned", mine)


def test_a_group_takes_the_strategy_that_all_members_support(
    broker: Broker, new_topic: Callable[..., str], group: str
) -> None:
    topic = new_topic(partitions=4)
    both = {"partition_assignment_strategy": [RangePartitionAssignor, RoundRobinPartitionAssignor]}
    one = {"partition_assignment_strategy": [RoundRobinPartitionAssignor]}
    with (
        consuming(broker.bootstrap, topic, group_id=group, **both) as first,
        consuming(broker.bootstrap, topic, group_id=group, **one) as second,
    ):
        assert sorted(settle([first, second], 4, most=2)) == [[0, 2], [1, 3]]


def test_a_session_timeout_below_the_broker_s_limit_is_refused(broker: Broker, topic: str, group: str) -> None:
    config = {"session_timeout_ms": 400, "heartbeat_interval_ms": 100}
    with (
        consuming(broker.bootstrap, topic, group_id=group, **config) as consumer,
        pytest.raises(errors.InvalidSessionTimeoutError),
    ):
        poll_for_ever(consumer)
