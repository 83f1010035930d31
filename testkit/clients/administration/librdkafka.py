"""confluent-kafka (librdkafka)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import attrs
from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaException,
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
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourcePatternType,
    ResourceType,
)

from testkit.clients.administration.client import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    Cluster,
    Config,
    DescribedGroup,
    DescribedMember,
    Refused,
)
from testkit.clients.confluent import CALL_TIMEOUT_S
from testkit.clients.groups.client import Committed
from testkit.raw import topics

_TIMEOUT = {"request_timeout": CALL_TIMEOUT_S}
_ACL = (
    (ResourceType.TOPIC, "t", ResourcePatternType.LITERAL),
    ("User:a", "*", AclOperation.READ, AclPermissionType.ALLOW),
)


def _result(future: Any) -> Any:
    try:
        return future.result()
    except KafkaException as error:
        raise Refused(error.args[0].code(), error.args[0].str()) from error


@attrs.frozen
class _Admin:
    _client: AdminClient

    def create(
        self,
        topic: str,
        partitions: int = 1,
        configs: Mapping[str, str] | None = None,
        *,
        validate_only: bool = False,
    ) -> None:
        new = NewTopic(topic, partitions, 1, config=dict(configs or {}))
        _result(self._client.create_topics([new], validate_only=validate_only, **_TIMEOUT)[topic])

    def delete(self, topic: str) -> None:
        _result(self._client.delete_topics([topic], **_TIMEOUT)[topic])

    def grow(self, topic: str, partitions: int, *, validate_only: bool = False) -> None:
        new = NewPartitions(topic, partitions)
        _result(self._client.create_partitions([new], validate_only=validate_only, **_TIMEOUT)[topic])

    def topics(self) -> set[str]:
        return set(self._client.list_topics(timeout=CALL_TIMEOUT_S).topics)

    def partitions(self, topic: str) -> int:
        return len(self._client.list_topics(timeout=CALL_TIMEOUT_S).topics[topic].partitions)

    def configs(self, topic: str, *names: str) -> dict[str, Config]:
        # The client always requests all configs.
        resource = ConfigResource(ResourceType.TOPIC, topic)
        found = _result(self._client.describe_configs([resource], **_TIMEOUT)[resource])
        return {name: Config(it.value, it.source) for name, it in found.items() if not names or name in names}

    def alter(self, topic: str, name: str, value: str) -> None:
        entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        _result(self._client.incremental_alter_configs([resource], **_TIMEOUT)[resource])

    def cluster(self) -> Cluster:
        found = _result(self._client.describe_cluster(**_TIMEOUT))
        addresses = {it.id: f"{it.host}:{it.port}" for it in found.nodes}
        return Cluster(found.cluster_id, found.controller.id, addresses)

    def delete_records(self, topic: str, partition: int, before: int) -> int:
        tp = TopicPartition(topic, partition, before)
        return int(_result(self._client.delete_records([tp], **_TIMEOUT)[tp]).low_watermark)

    def groups(self) -> set[str]:
        return {it.group_id for it in self._groups().valid}

    def _groups(self, *states: str) -> Any:
        wanted = {ConsumerGroupState[it.upper()] for it in states} or None
        found = _result(self._client.list_consumer_groups(states=wanted, **_TIMEOUT))
        assert not found.errors
        return found

    def offsets(self, group: str) -> dict[tuple[str, int], Committed]:
        request = ConsumerGroupTopicPartitions(group)
        found = _result(self._client.list_consumer_group_offsets([request], **_TIMEOUT)[group])
        return {(it.topic, it.partition): Committed(it.offset, it.metadata or "") for it in found.topic_partitions}

    def delete_group(self, group: str) -> None:
        _result(self._client.delete_consumer_groups([group], **_TIMEOUT)[group])

    def create_acl(self) -> None:
        pattern, granted = _ACL
        binding = AclBinding(*pattern, *granted)
        _result(self._client.create_acls([binding], **_TIMEOUT)[binding])

    def delete_acls(self) -> None:
        pattern, granted = _ACL
        wanted = AclBindingFilter(*pattern, *granted)
        _result(self._client.delete_acls([wanted], **_TIMEOUT)[wanted])

    def described(self, group: str) -> DescribedGroup:
        found = _result(self._client.describe_consumer_groups([group], **_TIMEOUT)[group])
        assert not found.is_simple_consumer_group
        members = [
            DescribedMember(
                it.client_id,
                it.group_instance_id,
                it.host,
                sorted(partition.partition for partition in it.assignment.topic_partitions),
            )
            for it in found.members
        ]
        return DescribedGroup(found.state.name.capitalize(), found.partition_assignor, members)

    def listed(self, group: str, *states: str) -> str | None:
        found = self._groups(*states).valid
        return next((it.state.name.capitalize() for it in found if it.group_id == group), None)

    def alter_offsets(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        wanted = [TopicPartition(topic, partition, offset) for partition, offset in offsets.items()]
        request = ConsumerGroupTopicPartitions(group, wanted)
        found = _result(self._client.alter_consumer_group_offsets([request], **_TIMEOUT)[group])
        for it in found.topic_partitions:
            if it.error is not None:
                raise Refused(it.error.code(), it.error.str())

    def offset_at(self, topic: str, time: str | int, *, committed: bool) -> tuple[int, int]:
        named = {
            EARLIEST: OffsetSpec.earliest,
            LATEST: OffsetSpec.latest,
            MAX_TIMESTAMP: OffsetSpec.max_timestamp,
        }
        spec = named[time]() if isinstance(time, str) else OffsetSpec.for_timestamp(time)
        level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        partition = TopicPartition(topic, 0)
        found = _result(self._client.list_offsets({partition: spec}, isolation_level=level, **_TIMEOUT)[partition])
        return found.offset, found.timestamp


@attrs.frozen
class Confluent:
    @contextmanager
    def administering(self, bootstrap: str) -> Iterator[_Admin]:
        yield _Admin(topics.admin(bootstrap))
