"""What the shard and the committed offsets need of a group, whatever its kind.

A group id names one group, of one kind (Kafka's `Group.GroupType`). A kind is a folder beside this file: its groups,
its records, its machine, and the APIs by which its members talk to it. `Group` is what anybody may ask of a group;
`GroupKind` is what the shard asks of all groups of a kind.

A classic group is also what comes into being when somebody commits offsets for an id that no group has.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum
from typing import Protocol

import attrs
from kwire_protocol.messages.list_groups import ListedGroup

from kwire.coordinators.effects import KeyedRecord, Step


class GroupType(Enum):
    """The values are the names that ListGroups speaks of."""

    CLASSIC = "classic"


@attrs.frozen
class MemberContext:
    """What the connection knows of the client. `client_host` is written as Kafka writes it, with a slash in front."""

    client_id: str
    client_host: str
    api_version: int


class Group(Protocol):
    """One group. Kafka's interface of the same name."""

    group_id: str

    @property
    def type(self) -> GroupType: ...

    @property
    def is_empty(self) -> bool:
        """Whether it has no members: then it goes with its last offset."""

    def listed(self) -> ListedGroup: ...

    def check_commit(self, member_id: str, group_instance_id: str | None, generation_or_epoch: int) -> None:
        """Raises KafkaError when this member may not commit offsets now."""

    def check_transactional_commit(
        self, member_id: str, group_instance_id: str | None, generation_or_epoch: int
    ) -> None:
        """Raises KafkaError when this member may not commit offsets in a transaction now."""

    def check_offset_delete(self) -> None:
        """Raises KafkaError when offsets may not be deleted."""

    def check_delete(self) -> None:
        """Raises KafkaError when the group may not be deleted."""

    def reads(self, topic: str) -> bool:
        """Whether the topic's offsets are in use: they are neither deleted nor do they expire."""

    def offset_unused_since_ms(self, commit_timestamp_ms: int) -> int | None:
        """From when an offset's retention counts that was committed then, for a topic that the group does not read.

        Milliseconds since 1970; None if it does not count. Kafka's `OffsetExpirationCondition`.
        """


class GroupKind(Protocol):
    """The groups of one kind in a shard. It keeps them in the shard's dictionary of all groups."""

    @property
    def type(self) -> GroupType: ...

    @property
    def record_types(self) -> Collection[int]:
        """The record types, see `records.py`, that belong to this kind."""

    def apply(self, key: bytes, value: bytes | None) -> None:
        """Does what a record of this kind says, at the replay or after its append.

        Raises ProtocolError or UnsupportedVersion on bytes that cannot be read.
        """

    def tombstones(self, group_id: str) -> list[KeyedRecord]:
        """The records that remove a group of this kind; it is gone once they are applied."""

    def loaded(self, step: Step) -> None:
        """The replay is over: its groups' deadlines begin."""

    def unload(self, step: Step) -> None:
        """The partition is no longer here: answers whoever waits with NOT_COORDINATOR."""

    def committed_by(self, step: Step, group_id: str, member_id: str) -> None:
        """A member has sent an OffsetCommit that `Group.check_commit` accepts."""
