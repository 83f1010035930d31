"""The records of `__consumer_offsets`, byte for byte Kafka's: what of a group outlives a restart.

A key is an int16 that names its kind, then the key's fields; a value is an int16 version, then the fields of that
version; no value is a tombstone. Kept here are two kinds:

    kind  key                      value
    1     group, topic, partition  a committed offset (version 4, or 1 when the client gave its own retention)
    2     group                    generation, protocol, leader, members with subscription and assignment (version 3)

Kind 0 is kind 1 as brokers before 0.9 wrote it. The other kinds belong to groups of other types and are passed over.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs
from kwire_protocol.internal.consumer_offsets import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
)
from kwire_protocol.wire import NULL_UUID, Reader, Uuid, Writer

from kwire.coordinators.effects import Record
from kwire.groups.classic.group import ClassicGroup, GroupState, Member

LEGACY_OFFSET_KIND = 0
OFFSET_KIND = 1
GROUP_KIND = 2

GROUP_VALUE_VERSION = 3
OFFSET_VALUE_VERSION = 4
OFFSET_VALUE_VERSION_WITH_EXPIRY = 1

NO_EXPIRY = -1


@attrs.frozen
class CommittedOffset:
    """One committed offset; `leader_epoch` is -1 when the client did not say."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = NO_EXPIRY
    """Set only by OffsetCommit v2-4 with a retention of its own."""
    topic_id: Uuid = NULL_UUID


@attrs.frozen
class OffsetChange:
    """An offset was committed, or (None) removed."""

    group_id: str
    topic: str
    partition: int
    offset: CommittedOffset | None

    def record(self) -> Record:
        key = Writer()
        key.int16(OFFSET_KIND)
        OffsetCommitKey(self.group_id, self.topic, self.partition).write(key, 0)
        offset = self.offset
        if offset is None:
            return key.getvalue(), None
        value = Writer()
        version = OFFSET_VALUE_VERSION if offset.expire_timestamp_ms == NO_EXPIRY else OFFSET_VALUE_VERSION_WITH_EXPIRY
        value.int16(version)
        OffsetCommitValue(
            offset=offset.offset,
            leader_epoch=offset.leader_epoch,
            metadata=offset.metadata,
            commit_timestamp=offset.commit_timestamp_ms,
            expire_timestamp=offset.expire_timestamp_ms,
            topic_id=offset.topic_id,
        ).write(value, version)
        return key.getvalue(), value.getvalue()


@attrs.frozen
class GroupChange:
    """A group is now this, or (None) gone."""

    group_id: str
    value: GroupMetadataValue | None

    def record(self) -> Record:
        key = Writer()
        key.int16(GROUP_KIND)
        GroupMetadataKey(self.group_id).write(key, 0)
        if self.value is None:
            return key.getvalue(), None
        value = Writer()
        value.int16(GROUP_VALUE_VERSION)
        self.value.write(value, GROUP_VALUE_VERSION)
        return key.getvalue(), value.getvalue()


Change = OffsetChange | GroupChange


def read_record(key: bytes, value: bytes | None) -> Change | None:
    """What a record says; None for the kinds of other group types.

    Raises ProtocolError on bytes that are no record, UnsupportedVersion on a value of a version newer than ours.
    """
    key_reader = Reader(key)
    kind = key_reader.int16()
    if kind not in (LEGACY_OFFSET_KIND, OFFSET_KIND, GROUP_KIND):
        return None
    value_reader = None if value is None else Reader(value)
    version = 0 if value_reader is None else value_reader.int16()
    if kind == GROUP_KIND:
        group_key = GroupMetadataKey.read(key_reader, 0)
        group_value = None if value_reader is None else GroupMetadataValue.read(value_reader, version)
        return GroupChange(group_key.group, group_value)
    offset_key = OffsetCommitKey.read(key_reader, 0)
    if value_reader is None:
        return OffsetChange(offset_key.group, offset_key.topic, offset_key.partition, None)
    stored = OffsetCommitValue.read(value_reader, version)
    committed = CommittedOffset(
        offset=stored.offset,
        leader_epoch=stored.leader_epoch,
        metadata=stored.metadata,
        commit_timestamp_ms=stored.commit_timestamp,
        expire_timestamp_ms=stored.expire_timestamp,
        topic_id=stored.topic_id,
    )
    return OffsetChange(offset_key.group, offset_key.topic, offset_key.partition, committed)


def generation_record(group: ClassicGroup, assignment: Mapping[str, bytes]) -> Record:
    """The group's generation with every member, its subscription and its part of the assignment."""
    assert group.protocol_name is not None
    return _group_record(
        group,
        [
            MemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.protocols[group.protocol_name],
                assignment=assignment.get(member.member_id, b""),
            )
            for member in group.members.values()
        ],
    )


def empty_generation_record(group: ClassicGroup) -> Record:
    """A generation without members; also what makes a new group known to the log."""
    return _group_record(group, [])


def _group_record(group: ClassicGroup, members: list[MemberMetadata]) -> Record:
    value = GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation,
        protocol=group.protocol_name,
        leader=group.leader_id,
        current_state_timestamp=group.state_timestamp_ms,
        members=members,
    )
    return GroupChange(group.group_id, value).record()


def load_group(group_id: str, value: GroupMetadataValue) -> ClassicGroup:
    """The group that a record describes: Stable, or Empty without members.

    Of each member's protocols only the chosen one was stored: a member that rejoins with more has changed.
    """
    group = ClassicGroup(
        group_id,
        state=GroupState.STABLE if value.members else GroupState.EMPTY,
        state_timestamp_ms=value.current_state_timestamp,
        generation=value.generation,
        protocol_type=value.protocol_type or None,
        protocol_name=value.protocol,
        leader_id=value.leader,
    )
    for stored in value.members:
        group.add(
            Member(
                member_id=stored.member_id,
                group_instance_id=stored.group_instance_id,
                client_id=stored.client_id,
                client_host=stored.client_host,
                rebalance_timeout_ms=(
                    stored.session_timeout if stored.rebalance_timeout == -1 else stored.rebalance_timeout
                ),
                session_timeout_ms=stored.session_timeout,
                protocol_type=value.protocol_type,
                protocols={value.protocol or "": stored.subscription},
                assignment=stored.assignment,
            )
        )
    group.topics = group.find_topics()
    return group
