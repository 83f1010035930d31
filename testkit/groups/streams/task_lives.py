"""Random lives of streams groups: threads and processes join and leave, topics grow, topologies and settings change.

A seed decides all of it. The members' tasks come from the caller: they are the assignment of the assignor under test.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

import attrs

from kwire.groups.streams.tasks import NO_TASKS, Subtopology, TaskGroup, TaskMember, Tasks


@attrs.define(eq=False)
class TaskLife:
    seed: int
    large: bool = False
    _random: Random = attrs.field(init=False, repr=False)
    _process_of: dict[str, str] = attrs.field(init=False, repr=False, factory=dict)
    _subtopologies: dict[str, Subtopology] = attrs.field(init=False, repr=False, factory=dict)
    _standbys: int = attrs.field(init=False, repr=False)
    _names: int = attrs.field(init=False, repr=False, default=0)

    def __attrs_post_init__(self) -> None:
        self._random = Random(self.seed)
        self._standbys = self._random.choice((0, 1, 1, 2, 3))
        for _ in range(self._up_to(4)):
            self._appear()
        for _ in range(self._up_to(12 if self.large else 4)):
            self._start_process()

    def group(self, parts: Mapping[str, Tasks] | None = None) -> TaskGroup:
        """The group of now. `parts`: what its members have; without it they have nothing."""
        members = {
            member_id: TaskMember(process_id, (parts or {}).get(member_id, NO_TASKS))
            for member_id, process_id in self._process_of.items()
        }
        return TaskGroup(members, dict(self._subtopologies), self._standbys)

    def go_on(self, parts: Mapping[str, Tasks]) -> TaskGroup:
        """Applies some random events, and returns the group, whose members have these parts."""
        changes = (
            self._start_process,
            self._stop_process,
            self._start_thread,
            self._stop_thread,
            self._appear,
            self._grow,
            self._vanish,
            self._configure,
        )
        for _ in range(self._random.choice((1, 1, 1, 2, 3, 8))):
            self._random.choice(changes)()
        return self.group(parts)

    def _up_to(self, most: int) -> int:
        return self._random.randint(1, most)

    def _join(self, process_id: str) -> None:
        self._names += 1
        self._process_of[f"{self._random.randrange(16**4):04x}-{self._names}"] = process_id

    def _start_process(self) -> None:
        self._names += 1
        process_id = f"p{self._random.randrange(16**4):04x}-{self._names}"
        for _ in range(self._up_to(6 if self.large else 3)):
            self._join(process_id)

    def _stop_process(self) -> None:
        processes = sorted(set(self._process_of.values()))
        if len(processes) > 1:
            stopped = self._random.choice(processes)
            self._process_of = {it: process for it, process in self._process_of.items() if process != stopped}

    def _start_thread(self) -> None:
        self._join(self._random.choice(sorted(self._process_of.values())))

    def _stop_thread(self) -> None:
        if len(self._process_of) > 1:
            del self._process_of[self._random.choice(sorted(self._process_of))]

    def _appear(self) -> None:
        self._names += 1
        size = self._up_to(40 if self.large else 6)
        self._subtopologies[f"{self._names}"] = Subtopology(size, self._random.random() < 0.7)

    def _grow(self) -> None:
        if self._subtopologies:
            name = self._random.choice(sorted(self._subtopologies))
            its = self._subtopologies[name]
            self._subtopologies[name] = attrs.evolve(its, task_count=its.task_count + self._up_to(4))

    def _vanish(self) -> None:
        if len(self._subtopologies) > 1:
            del self._subtopologies[self._random.choice(sorted(self._subtopologies))]

    def _configure(self) -> None:
        self._standbys = self._random.choice((0, 1, 1, 2, 3))
