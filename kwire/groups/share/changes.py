"""Share groups as records of `__consumer_offsets`.

type  key            value
10    group, member  the member's request
11    group          its epoch, and a hash of the topics that its members subscribe to
12    group          the epoch of the target assignment
13    group, member  the member's part of the target
14    group, member  the member's current assignment
15    group          the partitions whose states are initialized, being initialized, or being deleted
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from kwire_protocol.internal import share_group as records

from kwire.groups.assignors.assignor import Assignment
from kwire.groups.modern import changes
from kwire.groups.share.member import CurrentAssignment, ShareMember
from kwire.groups.share.states import NamedPartitions, PartitionStates, StatesByTopic

_STABLE: Final = 0
"""A member's state in its record. Share groups have no other."""


class EpochChange(changes.EpochChange):
    key_schema = records.ShareGroupMetadataKey
    value_schema = records.ShareGroupMetadataValue


class AssignmentEpochChange(changes.AssignmentEpochChange):
    key_schema = records.ShareGroupTargetAssignmentMetadataKey
    value_schema = records.ShareGroupTargetAssignmentMetadataValue


class MemberChange(changes.MemberChange[ShareMember]):
    key_schema = records.ShareGroupMemberMetadataKey
    value_schema = records.ShareGroupMemberMetadataValue

    def written(self, value: ShareMember) -> records.ShareGroupMemberMetadataValue:
        names = sorted(value.subscribed_topic_names)
        return records.ShareGroupMemberMetadataValue(value.rack_id, value.client_id, value.client_host, names)

    def read(self, value: records.ShareGroupMemberMetadataValue) -> ShareMember:
        names = frozenset(value.subscribed_topic_names)
        return ShareMember(self.member_id, value.rack_id, value.client_id, value.client_host, names)


class TargetChange(changes.TargetChange[Assignment]):
    key_schema = records.ShareGroupTargetAssignmentMemberKey
    value_schema = records.ShareGroupTargetAssignmentMemberValue

    def written(self, value: Assignment) -> records.ShareGroupTargetAssignmentMemberValue:
        return records.ShareGroupTargetAssignmentMemberValue(
            [records.TopicPartition(topic_id, sorted(partitions)) for topic_id, partitions in value.items()]
        )

    def read(self, value: records.ShareGroupTargetAssignmentMemberValue) -> Assignment:
        return _partitions(value.topic_partitions)


class CurrentChange(changes.CurrentChange[CurrentAssignment]):
    key_schema = records.ShareGroupCurrentMemberAssignmentKey
    value_schema = records.ShareGroupCurrentMemberAssignmentValue

    def written(self, value: CurrentAssignment) -> records.ShareGroupCurrentMemberAssignmentValue:
        assigned = value.assigned.items()
        return records.ShareGroupCurrentMemberAssignmentValue(
            value.epoch,
            value.previous_epoch,
            _STABLE,
            [records.TopicPartitions(topic_id, sorted(partitions)) for topic_id, partitions in assigned],
        )

    def read(self, value: records.ShareGroupCurrentMemberAssignmentValue) -> CurrentAssignment:
        assigned = _partitions(value.assigned_partitions)
        return CurrentAssignment(value.member_epoch, value.previous_member_epoch, assigned)


class StatesChange(changes.Change[PartitionStates]):
    key_schema = records.ShareGroupStatePartitionMetadataKey
    value_schema = records.ShareGroupStatePartitionMetadataValue

    def written(self, value: PartitionStates) -> records.ShareGroupStatePartitionMetadataValue:
        return records.ShareGroupStatePartitionMetadataValue(
            _written(value.initializing),
            _written(value.initialized),
            [records.TopicInfo(topic_id, name) for topic_id, name in value.deleting.items()],
        )

    def read(self, value: records.ShareGroupStatePartitionMetadataValue) -> PartitionStates:
        return PartitionStates(
            _states(value.initializing_topics),
            _states(value.initialized_topics),
            {topic.topic_id: topic.topic_name for topic in value.deleting_topics},
        )


CHANGES: Final = changes.ChangeTypes(
    EpochChange, AssignmentEpochChange, MemberChange, TargetChange, CurrentChange, (StatesChange,)
)


def _partitions(topics: Iterable[records.TopicPartition | records.TopicPartitions]) -> Assignment:
    return {topic.topic_id: frozenset(topic.partitions) for topic in topics}


def _written(topics: StatesByTopic) -> list[records.TopicPartitionsInfo]:
    return [records.TopicPartitionsInfo(topic_id, it.name, sorted(it.partitions)) for topic_id, it in topics.items()]


def _states(topics: Iterable[records.TopicPartitionsInfo]) -> Mapping[bytes, NamedPartitions]:
    return {it.topic_id: NamedPartitions(it.topic_name, frozenset(it.partitions)) for it in topics if it.partitions}
