"""The clock of coordinators: how long their task sleeps, and time that does not count as none was served."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio
import trio.testing

from kwire.coordinators.timekeeper import LEAD_MS, Timekeeper
from testkit.scenes.broker_in_trio import TrioClock

SESSION_MS = 6_000


def with_task(story: Callable[[Timekeeper, list[int]], Awaitable[None]], *deadlines_ms: int) -> None:
    """Runs `story` beside a task that sleeps for these deadlines, and gives it the times at which one was due."""

    async def main() -> None:
        time = Timekeeper(TrioClock())
        due_ms: list[int] = []
        left = list(deadlines_ms)

        def settle() -> None:
            while left and left[0] <= time.now().monotonic_ms:
                due_ms.append(left.pop(0))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(time.run, settle, lambda: [None, *reversed(left)])
            await trio.testing.wait_all_tasks_blocked()
            await story(time, due_ms)
            nursery.cancel_scope.cancel()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


def stand_still(for_ms: int) -> None:
    """Moves the clock forward without running a task."""
    clock = trio.lowlevel.current_clock()
    assert isinstance(clock, trio.testing.MockClock)
    clock.jump(for_ms / 1000)


def test_the_task_wakes_up_at_the_deadline() -> None:
    async def story(time: Timekeeper, due_ms: list[int]) -> None:
        await trio.sleep(5.999)
        assert due_ms == []
        await trio.sleep(0.002)
        assert due_ms == [SESSION_MS]
        assert time.now().monotonic_ms == 6_001

    with_task(story, SESSION_MS)


def test_time_in_which_a_broker_stood_still_is_not_counted() -> None:
    async def story(time: Timekeeper, due_ms: list[int]) -> None:
        await trio.sleep(1)
        stand_still(60_000)
        assert time.now().monotonic_ms == SESSION_MS - LEAD_MS
        await trio.sleep((LEAD_MS - 1) / 1000)
        assert due_ms == [], "requests that came in the meantime are served first"
        await trio.sleep(0.002)
        assert due_ms == [SESSION_MS]

    with_task(story, SESSION_MS)


def test_a_task_that_wakes_up_much_too_late_does_not_count_the_time_itself() -> None:
    async def story(time: Timekeeper, due_ms: list[int]) -> None:
        await trio.sleep(1)
        stand_still(60_000)
        await trio.testing.wait_all_tasks_blocked(cushion=0.0)
        assert due_ms == []
        assert time.now().monotonic_ms - (SESSION_MS - LEAD_MS) < LEAD_MS

    with_task(story, SESSION_MS)


def test_a_clock_that_stood_still_at_a_deadline_continues_there() -> None:
    async def story(time: Timekeeper, _: list[int]) -> None:
        await trio.sleep((SESSION_MS - 100) / 1000)
        stand_still(60_000)
        assert time.now().monotonic_ms == SESSION_MS

    with_task(story, SESSION_MS, 2 * SESSION_MS)


@pytest.mark.parametrize("late_ms", [1, 100, LEAD_MS])
def test_a_task_that_wakes_up_a_little_late_makes_nobodys_time_longer(late_ms: int) -> None:
    async def story(time: Timekeeper, _: list[int]) -> None:
        await trio.sleep((SESSION_MS - 100) / 1000)
        stand_still(100 + late_ms)
        assert time.now().monotonic_ms == SESSION_MS + late_ms

    with_task(story, SESSION_MS)


def test_a_broker_that_serves_requests_does_not_stand_still_though_the_task_gets_no_turn() -> None:
    async def story(time: Timekeeper, _: list[int]) -> None:
        await trio.sleep((SESSION_MS - 100) / 1000)
        for turn in range(1, 20):
            stand_still(LEAD_MS)
            assert time.now().monotonic_ms == SESSION_MS - 100 + turn * LEAD_MS

    with_task(story, SESSION_MS)


def test_time_never_goes_backwards() -> None:
    async def story(time: Timekeeper, _: list[int]) -> None:
        before_ms = 0
        for pause_ms in (1_000, 5_400, 300, 900, 10, 501, 500, 60_000, 1, 499):
            stand_still(pause_ms)
            now_ms = time.now().monotonic_ms
            assert before_ms <= now_ms
            before_ms = now_ms
            await trio.sleep(0)

    with_task(story, SESSION_MS, 2 * SESSION_MS, 3 * SESSION_MS)


def test_the_wall_clock_advances() -> None:
    async def story(time: Timekeeper, _: list[int]) -> None:
        before_ms = time.now().wall_ms
        stand_still(60_000)
        assert time.now().wall_ms - before_ms == 60_000

    with_task(story, SESSION_MS)


def test_without_a_deadline_every_moment_counts() -> None:
    async def story(time: Timekeeper, _: list[int]) -> None:
        stand_still(60_000)
        assert time.now().monotonic_ms == 60_000

    with_task(story)


def test_who_wakes_the_task_before_it_sleeps_is_heard() -> None:
    async def main() -> None:
        time = Timekeeper(TrioClock())
        time.wake()
        await time.sleep_until(SESSION_MS)
        assert time.now().monotonic_ms == 0

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
