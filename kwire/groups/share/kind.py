"""The share kind of group (KIP-932): its records, its APIs, and its members' sessions in a shard."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.alter_share_group_offsets import AlterShareGroupOffsetsRequest
from kwire_protocol.messages.delete_share_group_offsets import DeleteShareGroupOffsetsRequest
from kwire_protocol.messages.share_group_describe import Assignment as DescribedAssignment
from kwire_protocol.messages.share_group_describe import DescribedGroup, TopicPartitions
from kwire_protocol.messages.share_group_describe import Member as DescribedMember
from kwire_protocol.wire import Uuid

from kwire.coordinators.deadlines import Deadlines
from kwire.coordinators.effects import Step, Token
from kwire.groups.assignors.assignor import Partitions
from kwire.groups.config import GroupConfig, ShareGroupSettings
from kwire.groups.counts import GroupCounts
from kwire.groups.group import Group
from kwire.groups.modern.epochs import Epochs
from kwire.groups.modern.groups import Groups
from kwire.groups.modern.kind import ModernKind
from kwire.groups.share.assigning import ASSIGNOR, Assigning
from kwire.groups.share.deleting import Deleting
from kwire.groups.share.group import ShareGroup
from kwire.groups.share.heartbeats import Heartbeats
from kwire.groups.share.initializing import Initializing
from kwire.groups.share.member import ShareMember
from kwire.groups.share.membership import Membership
from kwire.groups.share.offsets import Offsets
from kwire.groups.share_states import Outcome
from kwire.groups.topics import Topics


class ShareKind(ModernKind[ShareGroup]):
    """A `GroupKind`. `groups` are all groups of the shard."""

    def __init__(
        self,
        config: GroupConfig,
        groups: dict[str, Group],
        timers: Deadlines,
        topics: Topics,
        settings: Callable[[str], ShareGroupSettings],
        counts: GroupCounts,
    ) -> None:
        of_kind = Groups(ShareGroup, groups)
        self._topics = topics
        self._initializing = Initializing(config, of_kind, topics)
        assigning = Assigning(topics, settings, Epochs(topics, counts))
        membership = Membership(of_kind, timers, settings, assigning)
        super().__init__(of_kind, membership)
        self.heartbeats = Heartbeats(config, of_kind, settings, assigning, self._initializing, membership)
        self._deleting = Deleting(of_kind, topics)
        self._offsets = Offsets(of_kind, topics, self._initializing, self._deleting)

    def loaded(self, step: Step) -> None:
        super().loaded(step)
        for group in self.groups:
            self._initializing.loaded(step, group)

    # Members

    def committed_by(self, step: Step, group_id: str, member_id: str) -> None:
        """The group has no committed offsets."""

    # States

    def states_initialized(self, step: Step, group_id: str, outcome: Outcome) -> None:
        self._initializing.ended(step, group_id, outcome)

    def topics_deleted(self, step: Step, topic_ids: set[Uuid]) -> None:
        self._initializing.topics_deleted(step, topic_ids)

    def begin_deletion(self, step: Step, group_id: str, token: Token) -> None:
        self._deleting.begin_group(step, group_id, token)

    # Offsets

    def begin_alteration(self, step: Step, request: AlterShareGroupOffsetsRequest, token: Token) -> None:
        self._offsets.begin_alteration(step, request, token)

    def begin_offset_deletion(self, step: Step, request: DeleteShareGroupOffsetsRequest, token: Token) -> None:
        self._offsets.begin_deletion(step, request, token)

    def states_deleted(self, step: Step, group_id: str, topic_ids: Iterable[Uuid], token: Token) -> None:
        self._offsets.deleted(step, group_id, topic_ids, token)

    def initialized(self, group_id: str) -> Mapping[Uuid, Partitions]:
        """The partitions with an initialized state; none for other kinds of groups."""
        group = self.groups.find(group_id)
        return {} if group is None else group.states.assignable()

    # Administration

    def describe(self, group_id: str) -> DescribedGroup:
        """ShareGroupDescribe."""
        try:
            group = self.groups.get(group_id)
        except KafkaError as error:
            return DescribedGroup(error_code=error.code, error_message=error.message, group_id=group_id)
        return DescribedGroup(
            group_id=group_id,
            group_state=group.state.value,
            group_epoch=group.epoch,
            assignment_epoch=group.assignment_epoch,
            assignor_name=ASSIGNOR.name,
            members=[self._describe_member(group, member) for member in group.members.values()],
        )

    def _describe_member(self, group: ShareGroup, member: ShareMember) -> DescribedMember:
        current = group.assignment_of(member.member_id)
        return DescribedMember(
            member_id=member.member_id,
            rack_id=member.rack_id,
            member_epoch=current.epoch,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=sorted(member.subscribed_topic_names),
            # Topics that were deleted have no name, so they are left out.
            assignment=DescribedAssignment(
                [
                    TopicPartitions(topic_id, name, sorted(partitions))
                    for topic_id, partitions in current.assigned.items()
                    if (name := self._topics.name_of(topic_id)) is not None
                ]
            ),
        )
