"""Consumer groups as records of `__consumer_offsets`: each change is the new value of one key, None for a removal.

type  key            value
3     group          its epoch, and a hash of the topics that its members subscribe to
4     group          the topics themselves; written by Apache Kafka before 4.1, and only ever removed here
5     group, member  what the member asked for
6     group          the epoch of the target assignment
7     group, member  the member's part of the target
8     group, member  what the member has
16    group, regex   the topics that match
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

import attrs
from kwire_protocol.internal import consumer_group as records
from kwire_protocol.wire import Uuid

from kwire.coordinators.effects import KeyedRecord
from kwire.groups.assignors.assignor import Assignment
from kwire.groups.consumer.member import ClassicProtocol, CurrentAssignment, MemberMetadata, MemberState, Partitions
from kwire.groups.records import KEY_VERSION, read_head, write_record

TOPICS_RECORD_TYPE: Final = records.ConsumerGroupPartitionMetadataKey.api_key


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
        key = records.ConsumerGroupMetadataKey(self.group_id)
        value = None
        if self.value is not None:
            value = records.ConsumerGroupMetadataValue(self.value.epoch, self.value.metadata_hash)
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
        key = records.ConsumerGroupTargetAssignmentMetadataKey(self.group_id)
        value = None
        if self.value is not None:
            value = records.ConsumerGroupTargetAssignmentMetadataValue(self.value.epoch, self.value.timestamp_ms)
        return write_record(key.api_key, key, value)


@attrs.frozen
class MemberChange:
    group_id: str
    member_id: str
    value: MemberMetadata | None

    def record(self) -> KeyedRecord:
        key = records.ConsumerGroupMemberMetadataKey(self.group_id, self.member_id)
        return write_record(key.api_key, key, None if self.value is None else _metadata_value(self.value))


@attrs.frozen
class TargetChange:
    group_id: str
    member_id: str
    value: Assignment | None

    def record(self) -> KeyedRecord:
        key = records.ConsumerGroupTargetAssignmentMemberKey(self.group_id, self.member_id)
        value = None
        if self.value is not None:
            value = records.ConsumerGroupTargetAssignmentMemberValue(
                [records.TopicPartition(topic_id, sorted(partitions)) for topic_id, partitions in self.value.items()]
            )
        return write_record(key.api_key, key, value)


@attrs.frozen
class CurrentChange:
    group_id: str
    member_id: str
    value: CurrentAssignment | None

    def record(self) -> KeyedRecord:
        key = records.ConsumerGroupCurrentMemberAssignmentKey(self.group_id, self.member_id)
        return write_record(key.api_key, key, None if self.value is None else _current_value(self.value))


@attrs.frozen
class ResolvedRegex:
    """The topics that a regular expression matched, in a version of the metadata, at a time since 1970."""

    topics: frozenset[str]
    version: int = 0
    timestamp_ms: int = 0


@attrs.frozen
class RegexChange:
    group_id: str
    regex: str
    value: ResolvedRegex | None

    def record(self) -> KeyedRecord:
        key = records.ConsumerGroupRegularExpressionKey(self.group_id, self.regex)
        value = None
        if self.value is not None:
            value = records.ConsumerGroupRegularExpressionValue(
                sorted(self.value.topics), self.value.version, self.value.timestamp_ms
            )
        return write_record(key.api_key, key, value)


Change: TypeAlias = EpochChange | AssignmentEpochChange | MemberChange | TargetChange | CurrentChange | RegexChange


@attrs.frozen
class TopicsRemoval:
    """Removes the record of Apache Kafka before 4.1. The hash in the epoch's record has taken its place."""

    group_id: str

    def record(self) -> KeyedRecord:
        return write_record(TOPICS_RECORD_TYPE, records.ConsumerGroupPartitionMetadataKey(self.group_id))


def read_change(key: bytes, value: bytes | None) -> Change | None:
    """Decodes a record of one of these types; None for type 4, which has no meaning any more.

    Raises ProtocolError if the bytes are not such a record, UnsupportedVersion if the value is of a later version.
    """
    record_type, key_reader = read_head(key)
    version, reader = (0, None) if value is None else read_head(value)
    match record_type:
        case records.ConsumerGroupMetadataKey.api_key:
            group_id = records.ConsumerGroupMetadataKey.read(key_reader, KEY_VERSION).group_id
            if reader is None:
                return EpochChange(group_id, None)
            epoch = records.ConsumerGroupMetadataValue.read(reader, version)
            return EpochChange(group_id, GroupEpoch(epoch.epoch, epoch.metadata_hash))
        case records.ConsumerGroupTargetAssignmentMetadataKey.api_key:
            group_id = records.ConsumerGroupTargetAssignmentMetadataKey.read(key_reader, KEY_VERSION).group_id
            if reader is None:
                return AssignmentEpochChange(group_id, None)
            target = records.ConsumerGroupTargetAssignmentMetadataValue.read(reader, version)
            return AssignmentEpochChange(
                group_id, AssignmentEpoch(target.assignment_epoch, target.assignment_timestamp)
            )
        case records.ConsumerGroupMemberMetadataKey.api_key:
            member = records.ConsumerGroupMemberMetadataKey.read(key_reader, KEY_VERSION)
            if reader is None:
                return MemberChange(member.group_id, member.member_id, None)
            asked = records.ConsumerGroupMemberMetadataValue.read(reader, version)
            return MemberChange(member.group_id, member.member_id, _metadata(member.member_id, asked))
        case records.ConsumerGroupTargetAssignmentMemberKey.api_key:
            part = records.ConsumerGroupTargetAssignmentMemberKey.read(key_reader, KEY_VERSION)
            if reader is None:
                return TargetChange(part.group_id, part.member_id, None)
            assigned = records.ConsumerGroupTargetAssignmentMemberValue.read(reader, version)
            return TargetChange(
                part.group_id,
                part.member_id,
                {topic.topic_id: frozenset(topic.partitions) for topic in assigned.topic_partitions},
            )
        case records.ConsumerGroupCurrentMemberAssignmentKey.api_key:
            owner = records.ConsumerGroupCurrentMemberAssignmentKey.read(key_reader, KEY_VERSION)
            if reader is None:
                return CurrentChange(owner.group_id, owner.member_id, None)
            current = records.ConsumerGroupCurrentMemberAssignmentValue.read(reader, version)
            return CurrentChange(owner.group_id, owner.member_id, _current(current))
        case records.ConsumerGroupRegularExpressionKey.api_key:
            regex = records.ConsumerGroupRegularExpressionKey.read(key_reader, KEY_VERSION)
            if reader is None:
                return RegexChange(regex.group_id, regex.regular_expression, None)
            matched = records.ConsumerGroupRegularExpressionValue.read(reader, version)
            resolved = ResolvedRegex(frozenset(matched.topics), matched.version, matched.timestamp)
            return RegexChange(regex.group_id, regex.regular_expression, resolved)
        case _:
            assert record_type == TOPICS_RECORD_TYPE
            return None


RECORD_TYPES: Final = (
    records.ConsumerGroupMetadataKey.api_key,
    TOPICS_RECORD_TYPE,
    records.ConsumerGroupMemberMetadataKey.api_key,
    records.ConsumerGroupTargetAssignmentMetadataKey.api_key,
    records.ConsumerGroupTargetAssignmentMemberKey.api_key,
    records.ConsumerGroupCurrentMemberAssignmentKey.api_key,
    records.ConsumerGroupRegularExpressionKey.api_key,
)


# What a member asked for


def _metadata_value(member: MemberMetadata) -> records.ConsumerGroupMemberMetadataValue:
    classic = member.classic
    return records.ConsumerGroupMemberMetadataValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.subscribed_topic_names),
        subscribed_topic_regex=member.subscribed_topic_regex,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=member.server_assignor,
        classic_member_metadata=None if classic is None else _classic_value(classic),
    )


def _metadata(member_id: str, value: records.ConsumerGroupMemberMetadataValue) -> MemberMetadata:
    classic = value.classic_member_metadata
    return MemberMetadata(
        member_id=member_id,
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        subscribed_topic_names=frozenset(value.subscribed_topic_names),
        subscribed_topic_regex=value.subscribed_topic_regex or "",
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        server_assignor=value.server_assignor,
        classic=None if classic is None else _classic(classic),
    )


def _classic_value(classic: ClassicProtocol) -> records.ClassicMemberMetadata:
    return records.ClassicMemberMetadata(
        classic.session_timeout_ms,
        [records.ClassicProtocol(name, metadata) for name, metadata in classic.protocols.items()],
    )


def _classic(value: records.ClassicMemberMetadata) -> ClassicProtocol:
    return ClassicProtocol(value.session_timeout_ms, {it.name: it.metadata for it in value.supported_protocols})


# What a member has


def _current_value(current: CurrentAssignment) -> records.ConsumerGroupCurrentMemberAssignmentValue:
    return records.ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=current.epoch,
        previous_member_epoch=current.previous_epoch,
        state=current.state,
        assigned_partitions=_written(current.assigned),
        partitions_pending_revocation=_written(current.pending_revocation),
    )


def _current(value: records.ConsumerGroupCurrentMemberAssignmentValue) -> CurrentAssignment:
    return CurrentAssignment(
        value.member_epoch,
        value.previous_member_epoch,
        MemberState.of(value.state),
        _read(value.assigned_partitions, value.member_epoch),
        _read(value.partitions_pending_revocation, value.member_epoch),
    )


def _written(partitions: Partitions) -> list[records.TopicPartitions]:
    return [
        records.TopicPartitions(topic_id, list(of_topic), list(of_topic.values()))
        for topic_id, of_topic in partitions.items()
    ]


def _read(topics: list[records.TopicPartitions], member_epoch: int) -> Partitions:
    """Records of Apache Kafka before 4.3 have no assignment epochs: as there, the member's epoch counts for each."""
    read: dict[Uuid, Mapping[int, int]] = {}
    for topic in topics:
        epochs = topic.assignment_epochs
        if epochs is None or len(epochs) != len(topic.partitions):
            epochs = [member_epoch] * len(topic.partitions)
        read[topic.topic_id] = dict(zip(topic.partitions, epochs, strict=True))
    return read
