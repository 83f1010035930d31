"""Members of streams groups on their way to any target: each active task runs once, and all arrive."""

from __future__ import annotations

from collections import Counter

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError

from devtools.suite.tiers import examples
from kwire.groups.streams.member import NEW_MEMBER, CurrentTasks, HeldTasks, MemberState
from kwire.groups.streams.reconciliation import Reconciliation
from kwire.groups.streams.tasks import NO_TASKS, TaskId, Tasks, task_ids_of, tasks_by_subtopology

PROCESS_OF = {"a1": "a", "a2": "a", "b1": "b", "c1": "c"}
TASKS = [("0", 0), ("0", 1), ("1", 0)]


def owned_by(has: HeldTasks) -> Tasks:
    return Tasks({name: frozenset(of) for name, of in has.active.items()}, has.standby, has.warmup)


def all_of(tasks: Tasks) -> list[TaskId]:
    return [it for role in (tasks.active, tasks.standby, tasks.warmup) for it in task_ids_of(role)]


@attrs.define
class Member:
    process: str
    current: CurrentTasks = NEW_MEMBER
    owned: Tasks = NO_TASKS
    """The client's tasks: it takes those assigned, and gives up the rest when it likes."""


class Application:
    def __init__(self) -> None:
        self.members = {name: Member(process) for name, process in PROCESS_OF.items()}
        self.epoch = 0
        self.targets: dict[str, Tasks] = dict.fromkeys(self.members, NO_TASKS)

    def aim(self, places: dict[TaskId, tuple[str, str | None]]) -> None:
        """Sets each task's member, and the process of its standby."""
        self.epoch += 1
        active: dict[str, list[TaskId]] = {name: [] for name in self.members}
        standby: dict[str, list[TaskId]] = {name: [] for name in self.members}
        for task, (member, process) in places.items():
            active[member].append(task)
            if process is not None and process != PROCESS_OF[member]:
                standby[next(name for name, of in PROCESS_OF.items() if of == process)].append(task)
        self.targets = {
            name: Tasks(tasks_by_subtopology(active[name]), tasks_by_subtopology(standby[name]))
            for name in self.members
        }

    def heartbeat(self, name: str, *, reports: bool) -> None:
        member = self.members[name]
        before = member.current
        member.current = Reconciliation(
            self.epoch,
            self.targets[name],
            member.owned if reports else None,
            lambda *task: any(task in self.held(it, "active") for it in self.members),
            lambda *task: any(task in self.held(it) for it in self.members if PROCESS_OF[it] == member.process),
        ).next(before)
        assert member.current.epoch >= before.epoch
        assert member.current.epoch <= self.epoch
        if member.current.epoch > before.epoch:
            assert member.current.previous_epoch == before.epoch
        if member.current.assigned != before.assigned or reports:
            member.owned = owned_by(member.current.assigned)

    def held(self, name: str, *roles: str) -> list[TaskId]:
        """Returns the tasks that the coordinator counts: assigned, or not given up yet."""
        current = self.members[name].current
        found: list[TaskId] = []
        for held in (current.assigned, current.pending_revocation):
            tasks = owned_by(held)
            for role in roles or ("active", "standby", "warmup"):
                found += task_ids_of(getattr(tasks, role))
        return found

    def check(self) -> None:
        active = Counter(it for name in self.members for it in self.held(name, "active"))
        assert all(count == 1 for count in active.values()), "a task is active once"
        for process in set(PROCESS_OF.values()):
            inside = Counter(it for name, of in PROCESS_OF.items() if of == process for it in set(self.held(name)))
            assert all(count == 1 for count in inside.values()), "a process has a task in one member"
        for name, member in self.members.items():
            roles = all_of(owned_by(member.current.assigned))
            assert len(roles) == len(set(roles)), "in one role"
            assert set(all_of(member.owned)) <= set(self.held(name)), "nobody runs what it was not given"


places = st.fixed_dictionaries(
    {task: st.tuples(st.sampled_from(list(PROCESS_OF)), st.sampled_from([None, "a", "b", "c"])) for task in TASKS}
)
steps = st.lists(st.one_of(places, st.tuples(st.sampled_from(list(PROCESS_OF)), st.booleans())), max_size=40)


@given(steps=steps)
@settings(max_examples=examples(50), deadline=None)
def test_whatever_the_targets_a_task_is_active_once_and_everybody_arrives(steps: list[object]) -> None:
    application = Application()
    for step in steps:
        if isinstance(step, dict):
            application.aim(step)
        else:
            assert isinstance(step, tuple)
            application.heartbeat(step[0], reports=step[1])
        application.check()
    for _ in range(6):
        for name in application.members:
            application.heartbeat(name, reports=True)
            application.check()
    for name, member in application.members.items():
        assert member.current.is_reconciled_to(application.epoch)
        assert owned_by(member.current.assigned) == application.targets[name]
        assert member.owned == application.targets[name]


def step_toward(
    target: Tasks, current: CurrentTasks, owned: Tasks | None, *, active: bool = False, inside: bool = False
) -> CurrentTasks:
    return Reconciliation(7, target, owned, lambda *_: active, lambda *_: inside).next(current)


def test_a_task_keeps_the_epoch_in_which_the_member_got_it() -> None:
    has = CurrentTasks(5, 4, MemberState.STABLE, HeldTasks({"0": {0: 3}}))
    after = step_toward(Tasks({"0": frozenset({0, 1})}), has, None)
    assert after.assigned.active == {"0": {0: 3, 1: 7}}


def test_a_member_that_reports_nothing_may_still_run_what_it_is_to_give_up() -> None:
    has = CurrentTasks(5, 4, MemberState.STABLE, HeldTasks({"0": {0: 3, 1: 3}}))
    waits = step_toward(Tasks({"0": frozenset({0})}), has, None)
    assert (waits.epoch, waits.state) == (5, MemberState.UNREVOKED_TASKS)
    assert waits.assigned.active == {"0": {0: 3}}
    assert waits.pending_revocation.active == {"0": {1: 3}}
    assert step_toward(Tasks({"0": frozenset({0})}), waits, None) is waits
    done = step_toward(Tasks({"0": frozenset({0})}), waits, Tasks({"0": frozenset({0})}))
    assert (done.epoch, done.previous_epoch, done.state) == (7, 5, MemberState.STABLE)


def test_a_target_that_wants_more_back_meanwhile_is_another_epoch_for_the_member() -> None:
    waits = CurrentTasks(5, 4, MemberState.UNREVOKED_TASKS, HeldTasks({"0": {0: 3}}), HeldTasks({"0": {1: 3}}))
    after = step_toward(NO_TASKS, waits, Tasks({"0": frozenset({0})}))
    assert (after.epoch, after.previous_epoch, after.state) == (6, 5, MemberState.UNREVOKED_TASKS)
    assert after.pending_revocation.active == {"0": {0: 3}}


def test_a_standby_waits_for_its_own_process_only() -> None:
    target = Tasks(standby={"0": frozenset({0})})
    has = CurrentTasks(5, 4)
    assert step_toward(target, has, None, active=True).assigned.standby == {"0": frozenset({0})}
    waits = step_toward(target, has, None, inside=True)
    assert (waits.epoch, waits.state, waits.assigned.standby) == (7, MemberState.UNRELEASED_TASKS, {})


def test_a_member_that_waits_stays_the_same_and_keeps_its_previous_epoch() -> None:
    waits = CurrentTasks(7, 5, MemberState.UNRELEASED_TASKS)
    assert step_toward(Tasks({"0": frozenset({0})}), waits, None, active=True) is waits


@pytest.mark.parametrize("owned", [None, Tasks({"0": frozenset({0})})])
def test_a_member_in_an_unknown_state_starts_again(owned: Tasks | None) -> None:
    unknown = CurrentTasks(5, 4, MemberState.of(99), HeldTasks({"0": {0: 3}}))
    assert unknown.state is MemberState.UNKNOWN
    with pytest.raises(KafkaError) as refused:
        step_toward(NO_TASKS, unknown, owned)
    assert refused.value.code is ErrorCode.FENCED_MEMBER_EPOCH
    assert step_toward(NO_TASKS, unknown, NO_TASKS).is_reconciled_to(7)
