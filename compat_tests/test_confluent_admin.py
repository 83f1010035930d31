"""Administering with confluent-kafka (librdkafka), as every client must find it, and cases of this client alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import pytest
from confluent_kafka import ConsumerGroupState, KafkaError, TopicCollection
from confluent_kafka.admin import (
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from testkit.basics.waiting import eventually
from testkit.clients.administration.client import Client, FullClient, FurtherClient
from testkit.clients.administration.librdkafka import Confluent
from testkit.clients.administration.scenes import AclScenes, DeletionScenes, FurtherScenes, GroupScenes, TopicScenes
from testkit.clients.confluent import CALL_TIMEOUT_S, error_of
from testkit.clients.groups import librdkafka as members
from testkit.clients.groups.client import Client as GroupClient
from testkit.raw import nodes, topics
from testkit.servers.brokers import NODES, Broker

TIMEOUT = {"request_timeout": CALL_TIMEOUT_S}
_OPERATIONS = {
    "set": AlterConfigOpType.SET,
    "delete": AlterConfigOpType.DELETE,
    "append": AlterConfigOpType.APPEND,
    "subtract": AlterConfigOpType.SUBTRACT,
}


class TestTopics(TopicScenes):
    client: ClassVar[Client] = Confluent()


class TestGroups(GroupScenes):
    client: ClassVar[Client] = Confluent()
    members: ClassVar[GroupClient] = members.Confluent()


class TestDeletion(DeletionScenes):
    client: ClassVar[FullClient] = Confluent()
    members: ClassVar[GroupClient] = members.Confluent()


class TestFurther(FurtherScenes):
    client: ClassVar[FurtherClient] = Confluent()
    members: ClassVar[GroupClient] = members.Confluent()


class TestAcls(AclScenes):
    client: ClassVar[FullClient] = Confluent()


@pytest.fixture
def admin(broker: Broker) -> AdminClient:
    return topics.admin(broker.bootstrap)


def create(admin: AdminClient, *new: NewTopic, **options: Any) -> dict[str, int]:
    """Error code by topic; 0 is success."""
    futures = admin.create_topics(list(new), **TIMEOUT, **options)
    return {name: _code(future) for name, future in futures.items()}


def _code(future: Any) -> int:
    error = future.exception()
    return 0 if error is None else int(error.args[0].code())


def config_of(admin: AdminClient, kind: ResourceType, name: str) -> dict[str, ConfigEntry]:
    resource = ConfigResource(kind, name)
    found: dict[str, ConfigEntry] = admin.describe_configs([resource], **TIMEOUT)[resource].result()
    return found


def alter(
    admin: AdminClient, kind: ResourceType, name: str, *changes: tuple[str, str, str | None], **options: Any
) -> int:
    """Alters configs, each an operation, a name and a value; the error code."""
    entries = [ConfigEntry(key, value, incremental_operation=_OPERATIONS[what]) for what, key, value in changes]
    resource = ConfigResource(kind, name, incremental_configs=entries)
    return _code(admin.incremental_alter_configs([resource], **TIMEOUT, **options)[resource])


def test_several_topics_in_one_request_succeed_and_fail_each_for_itself(
    broker: Broker, admin: AdminClient, unique: Callable[[str], str], topic: str
) -> None:
    good, other = unique("good"), unique("other")
    codes = create(
        admin,
        NewTopic(good, 2, 1),
        NewTopic(topic, 1, 1),
        NewTopic("not/valid", 1, 1),
        NewTopic(other, 1, 1, config={"no.such.config": "1"}),
    )
    assert codes == {
        good: 0,
        topic: KafkaError.TOPIC_ALREADY_EXISTS,
        "not/valid": KafkaError.TOPIC_EXCEPTION,
        other: KafkaError.INVALID_CONFIG,
    }
    nodes.wait_until_led(broker.bootstrap, good, 2)


def test_counts_may_be_left_to_the_broker(broker: Broker, admin: AdminClient, unique: Callable[[str], str]) -> None:
    name = unique("defaults")
    assert create(admin, NewTopic(name)) == {name: 0}
    nodes.wait_until_led(broker.bootstrap, name, 1)
    assert len(admin.list_topics(timeout=CALL_TIMEOUT_S).topics[name].partitions) == 1


def test_names_that_differ_only_in_a_dot_and_an_underscore_collide(
    admin: AdminClient, unique: Callable[[str], str]
) -> None:
    stem = unique("collision")
    assert create(admin, NewTopic(f"{stem}.x", 1, 1)) == {f"{stem}.x": 0}
    assert create(admin, NewTopic(f"{stem}_x", 1, 1)) == {f"{stem}_x": KafkaError.TOPIC_EXCEPTION}


def test_a_described_topic_has_an_id_and_partitions_with_leaders(
    admin: AdminClient, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(partitions=2)
    description = admin.describe_topics(TopicCollection([topic]), **TIMEOUT)[topic].result()
    assert not description.is_internal
    assert str(description.topic_id)
    for number, partition in enumerate(description.partitions):
        assert partition.id == number
        assert partition.leader.id == partition.replicas[0].id
        assert sorted(replica.id for replica in partition.replicas) == list(NODES)
        assert sorted(replica.id for replica in partition.isr) == list(NODES)


def test_a_topic_made_again_has_another_id(broker: Broker, admin: AdminClient, topic: str) -> None:
    def id_of_topic() -> str:
        return str(admin.describe_topics(TopicCollection([topic]), **TIMEOUT)[topic].result().topic_id)

    before = id_of_topic()
    topics.delete(broker.bootstrap, topic)
    topics.create(broker.bootstrap, topic)
    assert id_of_topic() != before


def test_an_unknown_topic_cannot_be_described_or_deleted(admin: AdminClient, unique: Callable[[str], str]) -> None:
    name = unique("nowhere")
    futures = admin.describe_topics(TopicCollection([name]), **TIMEOUT)
    assert error_of(futures[name].result) == KafkaError.UNKNOWN_TOPIC_OR_PART
    assert _code(admin.delete_topics([name], **TIMEOUT)[name]) == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_a_config_shows_where_its_value_is_from(admin: AdminClient, new_topic: Callable[..., str]) -> None:
    topic = new_topic(config={"retention.ms": "1000000", "compression.type": "zstd"})
    found = config_of(admin, ResourceType.TOPIC, topic)
    assert found["retention.ms"].value == "1000000"
    assert found["retention.ms"].source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    assert not found["retention.ms"].is_default
    assert found["segment.bytes"].value == str(1 << 30)
    assert found["segment.bytes"].source == ConfigSource.DEFAULT_CONFIG.value
    assert found["segment.bytes"].is_default
    own = {name for name, entry in found.items() if entry.source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value}
    assert own == {"retention.ms", "compression.type"}
    assert found["retention.ms"].synonyms["retention.ms"].value == "1000000"
    assert found["max.message.bytes"].synonyms["message.max.bytes"].value == "1048588"


def test_configs_are_set_deleted_appended_and_subtracted(admin: AdminClient, topic: str) -> None:
    def value(name: str) -> str | None:
        found: str | None = config_of(admin, ResourceType.TOPIC, topic)[name].value
        return found

    steps: list[tuple[tuple[str, str, str | None], str]] = [
        (("set", "cleanup.policy", "compact"), "compact"),
        (("append", "cleanup.policy", "delete"), "compact,delete"),
        (("subtract", "cleanup.policy", "compact"), "delete"),
        (("set", "retention.ms", "5000000"), "5000000"),
        (("delete", "retention.ms", None), "604800000"),
    ]
    for change, expected in steps:
        assert alter(admin, ResourceType.TOPIC, topic, change) == 0
        eventually(lambda: value(change[1]) == expected, f"{change} gives {expected}")  # noqa: B023 - used at once


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (("set", "no.such.config", "1"), KafkaError.INVALID_CONFIG),
        (("set", "retention.ms", "soon"), KafkaError.INVALID_CONFIG),
        (("set", "cleanup.policy", "burn"), KafkaError.INVALID_CONFIG),
        (("set", "segment.bytes", "1000"), KafkaError.INVALID_CONFIG),
        (("append", "retention.ms", "1"), KafkaError.INVALID_CONFIG),
    ],
    ids=lambda value: " ".join(map(str, value)) if isinstance(value, tuple) else "",
)
def test_a_config_that_cannot_be_is_refused_and_changes_nothing(
    admin: AdminClient, topic: str, change: tuple[str, str, str], code: int
) -> None:
    assert alter(admin, ResourceType.TOPIC, topic, ("set", "flush.messages", "77"), change) == code
    assert config_of(admin, ResourceType.TOPIC, topic)["flush.messages"].is_default


def test_altering_an_unknown_topic_is_an_error(admin: AdminClient, unique: Callable[[str], str]) -> None:
    code = alter(admin, ResourceType.TOPIC, unique("nowhere"), ("set", "retention.ms", "1"))
    assert code == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_only_validating_alters_nothing(admin: AdminClient, topic: str) -> None:
    assert alter(admin, ResourceType.TOPIC, topic, ("set", "retention.ms", "1"), validate_only=True) == 0
    assert config_of(admin, ResourceType.TOPIC, topic)["retention.ms"].is_default


def test_a_broker_config_set_while_it_runs_holds_for_topics(admin: AdminClient, topic: str) -> None:
    name = "log.flush.interval.messages"

    def alter_all(what: str, value: str | None) -> None:
        for node in NODES:
            assert alter(admin, ResourceType.BROKER, str(node), (what, name, value)) == 0

    def sources_and_values() -> list[tuple[int, str]]:
        entries = [config_of(admin, ResourceType.BROKER, str(node))[name] for node in NODES]
        return [(entry.source, entry.value) for entry in entries]

    def of_the_topic() -> str:
        value: str = config_of(admin, ResourceType.TOPIC, topic)["flush.messages"].value
        return value

    before = sources_and_values()
    alter_all("set", "12345")
    try:
        expected = [(ConfigSource.DYNAMIC_BROKER_CONFIG.value, "12345")] * len(NODES)
        eventually(lambda: sources_and_values() == expected, "the brokers' new value")
        eventually(lambda: of_the_topic() == "12345", "the topic's new default")
    finally:
        alter_all("delete", None)
    eventually(lambda: sources_and_values() == before, "the old value")


def test_a_broker_config_that_needs_a_restart_is_refused(admin: AdminClient) -> None:
    node = str(admin.describe_cluster(**TIMEOUT).result().controller.id)
    code = alter(admin, ResourceType.BROKER, node, ("set", "log.dirs", "elsewhere"))
    assert code == KafkaError.INVALID_REQUEST


def test_a_group_that_never_was_is_described_as_dead(admin: AdminClient, group: str) -> None:
    description = admin.describe_consumer_groups([group], **TIMEOUT)[group].result()
    assert description.state == ConsumerGroupState.DEAD


def test_the_error_of_describing_acls_is_dropped_by_this_client(admin: AdminClient) -> None:
    wanted = AclBindingFilter(
        ResourceType.TOPIC, "t", ResourcePatternType.LITERAL, "User:a", "*", AclOperation.READ, AclPermissionType.ALLOW
    )
    assert admin.describe_acls(wanted).result() == []
