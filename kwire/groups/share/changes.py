"""Share groups as records of `__consumer_offsets`: each change is the new value of one key, None for a removal.

type  key            value
10    group, member  what the member asked for
11    group          its epoch, and a hash of the topics that its members subscribe to
12    group          the epoch of the target assignment
13    group, member  the member's part of the target
14    group, member  what the member has
15    group          the partitions whose states are initialized, or on the way there, or being deleted
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

import attrs
from kwire_protocol.internal import share_group as records

from kwire.coordinators.effects import KeyedRecord
from kwire.groups.assignors.assignor import Assignment
from kwire.groups.records import KEY_VERSION, read_head, write_record
from kwire.groups.share.member import CurrentAssignment, ShareMember
from kwire.groups.share.states import NamedPartitions, PartitionStates, StatesByTopic

_STABLE: Final = 0
"""A member's state in its record: share groups know no other."""


@attrs.frozen
class GroupEpoch:
    epoch: int
    metadata_hash: int


@attrs.frozen
class EpochChange:
    """The removal of the epoch, the last record of a group, removes the group."""

    group_id: str
    value: GroupEpoch | None

    def record(self) -> KeyedRecord:
        key = records.ShareGroupMetadataKey(self.group_id)
        value = None
        if self.value is not None:
            value = records.ShareGroupMetadataValue(self.value.epoch, self.value.metadata_hash)
        return write_record(key.api_key, key, value)


@attrs.frozen
class AssignmentEpoch:
    epoch: int
    timestamp_ms: int


@attrs.frozen
class AssignmentEpochChange:
    group_id: str
    value: AssignmentEpoch | None

    def record(self) -> KeyedRecord:
        key = records.ShareGroupTargetAssignmentMetadataKey(self.group_id)
        value = None
        if self.value is not None:
            value = records.ShareGroupTargetAssignmentMetadataValue(self.value.epoch, self.value.timestamp_ms)
        return write_record(key.api_key, key, value)


@attrs.frozen
class MemberChange:
    group_id: str
    member_id: str
    value: ShareMember | None

    def record(self) -> KeyedRecord:
        key = records.ShareGroupMemberMetadataKey(self.group_id, self.member_id)
        value = None
        if self.value is not None:
            value = records.ShareGroupMemberMetadataValue(
                self.value.rack_id,
                self.value.client_id,
                self.value.client_host,
                sorted(self.value.subscribed_topic_names),
            )
        return write_record(key.api_key, key, value)


@attrs.frozen
class TargetChange:
    group_id: str
    member_id: str
    value: Assignment | None

    def record(self) -> KeyedRecord:
        key = records.ShareGroupTargetAssignmentMemberKey(self.group_id, self.member_id)
        value = None
        if self.value is not None:
            value = records.ShareGroupTargetAssignmentMemberValue(
                [records.TopicPartition(topic_id, sorted(partitions)) for topic_id, partitions in self.value.items()]
            )
        return write_record(key.api_key, key, value)


@attrs.frozen
class CurrentChange:
    group_id: str
    member_id: str
    value: CurrentAssignment | None

    def record(self) -> KeyedRecord:
        key = records.ShareGroupCurrentMemberAssignmentKey(self.group_id, self.member_id)
        value = None
        if self.value is not None:
            assigned = self.value.assigned.items()
            value = records.ShareGroupCurrentMemberAssignmentValue(
                self.value.epoch,
                self.value.previous_epoch,
                _STABLE,
                [records.TopicPartitions(topic_id, sorted(partitions)) for topic_id, partitions in assigned],
            )
        return write_record(key.api_key, key, value)


@attrs.frozen
class StatesChange:
    group_id: str
    value: PartitionStates | None

    def record(self) -> KeyedRecord:
        key = records.ShareGroupStatePartitionMetadataKey(self.group_id)
        value = None
        if self.value is not None:
            value = records.ShareGroupStatePartitionMetadataValue(
                _written(self.value.initializing),
                _written(self.value.initialized),
                [records.TopicInfo(topic_id, name) for topic_id, name in self.value.deleting.items()],
            )
        return write_record(key.api_key, key, value)


Change: TypeAlias = EpochChange | AssignmentEpochChange | MemberChange | TargetChange | CurrentChange | StatesChange


def read_change(key: bytes, value: bytes | None) -> Change:
    """Decodes a record of one of these types.

    Raises ProtocolError if the bytes are not such a record, UnsupportedVersion if the value is of a later version.
    """
    record_type, key_reader = read_head(key)
    version, reader = (0, None) if value is None else read_head(value)
    match record_type:
        case records.ShareGroupMetadataKey.api_key:
            group_id = records.ShareGroupMetadataKey.read(key_reader, KEY_VERSION).group_id
            if reader is None:
                return EpochChange(group_id, None)
            epoch = records.ShareGroupMetadataValue.read(reader, version)
            return EpochChange(group_id, GroupEpoch(epoch.epoch, epoch.metadata_hash))
        case records.ShareGroupTargetAssignmentMetadataKey.api_key:
            group_id = records.ShareGroupTargetAssignmentMetadataKey.read(key_reader, KEY_VERSION).group_id
            if reader is None:
                return AssignmentEpochChange(group_id, None)
            target = records.ShareGroupTargetAssignmentMetadataValue.read(reader, version)
            return AssignmentEpochChange(
                group_id, AssignmentEpoch(target.assignment_epoch, target.assignment_timestamp)
            )
        case records.ShareGroupMemberMetadataKey.api_key:
            member = records.ShareGroupMemberMetadataKey.read(key_reader, KEY_VERSION)
            if reader is None:
                return MemberChange(member.group_id, member.member_id, None)
            asked = records.ShareGroupMemberMetadataValue.read(reader, version)
            names = frozenset(asked.subscribed_topic_names)
            metadata = ShareMember(member.member_id, asked.rack_id, asked.client_id, asked.client_host, names)
            return MemberChange(member.group_id, member.member_id, metadata)
        case records.ShareGroupTargetAssignmentMemberKey.api_key:
            part = records.ShareGroupTargetAssignmentMemberKey.read(key_reader, KEY_VERSION)
            if reader is None:
                return TargetChange(part.group_id, part.member_id, None)
            read = records.ShareGroupTargetAssignmentMemberValue.read(reader, version)
            return TargetChange(part.group_id, part.member_id, _partitions(read.topic_partitions))
        case records.ShareGroupCurrentMemberAssignmentKey.api_key:
            owner = records.ShareGroupCurrentMemberAssignmentKey.read(key_reader, KEY_VERSION)
            if reader is None:
                return CurrentChange(owner.group_id, owner.member_id, None)
            has = records.ShareGroupCurrentMemberAssignmentValue.read(reader, version)
            current = CurrentAssignment(
                has.member_epoch, has.previous_member_epoch, _partitions(has.assigned_partitions)
            )
            return CurrentChange(owner.group_id, owner.member_id, current)
        case _:
            assert record_type == records.ShareGroupStatePartitionMetadataKey.api_key
            group_id = records.ShareGroupStatePartitionMetadataKey.read(key_reader, KEY_VERSION).group_id
            if reader is None:
                return StatesChange(group_id, None)
            states = records.ShareGroupStatePartitionMetadataValue.read(reader, version)
            return StatesChange(
                group_id,
                PartitionStates(
                    _states(states.initializing_topics),
                    _states(states.initialized_topics),
                    {topic.topic_id: topic.topic_name for topic in states.deleting_topics},
                ),
            )


RECORD_TYPES: Final = (
    records.ShareGroupMemberMetadataKey.api_key,
    records.ShareGroupMetadataKey.api_key,
    records.ShareGroupTargetAssignmentMetadataKey.api_key,
    records.ShareGroupTargetAssignmentMemberKey.api_key,
    records.ShareGroupCurrentMemberAssignmentKey.api_key,
    records.ShareGroupStatePartitionMetadataKey.api_key,
)


def _partitions(topics: Iterable[records.TopicPartition | records.TopicPartitions]) -> Assignment:
    return {topic.topic_id: frozenset(topic.partitions) for topic in topics}


def _written(topics: StatesByTopic) -> list[records.TopicPartitionsInfo]:
    return [records.TopicPartitionsInfo(topic_id, it.name, sorted(it.partitions)) for topic_id, it in topics.items()]


def _states(topics: Iterable[records.TopicPartitionsInfo]) -> Mapping[bytes, NamedPartitions]:
    return {it.topic_id: NamedPartitions(it.topic_name, frozenset(it.partitions)) for it in topics if it.partitions}
