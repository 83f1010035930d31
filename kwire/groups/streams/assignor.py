"""The sticky assignor of streams groups: assigns active and standby tasks to members.

Its aims, in this order:

1. Every task is active on one member, and members differ by at most one active task. A process so gets as many as its
   threads can carry.
2. As few active tasks as possible leave their member. Those that have to, preferably go to one that has their state.
3. Every task with state has its standbys, each in a process of its own, and none in that of the active task. If there
   are fewer processes, there are fewer standbys.
4. The members' loads, which are their active and standby tasks together, are as even as the active tasks' places allow.
5. Standbys stay, or are where the task was active.

If no member had a task, those with most of it on their disks count as its standbys so far: an application that restarts
finds its state.

Kafka's `StickyTaskAssignor` (4.3.1) has the same aims. It places one task after the other, in the order of Java's hash
maps, and does not come back to a choice: it may leave a member with two tasks less than another.

Active tasks may go anywhere, so their numbers follow directly. Standbys may not, so those are placed first and then
passed on until loads cannot be evened any more: along chains, in which each member gives a standby to the next, from
one that has two tasks more than the last. Such a chain exists exactly when loads could be more even. This is a law of
flows, whose costs are the squares of the loads.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush, heapreplace

import attrs

from kwire.groups.streams.tasks import TaskGroup, TaskId, Tasks, task_ids_of, tasks_by_subtopology

STEPS = 500_000
"""The maximum number of steps of the search for chains. They block the coordinator for some tenths of a second."""


class StickyTaskAssignor:
    name = "sticky"

    def assign(self, group: TaskGroup) -> dict[str, Tasks]:
        """The new target assignment, by member id; the same object for a member whose part stays as it is.

        It does not rely on the log being correct: tasks that do not exist are ignored, and of a task that two members
        have as active, only one keeps it. A group without members gets an empty answer.
        """
        if not group.members:
            return {}
        deal = _Deal.of(group)
        deal.assign_actives()
        deal.assign_standbys()
        return deal.parts()


@attrs.define(eq=False)
class _Deal:
    """One assignment in progress. Members by position, in order of their ids.

    `had_active` and `had_state` are members by task: the one that had it as active, and the others with its state.
    `load` counts all tasks of a member, `process_loads` all of a process, `sizes` the members of a process.
    `holding_processes` has for each task the processes in which it is.
    """

    group: TaskGroup
    member_ids: list[str]
    processes: list[int]
    sizes: list[int]
    tasks: list[TaskId]
    had_active: dict[TaskId, int]
    had_state: dict[TaskId, list[int]]
    actives: list[set[TaskId]]
    standbys: list[set[TaskId]]
    process_loads: list[int]
    holding_processes: dict[TaskId, set[int]]

    @classmethod
    def of(cls, group: TaskGroup) -> _Deal:
        member_ids = sorted(group.members)
        numbers: dict[str, int] = {}
        processes = [numbers.setdefault(group.members[it].process_id, len(numbers)) for it in member_ids]
        tasks = group.task_ids()
        known = set(tasks)
        had_active: dict[TaskId, int] = {}
        had_state: dict[TaskId, list[int]] = {}
        for member, member_id in enumerate(member_ids):
            assigned = group.members[member_id].assigned
            for task in task_ids_of(assigned.active):
                if task in known:
                    had_active.setdefault(task, member)
            for task in {*task_ids_of(assigned.standby), *task_ids_of(assigned.warmup)} & known:
                had_state.setdefault(task, []).append(member)
        left_over: dict[TaskId, list[tuple[int, int]]] = {}
        for member, member_id in enumerate(member_ids):
            for task, offset in group.members[member_id].on_disk.items():
                if task in known and task not in had_active and task not in had_state:
                    left_over.setdefault(task, []).append((offset, member))
        for task, found in left_over.items():
            furthest = max(offset for offset, _ in found)
            had_state[task] = [member for offset, member in found if offset == furthest]
        return cls(
            group,
            member_ids,
            processes,
            [processes.count(it) for it in range(len(numbers))],
            tasks,
            had_active,
            had_state,
            [set() for _ in member_ids],
            [set() for _ in member_ids],
            [0] * len(numbers),
            {task: set() for task in tasks},
        )

    def load(self, member: int) -> int:
        return len(self.actives[member]) + len(self.standbys[member])

    def assign_actives(self) -> None:
        least, more = divmod(len(self.tasks), len(self.member_ids))
        had: list[list[TaskId]] = [[] for _ in self.member_ids]
        for task in self.tasks:
            if (owner := self.had_active.get(task)) is not None:
                had[owner].append(task)
        left = [task for task in self.tasks if task not in self.had_active]
        # The members with the most tasks get the remainder, one task more each.
        for member in sorted(range(len(had)), key=lambda it: (-len(had[it]), it)):
            quota = least + 1 if more and len(had[member]) > least else least
            more -= quota > least
            # Tasks whose state another member has are given up first. Then, as in Kafka, whole partitions are: with
            # whole subtopologies, all state could end on one member.
            retained = sorted(had[member], key=lambda task: (bool(self.had_state.get(task)), task[1], task[0]))[:quota]
            self.actives[member].update(retained)
            left += set(had[member]).difference(retained)
        for task, member in _Promotions(least, more, self.had_state, [len(it) for it in self.actives]).of(left).items():
            self.actives[member].add(task)
        for member, tasks in enumerate(self.actives):
            self.process_loads[self.processes[member]] += len(tasks)
            for task in tasks:
                self.holding_processes[task].add(self.processes[member])
        self._deal_out((task for task in self.tasks if not self.holding_processes[task]), self.actives)

    def assign_standbys(self) -> None:
        wanted = min(self.group.num_standby_replicas, len(self.sizes) - 1)
        if wanted <= 0:
            return
        missing = []
        for task in self.tasks:
            if not self.group.subtopologies[task[0]].is_stateful:
                continue
            holders = self._holders(task)
            for member in sorted(holders, key=lambda it: (self.load(it), it)):
                if (
                    len(self.holding_processes[task]) <= wanted
                    and self.processes[member] not in self.holding_processes[task]
                ):
                    self._assign_task(task, member, self.standbys)
            missing += [task] * (wanted + 1 - len(self.holding_processes[task]))
        # Tasks that the largest processes must not have leave the least choice, so they come first.
        missing.sort(key=lambda task: -sum(self.sizes[it] for it in self.holding_processes[task]))
        self._deal_out(missing, self.standbys)
        self._even_out()

    def _holders(self, task: TaskId) -> set[int]:
        """Returns the members that have a task's state from before."""
        holders = set(self.had_state.get(task, ()))
        if (owner := self.had_active.get(task)) is not None:
            holders.add(owner)
        return holders

    def _assign_task(self, task: TaskId, member: int, role: Sequence[set[TaskId]]) -> None:
        role[member].add(task)
        self.holding_processes[task].add(self.processes[member])
        self.process_loads[self.processes[member]] += 1

    def _deal_out(self, tasks: Iterable[TaskId], role: Sequence[set[TaskId]]) -> None:
        """Gives each task to the least loaded member whose process lacks it. Among equals the process's load counts."""
        members: list[list[tuple[int, int]]] = [[] for _ in self.sizes]
        for member, process in enumerate(self.processes):
            heappush(members[process], (self.load(member), member))

        def as_taker(process: int) -> tuple[int, float, int]:
            return (members[process][0][0], self.process_loads[process] / self.sizes[process], process)

        takers = [as_taker(it) for it in range(len(members))]
        heapify(takers)
        for task in tasks:
            passed_over = []
            while takers[0][-1] in self.holding_processes[task]:
                passed_over.append(heappop(takers))
            process = takers[0][-1]
            load, member = members[process][0]
            self._assign_task(task, member, role)
            heapreplace(members[process], (load + 1, member))
            heapreplace(takers, as_taker(process))
            for it in passed_over:
                heappush(takers, it)

    def _even_out(self) -> None:
        """Makes chains until none is left, or STEPS is reached.

        No chain leaves the members that a failed search has reached. None of them has two tasks less than the one where
        it began, which had the most tasks of those left. So none of them needs a search of its own.
        """
        steps = 0
        improved = True
        while improved:
            improved = False
            settled: set[int] = set()
            while len(settled) < len(self.member_ids) and steps < STEPS:
                giver = max(set(range(len(self.member_ids))) - settled, key=lambda it: (self.load(it), -it))
                taker, before, tried = self._search(giver)
                steps += tried
                if taker is None:
                    settled |= before.keys() | {giver}
                else:
                    self._make_chain(giver, taker, before)
                    improved = True

    def _search(self, giver: int) -> tuple[int | None, dict[int, tuple[int, TaskId]], int]:
        """Searches for the end of a chain that begins at this member: one that has two tasks less.

        Returns the end (None if there is none), the giver and the task of each member reached, and the number of steps.
        """
        before: dict[int, tuple[int, TaskId]] = {}
        unreached: dict[int, list[int]] = {}
        for member, process in enumerate(self.processes):
            if member != giver:
                unreached.setdefault(process, []).append(member)
        reached = deque([giver])
        steps = len(self.member_ids)
        while reached and unreached:
            member = reached.popleft()
            process = self.processes[member]
            # Tasks that are new to the member are passed on before those that it had.
            for task in sorted(self.standbys[member], key=lambda it: (member in self._holders(it), it)):
                holding_processes = self.holding_processes[task] - {process}
                steps += len(unreached)
                if takers := [it for its in sorted(unreached.keys() - holding_processes) for it in unreached.pop(its)]:
                    before |= dict.fromkeys(takers, (member, task))
                    reached += takers
                    taker = min(takers, key=lambda it: (self.load(it), it))
                    if self.load(giver) - self.load(taker) >= 2:
                        return taker, before, steps
        return None, before, steps

    def _make_chain(self, giver: int, taker: int, before: dict[int, tuple[int, TaskId]]) -> None:
        while taker != giver:
            member, task = before[taker]
            self.standbys[member].remove(task)
            self.holding_processes[task].remove(self.processes[member])
            self.process_loads[self.processes[member]] -= 1
            self._assign_task(task, taker, self.standbys)
            taker = member

    def parts(self) -> dict[str, Tasks]:
        parts = {}
        for member, member_id in enumerate(self.member_ids):
            assigned = self.group.members[member_id].assigned
            part = Tasks(tasks_by_subtopology(self.actives[member]), tasks_by_subtopology(self.standbys[member]))
            parts[member_id] = assigned if part == assigned else part
        return parts


@attrs.define(eq=False)
class _Promotions:
    """Gives as many tasks as possible to members that have their state, as a bipartite matching.

    Each member takes `least` tasks, and `more` members one more. `counts`: the number of tasks of each member.
    """

    least: int
    more: int
    had_state: dict[TaskId, list[int]]
    counts: list[int]
    promoted: dict[TaskId, int] = attrs.field(init=False, factory=dict)
    _by_member: dict[int, list[TaskId]] = attrs.field(init=False, factory=dict)

    def of(self, tasks: Iterable[TaskId]) -> dict[TaskId, int]:
        for task in sorted(tasks, key=lambda it: (len(self.had_state.get(it, ())), it)):
            self._promote(task)
        return self.promoted

    def _promote(self, task: TaskId) -> None:
        """Searches for a member with room, first among those with its state, then where one of their tasks could go."""
        before: dict[int, tuple[int | None, TaskId]] = {}
        reached: deque[int] = deque()
        self._reach(None, task, before, reached)
        while reached:
            member = reached.popleft()
            if self._has_room(member):
                self._take(member, before)
                return
            for its in self._by_member.get(member, ()):
                self._reach(member, its, before, reached)

    def _reach(
        self, giver: int | None, task: TaskId, before: dict[int, tuple[int | None, TaskId]], reached: deque[int]
    ) -> None:
        for member in sorted(self.had_state.get(task, ()), key=lambda it: (self.counts[it], it)):
            if member not in before:
                before[member] = (giver, task)
                reached.append(member)

    def _has_room(self, member: int) -> bool:
        return self.counts[member] < self.least or (self.counts[member] == self.least and self.more > 0)

    def _take(self, member: int, before: dict[int, tuple[int | None, TaskId]]) -> None:
        self.more -= self.counts[member] == self.least
        self.counts[member] += 1
        taker: int | None = member
        while taker is not None:
            giver, task = before[taker]
            if giver is not None:
                self._by_member[giver].remove(task)
            self._by_member.setdefault(taker, []).append(task)
            self.promoted[task] = taker
            taker = giver
