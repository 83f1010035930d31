"""The state of one consumer group.

Empty        no members
Assigning    the target is older than the group epoch
Reconciling  some members have not reached the target
Stable       all have
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Any, ClassVar

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError, quoted
from kwire_protocol.wire import Uuid

from kwire.coordinators.deadlines import Deadline
from kwire.groups.assignors.assignor import Assignment
from kwire.groups.classic.subscription import CONSUMER_PROTOCOL_TYPE
from kwire.groups.consumer.changes import CHANGES, RegexChange, ResolvedRegex
from kwire.groups.consumer.member import NEW_MEMBER, CurrentAssignment, MemberMetadata, Partitions
from kwire.groups.group import CheckPartition, Committer, GroupType, accept_all
from kwire.groups.modern import group as modern
from kwire.groups.modern.changes import Change
from kwire.groups.modern.group import ModernGroup, add, put

FIRST_COMMIT_VERSION_WITH_MEMBER_EPOCH = 9


class GroupState(Enum):
    """The values are the names in ListGroups and ConsumerGroupDescribe."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


@attrs.define(eq=False)
class MemberTimers(modern.MemberTimers):
    """`join` and `sync` are of members that use the classic protocol."""

    rebalance: Deadline
    join: Deadline
    sync: Deadline

    def __iter__(self) -> Iterator[Deadline]:
        return iter((self.session, self.rebalance, self.join, self.sync))


@attrs.define(eq=False)
class ConsumerGroup(ModernGroup[MemberMetadata, CurrentAssignment, Assignment, MemberTimers]):
    """A `kwire.groups.group.Group`."""

    type: ClassVar = GroupType.CONSUMER
    protocol_type: ClassVar = CONSUMER_PROTOCOL_TYPE
    changes: ClassVar = CHANGES

    regexes: dict[str, ResolvedRegex] = attrs.field(factory=dict)
    """The regular expressions that members subscribe to, once they have been matched with the topics."""

    static_members: dict[str, str] = attrs.field(factory=dict)
    """Instance id -> member id."""
    owners: dict[Uuid, dict[int, str]] = attrs.field(factory=dict)
    """Topic id -> partition -> the member that has it, or has not yet given it up."""
    topic_subscribers: dict[str, int] = attrs.field(factory=dict)
    """Topic -> the number of members that subscribe to it by name."""
    regex_subscribers: dict[str, int] = attrs.field(factory=dict)
    classic_protocols: dict[str, int] = attrs.field(factory=dict)
    """Assignor -> the number of members of the classic protocol that support it."""
    classic_members: int = 0

    regexes_version: int = -1
    regexes_refreshed_at_ms: int | None = None
    """The monotonic clock, in milliseconds."""

    # State

    @property
    def state(self) -> GroupState:
        if not self.members:
            return GroupState.EMPTY
        if self.epoch > self.assignment_epoch:
            return GroupState.ASSIGNING
        if all(self.assignment_of(member_id).is_reconciled_to(self.assignment_epoch) for member_id in self.members):
            return GroupState.STABLE
        return GroupState.RECONCILING

    def state_name(self) -> str:
        return self.state.value

    def assignment_of(self, member_id: str) -> CurrentAssignment:
        return self.current.get(member_id, NEW_MEMBER)

    def identified(self, member_id: str, instance_id: str | None) -> MemberMetadata:
        """The member, a static one if it has an instance id. KafkaError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID."""
        if instance_id is None:
            return self.member(member_id)
        current_id = self.static_members.get(instance_id)
        if current_id is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {quoted(instance_id)} is unknown.")
        if current_id != member_id:
            raise KafkaError(
                ErrorCode.FENCED_INSTANCE_ID,
                f"Static member {quoted(member_id)} with instance id {quoted(instance_id)} "
                f"was fenced by member {quoted(current_id)}.",
            )
        return self.members[current_id]

    def subscribed_topics(self) -> set[str]:
        """The names of all topics that a member subscribes to, by name or by a regular expression."""
        return set(self.topic_subscribers).union(*(it.topics for it in self.regexes.values()))

    def subscription_of(self, member: MemberMetadata) -> frozenset[str]:
        """The member's topics. As in Kafka, an expression that has not been matched yet yields none."""
        regex = self.regexes.get(member.subscribed_topic_regex)
        if regex is None:
            return member.subscribed_topic_names
        return member.subscribed_topic_names | regex.topics if member.subscribed_topic_names else regex.topics

    def is_free(self, topic_id: Uuid, partition: int, member_id: str) -> bool:
        """True if no other member has the partition."""
        return self.owners.get(topic_id, {}).get(partition, member_id) == member_id

    def waits_for_others(self, member_id: str) -> bool:
        """True if another member still has a partition of this member's target."""
        return any(
            not self.is_free(topic_id, partition, member_id)
            for topic_id, partitions in self.targets.get(member_id, {}).items()
            for partition in partitions
        )

    def all_classic_without(self, leaving: Iterable[str]) -> bool:
        """True if only members of the classic protocol remain, and a member of the consumer protocol leaves."""
        gone = [self.members[member_id] for member_id in leaving]
        others = len(self.members) - len(gone)
        classic_gone = sum(member.classic is not None for member in gone)
        return classic_gone < len(gone) and self.classic_members - classic_gone == others

    def supports_classic(self, protocol_type: str, protocols: Iterable[str]) -> bool:
        """True if a member of the classic protocol can join: all members of that protocol must share an assignor."""
        return protocol_type == CONSUMER_PROTOCOL_TYPE and any(
            self.classic_protocols.get(name, 0) == self.classic_members for name in protocols
        )

    def own_removals(self) -> list[Change[Any]]:
        return [RegexChange(self.group_id, regex, None) for regex in self.regexes]

    # Offsets

    def reads(self, topic: str) -> bool:
        return topic in self.topic_subscribers or any(topic in regex.topics for regex in self.regexes.values())

    def check_commit(self, committer: Committer) -> CheckPartition:
        """Returns the check of a commit. With an earlier epoch a member may commit what it had then (KIP-1251)."""
        if committer.generation_or_epoch < 0 and not self.members:
            return accept_all
        member = self.member(committer.member_id)
        if member.classic is None and committer.api_version < FIRST_COMMIT_VERSION_WITH_MEMBER_EPOCH:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                "OffsetCommit version 9 or above must be used by members using the consumer group protocol",
            )
        stale = ErrorCode.STALE_MEMBER_EPOCH if member.classic is None else ErrorCode.ILLEGAL_GENERATION
        return self._check_epoch(member, committer.generation_or_epoch, stale)

    def check_transactional_commit(self, committer: Committer) -> CheckPartition:
        """Unlike OffsetCommit, it is accepted without a member: clients up to v2 do not send one.

        Producers do not support STALE_MEMBER_EPOCH: groups of every kind return ILLEGAL_GENERATION instead.
        """
        if not committer.names_a_member or (committer.generation_or_epoch < 0 and not self.members):
            return accept_all
        member = self.member(committer.member_id)
        return self._check_epoch(member, committer.generation_or_epoch, ErrorCode.ILLEGAL_GENERATION)

    def _check_epoch(self, member: MemberMetadata, epoch: int, stale: ErrorCode) -> CheckPartition:
        current = self.assignment_of(member.member_id)
        if epoch == current.epoch:
            return accept_all
        if epoch > current.epoch:
            raise KafkaError(stale)

        def check(_topic: str, topic_id: Uuid, partition: int) -> ErrorCode:
            assigned_in = current.assignment_epoch(topic_id, partition)
            return stale if assigned_in is None or epoch < assigned_in else ErrorCode.NONE

        return check

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        if member_id is None:
            if member_epoch < 0:
                return
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "a member epoch without a member id")
        member = self.member(member_id)
        if member_epoch != self.assignment_of(member.member_id).epoch:
            raise KafkaError(ErrorCode.STALE_MEMBER_EPOCH if member.classic is None else ErrorCode.ILLEGAL_GENERATION)

    def check_offset_delete(self) -> None:
        """Offsets may be deleted only for topics that the group does not read."""

    # Changes

    def known(self, member_id: str, member: MemberMetadata) -> None:
        self._count(member, 1)
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member_id

    def forgotten(self, member_id: str, member: MemberMetadata) -> None:
        self._count(member, -1)
        if member.instance_id is not None and self.static_members.get(member.instance_id) == member_id:
            del self.static_members[member.instance_id]

    def _count(self, member: MemberMetadata, by: int) -> None:
        for topic in member.subscribed_topic_names:
            add(self.topic_subscribers, topic, by)
        if member.subscribed_topic_regex:
            add(self.regex_subscribers, member.subscribed_topic_regex, by)
        if member.classic is not None:
            self.classic_members += by
            for protocol in member.classic.protocols:
                add(self.classic_protocols, protocol, by)

    def set_own(self, change: Change[Any]) -> ResolvedRegex | None:
        assert isinstance(change, RegexChange)
        return put(self.regexes, change.regex, change.value)

    def set_current(self, member_id: str, current: CurrentAssignment | None) -> CurrentAssignment | None:
        before = self.current.get(member_id)
        if before is not None:
            self._release(member_id, before.assigned)
            self._release(member_id, before.pending_revocation)
        put(self.current, member_id, current)
        if current is not None:
            self._take(member_id, current.assigned)
            self._take(member_id, current.pending_revocation)
        return before

    def _take(self, member_id: str, partitions: Partitions) -> None:
        for topic_id, of_topic in partitions.items():
            owners = self.owners.setdefault(topic_id, {})
            for partition in of_topic:
                owners[partition] = member_id

    def _release(self, member_id: str, partitions: Partitions) -> None:
        """Releases the partitions, except those owned by another member, as in a log that was not written here."""
        for topic_id, of_topic in partitions.items():
            owners = self.owners.get(topic_id, {})
            for partition in of_topic:
                if owners.get(partition) == member_id:
                    del owners[partition]
            if not owners:
                self.owners.pop(topic_id, None)
