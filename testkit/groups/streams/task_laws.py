"""The laws of an assignor of tasks, and the cost of an assignment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import combinations

import attrs

from kwire.groups.streams.assignor import StickyTaskAssignor
from kwire.groups.streams.tasks import TaskGroup, TaskId, TaskIds, Tasks, task_ids_of

Parts = Mapping[str, Tasks]


def actives(parts: Parts) -> dict[TaskId, str]:
    """The member of each active task."""
    found: dict[TaskId, str] = {}
    for member_id, part in parts.items():
        for task in task_ids_of(part.active):
            assert task not in found, "a task is active twice"
            found[task] = member_id
    return found


def standbys(parts: Parts) -> dict[TaskId, list[str]]:
    found: dict[TaskId, list[str]] = {}
    for member_id, part in parts.items():
        for task in task_ids_of(part.standby):
            found.setdefault(task, []).append(member_id)
    return found


def active_loads(parts: Parts) -> dict[str, int]:
    return {member_id: _size(part.active) for member_id, part in parts.items()}


def loads(parts: Parts) -> dict[str, int]:
    return {member_id: _size(part.active) + _size(part.standby) for member_id, part in parts.items()}


def squares(counts: Mapping[str, int]) -> int:
    return sum(it**2 for it in counts.values())


def _size(tasks: TaskIds) -> int:
    return sum(map(len, tasks.values()))


def before(group: TaskGroup) -> Parts:
    return {member_id: member.assigned for member_id, member in group.members.items()}


def moved(group: TaskGroup, parts: Parts) -> int:
    """Returns the number of active tasks that left a member although it might have kept them."""
    now = actives(parts)
    had = actives(before(group))
    return sum(now[task] != owner for task, owner in had.items() if task in now)


def restored(group: TaskGroup, parts: Parts) -> int:
    """Returns the number of tasks, in any role, on a member that did not have their state."""
    had = {
        (member_id, task)
        for member_id, part in before(group).items()
        for role in (part.active, part.standby, part.warmup)
        for task in task_ids_of(role)
    }
    now = [
        (member_id, task)
        for member_id, part in parts.items()
        for role in (part.active, part.standby)
        for task in task_ids_of(role)
    ]
    return sum(it not in had and group.subtopologies[it[1][0]].is_stateful for it in now)


def with_parts(group: TaskGroup, parts: Parts) -> TaskGroup:
    members = {member_id: attrs.evolve(its, assigned=parts[member_id]) for member_id, its in group.members.items()}
    return attrs.evolve(group, members=members)


def in_another_order(group: TaskGroup) -> TaskGroup:
    members = {
        member_id: attrs.evolve(
            its,
            assigned=Tasks(
                dict(reversed(list(its.assigned.active.items()))),
                dict(reversed(list(its.assigned.standby.items()))),
                dict(reversed(list(its.assigned.warmup.items()))),
            ),
        )
        for member_id, its in reversed(list(group.members.items()))
    }
    return TaskGroup(members, dict(reversed(list(group.subtopologies.items()))), group.num_standby_replicas)


def check_processes(group: TaskGroup, parts: Parts) -> None:
    """Every task is active once, and every one with state has its standbys, each in another process."""
    assert parts.keys() == group.members.keys()
    assert actives(parts).keys() == set(group.task_ids())
    copies = standbys(parts)
    process_of = {member_id: its.process_id for member_id, its in group.members.items()}
    wanted = min(group.num_standby_replicas, len(set(process_of.values())) - 1)
    for task, owner in actives(parts).items():
        holders = copies.pop(task, [])
        assert len(holders) == (wanted if group.subtopologies[task[0]].is_stateful else 0), "standbys are missing"
        processes = [process_of[it] for it in (owner, *holders)]
        assert len(set(processes)) == len(processes), "two copies are in one process"
    assert not copies, "a task that does not exist has standbys"


def check_is_level(parts: Parts) -> None:
    counts = active_loads(parts).values()
    assert max(counts) - min(counts) <= 1


def check_moves_are_needed(group: TaskGroup, parts: Parts) -> None:
    """No member that gives up an active task gets another, and none that has as few as it may gives one up."""
    known = set(group.task_ids())
    had = actives(before(group))
    now = actives(parts)
    least, more = divmod(len(known), len(group.members))
    counts = Counter(owner for task, owner in had.items() if task in known)
    retained = sum(now[task] == owner for task, owner in had.items() if task in known)
    spare = sum(sorted((it > least for it in counts.values()), reverse=True)[:more])
    assert retained == sum(min(it, least) for it in counts.values()) + spare


def check_loads_are_even(group: TaskGroup, parts: Parts) -> None:
    """No standby can go, directly or by way of one other member, from a member to one that has two tasks less."""
    count = loads(parts)
    process_of = {member_id: its.process_id for member_id, its in group.members.items()}
    processes = {task: {process_of[owner]} for task, owner in actives(parts).items()}
    for task, holders in standbys(parts).items():
        processes[task].update(process_of[it] for it in holders)

    def may_pass_on(giver: str, taker: str) -> bool:
        return any(
            process_of[taker] not in processes[task] - {process_of[giver]} for task in task_ids_of(parts[giver].standby)
        )

    for giver, taker in combinations(sorted(count, key=lambda it: -count[it]), 2):
        if count[giver] - count[taker] >= 2:
            assert not may_pass_on(giver, taker), "a standby could go to a member with fewer tasks"
            for between in group.members.keys() - {giver, taker}:
                assert not (may_pass_on(giver, between) and may_pass_on(between, taker)), "two standbys could go"


def check_all(assignor: StickyTaskAssignor, group: TaskGroup) -> dict[str, Tasks]:
    parts = assignor.assign(group)
    check_processes(group, parts)
    check_is_level(parts)
    check_moves_are_needed(group, parts)
    check_loads_are_even(group, parts)
    for member_id, part in parts.items():
        assigned = group.members[member_id].assigned
        assert part is assigned or part != assigned, "an unchanged part is another object"
    assert parts == assignor.assign(in_another_order(group)), "the order of the question matters"
    for member_id, part in assignor.assign(with_parts(group, parts)).items():
        assert part is parts[member_id], "its own result does not satisfy it"
    return parts
