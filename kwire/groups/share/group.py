"""The state of one share group: what its records say, and what follows from them.

    group epoch        grows whenever a new assignment is needed: members came, left or changed their subscriptions, the
                       topics changed, or partitions were initialized
    assignment epoch   the group epoch for which the target assignment was computed
    member epoch       the assignment epoch that the member has moved to

    Empty    no members
    Stable   any members

`apply` is the only way to change what the records say, at the replay as later. It returns the change that undoes it.
"""

from __future__ import annotations

from enum import Enum
from typing import ClassVar, Final, NoReturn, TypeVar

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError, quoted
from kwire_protocol.messages.list_groups import ListedGroup
from kwire_protocol.wire import Uuid

from kwire.coordinators.deadlines import Deadline
from kwire.groups.assignors.assignor import Assignment
from kwire.groups.group import CheckPartition, Committer, GroupType
from kwire.groups.share.changes import (
    AssignmentEpoch,
    AssignmentEpochChange,
    Change,
    CurrentChange,
    EpochChange,
    GroupEpoch,
    MemberChange,
    StatesChange,
    TargetChange,
)
from kwire.groups.share.member import NEW_MEMBER, CurrentAssignment, ShareMember
from kwire.groups.share.states import PartitionStates

SHARE_PROTOCOL_TYPE: Final = "share"
NO_STATES: Final = PartitionStates()

V = TypeVar("V")


class GroupState(Enum):
    """The values are the names in ListGroups and ShareGroupDescribe."""

    EMPTY = "Empty"
    STABLE = "Stable"


@attrs.define(eq=False)
class ShareGroup:
    """A `kwire.groups.group.Group`."""

    type: ClassVar = GroupType.SHARE

    group_id: str
    epoch: int = 0
    metadata_hash: int = 0
    """Of the subscribed topics as of this epoch (`topics.py`)."""
    assignment_epoch: int = 0
    assignment_timestamp_ms: int = 0
    """When the target was computed; 0 if that is unknown."""
    members: dict[str, ShareMember] = attrs.field(factory=dict)
    current: dict[str, CurrentAssignment] = attrs.field(factory=dict)
    targets: dict[str, Assignment] = attrs.field(factory=dict)
    states: PartitionStates = NO_STATES

    topic_subscribers: dict[str, int] = attrs.field(factory=dict)
    """Topic -> how many members name it in their subscription."""

    sessions: dict[str, Deadline] = attrs.field(factory=dict)
    """The members' sessions, which are not in the log: whoever loads the group starts them anew."""
    topics_version: int = -1
    """The version of the topics for which the group was checked last. -1: they must be looked at."""
    initializing_since_ms: dict[Uuid, int] = attrs.field(factory=dict)
    """Topic id -> when the share coordinator was asked last, or the group was loaded. Monotonic."""

    # What it is

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def state(self) -> GroupState:
        return GroupState.STABLE if self.members else GroupState.EMPTY

    def listed(self) -> ListedGroup:
        return ListedGroup(
            group_id=self.group_id,
            protocol_type=SHARE_PROTOCOL_TYPE,
            group_state=self.state.value,
            group_type=self.type.value,
        )

    def assignment_of(self, member_id: str) -> CurrentAssignment:
        return self.current.get(member_id, NEW_MEMBER)

    def member(self, member_id: str) -> ShareMember:
        """Raises KafkaError(UNKNOWN_MEMBER_ID)."""
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"Member {quoted(member_id)} is not a member of group {quoted(self.group_id)}.",
            )
        return member

    def removals(self) -> list[Change]:
        """What removes the group and everything in it, in an order that a replay can follow."""
        group_id = self.group_id
        removals: list[Change] = [CurrentChange(group_id, member_id, None) for member_id in self.current]
        removals += [TargetChange(group_id, member_id, None) for member_id in self.targets]
        removals.append(AssignmentEpochChange(group_id, None))
        removals += [MemberChange(group_id, member_id, None) for member_id in self.members]
        removals.append(StatesChange(group_id, None))
        removals.append(EpochChange(group_id, None))
        return removals

    # Offsets and deletion: the group has no committed offsets

    def reads(self, topic: str) -> bool:
        return topic in self.topic_subscribers

    def offset_unused_since_ms(self, commit_timestamp_ms: int) -> int | None:
        return commit_timestamp_ms

    def _has_no_offsets(self) -> NoReturn:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {quoted(self.group_id)} is not a consumer group.")

    def check_commit(self, committer: Committer) -> CheckPartition:  # noqa: ARG002
        self._has_no_offsets()

    def check_transactional_commit(self, committer: Committer) -> CheckPartition:  # noqa: ARG002
        self._has_no_offsets()

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:  # noqa: ARG002
        self._has_no_offsets()

    def check_offset_delete(self) -> None:
        self._has_no_offsets()

    def check_delete(self) -> None:
        if self.members:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)

    # Changes

    def apply(self, change: Change) -> Change:
        """Makes the change and returns the one that undoes it."""
        match change:
            case EpochChange():
                before = GroupEpoch(self.epoch, self.metadata_hash)
                after = change.value or GroupEpoch(0, 0)
                self.epoch, self.metadata_hash = after.epoch, after.metadata_hash
                return EpochChange(self.group_id, before)
            case AssignmentEpochChange():
                was = AssignmentEpoch(self.assignment_epoch, self.assignment_timestamp_ms)
                now = change.value or AssignmentEpoch(0, 0)
                self.assignment_epoch, self.assignment_timestamp_ms = now.epoch, now.timestamp_ms
                return AssignmentEpochChange(self.group_id, was)
            case MemberChange():
                return MemberChange(self.group_id, change.member_id, self._set_member(change.member_id, change.value))
            case CurrentChange():
                return CurrentChange(
                    self.group_id, change.member_id, _put(self.current, change.member_id, change.value)
                )
            case TargetChange():
                return TargetChange(self.group_id, change.member_id, _put(self.targets, change.member_id, change.value))
            case StatesChange():
                states, self.states = self.states, change.value or NO_STATES
                return StatesChange(self.group_id, states)

    def _set_member(self, member_id: str, member: ShareMember | None) -> ShareMember | None:
        before = _put(self.members, member_id, member)
        for topic in () if before is None else before.subscribed_topic_names:
            self._count(topic, -1)
        for topic in () if member is None else member.subscribed_topic_names:
            self._count(topic, 1)
        return before

    def _count(self, topic: str, by: int) -> None:
        count = self.topic_subscribers.get(topic, 0) + by
        if count:
            self.topic_subscribers[topic] = count
        else:
            del self.topic_subscribers[topic]


def _put(values: dict[str, V], key: str, value: V | None) -> V | None:
    before = values.get(key)
    if value is None:
        values.pop(key, None)
    else:
        values[key] = value
    return before
