"""The requests of share groups' coordinators to the share coordinators: to initialize states, and to delete them.

The other parts of the broker read and write the states (`kwire.share.coordinator`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Protocol, TypeAlias

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages.alter_share_group_offsets import AlterShareGroupOffsetsResponseTopic
from kwire_protocol.messages.delete_share_group_offsets import DeleteShareGroupOffsetsResponseTopic
from kwire_protocol.wire import Uuid

from kwire.coordinators.effects import Effect

NOT_CHOSEN: Final = -1
"""The start offset that the leader of the partition has to choose, by share.auto.offset.reset."""

Outcome: TypeAlias = Mapping[tuple[Uuid, int], ErrorCode]
"""The error of each partition's state, by topic id and partition; NONE is a success."""

ToDelete: TypeAlias = Mapping[Uuid, Sequence[int]]
"""Topic id -> partitions whose states have to be deleted."""


def failure(error: ErrorCode) -> str | None:
    """Returns the error message for a state that could not be initialized or deleted; None without an error."""
    return f"The share coordinator has answered {error.name}." if error else None


class StateKeeper(Protocol):
    """The part of `kwire.share.coordinator.persister.Persister` that groups need."""

    async def initialize(self, group_id: str, topics: Mapping[Uuid, Sequence[tuple[int, int, int]]]) -> Outcome:
        """Initializes states, each given as (partition, state epoch, start offset)."""

    async def delete(self, group_id: str, topics: ToDelete) -> Outcome:
        """Deletes states. A state that does not exist counts as deleted."""


@attrs.frozen
class StatesToInitialize:
    """`start_offsets`: topic id -> partition -> start offset, or NOT_CHOSEN."""

    group_id: str
    state_epoch: int
    start_offsets: Mapping[Uuid, Mapping[int, int]]

    @property
    def partitions(self) -> set[tuple[str, Uuid, int]]:
        """The partitions, as (group id, topic id, partition)."""
        return {(self.group_id, topic_id, it) for topic_id, offsets in self.start_offsets.items() for it in offsets}


@attrs.define(eq=False)
class Initialize(Effect):
    """Requests initialized states from the share coordinators, then calls `GroupShard.share_states_initialized`."""

    states: StatesToInitialize


@attrs.frozen
class AlterationBegun:
    """`answers` are right if the states can be initialized."""

    answers: list[AlterShareGroupOffsetsResponseTopic]
    states: StatesToInitialize


@attrs.frozen
class OffsetDeletionBegun:
    """The states to delete, the names of their topics, and the answers for the topics that have none."""

    to_delete: dict[Uuid, list[int]] = attrs.field(factory=dict)
    names: dict[Uuid, str] = attrs.field(factory=dict)
    refused: list[DeleteShareGroupOffsetsResponseTopic] = attrs.field(factory=list)

    def add(self, topic_id: Uuid, name: str, partitions: list[int]) -> None:
        self.to_delete[topic_id], self.names[topic_id] = partitions, name
