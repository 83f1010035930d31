from __future__ import annotations

from functools import partial

import attrs
from hypothesis import given
from hypothesis import strategies as st
from kwire_protocol.errors import ErrorCode

from kwire.coordinators.deadlines import PAUSES_MS, Deadline, Deadlines
from kwire.coordinators.effects import Append, Now, Step


def due(timers: Deadlines, now_ms: int) -> list[Deadline]:
    popped = []
    while (timer := timers.pop_due(now_ms)) is not None:
        popped.append(timer)
    return popped


def test_timers_come_in_the_order_of_their_deadlines_and_only_when_due() -> None:
    timers, late, early = Deadlines(), Deadline(), Deadline()
    timers.schedule(late, 20)
    timers.schedule(early, 10)
    assert timers.next_deadline_ms() == 10
    assert due(timers, 9) == []
    assert due(timers, 20) == [early, late]
    assert timers.next_deadline_ms() is None


def test_a_postponed_timer_is_not_due_at_its_first_deadline() -> None:
    timers, timer = Deadlines(), Deadline()
    timers.schedule(timer, 10)
    timers.schedule(timer, 25)
    assert len(timers) == 1, "postponing must not touch the heap"
    assert due(timers, 24) == []
    assert due(timers, 25) == [timer]


def test_a_timer_moved_closer_is_due_once_at_the_closer_deadline() -> None:
    timers, timer = Deadlines(), Deadline()
    timers.schedule(timer, 30)
    timers.schedule(timer, 10)
    assert due(timers, 10) == [timer]
    assert due(timers, 100) == []


def test_a_postponed_timer_keeps_its_place_among_others() -> None:
    timers, postponed, other = Deadlines(), Deadline(), Deadline()
    timers.schedule(postponed, 10)
    timers.schedule(other, 15)
    timers.schedule(postponed, 20)
    assert due(timers, 50) == [other, postponed]


def test_a_cancelled_timer_is_not_due_and_can_be_set_again() -> None:
    timers, timer = Deadlines(), Deadline()
    timers.schedule(timer, 10)
    timers.cancel(timer)
    timers.cancel(timer)
    assert due(timers, 15) == []
    timers.schedule(timer, 20)
    assert due(timers, 20) == [timer]


def test_cancelled_timers_do_not_pile_up() -> None:
    timers = Deadlines()
    survivor = Deadline()
    timers.schedule(survivor, 1_000_000)
    for deadline_ms in range(10_000):
        timer = Deadline()
        timers.schedule(timer, deadline_ms)
        timers.cancel(timer)
    assert len(timers) < 200
    assert due(timers, 1_000_000) == [survivor]


@given(
    st.lists(
        st.tuples(st.sampled_from(["schedule", "cancel", "advance"]), st.integers(0, 4), st.integers(0, 60)),
        max_size=150,
    )
)
def test_timers_behave_as_a_plain_table_of_deadlines(steps: list[tuple[str, int, int]]) -> None:
    timers = Deadlines()
    all_timers = [Deadline() for _ in range(5)]
    deadlines: dict[int, int] = {}
    now_ms = 0
    for action, which, amount in steps:
        if action == "schedule":
            timers.schedule(all_timers[which], now_ms + amount)
            deadlines[which] = now_ms + amount
        elif action == "cancel":
            timers.cancel(all_timers[which])
            deadlines.pop(which, None)
        else:
            now_ms += amount
            popped = [all_timers.index(timer) for timer in due(timers, now_ms)]
            expected = {which for which, deadline_ms in deadlines.items() if deadline_ms <= now_ms}
            assert set(popped) == expected
            assert len(popped) == len(expected)
            assert [deadlines[which] for which in popped] == sorted(deadlines[which] for which in popped)
            for which in popped:
                del deadlines[which]
        if deadlines:
            upper = timers.next_deadline_ms()
            assert upper is not None
            assert upper <= min(deadlines.values())


# Appends that fail


@attrs.define(eq=False)
class Partition:
    """Runs timers that have something to append, as a coordinator's driver does. `error` is what appends fail with."""

    timers: Deadlines = attrs.field(factory=Deadlines)
    error: ErrorCode = ErrorCode.NONE
    now_ms: int = 0
    tries: list[int] = attrs.field(factory=list)
    """When something was appended, or was not."""
    recorded: list[str] = attrs.field(factory=list)

    def schedule(self, name: str, deadline_ms: int) -> None:
        timer = Deadline()
        timer.on_expiry = partial(self._due, name, timer)
        self.timers.schedule(timer, deadline_ms)

    def _due(self, name: str, timer: Deadline, step: Step) -> None:
        def appended(later: Step, error: ErrorCode) -> None:
            if error is ErrorCode.NONE:
                self.recorded.append(name)
            else:
                self.timers.retry(timer, later.now.monotonic_ms)

        step.append([(name.encode(), b"")], appended)

    def advance_to(self, now_ms: int) -> None:
        while (deadline_ms := self.timers.next_deadline_ms()) is not None and deadline_ms <= now_ms:
            self.now_ms = max(self.now_ms, deadline_ms)
            step = Step(self._now())
            self.timers.expire(step)
            for effect in step.effects:
                assert isinstance(effect, Append)
                self.tries.append(self.now_ms)
                effect.done(self.error, now=self._now())
        self.now_ms = now_ms

    def _now(self) -> Now:
        return Now(0, self.now_ms)


def test_one_timer_tries_for_all_while_nothing_can_be_recorded() -> None:
    partition = Partition(error=ErrorCode.NOT_ENOUGH_REPLICAS)
    for number in range(1_000):
        partition.schedule(f"member {number}", 1_000)
    partition.advance_to(20_000)
    assert partition.tries == [1_000, 1_100, 1_300, 1_700, 2_500, 4_100, 7_300, 12_300, 17_300]
    partition.error = ErrorCode.NONE
    partition.advance_to(17_300 + PAUSES_MS.longest)
    assert len(partition.recorded) == 1_000, "the first one that could be recorded was followed by all others"


def test_the_first_success_resets_the_pauses() -> None:
    partition = Partition(error=ErrorCode.KAFKA_STORAGE_ERROR)
    partition.schedule("first", 0)
    partition.advance_to(10_000)
    partition.error = ErrorCode.NONE
    partition.advance_to(20_000)
    assert partition.recorded == ["first"]
    partition.tries.clear()
    partition.error = ErrorCode.KAFKA_STORAGE_ERROR
    partition.schedule("second", 30_000)
    partition.advance_to(30_400)
    assert partition.tries == [30_000, 30_100, 30_300]


def test_a_success_of_somebody_else_ends_the_pause() -> None:
    partition = Partition(error=ErrorCode.NOT_ENOUGH_REPLICAS)
    partition.schedule("first", 0)
    partition.schedule("second", 0)
    partition.advance_to(4_000)
    assert partition.timers.next_deadline_ms() == 6_300
    partition.error = ErrorCode.NONE
    partition.timers.appends_succeed()
    partition.advance_to(4_000)
    assert partition.recorded


def test_what_cannot_be_recorded_for_its_own_sake_holds_up_nobody_else() -> None:
    partition = Partition(error=ErrorCode.MESSAGE_TOO_LARGE)
    partition.schedule("large", 0)
    partition.advance_to(4_000)
    assert partition.tries == [0, 100, 300, 700, 1_500, 3_100]
    partition.error = ErrorCode.NONE
    partition.schedule("small", 4_001)
    partition.advance_to(4_001)
    assert partition.recorded == ["small"]
