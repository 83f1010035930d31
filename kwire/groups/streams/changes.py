"""Streams groups as records of `__consumer_offsets`.

type  key            value
17    group          its epoch, a hash of the topics of its topology, and what else the epoch depends on
19    group, member  the member's request
20    group          the epoch of the target assignment
21    group, member  the member's part of the target
22    group, member  the member's current tasks
23    group          the topology
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import attrs
from kwire_protocol.internal import streams_group as records
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.wire import ProtocolError

from kwire.groups.modern import changes
from kwire.groups.modern.changes import GroupEpoch
from kwire.groups.streams.member import ActiveTasks, CurrentTasks, Endpoint, HeldTasks, MemberState, StreamsMember
from kwire.groups.streams.tasks import TaskIds, Tasks
from kwire.groups.streams.topology import Topology, TopologyPart, topology_of
from kwire.groups.streams_topics import InternalTopic

NOT_VALIDATED: Final = -1
NOT_DESCRIBED: Final = -1
UNCERTAIN: Final = -2
"""Apache Kafka was about to store or delete a description, and may have done so."""


@attrs.frozen
class StreamsEpoch(GroupEpoch):
    """`validated_topology_epoch` is that of the topology if all its topics exist as they should, else NOT_VALIDATED.

    `assignment_configs` are the settings that the assignor has to keep to, by name.

    `stored_description_topology_epoch` is that of the topology whose description a broker has stored, NOT_DESCRIBED, or
    UNCERTAIN. `failed_description_topology_epoch` is that of the topology whose description was refused for good.
    `descriptions.py` has the meaning of both.
    """

    validated_topology_epoch: int = NOT_VALIDATED
    assignment_configs: Mapping[str, str] = attrs.field(factory=dict)
    stored_description_topology_epoch: int = NOT_DESCRIBED
    failed_description_topology_epoch: int = NOT_DESCRIBED


class EpochChange(changes.EpochChange):
    key_schema = records.StreamsGroupMetadataKey
    value_schema = records.StreamsGroupMetadataValue

    def written(self, value: GroupEpoch) -> records.StreamsGroupMetadataValue:
        assert isinstance(value, StreamsEpoch)
        return records.StreamsGroupMetadataValue(
            value.epoch,
            value.metadata_hash,
            value.validated_topology_epoch,
            [records.LastAssignmentConfig(*it) for it in sorted(value.assignment_configs.items())],
            value.stored_description_topology_epoch,
            value.failed_description_topology_epoch,
        )

    def read(self, value: records.StreamsGroupMetadataValue) -> StreamsEpoch:
        configs = {it.key: it.value for it in value.last_assignment_configs or ()}
        return StreamsEpoch(
            value.epoch,
            value.metadata_hash,
            value.validated_topology_epoch,
            configs,
            value.stored_description_topology_epoch,
            value.failed_description_topology_epoch,
        )


class AssignmentEpochChange(changes.AssignmentEpochChange):
    key_schema = records.StreamsGroupTargetAssignmentMetadataKey
    value_schema = records.StreamsGroupTargetAssignmentMetadataValue


class MemberChange(changes.MemberChange[StreamsMember]):
    key_schema = records.StreamsGroupMemberMetadataKey
    value_schema = records.StreamsGroupMemberMetadataValue

    def written(self, value: StreamsMember) -> records.StreamsGroupMemberMetadataValue:
        endpoint = value.user_endpoint
        return records.StreamsGroupMemberMetadataValue(
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            topology_epoch=value.topology_epoch,
            process_id=value.process_id,
            user_endpoint=None if endpoint is None else records.Endpoint(endpoint.host, endpoint.port),
            client_tags=[records.KeyValue(*tag) for tag in sorted(value.client_tags.items())],
        )

    def read(self, value: records.StreamsGroupMemberMetadataValue) -> StreamsMember:
        endpoint = value.user_endpoint
        return StreamsMember(
            member_id=self.member_id,
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            topology_epoch=value.topology_epoch,
            process_id=value.process_id,
            user_endpoint=None if endpoint is None else Endpoint(endpoint.host, endpoint.port),
            client_tags={tag.key: tag.value for tag in value.client_tags},
        )


class TargetChange(changes.TargetChange[Tasks]):
    key_schema = records.StreamsGroupTargetAssignmentMemberKey
    value_schema = records.StreamsGroupTargetAssignmentMemberValue

    def written(self, value: Tasks) -> records.StreamsGroupTargetAssignmentMemberValue:
        return records.StreamsGroupTargetAssignmentMemberValue(
            *map(_target, (value.active, value.standby, value.warmup))
        )

    def read(self, value: records.StreamsGroupTargetAssignmentMemberValue) -> Tasks:
        return Tasks(_ids(value.active_tasks), _ids(value.standby_tasks), _ids(value.warmup_tasks))


class CurrentChange(changes.CurrentChange[CurrentTasks]):
    key_schema = records.StreamsGroupCurrentMemberAssignmentKey
    value_schema = records.StreamsGroupCurrentMemberAssignmentValue

    def written(self, value: CurrentTasks) -> records.StreamsGroupCurrentMemberAssignmentValue:
        assigned, pending = value.assigned, value.pending_revocation
        return records.StreamsGroupCurrentMemberAssignmentValue(
            value.epoch,
            value.previous_epoch,
            value.state,
            _with_epochs(assigned.active),
            _held(assigned.standby),
            _held(assigned.warmup),
            _with_epochs(pending.active),
            _held(pending.standby),
            _held(pending.warmup),
        )

    def read(self, value: records.StreamsGroupCurrentMemberAssignmentValue) -> CurrentTasks:
        epoch = value.member_epoch
        return CurrentTasks(
            epoch,
            value.previous_member_epoch,
            MemberState.of(value.state),
            HeldTasks(_active(value.active_tasks, epoch), _ids(value.standby_tasks), _ids(value.warmup_tasks)),
            HeldTasks(
                _active(value.active_tasks_pending_revocation, epoch),
                _ids(value.standby_tasks_pending_revocation),
                _ids(value.warmup_tasks_pending_revocation),
            ),
        )


class TopologyChange(changes.Change[Topology]):
    key_schema = records.StreamsGroupTopologyKey
    value_schema = records.StreamsGroupTopologyValue

    def written(self, value: Topology) -> records.StreamsGroupTopologyValue:
        return records.StreamsGroupTopologyValue(value.epoch, [_part(*it) for it in value.subtopologies.items()])

    def read(self, value: records.StreamsGroupTopologyValue) -> Topology:
        try:
            return topology_of(value)
        except KafkaError as error:
            raise ProtocolError(f"a topology that contradicts itself: {error.message}") from error


CHANGES: Final = changes.ChangeTypes(
    EpochChange, AssignmentEpochChange, MemberChange, TargetChange, CurrentChange, (TopologyChange,)
)

# Tasks


def _target(tasks: TaskIds) -> list[records.StreamsGroupTargetAssignmentMemberValueTaskIds]:
    return [records.StreamsGroupTargetAssignmentMemberValueTaskIds(name, sorted(tasks[name])) for name in sorted(tasks)]


def _held(tasks: TaskIds) -> list[records.StreamsGroupCurrentMemberAssignmentValueTaskIds]:
    return [
        records.StreamsGroupCurrentMemberAssignmentValueTaskIds(name, sorted(tasks[name])) for name in sorted(tasks)
    ]


def _with_epochs(tasks: ActiveTasks) -> list[records.StreamsGroupCurrentMemberAssignmentValueTaskIds]:
    return [
        records.StreamsGroupCurrentMemberAssignmentValueTaskIds(
            name, sorted(tasks[name]), [tasks[name][it] for it in sorted(tasks[name])]
        )
        for name in sorted(tasks)
    ]


def _ids(
    tasks: Iterable[
        records.StreamsGroupTargetAssignmentMemberValueTaskIds | records.StreamsGroupCurrentMemberAssignmentValueTaskIds
    ],
) -> TaskIds:
    return {it.subtopology_id: frozenset(it.partitions) for it in tasks if it.partitions}


def _active(
    tasks: Iterable[records.StreamsGroupCurrentMemberAssignmentValueTaskIds], member_epoch: int
) -> dict[str, Mapping[int, int]]:
    """Without assignment epochs, as in records of Apache Kafka before 4.3, the member's epoch counts for each."""
    read: dict[str, Mapping[int, int]] = {}
    for it in tasks:
        epochs = it.assignment_epochs
        if epochs is None or len(epochs) != len(it.partitions):
            epochs = [member_epoch] * len(it.partitions)
        if it.partitions:
            read[it.subtopology_id] = dict(zip(it.partitions, epochs, strict=True))
    return read


# The topology


def _part(subtopology_id: str, part: TopologyPart) -> records.Subtopology:
    repartition = [it.name for it in part.repartition_source_topics]
    return records.Subtopology(
        subtopology_id=subtopology_id,
        source_topics=list(part.source_topics),
        state_changelog_topics=[_topic(it) for it in part.state_changelog_topics],
        repartition_sink_topics=list(part.repartition_sink_topics),
        repartition_source_topics=[_topic(it) for it in part.repartition_source_topics],
        copartition_groups=[
            records.CopartitionGroup(
                source_topics=[number for number, name in enumerate(part.source_topics) if name in group],
                repartition_source_topics=[number for number, name in enumerate(repartition) if name in group],
            )
            for group in sorted(part.copartition_groups, key=sorted)
        ],
    )


def _topic(topic: InternalTopic) -> records.TopicInfo:
    configs = [records.TopicConfig(*it) for it in topic.configs.items()]
    return records.TopicInfo(topic.name, topic.partitions, topic.replication_factor, configs)
