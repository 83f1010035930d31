"""The streams kind of group (KIP-1071): its records, its APIs, and its members' deadlines in a shard."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages import streams_group_describe as wire
from kwire_protocol.messages.streams_group_describe import DescribedGroup
from kwire_protocol.messages.streams_group_topology_description_update import (
    StreamsGroupTopologyDescriptionUpdateRequest,
)

from kwire.coordinators.deadlines import Deadlines
from kwire.coordinators.effects import Step, Token
from kwire.groups.config import GroupConfig, StreamsGroupSettings
from kwire.groups.counts import GroupCounts
from kwire.groups.group import Group
from kwire.groups.migration import Migration
from kwire.groups.modern.epochs import Epochs
from kwire.groups.modern.groups import Groups
from kwire.groups.modern.kind import ModernKind
from kwire.groups.streams.assigning import ASSIGNOR, Assigning
from kwire.groups.streams.descriptions import Descriptions
from kwire.groups.streams.group import StreamsGroup
from kwire.groups.streams.heartbeats import Heartbeats
from kwire.groups.streams.member import StreamsMember
from kwire.groups.streams.membership import Membership
from kwire.groups.streams.tasks import TaskIds
from kwire.groups.streams.topology import Topology, TopologyPart
from kwire.groups.streams.warmups import NO_PROGRESS, Offsets
from kwire.groups.streams_topics import InternalTopic
from kwire.groups.topics import Topics
from kwire.groups.topology_descriptions import DescriptionStore


class StreamsKind(ModernKind[StreamsGroup]):
    """A `GroupKind`. `groups` are all groups of the shard."""

    def __init__(
        self,
        config: GroupConfig,
        groups: dict[str, Group],
        timers: Deadlines,
        topics: Topics,
        settings: Callable[[str], StreamsGroupSettings],
        migration: Migration,
        counts: GroupCounts,
        descriptions: DescriptionStore | None,
    ) -> None:
        of_kind = Groups(StreamsGroup, groups)
        self._assigning = assigning = Assigning(topics, settings, Epochs(topics, counts))
        self._descriptions = Descriptions(of_kind, descriptions)
        membership = Membership(of_kind, timers, settings, assigning, self._descriptions)
        super().__init__(of_kind, membership)
        self.heartbeats = Heartbeats(config, of_kind, settings, assigning, membership, migration, self._descriptions)

    # Members

    def update_topology_description(
        self, step: Step, request: StreamsGroupTopologyDescriptionUpdateRequest, token: Token
    ) -> None:
        self._descriptions.update(step, request, token)

    def committed_by(self, step: Step, group_id: str, member_id: str) -> None:
        """Unlike in a classic group, a commit does not count as a heartbeat."""

    # Administration

    def retire(self, group: StreamsGroup) -> None:
        """Cancels the deadlines of a group that another kind of group has replaced."""
        self.membership.stop_all(group)

    def describe(self, group_id: str, *, with_description: bool) -> DescribedGroup:
        """StreamsGroupDescribe."""
        try:
            group = self.groups.get(group_id)
        except KafkaError as error:
            return DescribedGroup(error_code=error.code, error_message=error.message, group_id=group_id)
        described = DescribedGroup(
            group_id=group_id,
            group_state=group.state.value,
            group_epoch=group.epoch,
            assignment_epoch=group.assignment_epoch,
            topology=None if group.topology is None else self._topology(group, group.topology),
            members=[_member(group, member) for member in group.members.values()],
            assignor_name=ASSIGNOR.name,
        )
        if with_description:
            self._descriptions.describe(group, described)
        return described

    def _topology(self, group: StreamsGroup, topology: Topology) -> wire.Topology:
        """Returns the topology, with the partition counts of internal topics once all topics exist."""
        names = topology.required_topics() if group.configured is not None and group.configured.is_ready else ()
        counts = {name: self._assigning.partition_count(name) or 0 for name in names}
        return wire.Topology(topology.epoch, [_subtopology(*it, counts) for it in topology.subtopologies.items()])


def _member(group: StreamsGroup, member: StreamsMember) -> wire.Member:
    has, target = group.assignment_of(member.member_id), group.targets.get(member.member_id)
    progress, endpoint = group.progress.get(member.member_id, NO_PROGRESS), member.user_endpoint
    described = wire.Member(
        member_id=member.member_id,
        member_epoch=has.epoch,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topology_epoch=member.topology_epoch,
        process_id=member.process_id,
        user_endpoint=None if endpoint is None else wire.Endpoint(endpoint.host, endpoint.port),
        client_tags=[wire.KeyValue(*tag) for tag in member.client_tags.items()],
        task_offsets=_offsets(progress.offsets),
        task_end_offsets=_offsets(progress.end_offsets),
        assignment=wire.Assignment(
            _tasks(has.assigned.active), _tasks(has.assigned.standby), _tasks(has.assigned.warmup)
        ),
    )
    if target is not None:
        described.target_assignment = wire.Assignment(
            _tasks(target.active), _tasks(target.standby), _tasks(target.warmup)
        )
    return described


def _tasks(tasks: TaskIds | Mapping[str, Mapping[int, int]]) -> list[wire.TaskIds]:
    return [wire.TaskIds(name, sorted(tasks[name])) for name in sorted(tasks)]


def _offsets(offsets: Offsets) -> list[wire.TaskOffset]:
    return [wire.TaskOffset(*task, offsets[task]) for task in sorted(offsets)]


def _subtopology(subtopology_id: str, part: TopologyPart, counts: Mapping[str, int]) -> wire.Subtopology:
    return wire.Subtopology(
        subtopology_id=subtopology_id,
        source_topics=list(part.source_topics),
        repartition_sink_topics=list(part.repartition_sink_topics),
        state_changelog_topics=_topics(part.state_changelog_topics, counts),
        repartition_source_topics=_topics(part.repartition_source_topics, counts),
    )


def _topics(topics: Iterable[InternalTopic], counts: Mapping[str, int]) -> list[wire.TopicInfo]:
    return [
        wire.TopicInfo(
            it.name,
            counts.get(it.name, it.partitions),
            it.replication_factor,
            [wire.KeyValue(*config) for config in it.configs.items()],
        )
        for it in topics
    ]
