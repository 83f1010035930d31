"""Consumer groups as records of `__consumer_offsets`.

type  key            value
3     group          its epoch, and a hash of the topics that its members subscribe to
4     group          the topics themselves; written by Apache Kafka before 4.1, and only ever removed here
5     group, member  the member's request
6     group          the epoch of the target assignment
7     group, member  the member's part of the target
8     group, member  the member's current assignment
16    group, regex   the topics that match
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Self

import attrs
from kwire_protocol.internal import consumer_group as records
from kwire_protocol.wire import Uuid

from kwire.coordinators.effects import KeyedRecord
from kwire.groups.assignors.assignor import Assignment
from kwire.groups.consumer.member import ClassicProtocol, CurrentAssignment, MemberMetadata, MemberState, Partitions
from kwire.groups.modern import changes
from kwire.groups.records import write_record

TOPICS_RECORD_TYPE: Final = records.ConsumerGroupPartitionMetadataKey.api_key


class EpochChange(changes.EpochChange):
    key_schema = records.ConsumerGroupMetadataKey
    value_schema = records.ConsumerGroupMetadataValue


class AssignmentEpochChange(changes.AssignmentEpochChange):
    key_schema = records.ConsumerGroupTargetAssignmentMetadataKey
    value_schema = records.ConsumerGroupTargetAssignmentMetadataValue


class MemberChange(changes.MemberChange[MemberMetadata]):
    key_schema = records.ConsumerGroupMemberMetadataKey
    value_schema = records.ConsumerGroupMemberMetadataValue

    def written(self, value: MemberMetadata) -> records.ConsumerGroupMemberMetadataValue:
        return _metadata_value(value)

    def read(self, value: records.ConsumerGroupMemberMetadataValue) -> MemberMetadata:
        return _metadata(self.member_id, value)


class TargetChange(changes.TargetChange[Assignment]):
    key_schema = records.ConsumerGroupTargetAssignmentMemberKey
    value_schema = records.ConsumerGroupTargetAssignmentMemberValue

    def written(self, value: Assignment) -> records.ConsumerGroupTargetAssignmentMemberValue:
        return records.ConsumerGroupTargetAssignmentMemberValue(
            [records.TopicPartition(topic_id, sorted(partitions)) for topic_id, partitions in value.items()]
        )

    def read(self, value: records.ConsumerGroupTargetAssignmentMemberValue) -> Assignment:
        return {topic.topic_id: frozenset(topic.partitions) for topic in value.topic_partitions}


class CurrentChange(changes.CurrentChange[CurrentAssignment]):
    key_schema = records.ConsumerGroupCurrentMemberAssignmentKey
    value_schema = records.ConsumerGroupCurrentMemberAssignmentValue

    def written(self, value: CurrentAssignment) -> records.ConsumerGroupCurrentMemberAssignmentValue:
        return _current_value(value)

    def read(self, value: records.ConsumerGroupCurrentMemberAssignmentValue) -> CurrentAssignment:
        return _current(value)


@attrs.frozen
class ResolvedRegex:
    """The topics that a regular expression matched, in a version of the metadata, at a time since 1970."""

    topics: frozenset[str]
    version: int = 0
    timestamp_ms: int = 0


@attrs.frozen
class RegexChange(changes.Change[ResolvedRegex]):
    key_schema = records.ConsumerGroupRegularExpressionKey
    value_schema = records.ConsumerGroupRegularExpressionValue

    regex: str
    value: ResolvedRegex | None

    def with_value(self, value: ResolvedRegex | None) -> Self:
        return type(self)(self.group_id, self.regex, value)

    def key(self) -> records.ConsumerGroupRegularExpressionKey:
        return records.ConsumerGroupRegularExpressionKey(self.group_id, self.regex)

    @classmethod
    def of_key(cls, key: records.ConsumerGroupRegularExpressionKey) -> Self:
        return cls(key.group_id, key.regular_expression, None)

    def written(self, value: ResolvedRegex) -> records.ConsumerGroupRegularExpressionValue:
        return records.ConsumerGroupRegularExpressionValue(sorted(value.topics), value.version, value.timestamp_ms)

    def read(self, value: records.ConsumerGroupRegularExpressionValue) -> ResolvedRegex:
        return ResolvedRegex(frozenset(value.topics), value.version, value.timestamp)


CHANGES: Final = changes.ChangeTypes(
    EpochChange, AssignmentEpochChange, MemberChange, TargetChange, CurrentChange, (RegexChange,)
)


@attrs.frozen
class TopicsRemoval:
    """Removes the record of Apache Kafka before 4.1. The hash in the epoch's record has taken its place."""

    group_id: str

    def record(self) -> KeyedRecord:
        return write_record(TOPICS_RECORD_TYPE, records.ConsumerGroupPartitionMetadataKey(self.group_id))


# Member metadata


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


# Current assignments


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
