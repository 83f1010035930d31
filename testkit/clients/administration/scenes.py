"""Topics, configs, records, groups and ACLs are described and changed, and wrong requests get Kafka's errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import pytest
from kwire_protocol.errors import ErrorCode

from testkit.basics.values import numbered
from testkit.basics.waiting import eventually
from testkit.clients import confluent
from testkit.clients.administration.client import (
    DEFAULT,
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    SET_FOR_TOPIC,
    Admin,
    Client,
    Config,
    FullAdmin,
    FullClient,
    FurtherAdmin,
    FurtherClient,
    Refused,
)
from testkit.clients.groups.client import Client as GroupClient
from testkit.clients.groups.client import Committed, Member, MemberConfig
from testkit.raw import nodes, topics
from testkit.raw.nodes import NODE
from testkit.servers.brokers import NODES, Broker

BEGAN_MS = 1_700_000_000_000


@contextmanager
def refused_with(code: ErrorCode, message: str = "") -> Iterator[None]:
    with pytest.raises(Refused) as refused:
        yield
    assert refused.value.code == code
    if refused.value.message:
        assert message in refused.value.message


class TopicScenes:
    client: ClassVar[Client]

    @pytest.fixture
    def admin(self, broker: Broker) -> Iterator[Admin]:
        with self.client.administering(broker.bootstrap) as admin:
            yield admin

    def test_a_created_topic_has_the_requested_partitions_and_configs(
        self, broker: Broker, admin: Admin, unique: Callable[[str], str]
    ) -> None:
        topic = unique("topic")
        wanted = {"retention.ms": "3600000", "cleanup.policy": "compact,delete"}
        admin.create(topic, 3, wanted)
        nodes.wait_until_led(broker.bootstrap, topic, 3)
        assert admin.partitions(topic) == 3
        assert topic in admin.topics()
        found = admin.configs(topic)
        own = {name: config.value for name, config in found.items() if config.source == SET_FOR_TOPIC}
        assert own == wanted
        assert found["max.message.bytes"] == Config("1048588", DEFAULT)

    def test_a_topic_cannot_be_created_twice(self, admin: Admin, topic: str) -> None:
        with refused_with(ErrorCode.TOPIC_ALREADY_EXISTS):
            admin.create(topic)

    def test_only_validating_creates_nothing(self, admin: Admin, unique: Callable[[str], str], topic: str) -> None:
        other = unique("topic")
        admin.create(other, 3, validate_only=True)
        assert other not in admin.topics()
        with refused_with(ErrorCode.TOPIC_ALREADY_EXISTS):
            admin.create(topic, validate_only=True)

    def test_a_deleted_topic_is_gone(self, broker: Broker, admin: Admin, topic: str) -> None:
        admin.delete(topic)
        nodes.wait_until_gone(broker.bootstrap, topic)
        assert topic not in admin.topics()
        with refused_with(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
            admin.delete(topic)

    def test_a_topic_grows_and_keeps_what_it_has(self, broker: Broker, admin: Admin, topic: str) -> None:
        confluent.fill(broker.bootstrap, topic, numbered(3))
        admin.grow(topic, 5, validate_only=True)
        assert admin.partitions(topic) == 1
        admin.grow(topic, 4)
        nodes.wait_until_led(broker.bootstrap, topic, 4)
        assert admin.partitions(topic) == 4
        confluent.fill(broker.bootstrap, topic, [b"in the last"], partition=3)

        def values(count: int, *partitions: int) -> list[bytes | None]:
            return confluent.values_of(confluent.read_all(broker.bootstrap, topic, count, partitions=partitions))

        assert values(3, 0) == numbered(3)
        assert values(1, 1, 2, 3) == [b"in the last"]

    @pytest.mark.parametrize("count", [1, 2])
    def test_a_topic_does_not_shrink_or_stay(self, admin: Admin, new_topic: Callable[..., str], count: int) -> None:
        topic = new_topic(partitions=2)
        with refused_with(ErrorCode.INVALID_PARTITIONS):
            admin.grow(topic, count)

    def test_a_topic_that_is_not_there_does_not_grow(self, admin: Admin, unique: Callable[[str], str]) -> None:
        with refused_with(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
            admin.grow(unique("nowhere"), 2)

    def test_an_altered_config_is_described(self, admin: Admin, topic: str) -> None:
        assert admin.configs(topic, "retention.ms") == {"retention.ms": Config("604800000", DEFAULT)}
        admin.alter(topic, "retention.ms", "1000000")
        expected = {"retention.ms": Config("1000000", SET_FOR_TOPIC)}
        eventually(lambda: admin.configs(topic, "retention.ms") == expected, "the new value")

    def test_the_cluster_has_the_broker_that_the_client_dialled(self, broker: Broker, admin: Admin) -> None:
        cluster = admin.cluster()
        assert sorted(cluster.addresses) == list(NODES)
        assert cluster.addresses[NODE] == broker.bootstrap
        assert cluster.cluster_id
        assert cluster.controller in NODES

    def test_deleted_records_are_gone_and_the_rest_keeps_its_offsets(
        self, broker: Broker, admin: Admin, new_topic: Callable[..., str]
    ) -> None:
        topic = new_topic(partitions=2)
        for partition in range(2):
            confluent.fill(broker.bootstrap, topic, numbered(10), partition=partition)
        assert admin.delete_records(topic, 0, 4) == 4
        assert admin.delete_records(topic, 0, 2) == 4  # it never goes back
        assert admin.delete_records(topic, 1, -1) == 10
        records = confluent.read_all(broker.bootstrap, topic, 6, partitions=[0, 1])
        assert [(it.partition(), it.offset()) for it in records] == [(0, offset) for offset in range(4, 10)]
        assert confluent.values_of(records) == numbered(10)[4:]

    def test_records_past_the_end_cannot_be_deleted(self, broker: Broker, admin: Admin, topic: str) -> None:
        confluent.fill(broker.bootstrap, topic, numbered(3))
        with refused_with(ErrorCode.OFFSET_OUT_OF_RANGE):
            admin.delete_records(topic, 0, 4)


class _GroupScenes:
    members: ClassVar[GroupClient]

    @contextmanager
    def member(self, broker: Broker, topic: str, group: str, **config: Any) -> Iterator[Member]:
        """The only member of the group, which has a partition of the topic; `config` as in MemberConfig."""
        confluent.fill(broker.bootstrap, topic, [b"there"])
        with self.members.joining(broker.bootstrap, MemberConfig(group=group, **config)) as member:
            member.subscribe(topic)
            member.take(1)
            yield member

    def commit(self, broker: Broker, group: str, topic: str, offsets: dict[int, Committed]) -> None:
        with self.members.assigned(broker.bootstrap, group, topic, sorted(offsets)) as outside:
            outside.commit_offsets(topic, offsets)


class GroupScenes(_GroupScenes):
    client: ClassVar[Client]

    def test_a_group_is_listed_with_its_offsets(self, broker: Broker, topic: str, group: str) -> None:
        kept = Committed(12, "note")
        self.commit(broker, group, topic, {0: kept})
        with self.client.administering(broker.bootstrap) as admin:
            assert group in admin.groups()
            assert admin.offsets(group) == {(topic, 0): kept}


class DeletionScenes(_GroupScenes):
    client: ClassVar[FullClient]

    @pytest.fixture
    def admin(self, broker: Broker) -> Iterator[FullAdmin]:
        with self.client.administering(broker.bootstrap) as admin:
            yield admin

    def test_a_deleted_group_is_gone_with_its_offsets(
        self, broker: Broker, admin: FullAdmin, topic: str, group: str
    ) -> None:
        self.commit(broker, group, topic, {0: Committed(12)})
        assert group in admin.groups()
        admin.delete_group(group)
        assert group not in admin.groups()
        assert admin.offsets(group) == {}
        with self.members.assigned(broker.bootstrap, group, topic) as outside:
            assert outside.committed(topic, 0) is None

    def test_a_group_with_members_is_not_deleted(
        self, broker: Broker, admin: FullAdmin, topic: str, group: str
    ) -> None:
        with self.member(broker, topic, group), refused_with(ErrorCode.NON_EMPTY_GROUP):
            admin.delete_group(group)

    def test_a_group_that_never_was_is_not_deleted(self, admin: FullAdmin, group: str) -> None:
        with refused_with(ErrorCode.GROUP_ID_NOT_FOUND):
            admin.delete_group(group)


class AclScenes:
    client: ClassVar[FullClient]

    def test_acls_are_refused_without_an_authorizer(self, broker: Broker) -> None:
        with self.client.administering(broker.bootstrap) as admin:
            for refused in (admin.create_acl, admin.delete_acls):
                with refused_with(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured"):
                    refused()


class FurtherScenes(_GroupScenes):
    client: ClassVar[FurtherClient]

    @pytest.fixture
    def admin(self, broker: Broker) -> Iterator[FurtherAdmin]:
        with self.client.administering(broker.bootstrap) as admin:
            yield admin

    def test_a_group_is_described_with_its_members_and_their_partitions(
        self, broker: Broker, admin: FurtherAdmin, new_topic: Callable[..., str], group: str
    ) -> None:
        topic = new_topic(partitions=3)
        config = {"client_id": "the-client", "instance": "the-instance", "strategy": "roundrobin"}
        with self.member(broker, topic, group, **config):
            found = admin.described(group)
        assert (found.state, found.strategy) == ("Stable", "roundrobin")
        (member,) = found.members
        assert (member.client_id, member.instance) == ("the-client", "the-instance")
        assert member.host.lstrip("/") == "127.0.0.1"
        assert member.partitions == [0, 1, 2]

    def test_a_group_is_listed_in_its_state(self, broker: Broker, admin: FurtherAdmin, topic: str, group: str) -> None:
        with self.member(broker, topic, group) as member:
            assert admin.listed(group) == "Stable"
            assert admin.listed(group, "Stable") == "Stable"
            assert admin.listed(group, "Empty") is None
            member.commit()
        assert admin.listed(group, "Empty") == "Empty"
        assert admin.listed(group, "Stable") is None

    def test_the_offsets_of_a_group_without_members_are_altered(
        self, broker: Broker, admin: FurtherAdmin, new_topic: Callable[..., str], group: str
    ) -> None:
        topic = new_topic(partitions=2)
        self.commit(broker, group, topic, {0: Committed(3), 1: Committed(8)})
        assert admin.offsets(group) == {(topic, 0): Committed(3), (topic, 1): Committed(8)}
        admin.alter_offsets(group, topic, {1: 5})
        assert admin.offsets(group) == {(topic, 0): Committed(3), (topic, 1): Committed(5)}

    def test_the_offsets_of_a_group_with_members_are_not_altered(
        self, broker: Broker, admin: FurtherAdmin, topic: str, group: str
    ) -> None:
        with self.member(broker, topic, group), refused_with(ErrorCode.UNKNOWN_MEMBER_ID):
            admin.alter_offsets(group, topic, {0: 5})

    @pytest.mark.parametrize("committed", [False, True], ids=["read_uncommitted", "read_committed"])
    def test_offsets_of_a_partition_by_every_kind_of_question(
        self, broker: Broker, admin: FurtherAdmin, topic: str, committed: bool
    ) -> None:
        with confluent.producing(broker.bootstrap) as producer:
            for time_ms in (10, 50, 30, 20):
                producer.produce(topic, b"value", timestamp=BEGAN_MS + time_ms)
        topics.delete_records(broker.bootstrap, topic, 1)

        def found(time: str | int) -> tuple[int, int]:
            return admin.offset_at(topic, time, committed=committed)

        assert found(EARLIEST) == (1, -1)
        assert found(LATEST) == (4, -1)
        assert found(MAX_TIMESTAMP) == (1, BEGAN_MS + 50)
        assert found(BEGAN_MS) == found(BEGAN_MS + 11) == (1, BEGAN_MS + 50)
        assert found(BEGAN_MS + 51) == (-1, -1)
