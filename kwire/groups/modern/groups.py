"""The groups of one kind among all groups of a shard."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, Generic, TypeVar

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError, quoted

from kwire.groups.draft import Draft
from kwire.groups.group import Group
from kwire.groups.modern.group import ModernGroup

G = TypeVar("G", bound=ModernGroup[Any, Any, Any, Any])


@attrs.define(eq=False)
class Groups(Generic[G]):
    """`group_type` is the kind's class of groups, and `by_id` the shard's dictionary of all groups."""

    group_type: type[G]
    by_id: dict[str, Group]

    def find(self, group_id: str) -> G | None:
        group = self.by_id.get(group_id)
        return group if isinstance(group, self.group_type) else None

    def get(self, group_id: str) -> G:
        """Returns the group with this id. Raises KafkaError(GROUP_ID_NOT_FOUND)."""
        group = self.by_id.get(group_id)
        if isinstance(group, self.group_type):
            return group
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {quoted(group_id)} not found.")
        kind = self.group_type.type.value
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {quoted(group_id)} is not a {kind} group.")

    def make(self, group_id: str) -> G:
        """Creates a group, in place of any other with this id."""
        group = self.group_type(group_id)
        self.by_id[group_id] = group
        return group

    def get_or_make(self, draft: Draft, group_id: str) -> G:
        """Returns the group, a new one if necessary. Raises KafkaError(GROUP_ID_NOT_FOUND) if it is of another kind."""
        if group_id in self.by_id:
            return self.get(group_id)
        draft.did(None, partial(self.by_id.pop, group_id))
        return self.make(group_id)

    def __iter__(self) -> Iterator[G]:
        """The current groups; groups may be added and removed during the iteration."""
        return iter([group for group in self.by_id.values() if isinstance(group, self.group_type)])
