"""Administering with kafka-python, as far as its two generations have it in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from kafka import OffsetAndMetadata, TopicPartition, errors
from kafka.admin import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ConfigResource,
    ConfigResourceType,
    NewPartitions,
    NewTopic,
    ResourcePattern,
    ResourceType,
)

from testkit.basics.values import numbered
from testkit.basics.waiting import eventually
from testkit.clients.kafka_python import administering, consuming, fill, read_all, reading, take, values_of
from testkit.raw import nodes
from testkit.raw.nodes import NODE
from testkit.servers.brokers import NODES, Broker

DYNAMIC_TOPIC_CONFIG, DYNAMIC_DEFAULT_BROKER_CONFIG, STATIC_BROKER_CONFIG, DEFAULT_CONFIG = 1, 3, 4, 5
_SOURCES = {
    "DYNAMIC_TOPIC_CONFIG": 1,
    "DYNAMIC_DEFAULT_BROKER_CONFIG": 3,
    "STATIC_BROKER_CONFIG": 4,
    "DEFAULT_CONFIG": 5,
}


def described(admin: Any, topic: str) -> Any:
    (found,) = admin.describe_topics([topic])
    return found


def configs_of(admin: Any, topic: str, *names: str) -> dict[str, tuple[str, int]]:
    """Value and source of configs of a topic; of all when none is named."""
    resource = ConfigResource(ConfigResourceType.TOPIC, topic, dict.fromkeys(names, "") or None)
    if hasattr(admin, "list_consumer_groups"):  # 2.2
        (response,) = admin.describe_configs([resource])
        (entries,) = [found[4] for found in response.resources]
        return {name: (value, source) for name, value, _, source, *_ in entries}
    answer = admin.describe_configs([resource], config_filter="all")["topic"][topic]
    return {name: (entry["value"], _SOURCES[entry["config_source"]]) for name, entry in answer.items()}


def groups_of(admin: Any) -> set[str]:
    if hasattr(admin, "list_consumer_groups"):
        return {name for name, _ in admin.list_consumer_groups()}
    return {group["group_id"] for group in admin.list_groups()}


def offsets_of(admin: Any, group: str) -> dict[TopicPartition, int]:
    if hasattr(admin, "list_consumer_group_offsets"):
        found = admin.list_consumer_group_offsets(group)
    else:
        found = admin.list_group_offsets(group)[group]
    return {partition: committed.offset for partition, committed in found.items()}


def deleted(admin: Any, group: str) -> str:
    """What became of deleting a group: "OK" or the name of the error."""
    if hasattr(admin, "delete_consumer_groups"):
        ((_, error),) = admin.delete_consumer_groups([group])
        return "OK" if error is errors.NoError else str(error.__name__)
    answer = admin.delete_groups([group])
    return str(answer[group] if isinstance(answer, dict) else answer[0][1])


def test_a_created_topic_has_the_partitions_and_configs_asked_for(broker: Broker, unique: Callable[[str], str]) -> None:
    topic = unique("topic")
    with administering(broker.bootstrap) as admin:
        wanted = {"retention.ms": "3600000", "cleanup.policy": "compact,delete"}
        admin.create_topics([NewTopic(topic, 3, 1, topic_configs=wanted)])
        nodes.wait_until_led(broker.bootstrap, topic, 3)
        assert len(described(admin, topic)["partitions"]) == 3
        assert topic in admin.list_topics()
        found = configs_of(admin, topic)
    assert found["retention.ms"] == ("3600000", DYNAMIC_TOPIC_CONFIG)
    assert found["cleanup.policy"] == ("compact,delete", DYNAMIC_TOPIC_CONFIG)
    assert found["max.message.bytes"] == ("1048588", DEFAULT_CONFIG)
    assert {name for name, (_, source) in found.items() if source == DYNAMIC_TOPIC_CONFIG} == set(wanted)


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


def test_a_topic_cannot_be_created_twice(broker: Broker, topic: str) -> None:
    with administering(broker.bootstrap) as admin, pytest.raises(errors.TopicAlreadyExistsError):
        admin.create_topics([NewTopic(topic, 1, 1)])


def test_only_validating_creates_nothing(broker: Broker, unique: Callable[[str], str], topic: str) -> None:
    other = unique("topic")
    with administering(broker.bootstrap) as admin:
        admin.create_topics([NewTopic(other, 1, 1)], validate_only=True)
        assert other not in admin.list_topics()
        with pytest.raises(errors.TopicAlreadyExistsError):
            admin.create_topics([NewTopic(topic, 1, 1)], validate_only=True)


def test_a_deleted_topic_is_gone(broker: Broker, topic: str) -> None:
    with administering(broker.bootstrap) as admin:
        admin.delete_topics([topic])
        nodes.wait_until_gone(broker.bootstrap, topic)
        assert topic not in admin.list_topics()
        with pytest.raises(errors.UnknownTopicOrPartitionError):
            admin.delete_topics([topic])


def test_a_topic_grows_and_keeps_what_it_has(broker: Broker, topic: str) -> None:
    fill(broker.bootstrap, topic, numbered(3))
    with administering(broker.bootstrap) as admin:
        admin.create_partitions({topic: NewPartitions(4)})
        nodes.wait_until_led(broker.bootstrap, topic, 4)
        assert len(described(admin, topic)["partitions"]) == 4
    fill(broker.bootstrap, topic, [b"in the last"], partition=3)
    assert values_of(read_all(broker.bootstrap, topic, 3)) == numbered(3)
    assert values_of(read_all(broker.bootstrap, topic, 1, partitions=[1, 2, 3])) == [b"in the last"]


@pytest.mark.parametrize("count", [1, 2])
def test_a_topic_does_not_shrink_or_stay(broker: Broker, new_topic: Callable[..., str], count: int) -> None:
    topic = new_topic(partitions=2)
    with administering(broker.bootstrap) as admin, pytest.raises(errors.InvalidPartitionsError):
        admin.create_partitions({topic: NewPartitions(count)})


def test_a_topic_that_is_not_there_does_not_grow(broker: Broker, unique: Callable[[str], str]) -> None:
    with administering(broker.bootstrap) as admin, pytest.raises(errors.UnknownTopicOrPartitionError):
        admin.create_partitions({unique("nowhere"): NewPartitions(2)})


def test_an_altered_config_is_told_and_obeyed(broker: Broker, topic: str) -> None:
    with administering(broker.bootstrap) as admin:
        assert configs_of(admin, topic, "retention.ms") == {"retention.ms": ("604800000", DEFAULT_CONFIG)}
        admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {"retention.ms": "1000000"})])
        expected = {"retention.ms": ("1000000", DYNAMIC_TOPIC_CONFIG)}
        eventually(lambda: configs_of(admin, topic, "retention.ms") == expected, "the new value")


def test_the_configs_of_the_broker_tell_what_it_was_started_with(broker: Broker) -> None:
    with administering(broker.bootstrap) as admin:
        resource = ConfigResource(ConfigResourceType.BROKER, str(NODE), None)
        if hasattr(admin, "list_consumer_groups"):
            (response,) = admin.describe_configs([resource])
            entries = {entry[0]: (entry[1], entry[3]) for entry in response.resources[0][4]}
        else:
            ((_, answer),) = admin.describe_configs([resource], config_filter="all")["broker"].items()
            entries = {name: (it["value"], _SOURCES[it["config_source"]]) for name, it in answer.items()}
    for name, value in broker.settings.items():
        # The cluster keeps one value of min.insync.replicas, which it took from the first broker (KIP-966).
        source = DYNAMIC_DEFAULT_BROKER_CONFIG if name == "min.insync.replicas" else STATIC_BROKER_CONFIG
        assert entries[name] == (value, source)
    assert entries["num.partitions"] == ("1", DEFAULT_CONFIG)


def test_the_cluster_has_the_broker_that_the_client_dialled(broker: Broker) -> None:
    with administering(broker.bootstrap) as admin:
        cluster = admin.describe_cluster()
    addresses = {it.get("broker_id", it.get("node_id")): f"{it['host']}:{it['port']}" for it in cluster["brokers"]}
    assert sorted(addresses) == list(NODES)
    assert addresses[NODE] == broker.bootstrap
    assert cluster["cluster_id"]
    assert cluster["controller_id"] in NODES


def test_a_group_is_listed_with_its_offsets_and_deleted(broker: Broker, topic: str, group: str) -> None:
    partition = TopicPartition(topic, 0)
    with administering(broker.bootstrap) as admin:
        with reading(broker.bootstrap, topic, group_id=group) as consumer:
            consumer.commit({partition: OffsetAndMetadata(12, "", -1)})
        assert group in groups_of(admin)
        assert offsets_of(admin, group) == {partition: 12}
        assert deleted(admin, group) == "OK"
        assert group not in groups_of(admin)
        assert offsets_of(admin, group) == {}


def test_a_group_with_members_is_not_deleted(broker: Broker, topic: str, group: str) -> None:
    fill(broker.bootstrap, topic, [b"value"])
    with administering(broker.bootstrap) as admin, consuming(broker.bootstrap, topic, group_id=group) as consumer:
        take(consumer, 1)
        assert deleted(admin, group) == "NonEmptyGroupError"


def test_a_group_that_is_not_there_is_not_deleted(broker: Broker, group: str) -> None:
    with administering(broker.bootstrap) as admin:
        assert deleted(admin, group) == "GroupIdNotFoundError"


def test_deleted_records_are_gone_and_the_rest_keeps_its_offsets(broker: Broker, topic: str) -> None:
    partition = TopicPartition(topic, 0)
    fill(broker.bootstrap, topic, numbered(10))
    with administering(broker.bootstrap) as admin:
        answer = admin.delete_records({partition: 4})
        assert answer[partition]["low_watermark"] == 4
    with reading(broker.bootstrap, topic) as consumer:
        assert consumer.beginning_offsets([partition]) == {partition: 4}
        assert [record.offset for record in take(consumer, 6)] == [4, 5, 6, 7, 8, 9]


def test_records_past_the_end_cannot_be_deleted(broker: Broker, topic: str) -> None:
    fill(broker.bootstrap, topic, numbered(3))
    with administering(broker.bootstrap) as admin, pytest.raises(errors.OffsetOutOfRangeError):
        admin.delete_records({TopicPartition(topic, 0): 4})


def description_error(admin: Any, wanted: ACLFilter) -> Any:
    try:
        _, error = admin.describe_acls(wanted)
    except errors.KafkaError as raised:  # 2.2
        error = type(raised)
    return error


def test_acls_are_refused_without_an_authorizer(broker: Broker) -> None:
    pattern = ResourcePattern(ResourceType.TOPIC, "t")
    granted = ("User:a", "*", ACLOperation.READ, ACLPermissionType.ALLOW, pattern)
    with administering(broker.bootstrap) as admin:
        assert description_error(admin, ACLFilter(*granted)) is errors.SecurityDisabledError
        created = admin.create_acls([ACL(*granted)])
        assert not created["succeeded"]
        assert "SecurityDisabledError" in str(created["failed"])
        ((_, matching, error),) = admin.delete_acls([ACLFilter(*granted)])
        assert (matching, error) == ([], errors.SecurityDisabledError)
