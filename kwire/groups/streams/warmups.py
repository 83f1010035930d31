"""Tasks with state move only when the member that gets them is nearly up to date.

A target assignment has the final places of tasks. A member without a task's state would first read its changelog
topics, and for minutes or hours no member would run the task. So the task keeps running where it is and warms up on the
new member, which follows the changelog topics as a standby does. Members report their progress. When at most
`acceptable_recovery_lag` records are missing, the task moves. At most `num_warmup_replicas` tasks warm up at a time.
The others wait where they are.

The result is a refined assignment, which differs from the targets. It is not in the log. A coordinator that loads the
group computes the same from the members' current tasks, since a task stays where it is until the new member reports.

The rules are KIP-1071's, and those of Kafka Streams' own assignor for classic groups (KIP-441). Apache Kafka 4.4 has
the protocol, the settings and a place for it, `AssignmentRefiner`, which returns the targets as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from typing import Final, TypeAlias, TypeVar

import attrs

from kwire.groups.config import WarmupSettings
from kwire.groups.streams.member import NEW_MEMBER, CurrentTasks, HeldTasks
from kwire.groups.streams.tasks import Subtopology, TaskId, TaskIds, Tasks, task_ids_of, tasks_by_subtopology

K = TypeVar("K")

Offsets: TypeAlias = Mapping[TaskId, int]
"""Task -> the sum of the offsets in its changelog topics."""


@attrs.frozen
class Progress:
    """A member's report on its tasks with state: the offset of each on its disk, and the end offset.

    It does not include active tasks that run: those are at their end. Kafka's `MemberTaskOffsets`.
    """

    offsets: Offsets = attrs.field(factory=dict)
    end_offsets: Offsets = attrs.field(factory=dict)


NO_PROGRESS: Final = Progress()


@attrs.frozen
class Crew:
    """The members, by their ids.

    `silent` are those that do not report their progress. Their processes get tasks at once: the group would wait for a
    report that never comes.
    """

    process_ids: Mapping[str, str]
    current: Mapping[str, CurrentTasks]
    progress: Mapping[str, Progress]
    silent: Set[str]

    def has(self, member_id: str) -> HeldTasks:
        return self.current.get(member_id, NEW_MEMBER).assigned


@attrs.frozen
class Refined:
    """`parts`: what members get, by member id, where it differs from their target.

    While there are any, tasks wait to move.
    """

    parts: Mapping[str, Tasks]
    settings: WarmupSettings


def refine(
    targets: Mapping[str, Tasks], crew: Crew, subtopologies: Mapping[str, Subtopology], settings: WarmupSettings
) -> Refined:
    """Keeps tasks where they run until their new members are ready. `targets`: of members of the crew, by member id."""
    if not settings.num_warmup_replicas:
        return Refined({}, settings)
    lags, silent = _Lags.of(crew), {crew.process_ids[it] for it in crew.silent}
    waiting = [
        move
        for move in _moves(targets, crew, subtopologies)
        if (process_id := crew.process_ids[move.destination]) not in silent
        and lags.of_task(move.task, process_id) > settings.acceptable_recovery_lag
    ]
    parts = {member_id: _Part.of(target) for member_id, target in targets.items()} if waiting else {}
    processes: dict[str, list[str]] = {}
    for member_id in parts:
        processes.setdefault(crew.process_ids[member_id], []).append(member_id)
    left = settings.num_warmup_replicas
    # Tasks that already warm up come first.
    for move in sorted(waiting, key=lambda it: (not _are_in(crew.has(it.destination).warmup, it.task), it.task)):
        parts[move.destination].active.remove(move.task)
        parts[move.source].active.add(move.task)
        for member_id in processes[crew.process_ids[move.source]]:
            parts[member_id].standby.discard(move.task)
        there = processes[crew.process_ids[move.destination]]
        standbys = [it for it in there if _are_in(crew.has(it).standby, move.task)]
        if standbys:  # It continues as a standby, which catches up as well.
            parts[standbys[0]].standby.add(move.task)
        elif left:
            parts[move.destination].warmup.add(move.task)
            left -= 1
    refined = {member_id: part.tasks() for member_id, part in parts.items()}
    return Refined({it: part for it, part in refined.items() if part != targets[it]}, settings)


@attrs.frozen
class _Move:
    task: TaskId
    source: str
    destination: str


def _moves(targets: Mapping[str, Tasks], crew: Crew, subtopologies: Mapping[str, Subtopology]) -> list[_Move]:
    """Returns the tasks with state that have to move between processes. The members of a process share its disk."""
    runs = {
        (name, partition): member_id
        for member_id in targets
        for name, partitions in crew.has(member_id).active.items()
        for partition in partitions
    }
    return [
        _Move(task, source, member_id)
        for member_id, target in targets.items()
        for task in task_ids_of(target.active)
        if (source := runs.get(task)) is not None
        and (subtopology := subtopologies.get(task[0])) is not None
        and subtopology.is_stateful
        and crew.process_ids[source] != crew.process_ids[member_id]
    ]


def _are_in(tasks: TaskIds, task: TaskId) -> bool:
    return task[1] in tasks.get(task[0], ())


@attrs.frozen
class _Lags:
    """The lags of processes: `furthest` by process and task, `ends` by task."""

    furthest: Mapping[tuple[str, TaskId], int]
    ends: Offsets

    @classmethod
    def of(cls, crew: Crew) -> _Lags:
        furthest: dict[tuple[str, TaskId], int] = {}
        ends: dict[TaskId, int] = {}
        for member_id, progress in crew.progress.items():
            process_id = crew.process_ids[member_id]
            _keep_greatest(furthest, (((process_id, task), offset) for task, offset in progress.offsets.items()))
            _keep_greatest(ends, progress.end_offsets.items())
        return cls(furthest, ends)

    def of_task(self, task: TaskId, process_id: str) -> float:
        """Returns the number of missing records; infinite if unknown."""
        end, offset = self.ends.get(task), self.furthest.get((process_id, task))
        return float("inf") if end is None or offset is None else end - offset


def _keep_greatest(known: dict[K, int], reported: Iterable[tuple[K, int]]) -> None:
    for key, value in reported:
        known[key] = max(value, known.get(key, value))


@attrs.define
class _Part:
    active: set[TaskId]
    standby: set[TaskId]
    warmup: set[TaskId]

    @classmethod
    def of(cls, tasks: Tasks) -> _Part:
        return cls(*(set(task_ids_of(it)) for it in (tasks.active, tasks.standby, tasks.warmup)))

    def tasks(self) -> Tasks:
        return Tasks(*map(tasks_by_subtopology, (self.active, self.standby, self.warmup)))
