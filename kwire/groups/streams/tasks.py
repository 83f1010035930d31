"""Tasks of a Kafka Streams application, and the input of their assignor.

A topology consists of subtopologies, and each of them into tasks: one for each partition number of its source topics. A
task is active on one member. A task with state can have standbys too: other members that follow its changelog topics,
and so can take it over quickly. A warm-up is a standby of a member that is about to become active.

Members are threads. Those of one process share its disk, so a process needs no second copy of a task's state, and more
threads mean more capacity.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, TypeAlias

import attrs

TaskId: TypeAlias = tuple[str, int]
"""Subtopology id and partition."""

TaskIds: TypeAlias = Mapping[str, frozenset[int]]
"""Partitions by subtopology id, without empty sets."""


@attrs.frozen
class Tasks:
    """One member's part, by role."""

    active: TaskIds = attrs.field(factory=dict)
    standby: TaskIds = attrs.field(factory=dict)
    warmup: TaskIds = attrs.field(factory=dict)


NO_TASKS: Final = Tasks()


@attrs.frozen
class Subtopology:
    """The part of a subtopology that an assignor needs. Only stateful tasks have standbys."""

    task_count: int
    is_stateful: bool


@attrs.frozen
class TaskMember:
    """`assigned` is its part of the target assignment so far.

    `on_disk`: the progress of tasks with state on its disk, as sums of offsets.
    """

    process_id: str
    assigned: Tasks = NO_TASKS
    on_disk: Mapping[TaskId, int] = attrs.field(factory=dict)


@attrs.frozen
class TaskGroup:
    """`members` by member id, `subtopologies` by subtopology id.

    `num_standby_replicas`: the number of standbys of each task with state (`streams.num.standby.replicas`).
    """

    members: Mapping[str, TaskMember]
    subtopologies: Mapping[str, Subtopology]
    num_standby_replicas: int = 0

    def task_ids(self) -> list[TaskId]:
        """All tasks, those with state first, then in order of their ids."""
        in_order = sorted(self.subtopologies.items(), key=lambda it: (not it[1].is_stateful, it[0]))
        return [(name, partition) for name, its in in_order for partition in range(its.task_count)]


def task_ids_of(tasks: TaskIds) -> Iterator[TaskId]:
    return ((subtopology_id, it) for subtopology_id, partitions in tasks.items() for it in partitions)


def tasks_by_subtopology(task_ids: Iterable[TaskId]) -> TaskIds:
    found: dict[str, set[int]] = {}
    for subtopology_id, partition in task_ids:
        found.setdefault(subtopology_id, set()).add(partition)
    return {subtopology_id: frozenset(found[subtopology_id]) for subtopology_id in sorted(found)}
