"""The share groups among all groups of a shard."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError, quoted

from kwire.groups.draft import Draft
from kwire.groups.group import Group
from kwire.groups.share.group import ShareGroup


@attrs.define(eq=False)
class ShareGroups:
    """`by_id` is the shard's dictionary of all groups."""

    by_id: dict[str, Group]

    def find(self, group_id: str) -> ShareGroup | None:
        group = self.by_id.get(group_id)
        return group if isinstance(group, ShareGroup) else None

    def get(self, group_id: str) -> ShareGroup:
        """Raises KafkaError(GROUP_ID_NOT_FOUND)."""
        group = self.by_id.get(group_id)
        if isinstance(group, ShareGroup):
            return group
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {quoted(group_id)} not found.")
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {quoted(group_id)} is not a share group.")

    def get_or_make(self, draft: Draft, group_id: str) -> ShareGroup:
        """Raises KafkaError(GROUP_ID_NOT_FOUND) if there is a group of another kind."""
        if group_id in self.by_id:
            return self.get(group_id)
        group = self.by_id[group_id] = ShareGroup(group_id)
        draft.did(None, partial(self.by_id.pop, group_id))
        return group

    def __iter__(self) -> Iterator[ShareGroup]:
        """The current groups; groups may be added and removed during the iteration."""
        return iter([group for group in self.by_id.values() if isinstance(group, ShareGroup)])
