"""The consumer kind of group (KIP-848): its records, its APIs, and its members' deadlines in a shard."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Final

from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.consumer_group_describe import Assignment as DescribedAssignment
from kwire_protocol.messages.consumer_group_describe import DescribedGroup, TopicPartitions
from kwire_protocol.messages.consumer_group_describe import Member as DescribedMember
from kwire_protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kwire_protocol.messages.leave_group import LeaveGroupRequest
from kwire_protocol.messages.sync_group import SyncGroupRequest
from kwire_protocol.wire import Uuid

from kwire.coordinators.deadlines import Deadlines
from kwire.coordinators.effects import KeyedRecord, Step, Token
from kwire.groups.classic.joining import Join
from kwire.groups.config import ConsumerGroupSettings, GroupConfig
from kwire.groups.consumer.assigning import NOTHING_ASSIGNED, Assigning
from kwire.groups.consumer.changes import TOPICS_RECORD_TYPE, TopicsRemoval
from kwire.groups.consumer.classic_members import ClassicMembers
from kwire.groups.consumer.group import ConsumerGroup
from kwire.groups.consumer.heartbeats import Heartbeats
from kwire.groups.consumer.member import MemberMetadata
from kwire.groups.consumer.membership import Membership
from kwire.groups.consumer.regexes import Regexes
from kwire.groups.counts import GroupCounts
from kwire.groups.group import Group
from kwire.groups.migration import Migration
from kwire.groups.modern.epochs import Epochs
from kwire.groups.modern.groups import Groups
from kwire.groups.modern.kind import ModernKind
from kwire.groups.records import read_head
from kwire.groups.topics import Topics

CLASSIC_MEMBER: Final = 0
CONSUMER_MEMBER: Final = 1
"""Member types of ConsumerGroupDescribe v1."""


class ConsumerKind(ModernKind[ConsumerGroup]):
    """A `GroupKind`. `groups` are all groups of the shard."""

    def __init__(
        self,
        config: GroupConfig,
        groups: dict[str, Group],
        timers: Deadlines,
        topics: Topics,
        settings: Callable[[str], ConsumerGroupSettings],
        migration: Migration,
        counts: GroupCounts,
    ) -> None:
        of_kind = Groups(ConsumerGroup, groups)
        self._topics = topics
        self._assigning = Assigning(config, topics, settings, Epochs(topics, counts))
        membership = Membership(of_kind, timers, settings, self._assigning, migration)
        super().__init__(of_kind, membership)
        regexes = Regexes(config, topics)
        self.heartbeats = Heartbeats(config, of_kind, settings, self._assigning, regexes, membership, migration)
        self._classic_members = ClassicMembers(self.heartbeats, self._assigning, membership, migration)

    def find(self, group_id: str) -> ConsumerGroup | None:
        return self.groups.find(group_id)

    # Records

    @property
    def record_types(self) -> frozenset[int]:
        return super().record_types | {TOPICS_RECORD_TYPE}

    def apply(self, key: bytes, value: bytes | None) -> None:
        record_type, _ = read_head(key)
        if record_type != TOPICS_RECORD_TYPE:
            super().apply(key, value)

    def tombstones(self, group_id: str) -> list[KeyedRecord]:
        return [TopicsRemoval(group_id).record(), *super().tombstones(group_id)]

    # Members

    def committed_by(self, step: Step, group_id: str, member_id: str) -> None:
        """Unlike in a classic group, a commit does not count as a heartbeat."""

    # Members that use the classic protocol

    def join_classic(self, step: Step, group: ConsumerGroup, join: Join) -> None:
        self._classic_members.join(step, group, join)

    def sync_classic(self, step: Step, group: ConsumerGroup, request: SyncGroupRequest, token: Token) -> None:
        self._classic_members.sync(step, group, request, token)

    def heartbeat_classic(self, step: Step, group: ConsumerGroup, request: HeartbeatRequest) -> HeartbeatResponse:
        return self._classic_members.heartbeat(step, group, request)

    def leave_classic(self, step: Step, group: ConsumerGroup, request: LeaveGroupRequest, token: Token) -> None:
        self._classic_members.leave(step, group, request, token)

    # Administration

    def describe(self, group_id: str) -> DescribedGroup:
        """ConsumerGroupDescribe."""
        try:
            group = self.groups.get(group_id)
        except KafkaError as error:
            return DescribedGroup(error_code=error.code, error_message=error.message, group_id=group_id)
        return DescribedGroup(
            group_id=group_id,
            group_state=group.state.value,
            group_epoch=group.epoch,
            assignment_epoch=group.assignment_epoch,
            assignor_name=self._assigning.assignor_of(group).name,
            members=[self._describe_member(group, member) for member in group.members.values()],
        )

    def _describe_member(self, group: ConsumerGroup, member: MemberMetadata) -> DescribedMember:
        current = group.assignment_of(member.member_id)
        return DescribedMember(
            member_id=member.member_id,
            instance_id=member.instance_id,
            rack_id=member.rack_id,
            member_epoch=current.epoch,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=sorted(member.subscribed_topic_names),
            subscribed_topic_regex=member.subscribed_topic_regex,
            assignment=self._described((topic_id, [*parts]) for topic_id, parts in current.held().items()),
            target_assignment=self._described(group.targets.get(member.member_id, NOTHING_ASSIGNED).items()),
            member_type=CONSUMER_MEMBER if member.classic is None else CLASSIC_MEMBER,
        )

    def _described(self, partitions: Iterable[tuple[Uuid, Collection[int]]]) -> DescribedAssignment:
        """Topics that were deleted have no name, so they are left out."""
        return DescribedAssignment(
            [
                TopicPartitions(topic_id, name, sorted(of_topic))
                for topic_id, of_topic in partitions
                if (name := self._topics.name_of(topic_id)) is not None
            ]
        )
