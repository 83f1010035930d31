"""Features of the third generation of kafka-python alone: most of the admin protocol, and static members.

Not named test_kafka_python_*, since those files are also run with the second generation.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import pytest
from kafka import OffsetAndMetadata, OffsetSpec, TopicPartition, errors
from kafka.admin import ConfigResource, ConfigResourceType, MemberToRemove, UpdateFeatureType

from testkit.basics.values import numbered
from testkit.basics.waiting import eventually
from testkit.clients.administration.client import FurtherClient
from testkit.clients.administration.newer_kafka_python import NewerKafkaPython
from testkit.clients.administration.scenes import FurtherScenes
from testkit.clients.groups import newer_kafka_python as members
from testkit.clients.groups.client import Client as GroupClient
from testkit.clients.groups.client import CooperativeClient
from testkit.clients.groups.scenes import CooperativeScenes, StaticScenes
from testkit.clients.kafka_python import administering, consuming, fill
from testkit.clients.kafka_python_groups import settle
from testkit.raw import nodes
from testkit.servers.brokers import NODES, Broker


class TestMembers(StaticScenes, CooperativeScenes):
    client: ClassVar[CooperativeClient] = members.NewerKafkaPython()


class TestFurther(FurtherScenes):
    client: ClassVar[FurtherClient] = NewerKafkaPython()
    members: ClassVar[GroupClient] = members.NewerKafkaPython()


@pytest.fixture
def admin(broker: Broker) -> Iterator[Any]:
    with administering(broker.bootstrap) as client:
        yield client


def config_of(admin: Any, topic: str) -> dict[str, str]:
    """The configs that are not defaults."""
    resource = ConfigResource(ConfigResourceType.TOPIC, topic)
    return {name: entry["value"] for name, entry in admin.describe_configs([resource])["topic"][topic].items()}


def commit(broker: Broker, group: str, offsets: dict[TopicPartition, int]) -> None:
    with consuming(broker.bootstrap, group_id=group) as consumer:
        consumer.assign(list(offsets))
        consumer.commit({partition: OffsetAndMetadata(offset, "", -1) for partition, offset in offsets.items()})


def test_the_old_way_to_alter_configs_replaces_all_of_them(admin: Any, new_topic: Callable[..., str]) -> None:
    topic = new_topic(config={"retention.ms": "1000000", "flush.messages": "5"})
    resource = ConfigResource(ConfigResourceType.TOPIC, topic, {"retention.ms": "2000000"})
    # `alter_configs` would add the configs that are missing here, so this calls what it calls after that.
    admin._manager.run(admin._send_alter_configs_requests, [resource], False, False)
    eventually(lambda: config_of(admin, topic) == {"retention.ms": "2000000"}, "only the new one")


def test_configs_are_reset_one_by_one(admin: Any, new_topic: Callable[..., str]) -> None:
    topic = new_topic(config={"retention.ms": "1000000", "flush.messages": "5"})
    admin.reset_configs([ConfigResource(ConfigResourceType.TOPIC, topic, ["retention.ms"])])
    eventually(lambda: config_of(admin, topic) == {"flush.messages": "5"}, "only the other one")


def test_topics_are_described_and_deleted_by_id(broker: Broker, admin: Any, topic: str) -> None:
    (by_name,) = admin.describe_topics([topic])
    topic_id = by_name["topic_id"]
    topic_id = topic_id if isinstance(topic_id, uuid.UUID) else uuid.UUID(str(topic_id))
    (by_id,) = admin.describe_topics([topic_id])
    assert by_id["name"] == topic
    admin.delete_topics([topic_id])
    nodes.wait_until_gone(broker.bootstrap, topic)
    assert topic not in admin.list_topics()
    with pytest.raises(errors.UnknownTopicIdError):
        admin.delete_topics([topic_id])


def test_partitions_are_described_page_by_page(admin: Any, new_topic: Callable[..., str]) -> None:
    names = sorted([new_topic(partitions=5), new_topic(partitions=3)])
    seen: list[tuple[str, int]] = []
    cursor, pages = None, 0
    while cursor is not None or not pages:
        page = admin.describe_topic_partitions(names, response_partition_limit=3, cursor=cursor)
        seen += [(it["name"], part["partition_index"]) for it in page["topics"] for part in it["partitions"]]
        for found in page["topics"]:
            for partition in found["partitions"]:
                assert partition["leader_id"] == partition["replica_nodes"][0]
                assert sorted(partition["isr_nodes"]) == sorted(partition["replica_nodes"]) == list(NODES)
        cursor, pages = page["next_cursor"], pages + 1
    assert pages == 3
    assert len(seen) == len(set(seen)) == 8
    assert {name for name, _ in seen} == set(names)


def test_an_unknown_topic_is_described_as_unknown(admin: Any, unique: Callable[[str], str]) -> None:
    (found,) = admin.describe_topic_partitions([unique("nowhere")])["topics"]
    assert found["error_code"] == errors.UnknownTopicOrPartitionError.errno


def test_groups_are_listed_by_type(broker: Broker, admin: Any, topic: str, group: str) -> None:
    def listed(kind: str) -> bool:
        return group in {found["group_id"] for found in admin.list_groups(types_filter=[kind])}

    commit(broker, group, {TopicPartition(topic, 0): 1})
    assert listed("classic")
    assert not listed("consumer")


def test_the_offsets_of_several_groups_come_in_one_answer(
    broker: Broker, admin: Any, topic: str, unique: Callable[[str], str]
) -> None:
    partition = TopicPartition(topic, 0)
    groups = [unique("group") for _ in range(3)]
    for number, group in enumerate(groups[:2]):
        commit(broker, group, {partition: 10 + number})
    found = admin.list_group_offsets({groups[0]: None, groups[1]: [partition], groups[2]: [partition]})
    assert [found[group][partition].offset for group in groups] == [10, 11, -1]


def test_offsets_are_reset_and_deleted(broker: Broker, admin: Any, new_topic: Callable[..., str], group: str) -> None:
    topic = new_topic(partitions=2)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    for number in range(2):
        fill(broker.bootstrap, topic, numbered(6), partition=number)
    commit(broker, group, {first: 1, second: 2})

    def offsets() -> dict[TopicPartition, int]:
        return {partition: found.offset for partition, found in admin.list_group_offsets(group)[group].items()}

    admin.reset_group_offsets(group, {first: OffsetSpec.LATEST})
    assert offsets() == {first: 6, second: 2}
    assert admin.delete_group_offsets(group, [first]) == {first: errors.NoError}
    assert offsets() == {second: 2}


def test_offsets_of_a_topic_that_is_read_are_not_deleted(broker: Broker, admin: Any, topic: str, group: str) -> None:
    partition = TopicPartition(topic, 0)
    with consuming(broker.bootstrap, topic, group_id=group) as consumer:
        settle([consumer], 1, most=1)
        consumer.commit({partition: OffsetAndMetadata(1, "", -1)})
        answer = admin.delete_group_offsets(group, [partition])
        assert answer == {partition: errors.GroupSubscribedToTopicError}
    with pytest.raises(errors.GroupIdNotFoundError):
        admin.delete_group_offsets(f"{group}-that-never-was", [partition])


def test_members_are_removed_by_an_administrator(
    broker: Broker, admin: Any, new_topic: Callable[..., str], group: str
) -> None:
    topic = new_topic(partitions=4)
    with consuming(broker.bootstrap, topic, group_id=group, group_instance_id="one") as one:
        with consuming(broker.bootstrap, topic, group_id=group, group_instance_id="two") as two:
            settle([one, two], 4, most=2)
        assert len(admin.describe_groups([group])[group]["members"]) == 2  # static: it is expected back
        answer = admin.remove_group_members(group, [MemberToRemove(group_instance_id="two")])
        assert list(answer.values()) == [errors.NoError]
        settle([one], 4, most=4)
        answer = admin.remove_group_members(group, [MemberToRemove(group_instance_id="two")])
        assert list(answer.values()) == [errors.UnknownMemberIdError]


def level_of(admin: Any, feature: str) -> int:
    lowest, highest = admin.describe_features()[feature]["finalized"]
    assert lowest == highest
    level: int = highest
    return level


def test_features_are_described_and_updated(admin: Any) -> None:
    features = admin.describe_features()
    assert features["transaction.version"]["supported"] == (0, 2)
    assert features["transaction.version"]["finalized"] == (2, 2)
    assert features["transaction.version"]["finalized_epoch"] > 0
    assert features["metadata.version"]["supported"] == (7, 30)
    down = {"transaction.version": (UpdateFeatureType.SAFE_DOWNGRADE, 1)}
    try:
        assert admin.update_features(down, validate_only=True) == {"transaction.version": "OK"}
        assert level_of(admin, "transaction.version") == 2
        assert admin.update_features(down) == {"transaction.version": "OK"}
        eventually(lambda: level_of(admin, "transaction.version") == 1, "level 1")
    finally:
        admin.update_features({"transaction.version": 2})
        eventually(lambda: level_of(admin, "transaction.version") == 2, "level 2")
    with pytest.raises(errors.InvalidUpdateVersionError):
        admin.update_features({"transaction.version": 3})
