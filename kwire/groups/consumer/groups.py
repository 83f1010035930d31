"""The consumer groups among all groups of a shard."""

from __future__ import annotations

from collections.abc import Iterator

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError, quoted

from kwire.groups.consumer.group import ConsumerGroup
from kwire.groups.group import Group


@attrs.define(eq=False)
class ConsumerGroups:
    """`by_id` is the shard's dictionary of all groups."""

    by_id: dict[str, Group]

    def find(self, group_id: str) -> ConsumerGroup | None:
        group = self.by_id.get(group_id)
        return group if isinstance(group, ConsumerGroup) else None

    def get(self, group_id: str) -> ConsumerGroup:
        """Raises KafkaError(GROUP_ID_NOT_FOUND)."""
        group = self.by_id.get(group_id)
        if isinstance(group, ConsumerGroup):
            return group
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {quoted(group_id)} not found.")
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {quoted(group_id)} is not a consumer group.")

    def __iter__(self) -> Iterator[ConsumerGroup]:
        """The current groups; groups may be added and removed during the iteration."""
        return iter([group for group in self.by_id.values() if isinstance(group, ConsumerGroup)])
