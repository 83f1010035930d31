from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kwire.coordinators.deadlines import Deadline, Deadlines


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
