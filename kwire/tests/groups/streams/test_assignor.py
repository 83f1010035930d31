"""The sticky assignor of tasks: its laws for any group, through all that happens to groups, and some by hand."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from devtools.suite.tiers import examples
from kwire.groups.streams import assignor
from kwire.groups.streams.assignor import StickyTaskAssignor
from kwire.groups.streams.tasks import Subtopology, TaskGroup, TaskMember, Tasks, tasks_by_subtopology
from testkit.groups.streams import task_laws
from testkit.groups.streams.task_lives import TaskLife

STICKY = StickyTaskAssignor()

ROUNDS = 6


def has(active: str = "", standby: str = "", warmup: str = "") -> Tasks:
    """Makes tasks from text like "a0 a1 b0": one letter for the subtopology."""
    roles = (active, standby, warmup)
    return Tasks(*(tasks_by_subtopology((it[0], int(it[1:])) for it in role.split()) for role in roles))


def stateful(**counts: int) -> dict[str, Subtopology]:
    return {name: Subtopology(count, is_stateful=True) for name, count in counts.items()}


def stateless(**counts: int) -> dict[str, Subtopology]:
    return {name: Subtopology(count, is_stateful=False) for name, count in counts.items()}


@st.composite
def groups(draw: st.DrawFn) -> TaskGroup:
    """Draws small groups. Members may have what does not exist, what others have, or too much of it."""
    subtopologies = {
        name: Subtopology(draw(st.integers(0, 5)), draw(st.booleans())) for name in "abc"[: draw(st.integers(1, 3))]
    }
    task_ids = [(name, it) for name, its in subtopologies.items() for it in range(its.task_count + 1)]
    some = st.sets(st.sampled_from([*task_ids, ("z", 0)])).map(tasks_by_subtopology)
    owners = {}
    member_ids = [f"m{number}" for number in range(draw(st.integers(1, 6)))]
    for task in task_ids:
        owners[task] = draw(st.sampled_from([None, *member_ids]))
    members = {
        member_id: TaskMember(
            draw(st.sampled_from("pqrs")),
            Tasks(
                tasks_by_subtopology(task for task, owner in owners.items() if owner == member_id),
                draw(some),
                draw(some) if draw(st.booleans()) else {},
            ),
        )
        for member_id in member_ids
    }
    return TaskGroup(members, subtopologies, draw(st.integers(0, 3)))


@given(groups())
@settings(max_examples=examples(200))
def test_the_laws_hold_for_any_group(group: TaskGroup) -> None:
    task_laws.check_all(STICKY, group)


@pytest.mark.parametrize("seed", range(30))
def test_the_laws_hold_through_all_that_happens_to_a_group(seed: int) -> None:
    life = TaskLife(seed, large=seed % 5 == 0)
    group = life.group()
    for _ in range(ROUNDS):
        group = life.go_on(task_laws.check_all(STICKY, group))


def test_a_group_without_members_gets_nothing() -> None:
    assert STICKY.assign(TaskGroup({}, stateful(a=2))) == {}


def test_a_process_gets_as_much_as_its_threads_can_carry() -> None:
    members = {"m1": TaskMember("p"), "m2": TaskMember("p"), "m3": TaskMember("q")}
    parts = STICKY.assign(TaskGroup(members, stateful(a=9)))
    assert task_laws.active_loads(parts) == {"m1": 3, "m2": 3, "m3": 3}


def test_the_tasks_that_do_not_go_round_are_spread_over_the_processes() -> None:
    members = {"m1": TaskMember("p"), "m2": TaskMember("p"), "m3": TaskMember("q"), "m4": TaskMember("q")}
    parts = STICKY.assign(TaskGroup(members, stateful(a=6)))
    assert sorted(task_laws.active_loads(parts).values()) == [1, 1, 2, 2]
    assert sum(task_laws.active_loads(parts)[it] for it in ("m1", "m2")) == 3


def test_tasks_with_and_without_state_are_each_spread() -> None:
    members = {"m1": TaskMember("p"), "m2": TaskMember("q")}
    parts = STICKY.assign(TaskGroup(members, stateful(a=2) | stateless(b=2)))
    assert [{name: len(its) for name, its in part.active.items()} for part in parts.values()] == [{"a": 1, "b": 1}] * 2


def test_a_new_member_takes_from_those_that_have_most() -> None:
    members = {
        "m1": TaskMember("p", has("a0 a1 a2")),
        "m2": TaskMember("q", has("a3 a4")),
        "m3": TaskMember("r"),
    }
    parts = STICKY.assign(TaskGroup(members, stateful(a=5)))
    assert parts["m2"] is members["m2"].assigned
    assert task_laws.active_loads(parts) == {"m1": 2, "m2": 2, "m3": 1}


def test_a_task_whose_member_left_becomes_active_where_it_has_a_standby() -> None:
    members = {"m1": TaskMember("p", has("a0", "a3")), "m2": TaskMember("q", has("a1", "a2"))}
    parts = STICKY.assign(TaskGroup(members, stateful(a=4), num_standby_replicas=1))
    assert parts["m1"] == has("a0 a3", "a1 a2")
    assert parts["m2"] == has("a1 a2", "a0 a3")


def test_a_task_goes_elsewhere_when_another_has_its_state_only_here() -> None:
    """The first two go to m1 and m2, and move on when the third comes, whose state only these have."""
    members = {
        "m1": TaskMember("p", has("", "a0 a2")),
        "m2": TaskMember("q", has("", "a0 a1 a2")),
        "m3": TaskMember("r", has("", "a1")),
    }
    parts = STICKY.assign(TaskGroup(members, stateful(a=3)))
    assert parts["m3"] == has("a1")
    assert {*parts["m1"].active["a"], *parts["m2"].active["a"]} == {0, 2}


def test_what_another_member_can_take_over_at_once_is_given_up_first() -> None:
    members = {"m1": TaskMember("p", has("a0 a1 a2 a3")), "m2": TaskMember("q", has("", "a0 a1"))}
    assert STICKY.assign(TaskGroup(members, stateful(a=4))) == {"m1": has("a2 a3"), "m2": has("a0 a1")}


def test_a_warm_up_counts_as_a_standby() -> None:
    members = {"m1": TaskMember("p"), "m2": TaskMember("q", has("", "", "a0"))}
    assert STICKY.assign(TaskGroup(members, stateful(a=2))) == {"m1": has("a1"), "m2": has("a0")}


def test_where_a_task_was_active_it_leaves_a_standby() -> None:
    members = {"m1": TaskMember("p"), "m2": TaskMember("q"), "m3": TaskMember("r", has("a0 a1"))}
    parts = STICKY.assign(TaskGroup(members, stateful(a=2), num_standby_replicas=1))
    assert parts["m3"] == has("a0", "a1")


def test_there_is_no_standby_beside_the_active_task_in_one_process() -> None:
    members = {"m1": TaskMember("p"), "m2": TaskMember("p")}
    parts = STICKY.assign(TaskGroup(members, stateful(a=2), num_standby_replicas=1))
    assert task_laws.standbys(parts) == {}


def test_tasks_without_state_have_no_standbys() -> None:
    members = {"m1": TaskMember("p"), "m2": TaskMember("q")}
    parts = STICKY.assign(TaskGroup(members, stateless(a=2), num_standby_replicas=1))
    assert task_laws.standbys(parts) == {}


def test_fewer_standbys_are_wanted_than_there_are() -> None:
    members = {"m1": TaskMember("p", has("a0", "a1")), "m2": TaskMember("q", has("a1", "a0"))}
    parts = STICKY.assign(TaskGroup(members, stateful(a=2)))
    assert parts == {"m1": has("a0"), "m2": has("a1")}


def test_standbys_are_passed_on_along_a_chain() -> None:
    """m4 may not take what m1 has too many of, its own process's tasks; m2 may, and has one for m4."""
    members = {
        "m1": TaskMember("p", has("a0", "b0 b1 b2")),
        "m2": TaskMember("q", has("a1", "a0")),
        "m3": TaskMember("r", has("b0 b1")),
        "m4": TaskMember("r", has("b2")),
    }
    group = TaskGroup(members, stateful(a=2, b=3), num_standby_replicas=1)
    assert sorted(task_laws.loads(task_laws.check_all(STICKY, group)).values()) == [2, 2, 3, 3]


def test_a_search_that_takes_too_long_leaves_a_valid_assignment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assignor, "STEPS", 0)
    for seed in range(10):
        group = TaskLife(seed).group()
        task_laws.check_processes(group, STICKY.assign(group))
