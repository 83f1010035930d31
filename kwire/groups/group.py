"""The interface of a group of any kind, for the shard and the committed offsets.

A group id names one group, of one kind (Kafka's `Group.GroupType`). A kind is a subpackage of `kwire.groups`, with its
groups, its records, its machine, and its members' APIs. `Group` is the interface of a single group; `GroupKind` is what
the shard needs for all groups of a kind.

Committing offsets for an unknown group id also creates a classic group.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from enum import Enum
from typing import NamedTuple, Protocol, TypeAlias

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages.list_groups import ListedGroup
from kwire_protocol.wire import Uuid

from kwire.coordinators.effects import KeyedRecord, Step


class GroupType(Enum):
    """The values are the names in ListGroups."""

    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"
    STREAMS = "streams"

    @property
    def expires(self) -> bool:
        """True if an empty group expires with its last offset. Share groups do not (Kafka's `Group.shouldExpire`)."""
        return self is not GroupType.SHARE


CheckPartition: TypeAlias = Callable[[str, Uuid, int], ErrorCode]
"""Checks if an offset may be committed for a partition of a topic, by name and id. Returns NONE, or the error."""


def accept_all(_topic: str, _topic_id: Uuid, _partition: int) -> ErrorCode:
    """A `CheckPartition` that always returns NONE."""
    return ErrorCode.NONE


def sees_all(_topic: str) -> bool:
    return True


class MemberContext(NamedTuple):
    """The client of the connection. `client_host` has a leading slash, as in Kafka.

    `sees_topic` returns True if the client is authorized to describe a topic.
    """

    client_id: str
    client_host: str
    api_version: int
    sees_topic: Callable[[str], bool] = sees_all


@attrs.frozen
class Committer:
    """The member that commits offsets, and the version of OffsetCommit or TxnOffsetCommit.

    Without a member it has an empty member id and a generation of -1.
    """

    member_id: str
    group_instance_id: str | None
    generation_or_epoch: int
    api_version: int

    @property
    def names_a_member(self) -> bool:
        return self.generation_or_epoch >= 0 or bool(self.member_id) or self.group_instance_id is not None


class Group(Protocol):
    """One group. Kafka's interface of the same name."""

    group_id: str

    @property
    def type(self) -> GroupType: ...

    def state_name(self) -> str:
        """The name of the state in ListGroups."""

    @property
    def is_empty(self) -> bool:
        """True if the group has no members; then it is removed with its last offset."""

    def listed(self) -> ListedGroup: ...

    def check_commit(self, committer: Committer) -> CheckPartition:
        """Raises KafkaError if this member may not commit offsets now; else returns a check of each partition."""

    def check_transactional_commit(self, committer: Committer) -> CheckPartition:
        """Does the same as `check_commit` for offsets in a transaction."""

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Raises KafkaError if this member may not read the group's offsets now."""

    def check_offset_delete(self) -> None:
        """Raises KafkaError if offsets may not be deleted."""

    def check_delete(self) -> None:
        """Raises KafkaError if the group may not be deleted."""

    def reads(self, topic: str) -> bool:
        """True if the topic's offsets are in use, so that they are not deleted and do not expire."""

    def offset_unused_since_ms(self, commit_timestamp_ms: int) -> int | None:
        """Returns the start of the retention of an offset committed at this time, for a topic that is not read.

        In milliseconds since 1970; None if it has not started. Kafka's `OffsetExpirationCondition`.
        """


class GroupKind(Protocol):
    """The groups of one kind in a shard. They are stored in the shard's dictionary of all groups."""

    @property
    def type(self) -> GroupType: ...

    @property
    def record_types(self) -> Collection[int]:
        """The record types, see `records.py`, that belong to this kind."""

    def apply(self, key: bytes, value: bytes | None) -> None:
        """Applies a record of this kind, at the replay or after its append.

        Raises ProtocolError or UnsupportedVersion if the bytes cannot be decoded.
        """

    def tombstones(self, group_id: str) -> list[KeyedRecord]:
        """The records that remove a group of this kind; it is gone once they are applied."""

    def loaded(self, step: Step) -> None:
        """The replay is complete: its groups' deadlines start."""

    def unload(self, step: Step) -> None:
        """The partition is no longer here: answers pending requests with NOT_COORDINATOR."""

    def committed_by(self, step: Step, group_id: str, member_id: str) -> None:
        """A member has sent an OffsetCommit that `Group.check_commit` accepts."""
