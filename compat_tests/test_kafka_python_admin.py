"""Administering with kafka-python, as far as its two generations have it in common.

As every client must find it, and what only this client shows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import pytest
from kafka import errors
from kafka.admin import ACLFilter, ConfigResourceType, NewTopic

from testkit.clients.administration.client import Client, FullClient
from testkit.clients.administration.kafka_python import READING, KafkaPython, configs_of
from testkit.clients.administration.scenes import AclScenes, DeletionScenes, GroupScenes, TopicScenes
from testkit.clients.groups import kafka_python as members
from testkit.clients.groups.client import Client as GroupClient
from testkit.clients.kafka_python import administering, fill, read_all, values_of
from testkit.raw import nodes
from testkit.raw.nodes import NODE
from testkit.servers.brokers import NODES, Broker

DYNAMIC_DEFAULT_BROKER_CONFIG, STATIC_BROKER_CONFIG, DEFAULT_CONFIG = 3, 4, 5


class TestTopics(TopicScenes):
    client: ClassVar[Client] = KafkaPython()


class TestGroups(GroupScenes):
    client: ClassVar[Client] = KafkaPython()
    members: ClassVar[GroupClient] = members.KafkaPython()


class TestDeletion(DeletionScenes):
    client: ClassVar[FullClient] = KafkaPython()
    members: ClassVar[GroupClient] = members.KafkaPython()


class TestAcls(AclScenes):
    client: ClassVar[FullClient] = KafkaPython()


def described(admin: Any, topic: str) -> Any:
    (found,) = admin.describe_topics([topic])
    return found


def test_a_topic_with_replicas_named_by_hand(broker: Broker, unique: Callable[[str], str]) -> None:
    topic = unique("topic")
    with administering(broker.bootstrap) as admin:
        node = admin.describe_cluster()["brokers"][0]
        node_id = node.get("broker_id", node.get("node_id"))
        admin.create_topics([NewTopic(topic, -1, -1, replica_assignments={0: [node_id], 1: [node_id]})])
        nodes.wait_until_led(broker.bootstrap, topic, 2)
        partitions = described(admin, topic)["partitions"]
    assert [partition.get("replica_nodes", partition.get("replicas")) for partition in partitions] == [[node_id]] * 2


@pytest.mark.parametrize(
    ("name", "partitions", "replicas", "configs", "error"),
    [
        ("with/slash", 1, 1, {}, errors.InvalidTopicError),
        ("with space", 1, 1, {}, errors.InvalidTopicError),
        (".", 1, 1, {}, errors.InvalidTopicError),
        ("..", 1, 1, {}, errors.InvalidTopicError),
        ("", 1, 1, {}, errors.InvalidTopicError),
        ("x" * 250, 1, 1, {}, errors.InvalidTopicError),
        ("no-partitions", 0, 1, {}, errors.InvalidPartitionsError),
        ("no-replicas", 1, 0, {}, errors.InvalidReplicationFactorError),
        ("too-many-replicas", 1, len(NODES) + 1, {}, errors.InvalidReplicationFactorError),
        ("unknown-config", 1, 1, {"no.such.config": "1"}, errors.InvalidConfigurationError),
        ("bad-value", 1, 1, {"retention.ms": "soon"}, errors.InvalidConfigurationError),
        ("bad-choice", 1, 1, {"cleanup.policy": "burn"}, errors.InvalidConfigurationError),
        ("out-of-range", 1, 1, {"segment.bytes": "10"}, errors.InvalidConfigurationError),
    ],
    ids=lambda value: value[:20] if isinstance(value, str) else "",
)
def test_a_topic_that_cannot_be_is_refused(
    broker: Broker, name: str, partitions: int, replicas: int, configs: dict[str, str], error: type[Exception]
) -> None:
    with administering(broker.bootstrap) as admin:
        with pytest.raises(error):
            admin.create_topics([NewTopic(name, partitions, replicas, topic_configs=configs)])
        assert name not in admin.list_topics()


def test_the_longest_name_is_taken(broker: Broker, unique: Callable[[str], str]) -> None:
    topic = unique("topic").ljust(249, "x")
    with administering(broker.bootstrap) as admin:
        admin.create_topics([NewTopic(topic, 1, 1)])
    nodes.wait_until_led(broker.bootstrap, topic, 1)
    fill(broker.bootstrap, topic, [b"value"])
    assert values_of(read_all(broker.bootstrap, topic, 1)) == [b"value"]


def test_the_configs_of_the_broker_are_those_it_was_started_with(broker: Broker) -> None:
    with administering(broker.bootstrap) as admin:
        entries = configs_of(admin, ConfigResourceType.BROKER, str(NODE))
    for name, value in broker.settings.items():
        # The cluster keeps one value of min.insync.replicas, which it took from the first broker (KIP-966).
        source = DYNAMIC_DEFAULT_BROKER_CONFIG if name == "min.insync.replicas" else STATIC_BROKER_CONFIG
        assert entries[name] == (value, source)
    assert entries["num.partitions"] == ("1", DEFAULT_CONFIG)


def test_acls_are_not_described_without_an_authorizer(broker: Broker) -> None:
    with administering(broker.bootstrap) as admin:
        try:
            _, error = admin.describe_acls(ACLFilter(*READING))
        except errors.KafkaError as raised:  # 2.2
            error = type(raised)
    assert error is errors.SecurityDisabledError
