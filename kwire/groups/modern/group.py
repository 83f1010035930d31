"""The state of one group: its records, and the state derived from them.

Only `apply` changes the state of the records, at the replay and later. It returns the change that undoes it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar, Final, Generic, TypeVar

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError, quoted
from kwire_protocol.messages.list_groups import ListedGroup

from kwire.coordinators.deadlines import Deadline
from kwire.groups.group import Group, GroupType
from kwire.groups.modern.changes import (
    AssignmentEpoch,
    AssignmentEpochChange,
    Change,
    ChangeTypes,
    CurrentChange,
    EpochChange,
    GroupEpoch,
    MemberChange,
    TargetChange,
)

K = TypeVar("K")
V = TypeVar("V")
M = TypeVar("M")
"""The type of a member's request."""
C = TypeVar("C")
"""The type of a member's current assignment."""
T = TypeVar("T")
"""The type of a member's part of the target assignment."""


FIRST_EPOCH: Final = 1
"""Group epoch and assignment epoch of a new group. Its members have it until there is something to assign."""


@attrs.define(eq=False)
class MemberTimers:
    """The deadlines of one member. They are not in the log: the coordinator that loads the group restarts them."""

    session: Deadline

    def __iter__(self) -> Iterator[Deadline]:
        yield self.session


TT = TypeVar("TT", bound=MemberTimers)


@attrs.define(eq=False)
class ModernGroup(Group, ABC, Generic[M, C, T, TT]):
    """The part of a `kwire.groups.group.Group` that all kinds share."""

    type: ClassVar[GroupType]
    protocol_type: ClassVar[str]
    """The protocol type in ListGroups."""
    changes: ClassVar[ChangeTypes]

    group_id: str
    epoch: int = FIRST_EPOCH
    metadata_hash: int = 0
    """The hash of the topics that the group reads, as of this epoch (`topics.py`)."""
    assignment_epoch: int = FIRST_EPOCH
    assignment_timestamp_ms: int = 0
    """The time at which the target was computed; 0 if unknown."""
    members: dict[str, M] = attrs.field(factory=dict)
    current: dict[str, C] = attrs.field(factory=dict)
    targets: dict[str, T] = attrs.field(factory=dict)

    timers: dict[str, TT] = attrs.field(factory=dict)
    topics_version: int = -1
    """The version of the topics for which the group was checked last. -1: it must be checked."""

    # State

    @property
    def is_empty(self) -> bool:
        return not self.members

    @abstractmethod
    def state_name(self) -> str:
        """The name of the state in ListGroups."""

    def listed(self) -> ListedGroup:
        return ListedGroup(
            group_id=self.group_id,
            protocol_type=self.protocol_type,
            group_state=self.state_name(),
            group_type=self.type.value,
        )

    def member(self, member_id: str) -> M:
        """Returns the member with this id. Raises KafkaError(UNKNOWN_MEMBER_ID)."""
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"Member {quoted(member_id)} is not a member of group {quoted(self.group_id)}.",
            )
        return member

    def offset_unused_since_ms(self, commit_timestamp_ms: int) -> int | None:
        return commit_timestamp_ms

    def check_delete(self) -> None:
        if self.members:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP, "The group is not empty.")

    # Removals

    def removals(self) -> list[Change[Any]]:
        """Returns the changes that remove the group and everything in it, in an order that a replay can follow."""
        group_id, changes = self.group_id, self.changes
        removals: list[Change[Any]] = [changes.current(group_id, member_id, None) for member_id in self.current]
        removals += [changes.target(group_id, member_id, None) for member_id in self.targets]
        removals.append(changes.assignment_epoch(group_id, None))
        removals += [changes.member(group_id, member_id, None) for member_id in self.members]
        removals += self.own_removals()
        removals.append(changes.epoch(group_id, None))
        return removals

    def own_removals(self) -> list[Change[Any]]:
        """Returns the changes that remove the records that other kinds do not have."""
        return []

    def removals_of_member(self, member_id: str) -> list[Change[Any]]:
        """Returns the changes that remove the member."""
        types = (self.changes.current, self.changes.target, self.changes.member)
        return [of_type(self.group_id, member_id, None) for of_type in types]

    # Changes

    def apply(self, change: Change[Any]) -> Change[Any]:
        """Makes the change and returns the one that undoes it."""
        before: Any
        match change:
            case EpochChange():
                before = self.set_epoch(change.value)
            case AssignmentEpochChange():
                before = AssignmentEpoch(self.assignment_epoch, self.assignment_timestamp_ms)
                after = change.value or AssignmentEpoch(0, 0)
                self.assignment_epoch, self.assignment_timestamp_ms = after.epoch, after.timestamp_ms
            case MemberChange():
                before = self.set_member(change.member_id, change.value)
            case CurrentChange():
                before = self.set_current(change.member_id, change.value)
            case TargetChange():
                before = put(self.targets, change.member_id, change.value)
            case _:
                before = self.set_own(change)
        return change.with_value(before)

    def set_epoch(self, epoch: GroupEpoch | None) -> GroupEpoch | None:
        before = GroupEpoch(self.epoch, self.metadata_hash)
        after = epoch or GroupEpoch(0, 0)
        self.epoch, self.metadata_hash = after.epoch, after.metadata_hash
        return before

    def set_member(self, member_id: str, member: M | None) -> M | None:
        before = put(self.members, member_id, member)
        if before is not None:
            self.forgotten(member_id, before)
        if member is not None:
            self.known(member_id, member)
        return before

    def known(self, member_id: str, member: M) -> None:
        """Called when a member was added, or its request replaced by this one."""

    def forgotten(self, member_id: str, member: M) -> None:
        """Called when a member was removed, or this request of the member replaced."""

    def set_current(self, member_id: str, current: C | None) -> C | None:
        return put(self.current, member_id, current)

    def set_own(self, change: Change[Any]) -> object:
        """Makes a change that other kinds do not have, and returns the value before."""
        raise TypeError(f"{type(self).__name__} has no {type(change).__name__}")


def put(values: dict[K, V], key: K, value: V | None) -> V | None:
    """Sets a value, or removes it if it is None. Returns the previous value."""
    before = values.get(key)
    if value is None:
        values.pop(key, None)
    else:
        values[key] = value
    return before


def add(counts: dict[K, int], key: K, by: int) -> None:
    """Changes a count; one of 0 is removed."""
    count = counts.get(key, 0) + by
    if count:
        counts[key] = count
    else:
        del counts[key]
