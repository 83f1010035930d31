"""The state of one share group.

Empty    no members
Stable   any members
"""

from __future__ import annotations

from enum import Enum
from typing import Any, ClassVar, Final, NoReturn

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError, quoted
from kwire_protocol.wire import Uuid

from kwire.groups.assignors.assignor import Assignment
from kwire.groups.group import CheckPartition, Committer, GroupType
from kwire.groups.modern.changes import Change
from kwire.groups.modern.group import MemberTimers, ModernGroup, add
from kwire.groups.share.changes import CHANGES, StatesChange
from kwire.groups.share.member import NEW_MEMBER, CurrentAssignment, ShareMember
from kwire.groups.share.states import PartitionStates

NO_STATES: Final = PartitionStates()


class GroupState(Enum):
    """The values are the names in ListGroups and ShareGroupDescribe."""

    EMPTY = "Empty"
    STABLE = "Stable"


@attrs.define(eq=False)
class ShareGroup(ModernGroup[ShareMember, CurrentAssignment, Assignment, MemberTimers]):
    """A `kwire.groups.group.Group`."""

    type: ClassVar = GroupType.SHARE
    protocol_type: ClassVar = "share"
    changes: ClassVar = CHANGES

    states: PartitionStates = NO_STATES
    topic_subscribers: dict[str, int] = attrs.field(factory=dict)
    """Topic -> the number of members that subscribe to it."""
    settled_version: int = -1
    """The version of the topics with which all partitions that members subscribe to are initialized and assigned.

    -1 after any change of the group: then the partitions have to be checked.
    """
    initializing_since_ms: dict[Uuid, int] = attrs.field(factory=dict)
    """Topic id -> the time of the last request to the share coordinator, or of the group's load. Monotonic clock."""
    not_initialized_because: str = ""
    """The errors of the share coordinator's last answer, which have been logged."""

    # State

    @property
    def state(self) -> GroupState:
        return GroupState.STABLE if self.members else GroupState.EMPTY

    def state_name(self) -> str:
        return self.state.value

    def assignment_of(self, member_id: str) -> CurrentAssignment:
        return self.current.get(member_id, NEW_MEMBER)

    def own_removals(self) -> list[Change[Any]]:
        return [StatesChange(self.group_id, None)]

    # Offsets: the group has no committed ones

    def reads(self, topic: str) -> bool:
        return topic in self.topic_subscribers

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

    # Changes

    def apply(self, change: Change[Any]) -> Change[Any]:
        self.settled_version = -1
        return super().apply(change)

    def known(self, member_id: str, member: ShareMember) -> None:  # noqa: ARG002
        for topic in member.subscribed_topic_names:
            add(self.topic_subscribers, topic, 1)

    def forgotten(self, member_id: str, member: ShareMember) -> None:  # noqa: ARG002
        for topic in member.subscribed_topic_names:
            add(self.topic_subscribers, topic, -1)

    def set_own(self, change: Change[Any]) -> PartitionStates:
        assert isinstance(change, StatesChange)
        before, self.states = self.states, change.value or NO_STATES
        return before
