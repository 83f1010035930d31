"""The processor's timers: each is called once, at the last time that it was set to."""

from __future__ import annotations

import random
from collections.abc import Callable

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kwire.runtime.processor import LEAST_TIMERS, Timer
from testkit.scenes.processor_scene import Scene, with_processor

LATER_S = 1000.0
"""When everything that a test has begun is over."""


@attrs.define(eq=False)
class Timers:
    """Named timers of a scene, and when each was called."""

    scene: Scene
    calls: list[tuple[str, float]] = attrs.field(factory=list)
    _timers: dict[str, Timer] = attrs.field(factory=dict)

    def __getitem__(self, name: str) -> Timer:
        if name not in self._timers:
            self._timers[name] = Timer(lambda: self.calls.append((name, round(self.scene.time(), 3))))
        return self._timers[name]

    async def start(self, name: str, deadline: float) -> None:
        await self.in_a_turn(lambda: self.scene.processor.start_timer(self[name], deadline))

    async def stop(self, name: str) -> None:
        await self.in_a_turn(self[name].stop)

    async def in_a_turn(self, step: Callable[[], None]) -> None:
        """Runs as a connection does: timers are moved in the processor's own turns, never while it sleeps."""
        self.scene.processor.call_soon(step)
        await self.scene.settled()

    @property
    def entries(self) -> int:
        """Returns what the heap holds, obsolete entries included."""
        return len(self.scene.processor._timers)


def test_a_timer_is_called_once_when_its_time_has_come() -> None:
    async def scenario(scene: Scene) -> None:
        timers = Timers(scene)
        await timers.start("t", 5)
        await scene.sleep_until(4.9)
        assert timers.calls == []
        await scene.sleep_until(LATER_S)
        assert timers.calls == [("t", 5)]
        assert timers.entries == 0

    with_processor(scenario)


def test_a_time_that_is_over_already_is_now() -> None:
    async def scenario(scene: Scene) -> None:
        timers = Timers(scene)
        await scene.sleep_until(10)
        await timers.start("t", 3)
        assert timers.calls == [("t", 10)]

    with_processor(scenario)


def test_a_timer_that_is_moved_later_is_called_once_at_the_later_time() -> None:
    async def scenario(scene: Scene) -> None:
        timers = Timers(scene)
        await timers.start("t", 5)
        await timers.start("t", 8)
        await scene.sleep_until(LATER_S)
        assert timers.calls == [("t", 8)]

    with_processor(scenario)


def test_a_timer_that_is_moved_on_and_on_costs_one_entry() -> None:
    async def scenario(scene: Scene) -> None:
        timers = Timers(scene)
        for moved in range(1000):
            await timers.start("t", 5 + moved * 0.01)
            assert timers.entries == 1
        await scene.sleep_until(14.5)
        assert timers.entries == 1
        assert timers.calls == []
        await scene.sleep_until(LATER_S)
        assert timers.calls == [("t", 14.99)]

    with_processor(scenario)


def test_a_timer_that_is_stopped_and_started_for_each_wait_costs_one_entry() -> None:
    async def scenario(scene: Scene) -> None:
        timers = Timers(scene)
        for _ in range(100):
            # A consumer whose fetches wait for half a second each, and are woken after some milliseconds.
            await timers.start("t", scene.time() + 0.5)
            await scene.sleep(0.01)
            await timers.stop("t")
            assert timers.entries == 1
        await scene.sleep_until(LATER_S)
        assert timers.calls == []
        assert timers.entries == 0

    with_processor(scenario)


def test_a_timer_for_long_and_short_waits_by_turns_costs_few_entries() -> None:
    async def scenario(scene: Scene) -> None:
        timers = Timers(scene)
        for _ in range(10 * LEAST_TIMERS):
            await timers.start("t", scene.time() + 0.01)
            await scene.sleep(0.02)
            await timers.start("t", scene.time() + LATER_S)
            await timers.stop("t")
        assert timers.entries <= LEAST_TIMERS
        await timers.start("t", scene.time() + 0.01)
        timers.calls.clear()
        await scene.sleep(0.02)
        assert len(timers.calls) == 1

    with_processor(scenario)


def test_a_timer_that_is_moved_earlier_is_called_once_at_the_earlier_time() -> None:
    async def scenario(scene: Scene) -> None:
        timers = Timers(scene)
        await timers.start("t", 8)
        await timers.start("t", 5)
        await scene.sleep_until(LATER_S)
        assert timers.calls == [("t", 5)]

    with_processor(scenario)


def test_a_timer_that_is_stopped_is_not_called_until_it_is_started_again() -> None:
    async def scenario(scene: Scene) -> None:
        timers = Timers(scene)
        await timers.start("t", 5)
        await timers.stop("t")
        await timers.start("other", 6)
        await scene.sleep_until(10)
        assert timers.calls == [("other", 6)]
        await timers.start("t", 12)
        await scene.sleep_until(LATER_S)
        assert timers.calls == [("other", 6), ("t", 12)]

    with_processor(scenario)


def test_stopping_a_timer_that_was_never_started_or_is_over_is_fine() -> None:
    async def scenario(scene: Scene) -> None:
        timers = Timers(scene)
        await timers.stop("t")
        await timers.start("t", 5)
        await scene.sleep_until(6)
        await timers.stop("t")
        await scene.sleep_until(LATER_S)
        assert timers.calls == [("t", 5)]

    with_processor(scenario)


def test_a_timer_called_early_and_started_for_its_old_time_is_called_once_then() -> None:
    async def scenario(scene: Scene) -> None:
        timers = Timers(scene)
        await timers.start("t", 8)
        await timers.start("t", 5)
        await scene.sleep_until(6)
        await timers.start("t", 8)  # the heap has an entry for that time from before
        await scene.sleep_until(LATER_S)
        assert timers.calls == [("t", 5), ("t", 8)]

    with_processor(scenario)


def test_a_timer_may_start_itself_again_and_stop_another() -> None:
    calls: list[float] = []

    async def scenario(scene: Scene) -> None:
        timers = Timers(scene)

        def ticks() -> None:
            calls.append(round(scene.time()))
            timers["stopped"].stop()
            if len(calls) < 4:
                scene.processor.start_timer(ticking, scene.processor.now + 10)

        ticking = Timer(ticks)
        await timers.in_a_turn(lambda: scene.processor.start_timer(ticking, 10))
        await timers.start("stopped", 10)  # due in the same turn, behind the one that stops it
        await scene.sleep_until(LATER_S)
        assert calls == [10, 20, 30, 40]
        assert timers.calls == []

    with_processor(scenario)


def test_many_timers_are_called_in_the_order_of_their_times() -> None:
    async def scenario(scene: Scene) -> None:
        timers = Timers(scene)
        deadlines = list(range(10, 210))
        random.Random(5).shuffle(deadlines)
        for deadline in deadlines:
            await timers.start(str(deadline), deadline)
        await scene.sleep_until(LATER_S)
        assert timers.calls == [(str(deadline), deadline) for deadline in range(10, 210)]

    with_processor(scenario)


def test_timers_of_one_time_are_called_in_the_order_of_their_starts() -> None:
    async def scenario(scene: Scene) -> None:
        timers = Timers(scene)
        names = [str(number) for number in range(20)]
        for name in names:
            await timers.start(name, 5)
        await scene.sleep_until(LATER_S)
        assert [name for name, _ in timers.calls] == names

    with_processor(scenario)


def test_a_timer_is_called_while_a_socket_is_busy() -> None:
    async def scenario(scene: Scene) -> None:
        timers = Timers(scene)

        def again() -> None:
            scene.poll.now += 0.01
            if not timers.calls and scene.time() < LATER_S:
                scene.processor.call_soon(again)

        await timers.start("t", 5)
        await timers.in_a_turn(again)
        ((_, called),) = timers.calls
        assert called == pytest.approx(5, abs=0.02)

    with_processor(scenario)


@settings(max_examples=60)
@given(
    steps=st.lists(
        # Which of three timers, and for how long from now; None stops it. Time goes by a second with each step.
        st.tuples(st.sampled_from("abc"), st.none() | st.integers(0, 12)),
        max_size=30,
    )
)
def test_each_timer_is_called_at_the_last_time_it_was_set_to(steps: list[tuple[str, int | None]]) -> None:
    expected: list[tuple[str, float]] = []
    pending: dict[str, float] = {}

    def goes_by(until: float) -> None:
        for name, deadline in list(pending.items()):
            if deadline < until:
                expected.append((name, deadline))
                del pending[name]

    async def scenario(scene: Scene) -> None:
        timers = Timers(scene)
        for now, (name, wait) in enumerate(steps, 1):
            await scene.sleep_until(now)
            goes_by(now)
            # Half seconds, so that it is never a question which comes first, the step or the call.
            if wait is None:
                pending.pop(name, None)
                await timers.stop(name)
            else:
                pending[name] = now + wait + 0.5
                await timers.start(name, pending[name])
        await scene.sleep_until(LATER_S)
        goes_by(LATER_S)
        assert sorted(timers.calls) == sorted(expected)
        assert [time for _, time in timers.calls] == sorted(time for _, time in expected)
        assert timers.entries == 0

    with_processor(scenario)


def test_a_timer_that_was_dropped_as_obsolete_can_be_started_again() -> None:
    async def scenario(scene: Scene) -> None:
        timers = Timers(scene)
        await timers.start("t", 5)
        await timers.stop("t")
        for number in range(2 * LEAST_TIMERS):
            await timers.start(f"other {number}", 9)
        await timers.start("t", 8)
        await scene.sleep_until(8.5)
        assert timers.calls == [("t", 8)]

    with_processor(scenario)
