"""A task with state moves once its new member has warmed up."""

from __future__ import annotations

from collections import Counter
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages import streams_group_heartbeat as wire

from kwire.groups.config import GroupConfig, StreamsGroupSettings, WarmupSettings
from kwire.groups.streams.assignor import StickyTaskAssignor
from kwire.groups.streams.member import CurrentTasks, HeldTasks, MemberState
from kwire.groups.streams.tasks import Subtopology, TaskGroup, TaskId, TaskMember, Tasks, task_ids_of
from kwire.groups.streams.warmups import Crew, Progress, refine
from testkit.groups.shard_driver import GROUP, ShardDriver
from testkit.groups.streams.clients import END, Client, Disk, heartbeat
from testkit.groups.topics import FakeTopics

LAG = 10
SUBTOPOLOGIES = {"0": Subtopology(4, is_stateful=False), "1": Subtopology(4, is_stateful=True)}
ALL = {(name, partition) for name in "01" for partition in range(4)}
PROCESS_OF = {"a1": "a", "a2": "a", "b1": "b", "c1": "c"}
STATEFUL = [task for task in sorted(ALL) if task[0] == "1"]

# The rules


def assigned(member_ids: list[str], before: dict[str, Tasks], standbys: int) -> dict[str, Tasks]:
    members = {it: TaskMember(PROCESS_OF[it], before.get(it, Tasks())) for it in member_ids}
    return StickyTaskAssignor().assign(TaskGroup(members, SUBTOPOLOGIES, standbys))


def having(tasks: Tasks) -> CurrentTasks:
    active = {name: dict.fromkeys(of, 3) for name, of in tasks.active.items()}
    return CurrentTasks(3, 2, MemberState.STABLE, HeldTasks(active, tasks.standby, tasks.warmup))


member_ids = st.lists(st.sampled_from(sorted(PROCESS_OF)), min_size=1, unique=True)


@given(
    before=member_ids,
    after=member_ids,
    standbys=st.integers(0, 2),
    warmups=st.integers(0, 3),
    ready=st.sets(st.tuples(st.sampled_from("abc"), st.sampled_from(STATEFUL))),
    silent=st.sets(st.sampled_from(sorted(PROCESS_OF))),
)
def test_every_task_runs_where_it_is_until_another_process_is_ready(
    before: list[str],
    after: list[str],
    standbys: int,
    warmups: int,
    ready: set[tuple[str, TaskId]],
    silent: set[str],
) -> None:
    had = assigned(before, {}, standbys)
    targets = assigned(after, {it: had[it] for it in after if it in had}, standbys)
    progress = {
        it: Progress({task: 90 for process, task in ready if process == PROCESS_OF[it]}, dict.fromkeys(STATEFUL, 100))
        for it in after
    }
    crew = Crew(PROCESS_OF, {it: having(part) for it, part in had.items() if it in after}, progress, silent)
    refined = refine(targets, crew, SUBTOPOLOGIES, WarmupSettings(warmups, LAG))
    parts = {**targets, **refined.parts}
    assert all(parts[it] != targets[it] for it in refined.parts)
    assert Counter(task for part in parts.values() for task in task_ids_of(part.active)) == dict.fromkeys(ALL, 1)
    places = [
        (PROCESS_OF[it], task)
        for it, part in parts.items()
        for role in (part.active, part.standby, part.warmup)
        for task in task_ids_of(role)
    ]
    assert len(places) == len(set(places)), "one role in a process"
    warming = {task: it for it, part in parts.items() for task in task_ids_of(part.warmup)}
    assert len(warming) <= warmups
    ran = {task: it for it, part in had.items() if it in after for task in task_ids_of(part.active)}
    runs = {task: it for it, part in parts.items() for task in task_ids_of(part.active)}
    shall = {task: it for it, part in targets.items() for task in task_ids_of(part.active)}
    waits = 0
    for task in ALL:
        source, target = ran.get(task), shall[task]
        may_move = (
            not warmups
            or source is None
            or task[0] == "0"
            or PROCESS_OF[source] == PROCESS_OF[target]
            or any(PROCESS_OF[it] == PROCESS_OF[target] for it in silent)
            or (PROCESS_OF[target], task) in ready
        )
        assert runs[task] == (target if may_move else source)
        assert warming.get(task, target) == target
        is_standby = any((PROCESS_OF[target], task) == place for place in places if runs[task] != target)
        waits += not may_move and not is_standby
    assert not (waits and len(warming) < warmups), "as many as may warm up"


@pytest.mark.parametrize(
    ("offset", "end", "is_ready"),
    [(90, 100, True), (89, 100, False), (100, 90, True), (None, 100, False), (90, None, False)],
)
def test_a_process_is_ready_if_it_lacks_no_more_than_is_acceptable(
    offset: int | None, end: int | None, is_ready: bool
) -> None:
    task = ("1", 0)
    runs, nothing = Tasks(active={"1": frozenset({0})}), Tasks()
    progress = Progress({} if offset is None else {task: offset}, {} if end is None else {task: end})
    crew = Crew(PROCESS_OF, {"a1": having(runs)}, {"b1": progress}, frozenset())
    refined = refine({"a1": nothing, "b1": runs}, crew, SUBTOPOLOGIES, WarmupSettings(1, LAG))
    waiting = {"a1": runs, "b1": Tasks(warmup={"1": frozenset({0})})}
    assert refined.parts == ({} if is_ready else waiting)


def test_a_standby_that_is_to_take_over_continues_as_one() -> None:
    """As a warm-up it would have to be closed first."""
    runs, follows = Tasks(active={"1": frozenset({0})}), Tasks(standby={"1": frozenset({0})})
    crew = Crew(PROCESS_OF, {"a1": having(runs), "b1": having(follows)}, {}, frozenset())
    refined = refine({"a1": follows, "b1": runs}, crew, SUBTOPOLOGIES, WarmupSettings(1, LAG))
    assert refined.parts == {"a1": runs, "b1": follows}


# The machine


@pytest.fixture
def driver() -> ShardDriver:
    driver = ShardDriver(GroupConfig(), FakeTopics(t=4, r=4, c=4))
    driver.streams_settings = StreamsGroupSettings(
        assignment_interval_ms=0, initial_rebalance_delay_ms=0, warmups=WarmupSettings(1, LAG)
    )
    return driver


def thread(driver: ShardDriver, name: str, **fields: Any) -> Client:
    return Client(driver, name, name, disk=Disk(), reports_progress=True, **fields)


def heartbeats(*clients: Client, turns: int = 6) -> None:
    """Sends them; each member gives up what it is no longer to run."""
    for _ in range(turns):
        for client in clients:
            client.heartbeat()
            client.reports = True


def with_state(client: Client) -> set[TaskId]:
    return {task for task in client.active if task[0] == "1"}


def test_tasks_warm_up_one_after_the_other_and_then_move(driver: ShardDriver) -> None:
    a, b = thread(driver, "a"), thread(driver, "b")
    heartbeats(a)
    assert with_state(a) == set(STATEFUL)
    heartbeats(a, b)
    assert with_state(a) == set(STATEFUL), "they run where they ran"
    assert b.active == {("0", 2), ("0", 3)}, "what has no state moves at once"
    (first,) = b.warmup
    b.follow_changelogs()
    heartbeats(a, b)
    assert with_state(b) == {first}
    (second,) = b.warmup
    assert second != first
    b.follow_changelogs()
    heartbeats(a, b)
    assert (with_state(b), b.warmup) == ({first, second}, set())
    assert with_state(a) == set(STATEFUL) - {first, second}
    epoch = a.epoch
    heartbeats(a, b)
    assert (a.epoch, b.epoch) == (epoch, epoch), "all have settled"


def test_another_coordinator_continues_with_what_warms_up(driver: ShardDriver) -> None:
    a, b = thread(driver, "a"), thread(driver, "b")
    heartbeats(a)
    heartbeats(a, b)
    (warmup,) = b.warmup
    driver.restart()
    for client in (a, b):
        client.meet_another_coordinator()
    epoch = a.epoch
    heartbeats(a, b)
    assert (a.epoch, b.warmup, with_state(a)) == (epoch, {warmup}, set(STATEFUL))
    b.follow_changelogs()
    heartbeats(a, b)
    assert with_state(b) == {warmup}


@pytest.mark.parametrize("leaves", ["a", "b"])
def test_the_other_one_continues_if_either_leaves(driver: ShardDriver, leaves: str) -> None:
    clients = {name: thread(driver, name) for name in "ab"}
    heartbeats(clients["a"])
    heartbeats(*clients.values())
    clients.pop(leaves).leave()
    (left,) = clients.values()
    heartbeats(left)
    assert (left.active, left.warmup) == (ALL, set())


def test_without_warm_ups_tasks_that_wait_move_at_once(driver: ShardDriver) -> None:
    a, b = thread(driver, "a"), thread(driver, "b")
    heartbeats(a)
    heartbeats(a, b)
    driver.streams_settings = attrs.evolve(driver.streams_settings, warmups=WarmupSettings(0, LAG))
    heartbeats(a, b)
    assert (len(with_state(a)), len(with_state(b)), b.warmup) == (2, 2, set())


def test_an_application_that_starts_again_finds_its_state(driver: ShardDriver) -> None:
    a, b = thread(driver, "a"), thread(driver, "b")
    driver.streams_settings = attrs.evolve(driver.streams_settings, initial_rebalance_delay_ms=3_000)
    a.disk.offsets = {("1", 2): END, ("1", 3): END, ("1", 0): END // 2}
    b.disk.offsets = {("1", 0): END, ("1", 1): END}
    heartbeats(a, b, turns=1)
    driver.advance(3_000)
    heartbeats(a, b)
    assert (with_state(a), with_state(b)) == ({("1", 2), ("1", 3)}, {("1", 0), ("1", 1)})


def test_progress_is_described_as_it_was_reported(driver: ShardDriver) -> None:
    a = thread(driver, "a")
    a.disk.offsets = {("1", 0): 7, ("1", 9): 8, ("x", 0): 9, ("1", 1): 2**63 - 1}
    a.heartbeat()
    (described,) = driver.shard.describe_streams(GROUP, with_description=False).members
    assert [(it.subtopology_id, it.partition, it.offset) for it in described.task_offsets] == [("1", 0, 7)]
    assert described.task_end_offsets == []


def test_a_task_whose_progress_is_reported_twice_is_refused(driver: ShardDriver) -> None:
    a = thread(driver, "a")
    request = a.request()
    request.task_offsets = [wire.TaskOffset("1", 0, 7), wire.TaskOffset("1", 0, 8)]
    refused = heartbeat(driver, request, 1).response
    assert refused.error_code == ErrorCode.INVALID_REQUEST
    assert (refused.error_message or "").startswith("Task offsets contain a duplicate entry")
    assert not driver.shard.groups
