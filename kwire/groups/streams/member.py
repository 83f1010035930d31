"""A member of a streams group as values: its request and its current tasks.

Both are frozen, and each is one record of `__consumer_offsets` (`changes.py`). A member is a thread of an application's
process. Kafka's `StreamsGroupMember` is both in one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Final, TypeAlias

import attrs

from kwire.groups.streams.tasks import TaskIds, Tasks

ActiveTasks: TypeAlias = Mapping[str, Mapping[int, int]]
"""Subtopology id -> partition -> the epoch in which the member got the task (KIP-1251). No empty subtopologies."""

_NO_PARTITIONS: Final[Mapping[int, int]] = {}

JOINING_EPOCH: Final = 0
LEAVING_EPOCH: Final = -1
STATIC_LEAVING_EPOCH: Final = -2
"""Reserved: Kafka 4.3.1 has no static members in streams groups."""


class MemberState(IntEnum):
    """The progress of a member between two assignments. The numbers are those of Kafka's `MemberState`, in records."""

    STABLE = 1
    UNREVOKED_TASKS = 2
    """It has not given up all tasks that it has to."""
    UNRELEASED_TASKS = 3
    """It waits for tasks that others, or its own process, have not given up."""
    UNKNOWN = 127
    """A later version wrote a state that this one does not know."""

    @classmethod
    def of(cls, number: int) -> MemberState:
        return cls(number) if number in cls.__members__.values() else cls.UNKNOWN


@attrs.frozen
class Endpoint:
    """The address at which the member's process answers interactive queries (`application.server`)."""

    host: str
    port: int


@attrs.frozen
class StreamsMember:
    """The member's request. `rebalance_timeout_ms` and `topology_epoch` are -1 if unknown."""

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topology_epoch: int = -1
    process_id: str = ""
    user_endpoint: Endpoint | None = None
    client_tags: Mapping[str, str] = attrs.field(factory=dict)


@attrs.frozen
class HeldTasks:
    """Tasks of a member by role. Active ones have the epoch in which it got them (Kafka's `TasksTupleWithEpochs`)."""

    active: ActiveTasks = attrs.field(factory=dict)
    standby: TaskIds = attrs.field(factory=dict)
    warmup: TaskIds = attrs.field(factory=dict)

    @property
    def is_empty(self) -> bool:
        return not (self.active or self.standby or self.warmup)

    def have_any_of(self, tasks: Tasks) -> bool:
        return (
            _overlap(tasks.active, self.active)
            or _overlap(tasks.standby, self.standby)
            or _overlap(tasks.warmup, self.warmup)
        )

    def have_all_of(self, tasks: Tasks) -> bool:
        return (
            _contain(self.active, tasks.active)
            and _contain(self.standby, tasks.standby)
            and _contain(self.warmup, tasks.warmup)
        )

    def are(self, tasks: Tasks) -> bool:
        return (
            self.have_all_of(tasks)
            and _contain(tasks.active, self.active)
            and _contain(tasks.standby, self.standby)
            and _contain(tasks.warmup, self.warmup)
        )

    def replicas(self) -> Iterable[tuple[str, int]]:
        """The standby and warm-up tasks."""
        for roles in (self.standby, self.warmup):
            for subtopology_id, partitions in roles.items():
                for partition in partitions:
                    yield subtopology_id, partition


NOTHING: Final = HeldTasks()

_ByPartition: TypeAlias = Mapping[str, Mapping[int, int]] | Mapping[str, frozenset[int]]


def _overlap(tasks: TaskIds, held: _ByPartition) -> bool:
    return any(not partitions.isdisjoint(held.get(name, ())) for name, partitions in tasks.items())


def _contain(held: _ByPartition, tasks: _ByPartition) -> bool:
    return all(partition in held.get(name, ()) for name, partitions in tasks.items() for partition in partitions)


@attrs.frozen
class CurrentTasks:
    """The member's tasks. `assigned` are those that it may run, or gets with the next response.

    It still runs those in `pending_revocation`, or has not yet reported that it stopped.
    """

    epoch: int = JOINING_EPOCH
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    assigned: HeldTasks = NOTHING
    pending_revocation: HeldTasks = NOTHING

    def is_reconciled_to(self, epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == epoch

    def moved_to(
        self, epoch: int, state: MemberState, assigned: HeldTasks, pending_revocation: HeldTasks = NOTHING
    ) -> CurrentTasks:
        """Returns the next assignment; equal to this one if nothing changes.

        Its previous epoch is the last one that differs, so that a member whose responses were lost is recognized.
        """
        previous = self.previous_epoch if epoch == self.epoch else self.epoch
        return CurrentTasks(epoch, previous, state, assigned, pending_revocation)

    def assignment_epoch(self, subtopology_id: str, partition: int) -> int | None:
        """The epoch in which the member got an active task that it has or is to give up; None for other tasks."""
        epoch = self.assigned.active.get(subtopology_id, _NO_PARTITIONS).get(partition)
        if epoch is None:
            epoch = self.pending_revocation.active.get(subtopology_id, _NO_PARTITIONS).get(partition)
        return epoch


NEW_MEMBER: Final = CurrentTasks()
