"""The classic groups among all groups of a shard."""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from kwire.groups.classic.group import ClassicGroup
from kwire.groups.group import Group


@attrs.define(eq=False)
class ClassicGroups:
    """`by_id` is the shard's dictionary of all groups. As in Kafka, groups of other kinds are unknown to these APIs."""

    by_id: dict[str, Group]

    def find(self, group_id: str) -> ClassicGroup | None:
        group = self.by_id.get(group_id)
        return group if isinstance(group, ClassicGroup) else None

    def is_of_other_kind(self, group_id: str) -> bool:
        group = self.by_id.get(group_id)
        return group is not None and not isinstance(group, ClassicGroup)

    def add(self, group: ClassicGroup) -> None:
        self.by_id[group.group_id] = group

    def remove(self, group_id: str) -> ClassicGroup | None:
        """Removes and returns the group; None if there is no classic group with that id."""
        group = self.find(group_id)
        if group is not None:
            del self.by_id[group_id]
        return group

    def __iter__(self) -> Iterator[ClassicGroup]:
        """The current groups; groups may be added and removed during the iteration."""
        return iter([group for group in self.by_id.values() if isinstance(group, ClassicGroup)])
