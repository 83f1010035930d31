"""A group changes its kind: from the classic protocol to the consumer protocol and back, while it runs (KIP-848).

* A member that joins an empty group with the other protocol makes it a group of that kind. Its offsets stay.
* The first ConsumerGroupHeartbeat to a classic group with members makes it a consumer group (upgrade). Its members keep
  their partitions, and continue with the classic protocol's requests (`consumer/classic_members.py`).
* When the last member of the consumer protocol leaves, the group becomes classic again (downgrade). Its members rejoin.

`group.consumer.migration.policy` defines which of the last two are allowed. The records of the old kind are removed and
those of the new one written in one append. Kafka's `ConsumerGroupMigrationPolicy` and `GroupMetadataManager`.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from functools import partial
from typing import TypeVar

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.internal.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
)
from kwire_protocol.kafka_error import KafkaError, quoted
from kwire_protocol.wire import ProtocolError, Reader, Writer

from kwire.coordinators.effects import Step
from kwire.groups.classic.group import ClassicGroup
from kwire.groups.classic.group import GroupState as ClassicState
from kwire.groups.classic.group import Member as ClassicMember
from kwire.groups.classic.kind import ClassicKind
from kwire.groups.classic.records import generation_record
from kwire.groups.classic.subscription import CONSUMER_PROTOCOL_TYPE
from kwire.groups.config import GroupConfig
from kwire.groups.consumer.changes import (
    AssignmentEpochChange,
    CurrentChange,
    EpochChange,
    MemberChange,
    TargetChange,
)
from kwire.groups.consumer.group import ConsumerGroup
from kwire.groups.consumer.member import (
    ClassicProtocol,
    CurrentAssignment,
    MemberMetadata,
    MemberState,
    Owned,
    Partitions,
)
from kwire.groups.draft import Draft
from kwire.groups.group import Group
from kwire.groups.modern.changes import AssignmentEpoch, GroupEpoch
from kwire.groups.streams.group import StreamsGroup
from kwire.groups.topics import Topics
from kwire.runtime.callbacks import ignore

log = logging.getLogger(__name__)

G = TypeVar("G", bound=Group)

_LATEST = ConsumerProtocolSubscription.versions[-1]


@attrs.define(eq=False)
class Migration:
    """`groups` are all groups of the shard."""

    config: GroupConfig
    groups: dict[str, Group]
    topics: Topics
    classic: ClassicKind

    # To a consumer group

    def consumer_group(self, draft: Draft, group_id: str) -> ConsumerGroup:
        """Returns the group for a member that joins with the consumer protocol: created, converted, or existing.

        Raises KafkaError(GROUP_ID_NOT_FOUND) if there is a group of another kind that cannot be converted.
        """
        group = self.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            return group
        if group is None:
            return self._put(draft, ConsumerGroup(group_id))
        if not isinstance(group, ClassicGroup):
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {quoted(group_id)} is not a consumer group.")
        if group.is_empty:
            return self._replace_empty_classic(draft, group, ConsumerGroup(group_id))
        consumer = self._upgrade(draft, group)
        draft.then(partial(self._retire_classic, group))
        return consumer

    def _replace_empty_classic(self, draft: Draft, group: ClassicGroup, successor: G) -> G:
        group_id = group.group_id
        draft.say(log, "group %a: an empty classic group becomes a %s group", group_id, successor.type.value)
        # They must be made before the group is removed from the dictionary.
        tombstones = self.classic.tombstones(group_id)
        self._put(draft, successor)
        for record in tombstones:
            draft.did(record, ignore)
        draft.then(partial(self._retire_classic, group))
        return successor

    def _retire_classic(self, group: ClassicGroup, step: Step) -> None:
        self.classic.give_up(step, group)

    def _upgrade(self, draft: Draft, group: ClassicGroup) -> ConsumerGroup:
        group_id = group.group_id
        refusal = self._refusal(group)
        if refusal is not None:
            log.info("group %a: no upgrade: %s", group_id, refusal)
            raise KafkaError(
                ErrorCode.GROUP_ID_NOT_FOUND,
                f"Cannot upgrade classic group {group_id} to consumer group because {refusal}",
            )
        members = {member_id: self._converted(group, member) for member_id, member in group.members.items()}
        draft.say(log, "group %a: the classic group becomes a consumer group", group_id)
        consumer = self._put(draft, ConsumerGroup(group_id))
        for record in self.classic.tombstones(group_id):
            draft.did(record, ignore)
        for member_id, (member, _) in members.items():
            draft.change(consumer, MemberChange(group_id, member_id, member))
        draft.change(consumer, EpochChange(group_id, GroupEpoch(group.generation, 0)))
        for member_id, (_, current) in members.items():
            target = {topic_id: frozenset(partitions) for topic_id, partitions in current.assigned.items()}
            draft.change(consumer, TargetChange(group_id, member_id, target))
        draft.change(consumer, AssignmentEpochChange(group_id, AssignmentEpoch(group.generation, 0)))
        for member_id, (_, current) in members.items():
            draft.change(consumer, CurrentChange(group_id, member_id, current))
        return consumer

    def _refusal(self, group: ClassicGroup) -> str | None:
        """Returns the reason why the group cannot be upgraded; None if it can."""
        if not self.config.consumer_migration_policy.allows_upgrade:
            return "online upgrade is disabled."
        if not group.uses_consumer_protocol or group.protocol_name is None:
            return "the group does not use the consumer embedded protocol."
        if len(group.members) > self.config.consumer_max_size:
            return "the group size exceeds the consumer group maximum size."
        return None

    def _converted(self, group: ClassicGroup, member: ClassicMember) -> tuple[MemberMetadata, CurrentAssignment]:
        """The member as it was in the classic group's last generation."""
        assert group.protocol_name is not None
        try:
            subscription = read_subscription(member.protocols[group.protocol_name])
            assignment, user_data = _read_assignment(member.assignment)
        except ProtocolError as error:
            raise KafkaError(
                ErrorCode.GROUP_ID_NOT_FOUND,
                f"Cannot upgrade classic group {group.group_id} to consumer group "
                "because the embedded consumer protocol is malformed.",
            ) from error
        if user_data:
            raise KafkaError(
                ErrorCode.GROUP_ID_NOT_FOUND,
                f"Cannot upgrade classic group {group.group_id} to consumer group because an unsupported custom "
                "assignor is in use. Please refer to the documentation or switch to a default assignor before "
                "re-attempting the upgrade.",
            )
        metadata = MemberMetadata(
            member_id=member.member_id,
            instance_id=member.group_instance_id,
            rack_id=subscription.rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=frozenset(subscription.topics),
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            classic=ClassicProtocol(member.session_timeout_ms, dict(member.protocols)),
        )
        assigned = {
            topic_id: dict.fromkeys(partitions, group.generation)
            for topic_id, partitions in self.ids_of(assignment).items()
        }
        current = CurrentAssignment(group.generation, group.generation, MemberState.STABLE, assigned)
        return metadata, current

    def ids_of(self, assignment: Mapping[str, frozenset[int]]) -> Owned:
        """Returns the partitions by topic id; deleted topics are left out."""
        found = {name: self.topics.find(name) for name in assignment}
        return {topic.topic_id: assignment[name] for name, topic in found.items() if topic is not None}

    # To a streams group

    def streams_group(self, draft: Draft, group_id: str) -> StreamsGroup:
        """Returns the group for a streams member that joins: created, in place of an empty classic group, or existing.

        Raises KafkaError(GROUP_ID_NOT_FOUND) if there is another group. As in Kafka, only empty groups are converted.
        """
        group = self.groups.get(group_id)
        if isinstance(group, StreamsGroup):
            return group
        if group is None:
            return self._put(draft, StreamsGroup(group_id))
        if not isinstance(group, ClassicGroup) or not group.is_empty:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {quoted(group_id)} is not a streams group.")
        return self._replace_empty_classic(draft, group, StreamsGroup(group_id))

    # To a classic group

    def replaceable_by_classic(self, group_id: str) -> ConsumerGroup | StreamsGroup | None:
        """Returns the empty group that a classic one can replace, if there is one."""
        group = self.groups.get(group_id)
        return group if isinstance(group, (ConsumerGroup, StreamsGroup)) and group.is_empty else None

    def make_room_for_classic(self, draft: Draft, group: ConsumerGroup | StreamsGroup) -> None:
        """Removes an empty group, so that a classic one can take its place."""
        group_id = group.group_id
        draft.say(log, "group %a: an empty %s group becomes a classic group", group_id, group.type.value)
        for removal in group.removals():
            draft.did(removal.record(), ignore)
        del self.groups[group_id]
        draft.did(None, partial(self.groups.__setitem__, group_id, group))

    def may_downgrade(self, group: ConsumerGroup, leaving: Collection[str], *, joining: int = 0) -> bool:
        """True if the group becomes a classic one after these members have left and `joining` classic ones joined."""
        left = len(group.members) - len(leaving) + joining
        return (
            group.all_classic_without(leaving)
            and left > 0
            and self.config.consumer_migration_policy.allows_downgrade
            and left <= self.config.max_size
        )

    def downgrade(
        self, draft: Draft, group: ConsumerGroup, *, leaving: Collection[str] = (), rebalance: bool = True
    ) -> None:
        """Makes a classic group of the remaining members. They rejoin, unless `rebalance` is False.

        The record has the members' partitions, so a member that rejoins keeps its own, even with another coordinator.
        """
        classic = ClassicGroup(
            group.group_id,
            state=ClassicState.STABLE,
            generation=group.epoch,
            protocol_type=CONSUMER_PROTOCOL_TYPE,
        )
        assignment: dict[str, bytes] = {}
        for member_id, member in group.members.items():
            if member_id not in leaving:
                assert member.classic is not None
                classic.add(_classic_member(member, member.classic))
                assigned = group.assignment_of(member_id).assigned
                assignment[member_id] = self.written_assignment(assigned, member.classic)
        classic.protocol_name = classic.select_protocol()
        classic.topics = classic.find_topics()
        for rejoining in classic.members.values():
            rejoining.assignment = assignment[rejoining.member_id]
        draft.say(log, "group %a: the consumer group becomes a classic group", group.group_id)
        for removal in group.removals():
            draft.did(removal.record(), ignore)
        draft.did(generation_record(classic, assignment), partial(self.groups.__setitem__, group.group_id, group))
        self.groups[group.group_id] = classic
        draft.then(partial(self._take_up_classic, classic, rebalance))

    def _take_up_classic(self, group: ClassicGroup, rebalance: bool, step: Step) -> None:
        self.classic.take_up(step, group, "the consumer group has become a classic group" if rebalance else None)

    def written_assignment(self, assigned: Partitions, classic: ClassicProtocol) -> bytes:
        """The consumer protocol's assignment, in the version of the member's preferred metadata."""
        named = [(self.topics.name_of(topic_id), sorted(partitions)) for topic_id, partitions in assigned.items()]
        topics = [ConsumerProtocolAssignmentTopicPartition(name, of_topic) for name, of_topic in named if name]
        version = min(max(Reader(next(iter(classic.protocols.values()))).int16(), 0), _LATEST)
        w = Writer()
        w.int16(version)
        ConsumerProtocolAssignment(topics).write(w, version)
        return w.getvalue()

    def _put(self, draft: Draft, group: G) -> G:
        before = self.groups.get(group.group_id)
        self.groups[group.group_id] = group
        if before is None:
            draft.did(None, partial(self.groups.pop, group.group_id))
        else:
            draft.did(None, partial(self.groups.__setitem__, group.group_id, before))
        return group


def _classic_member(member: MemberMetadata, classic: ClassicProtocol) -> ClassicMember:
    return ClassicMember(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        session_timeout_ms=classic.session_timeout_ms,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        protocols=dict(classic.protocols),
    )


def read_subscription(metadata: bytes) -> ConsumerProtocolSubscription:
    """Reads a subscription of any version. Raises ProtocolError."""
    reader = Reader(metadata)
    return ConsumerProtocolSubscription.read(reader, _known(reader.int16()))


def owned_by(subscription: ConsumerProtocolSubscription) -> dict[str, frozenset[int]]:
    return {topic.topic: frozenset(topic.partitions) for topic in subscription.owned_partitions}


def _read_assignment(assignment: bytes) -> tuple[dict[str, frozenset[int]], bytes]:
    """The partitions by topic name, and the assignor's own data. A member without an assignment has no bytes."""
    if not assignment:
        return {}, b""
    reader = Reader(assignment)
    read = ConsumerProtocolAssignment.read(reader, _known(reader.int16()))
    return {topic.topic: frozenset(topic.partitions) for topic in read.assigned_partitions}, read.user_data or b""


def _known(version: int) -> int:
    """Returns the version to read, at most the latest known one: as in Kafka, versions only add fields at the end."""
    if version < 0:
        raise ProtocolError(f"version {version} of the consumer protocol")
    return min(version, _LATEST)
