"""Administering with confluent-kafka."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourcePatternType,
    ResourceType,
)

from testkit.basics.values import numbered
from testkit.basics.waiting import Deadline, eventually
from testkit.clients.confluent import (
    CALL_TIMEOUT_S,
    consuming,
    error_of,
    fill,
    group_of,
    producing,
    read_all,
    values_of,
)
from testkit.raw import nodes, topics
from testkit.raw.nodes import NODE
from testkit.servers.brokers import NODES, Broker

TIMEOUT = {"request_timeout": CALL_TIMEOUT_S}
BEGAN_MS = 1_700_000_000_000
_OPERATIONS = {
    "set": AlterConfigOpType.SET,
    "delete": AlterConfigOpType.DELETE,
    "append": AlterConfigOpType.APPEND,
    "subtract": AlterConfigOpType.SUBTRACT,
}


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


def test_only_validating_creates_nothing(admin: AdminClient, unique: Callable[[str], str]) -> None:
    name = unique("dry")
    assert create(admin, NewTopic(name, 3, 1), validate_only=True) == {name: 0}
    assert name not in admin.list_topics(timeout=CALL_TIMEOUT_S).topics


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


def test_partitions_grow_and_never_shrink(broker: Broker, admin: AdminClient, topic: str) -> None:
    def grow(name: str, count: int, **options: Any) -> int:
        return _code(admin.create_partitions([NewPartitions(name, count)], **TIMEOUT, **options)[name])

    assert grow(topic, 5, validate_only=True) == 0
    assert len(admin.list_topics(timeout=CALL_TIMEOUT_S).topics[topic].partitions) == 1
    topics.grow(broker.bootstrap, topic, 3)
    assert grow(topic, 3) == KafkaError.INVALID_PARTITIONS
    assert grow(topic, 2) == KafkaError.INVALID_PARTITIONS
    assert grow(topic + "-nowhere", 2) == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_a_config_tells_where_its_value_is_from(admin: AdminClient, new_topic: Callable[..., str]) -> None:
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


def test_the_cluster_has_the_broker_that_the_client_dialled(broker: Broker, admin: AdminClient) -> None:
    cluster = admin.describe_cluster(**TIMEOUT).result()
    addresses = {node.id: f"{node.host}:{node.port}" for node in cluster.nodes}
    assert sorted(addresses) == list(NODES)
    assert addresses[NODE] == broker.bootstrap
    assert cluster.controller.id in NODES
    assert cluster.cluster_id


def test_a_group_is_described_with_its_members_and_their_partitions(
    broker: Broker, admin: AdminClient, new_topic: Callable[..., str], group: str
) -> None:
    topic = new_topic(partitions=3)
    config = {"group.id": group, "client.id": "the-client", "partition.assignment.strategy": "roundrobin"}
    with consuming(broker.bootstrap, topic, **config, **{"group.instance.id": "the-instance"}) as consumer:
        deadline = Deadline()
        while len(group_of(consumer)) < 3 and deadline.not_over("the assignment"):
            consumer.poll(0.05)
        description = admin.describe_consumer_groups([group], **TIMEOUT)[group].result()
        assert description.state == ConsumerGroupState.STABLE
        assert description.partition_assignor == "roundrobin"
        assert not description.is_simple_consumer_group
        (member,) = description.members
        assert (member.client_id, member.group_instance_id) == ("the-client", "the-instance")
        assert member.host.lstrip("/") == "127.0.0.1"
        assert sorted(it.partition for it in member.assignment.topic_partitions) == [0, 1, 2]


def test_a_group_is_listed_in_its_state(broker: Broker, admin: AdminClient, topic: str, group: str) -> None:
    def listed(*states: ConsumerGroupState) -> ConsumerGroupState | None:
        found = admin.list_consumer_groups(states=set(states) or None, **TIMEOUT).result()
        assert not found.errors
        return next((it.state for it in found.valid if it.group_id == group), None)

    with consuming(broker.bootstrap, topic, **{"group.id": group}) as consumer:
        deadline = Deadline()
        while not group_of(consumer) and deadline.not_over("the assignment"):
            consumer.poll(0.05)
        assert listed() == ConsumerGroupState.STABLE
        assert listed(ConsumerGroupState.EMPTY) is None
        consumer.commit(offsets=[TopicPartition(topic, 0, 0)], asynchronous=False)
    assert listed(ConsumerGroupState.EMPTY) == ConsumerGroupState.EMPTY
    assert listed(ConsumerGroupState.STABLE) is None


def test_a_group_that_never_was_is_dead_and_cannot_be_deleted(admin: AdminClient, group: str) -> None:
    description = admin.describe_consumer_groups([group], **TIMEOUT)[group].result()
    assert description.state == ConsumerGroupState.DEAD
    assert _code(admin.delete_consumer_groups([group], **TIMEOUT)[group]) == KafkaError.GROUP_ID_NOT_FOUND


def test_the_offsets_of_an_empty_group_are_listed_altered_and_deleted(
    broker: Broker, admin: AdminClient, new_topic: Callable[..., str], group: str
) -> None:
    topic = new_topic(partitions=2)

    def offsets() -> dict[int, int]:
        found = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)], **TIMEOUT)[group].result()
        return {it.partition: it.offset for it in found.topic_partitions}

    with consuming(broker.bootstrap, **{"group.id": group}) as consumer:
        consumer.commit(offsets=[TopicPartition(topic, 0, 3), TopicPartition(topic, 1, 8)], asynchronous=False)
    assert offsets() == {0: 3, 1: 8}
    wanted = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 1, 5)])
    admin.alter_consumer_group_offsets([wanted], **TIMEOUT)[group].result()
    assert offsets() == {0: 3, 1: 5}
    admin.delete_consumer_groups([group], **TIMEOUT)[group].result()
    with consuming(broker.bootstrap, **{"group.id": group}) as consumer:
        (committed,) = consumer.committed([TopicPartition(topic, 0)], timeout=CALL_TIMEOUT_S)
        assert committed.offset < 0


def test_the_offsets_of_a_group_with_members_are_not_altered(
    broker: Broker, admin: AdminClient, topic: str, group: str
) -> None:
    with consuming(broker.bootstrap, topic, **{"group.id": group}) as consumer:
        deadline = Deadline()
        while not group_of(consumer) and deadline.not_over("the assignment"):
            consumer.poll(0.05)
        wanted = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 5)])
        found = admin.alter_consumer_group_offsets([wanted], **TIMEOUT)[group].result()
        assert found.topic_partitions[0].error.code() == KafkaError.UNKNOWN_MEMBER_ID
        assert _code(admin.delete_consumer_groups([group], **TIMEOUT)[group]) == KafkaError.NON_EMPTY_GROUP


@pytest.mark.parametrize("isolation", [IsolationLevel.READ_UNCOMMITTED, IsolationLevel.READ_COMMITTED], ids=str)
def test_offsets_are_listed_by_every_kind_of_question(
    broker: Broker, admin: AdminClient, topic: str, isolation: IsolationLevel
) -> None:
    with producing(broker.bootstrap) as producer:
        for time_ms in (10, 50, 30, 20):
            producer.produce(topic, b"value", timestamp=BEGAN_MS + time_ms)
    topics.delete_records(broker.bootstrap, topic, 1)

    def ask(spec: OffsetSpec) -> tuple[int, int]:
        partition = TopicPartition(topic, 0)
        answer = admin.list_offsets({partition: spec}, isolation_level=isolation, **TIMEOUT)[partition].result()
        return answer.offset, answer.timestamp

    assert ask(OffsetSpec.earliest())[0] == 1
    assert ask(OffsetSpec.latest())[0] == 4
    assert ask(OffsetSpec.max_timestamp()) == (1, BEGAN_MS + 50)
    assert ask(OffsetSpec.for_timestamp(BEGAN_MS)) == (1, BEGAN_MS + 50)
    assert ask(OffsetSpec.for_timestamp(BEGAN_MS + 51)) == (-1, -1)


def test_records_are_deleted_up_to_an_offset_or_to_the_end(
    broker: Broker, admin: AdminClient, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(partitions=2)
    for number in range(2):
        fill(broker.bootstrap, topic, numbered(6), partition=number)

    def delete(partition: int, before: int) -> int:
        asked = TopicPartition(topic, partition, before)
        deleted = admin.delete_records([asked], **TIMEOUT)[asked].result()
        return int(deleted.low_watermark)

    assert delete(0, 4) == 4
    assert delete(0, 2) == 4  # it never goes back
    assert delete(1, -1) == 6
    assert error_of(lambda: delete(0, 7)) == KafkaError.OFFSET_OUT_OF_RANGE
    assert values_of(read_all(broker.bootstrap, topic, 2, partitions=[0, 1])) == numbered(6)[4:]


def test_acls_are_refused_without_an_authorizer(broker: Broker) -> None:
    pattern = (ResourceType.TOPIC, "t", ResourcePatternType.LITERAL)
    granted = ("User:a", "*", AclOperation.READ, AclPermissionType.ALLOW)
    binding, wanted = AclBinding(*pattern, *granted), AclBindingFilter(*pattern, *granted)
    client = topics.admin(broker.bootstrap)
    assert client.describe_acls(wanted).result() == [], "this client drops the error of a description"
    for refused in (client.create_acls([binding])[binding], client.delete_acls([wanted])[wanted]):
        with pytest.raises(KafkaException) as raised:
            refused.result()
        assert raised.value.args[0].code() == KafkaError.SECURITY_DISABLED
        assert "No Authorizer is configured" in raised.value.args[0].str()
