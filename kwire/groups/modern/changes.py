"""A group as records of `__consumer_offsets`: each change is the new value of one key, None for a removal.

                            key            value
    EpochChange             group          its epoch, and a hash of the topics that it reads
    AssignmentEpochChange   group          the epoch of the target assignment
    MemberChange            group, member  the member's request
    TargetChange            group, member  the member's part of the target
    CurrentChange           group, member  the member's current assignment

The classes of a kind name the schemas of the records, and turn values into records and back.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from typing import Any, ClassVar, Generic, Self, TypeVar

import attrs
from kwire_protocol.wire import Message

from kwire.coordinators.effects import KeyedRecord
from kwire.groups.records import KEY_VERSION, read_head, write_record

V = TypeVar("V")


@attrs.frozen
class Change(ABC, Generic[V]):
    """The new value of one key. A key is a group id; subclasses may have fields that name something in the group.

    Their fields have the order of the key's, and `value` is the last one.
    """

    key_schema: ClassVar[type[Any]]
    value_schema: ClassVar[type[Any]]
    """Generated classes of kwire_protocol.internal."""

    group_id: str
    value: V | None

    def with_value(self, value: V | None) -> Self:
        """A change of the same key."""
        return type(self)(self.group_id, value)

    def record(self) -> KeyedRecord:
        written = None if self.value is None else self.written(self.value)
        return write_record(self.key_schema.api_key, self.key(), written)

    def key(self) -> Message:
        key: Message = self.key_schema(self.group_id)
        return key

    @abstractmethod
    def written(self, value: V) -> Message:
        """The value as a `value_schema`."""

    @classmethod
    def of_key(cls, key: Any) -> Self:
        """Returns the removal of a key, which is a `key_schema`."""
        return cls(key.group_id, None)

    @abstractmethod
    def read(self, value: Any) -> V:
        """Returns the value that a `value_schema` has."""


@attrs.frozen
class OfMember(Change[V]):
    member_id: str
    value: V | None

    def with_value(self, value: V | None) -> Self:
        return type(self)(self.group_id, self.member_id, value)

    def key(self) -> Message:
        key: Message = self.key_schema(self.group_id, self.member_id)
        return key

    @classmethod
    def of_key(cls, key: Any) -> Self:
        return cls(key.group_id, key.member_id, None)


@attrs.frozen
class GroupEpoch:
    """`metadata_hash` is the hash of the topics that the group reads, as of this epoch (`topics.py`)."""

    epoch: int
    metadata_hash: int


class EpochChange(Change[GroupEpoch]):
    """The removal of the epoch, the last record of a group, removes the group."""

    def written(self, value: GroupEpoch) -> Message:
        written: Message = self.value_schema(value.epoch, value.metadata_hash)
        return written

    def read(self, value: Any) -> GroupEpoch:
        return GroupEpoch(value.epoch, value.metadata_hash)


@attrs.frozen
class AssignmentEpoch:
    """`timestamp_ms` is the time at which the target was computed; 0 if unknown."""

    epoch: int
    timestamp_ms: int


class AssignmentEpochChange(Change[AssignmentEpoch]):
    def written(self, value: AssignmentEpoch) -> Message:
        written: Message = self.value_schema(value.epoch, value.timestamp_ms)
        return written

    def read(self, value: Any) -> AssignmentEpoch:
        return AssignmentEpoch(value.assignment_epoch, value.assignment_timestamp)


class MemberChange(OfMember[V]):
    """The member's request."""


class TargetChange(OfMember[V]):
    """The member's part of the target assignment."""


class CurrentChange(OfMember[V]):
    """The member's current assignment."""


@attrs.frozen
class ChangeTypes:
    """The classes of one kind of group. `own` are those that other kinds do not have."""

    epoch: type[EpochChange]
    assignment_epoch: type[AssignmentEpochChange]
    member: type[MemberChange[Any]]
    target: type[TargetChange[Any]]
    current: type[CurrentChange[Any]]
    own: Collection[type[Change[Any]]] = ()

    def by_record_type(self) -> Mapping[int, type[Change[Any]]]:
        types: tuple[type[Change[Any]], ...] = (
            self.epoch,
            self.assignment_epoch,
            self.member,
            self.target,
            self.current,
            *self.own,
        )
        return {it.key_schema.api_key: it for it in types}


def read_change(types: Mapping[int, type[Change[Any]]], key: bytes, value: bytes | None) -> Change[Any]:
    """Decodes a record of one of these types, which are by record type.

    Raises ProtocolError if the bytes are not such a record, UnsupportedVersion if the value is of a later version.
    """
    record_type, key_reader = read_head(key)
    change_type = types[record_type]
    change = change_type.of_key(change_type.key_schema.read(key_reader, KEY_VERSION))
    if value is None:
        return change
    version, reader = read_head(value)
    return change.with_value(change.read(change_type.value_schema.read(reader, version)))
