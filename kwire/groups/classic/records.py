"""Classic groups as records of `__consumer_offsets`.

type    key      value
2       group    generation, protocol, leader, members with subscription and assignment (version 3)
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs
from kwire_protocol.internal.consumer_offsets import GroupMetadataKey, GroupMetadataValue, MemberMetadata

from kwire.coordinators.effects import KeyedRecord
from kwire.groups.classic.group import ClassicGroup, GroupState, Member
from kwire.groups.records import KEY_VERSION, read_head, write_record

RECORD_TYPE = GroupMetadataKey.api_key
VALUE_VERSION = 3


@attrs.frozen
class GroupChange:
    """The new state of a group; None if it was removed."""

    group_id: str
    value: GroupMetadataValue | None

    def record(self) -> KeyedRecord:
        return write_record(RECORD_TYPE, GroupMetadataKey(self.group_id), self.value, VALUE_VERSION)


def read_group(key: bytes, value: bytes | None) -> GroupChange:
    """Decodes a record of this type.

    Raises ProtocolError if the bytes are not a record, UnsupportedVersion if the value's version is newer than ours.
    """
    _, key_reader = read_head(key)
    group_id = GroupMetadataKey.read(key_reader, KEY_VERSION).group
    if value is None:
        return GroupChange(group_id, None)
    version, value_reader = read_head(value)
    return GroupChange(group_id, GroupMetadataValue.read(value_reader, version))


def generation_record(group: ClassicGroup, assignment: Mapping[str, bytes]) -> KeyedRecord:
    """The group's generation, with every member's subscription and part of the assignment."""
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


def empty_generation_record(group: ClassicGroup) -> KeyedRecord:
    """A generation without members; also the first record of a new group."""
    return _group_record(group, [])


def _group_record(group: ClassicGroup, members: list[MemberMetadata]) -> KeyedRecord:
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

    Only the chosen protocol of each member was stored, so a member that rejoins with more protocols has changed.
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
