"""The state of one classic group, and the rules that need nothing but that state.

In a classic group the clients assign partitions among themselves. The coordinator only collects members, lets them vote
for a protocol, picks a leader, and distributes the leader's assignment, generation by generation:

    Empty -> PreparingRebalance -> CompletingRebalance -> Stable
      ^        (JoinGroup)            (SyncGroup)           |
      |             ^-------------------------------------- |   a member joined, left, timed out or changed its metadata
      +--------------------------- the last member went ----+
    Dead: the group is gone from this coordinator

This module runs no timers and sends no replies. `Member` and `ClassicGroup` carry the timers and the tokens of parked
requests for `rebalance.py`, the only module that changes a group's state.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import ClassVar

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError, quoted
from kwire_protocol.messages.join_group import JoinGroupResponseMember
from kwire_protocol.messages.list_groups import ListedGroup

from kwire.coordinators.deadlines import Deadline
from kwire.coordinators.effects import Token
from kwire.groups.classic.subscription import CONSUMER_PROTOCOL_TYPE, subscribed_topics
from kwire.groups.group import CheckPartition, Committer, GroupType, accept_all

Protocols = dict[str, bytes]
"""Protocol name -> the member's metadata for it, in the member's order of preference."""


class GroupState(Enum):
    """The values are the names in ListGroups and DescribeGroups."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


@attrs.define(eq=False)
class Member:
    """A member. `is_new` until its first JoinGroup is answered: without its id it cannot send heartbeats."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    assignment: bytes = b""
    is_new: bool = False
    join_token: Token | None = None
    sync_token: Token | None = None
    session: Deadline = attrs.field(factory=Deadline)

    @property
    def is_static(self) -> bool:
        return self.group_instance_id is not None

    @property
    def is_parked(self) -> bool:
        """True if it waits for a reply and so sends no heartbeats (unless it is new: its client may be gone)."""
        return not self.is_new and (self.join_token is not None or self.sync_token is not None)

    def offers(self, protocols: Protocols) -> bool:
        """True if these are the member's protocols, with the same metadata and order of preference."""
        return list(self.protocols.items()) == list(protocols.items())


@attrs.define(eq=False)
class ClassicGroup:
    """A `kwire.groups.group.Group`."""

    type: ClassVar = GroupType.CLASSIC

    group_id: str
    state: GroupState = GroupState.EMPTY
    previous_state: GroupState = GroupState.DEAD
    state_timestamp_ms: int = -1
    """The time at which it entered its state, in milliseconds since 1970; -1 if an old record did not have it."""
    generation: int = 0
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader_id: str | None = None
    members: dict[str, Member] = attrs.field(factory=dict)
    static_members: dict[str, str] = attrs.field(factory=dict)
    """group.instance.id -> member id."""
    pending_members: dict[str, Deadline] = attrs.field(factory=dict)
    """Ids given out with MEMBER_ID_REQUIRED that have not joined yet, each with its deadline."""
    pending_sync: set[str] = attrs.field(factory=set)
    """Members of this generation that have not sent SyncGroup."""
    awaiting_join: int = 0
    """The number of members parked in JoinGroup."""
    new_member_added: bool = False
    """A member joined during the initial delay, which is then extended."""
    topics: frozenset[str] | None = None
    """The subscribed topics, None when unknown."""
    unrecorded: int = 0
    """The number of consecutive generations whose assignment could not be recorded."""
    joins_until_ms: int = 0
    """The joining does not end before this time, on the monotonic clock."""
    join_timer: Deadline = attrs.field(factory=Deadline)
    sync_timer: Deadline = attrs.field(factory=Deadline)
    _supporters: dict[str, int] = attrs.field(factory=dict)
    """Protocol name -> the number of members that support it."""

    def state_name(self) -> str:
        return self.state.value

    @property
    def is_empty(self) -> bool:
        return self.state is GroupState.EMPTY

    @property
    def uses_consumer_protocol(self) -> bool:
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    @property
    def all_joined(self) -> bool:
        return len(self.members) == self.awaiting_join and not self.pending_members

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def is_leader(self, member_id: str) -> bool:
        return self.leader_id == member_id

    def listed(self) -> ListedGroup:
        return ListedGroup(
            group_id=self.group_id,
            protocol_type=self.protocol_type or "",
            group_state=self.state_name(),
            group_type=self.type.value,
        )

    def transition_to(self, state: GroupState, now_ms: int) -> None:
        self.previous_state, self.state, self.state_timestamp_ms = self.state, state, now_ms

    # Members

    def add(self, member: Member) -> None:
        """Adds a member whose protocols `supports` has accepted; the first one becomes the leader."""
        if member.group_instance_id is not None:
            assert member.group_instance_id not in self.static_members
            self.static_members[member.group_instance_id] = member.member_id
        if not self.members:
            self.protocol_type = member.protocol_type
        assert self.protocol_type == member.protocol_type
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        self._count(member.protocols, 1)
        if member.join_token is not None:
            self.awaiting_join += 1

    def remove(self, member_id: str) -> Member | None:
        """Removes a member; if it was the leader, the longest-standing member becomes the leader."""
        member = self.members.pop(member_id, None)
        if member is not None:
            self._count(member.protocols, -1)
            if member.join_token is not None:
                self.awaiting_join -= 1
            if member.group_instance_id is not None:
                self.static_members.pop(member.group_instance_id, None)
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        self.pending_sync.discard(member_id)
        return member

    def replace_static(self, old_id: str, new_id: str) -> Member:
        """Gives a static member a new member id and keeps all else. Its parked requests must have been answered."""
        old = self.members.pop(old_id)
        assert old.group_instance_id is not None
        assert old.join_token is None
        assert old.sync_token is None
        member = attrs.evolve(old, member_id=new_id, is_new=False, session=Deadline())
        self.members[new_id] = member
        if self.leader_id == old_id:
            self.leader_id = new_id
        self.static_members[old.group_instance_id] = new_id
        # In Kafka the old id stays among those that have yet to sync; there it would only spoil the next generation.
        if old_id in self.pending_sync:
            self.pending_sync.remove(old_id)
            self.pending_sync.add(new_id)
        return member

    def set_protocols(self, member: Member, protocols: Protocols) -> None:
        self._count(member.protocols, -1)
        member.protocols = protocols
        self._count(protocols, 1)

    def park_join(self, member: Member, token: Token | None) -> None:
        """Sets or clears the member's waiting JoinGroup."""
        self.awaiting_join += (token is not None) - (member.join_token is not None)
        member.join_token = token

    def check_member(self, member_id: str, group_instance_id: str | None) -> Member:
        """The member with that id. Raises KafkaError(UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID)."""
        if group_instance_id is not None:
            current_id = self.static_members.get(group_instance_id)
            if current_id is None:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
            if current_id != member_id:
                raise KafkaError(ErrorCode.FENCED_INSTANCE_ID)
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        return member

    # Protocols

    def supports(self, protocol_type: str, protocols: Iterable[str]) -> bool:
        """True if a member with these protocols can be in the group: all members must share a protocol."""
        if self.state is GroupState.EMPTY:
            return bool(protocol_type) and any(True for _ in protocols)
        size = len(self.members)
        return protocol_type == self.protocol_type and any(self._supporters.get(name, 0) == size for name in protocols)

    def select_protocol(self) -> str:
        """Each member votes for its first protocol that all support. Most votes win, then the earliest vote."""
        size = len(self.members)
        candidates = {name for name, count in self._supporters.items() if count == size}
        votes: dict[str, int] = {}
        for member in self.members.values():
            vote = next(name for name in member.protocols if name in candidates)
            votes[vote] = votes.get(vote, 0) + 1
        return max(votes, key=votes.__getitem__)

    def _count(self, protocols: Protocols, by: int) -> None:
        for name in protocols:
            count = self._supporters.get(name, 0) + by
            if count:
                self._supporters[name] = count
            else:
                del self._supporters[name]

    # Generations

    def begin_generation(self, now_ms: int) -> None:
        """Starts the next generation with the current members: CompletingRebalance, or Empty without members."""
        self.generation += 1
        self.pending_sync.clear()
        self.protocol_name = self.select_protocol() if self.members else None
        self.topics = self.find_topics()
        self.transition_to(GroupState.COMPLETING_REBALANCE if self.members else GroupState.EMPTY, now_ms)

    def find_topics(self) -> frozenset[str] | None:
        """The topics that the members subscribe to under the chosen protocol; None if that is unknown."""
        if not self.uses_consumer_protocol:
            return None
        if not self.members:
            return frozenset()
        name = self.protocol_name
        if name is None:
            return None
        return subscribed_topics(member.protocols[name] for member in self.members.values())

    def reads(self, topic: str) -> bool:
        """True if the topic's offsets are in use. Consumers with unknown topics might read any topic."""
        return self.uses_consumer_protocol if self.topics is None else topic in self.topics

    def roster(self) -> list[JoinGroupResponseMember]:
        """Every member with its metadata under the chosen protocol, which the leader uses to assign partitions."""
        assert self.protocol_name is not None
        name = self.protocol_name
        return [
            JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                metadata=member.protocols[name],
            )
            for member in self.members.values()
        ]

    # Offsets and deletion

    def offset_unused_since_ms(self, commit_timestamp_ms: int) -> int | None:
        """The retention counts
        * from when the group became empty, for a group that had members;
        * from the commit, for a simple group, and while a stable group of consumers is not subscribed to the topic;
        * not at all otherwise.
        """
        if self.protocol_type is None:
            return commit_timestamp_ms
        if self.state is GroupState.EMPTY:
            return commit_timestamp_ms if self.state_timestamp_ms == -1 else self.state_timestamp_ms
        if self.state is GroupState.STABLE and self.topics is not None:
            return commit_timestamp_ms
        return None

    def check_commit(self, committer: Committer) -> CheckPartition:
        """Raises KafkaError if this member may not commit offsets now.

        A generation of -1 without a member is a consumer without group management, or an administrator: it may commit
        while the group has no members.
        """
        if self.state is GroupState.DEAD:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if committer.generation_or_epoch < 0 and self.state is GroupState.EMPTY:
            return accept_all
        if committer.names_a_member:
            self._check_generation(committer)
        elif self.state is not GroupState.EMPTY:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        if self.state is GroupState.COMPLETING_REBALANCE:
            # The member has joined the new generation but does not have its assignment yet: it must sync first.
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
        return accept_all

    def check_transactional_commit(self, committer: Committer) -> CheckPartition:
        """Raises KafkaError if offsets may not be committed in a transaction now.

        Unlike OffsetCommit, it is accepted without a member, since clients up to v2 do not name theirs, and also during
        a rebalance.
        """
        if self.state is GroupState.DEAD:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if committer.generation_or_epoch < 0 and self.state is GroupState.EMPTY:
            return accept_all
        if committer.names_a_member:
            self._check_generation(committer)
        return accept_all

    def _check_generation(self, committer: Committer) -> None:
        self.check_member(committer.member_id, committer.group_instance_id)
        if committer.generation_or_epoch != self.generation:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Classic groups have no member epochs: anyone may read their offsets."""

    def check_offset_delete(self) -> None:
        """Raises KafkaError if offsets may not be deleted. Other protocols than the consumer's keep all offsets."""
        if self.state is GroupState.DEAD:
            raise self._gone()
        if self.state is not GroupState.EMPTY and not self.uses_consumer_protocol:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)

    def check_delete(self) -> None:
        if self.state is GroupState.DEAD:
            raise self._gone()
        if self.state is not GroupState.EMPTY:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)

    def _gone(self) -> KafkaError:
        return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {quoted(self.group_id)} not found.")
