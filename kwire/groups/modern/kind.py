"""The part of a `kwire.groups.group.GroupKind` that all kinds share: a group's records, and its start and end."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from kwire.coordinators.effects import KeyedRecord, Step
from kwire.groups.group import GroupType
from kwire.groups.modern.changes import Change, EpochChange, read_change
from kwire.groups.modern.group import ModernGroup
from kwire.groups.modern.groups import Groups
from kwire.groups.modern.membership import Membership

G = TypeVar("G", bound=ModernGroup[Any, Any, Any, Any])


class ModernKind(Generic[G]):
    def __init__(self, groups: Groups[G], membership: Membership[G]) -> None:
        self.groups = groups
        self.membership = membership
        self._changes = groups.group_type.changes.by_record_type()

    @property
    def type(self) -> GroupType:
        return self.groups.group_type.type

    @property
    def record_types(self) -> frozenset[int]:
        return frozenset(self._changes)

    def apply(self, key: bytes, value: bytes | None) -> None:
        self.apply_change(read_change(self._changes, key, value))

    def apply_change(self, change: Change[Any]) -> None:
        group = self.groups.find(change.group_id)
        if group is None:
            if change.value is None:
                return
            group = self.groups.make(change.group_id)
        group.apply(change)
        if isinstance(change, EpochChange) and change.value is None:
            del self.groups.by_id[change.group_id]
            self.membership.stop_all(group)

    def tombstones(self, group_id: str) -> list[KeyedRecord]:
        return [removal.record() for removal in self.groups.get(group_id).removals()]

    def loaded(self, step: Step) -> None:
        for group in self.groups:
            self.membership.start_all(step, group)

    def unload(self, _: Step) -> None:
        """Does nothing, since no request is pending."""
        for group in self.groups:
            self.membership.stop_all(group)
