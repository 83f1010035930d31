"""Spinning: when the processor polls again instead of sleeping, and how it learns whether that pays."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kwire.runtime.processor import SpinMemory
from testkit.scenes.processor_scene import Pair, Scene, new_pair, with_processor

SPIN_S = 100e-6


@pytest.fixture
def pair() -> Iterator[Pair]:
    pair = new_pair()
    with pair.near, pair.far:
        yield pair


# What is learnt


def learnt(*pauses: str) -> bool:
    """Returns whether a short pause is expected after these, `short`, `long` or `in_vain`."""
    memory = SpinMemory()
    for pause in pauses:
        getattr(memory, f"was_{pause}")()
    return memory.is_short_expected


def test_a_short_pause_is_expected_after_two_of_them() -> None:
    assert not learnt()
    assert not learnt("short")
    assert learnt("short", "short")


def test_one_long_pause_makes_it_forget() -> None:
    assert not learnt(*["short"] * 100, "long")
    assert not learnt(*["short"] * 100, "long", "short")
    assert learnt("long", "short", "short")


def test_many_long_pauses_are_no_worse_than_one() -> None:
    assert learnt(*["long"] * 100, "short", "short")


def test_a_spin_in_vain_is_forgiven_after_many_that_paid_and_a_second_is_not() -> None:
    assert not learnt("short", "short", "in_vain")
    assert learnt(*["short"] * 100, "in_vain")
    assert not learnt(*["short"] * 100, "in_vain", "in_vain")


@given(
    # As the processor does: it spins where a short pause is expected, which pays or is in vain; else it sleeps.
    pauses=st.lists(st.tuples(st.booleans(), st.booleans()), max_size=50)
)
def test_whatever_came_before_two_spins_in_vain_stop_it_and_a_few_short_pauses_start_it(
    pauses: list[tuple[bool, bool]],
) -> None:
    memory = SpinMemory()
    for spin_pays, sleep_is_short in pauses:
        if memory.is_short_expected:
            if spin_pays:
                memory.was_short()
                continue
            memory.was_in_vain()
        if sleep_is_short:
            memory.was_short()
        else:
            memory.was_long()
            assert not memory.is_short_expected
    assert steps_until(memory, memory.was_in_vain, expected=False) <= 2
    assert steps_until(memory, memory.was_short, expected=True) <= 3


def steps_until(memory: SpinMemory, step: Callable[[], None], *, expected: bool) -> int:
    """Returns how many steps there are until a short pause is expected, or is not any more."""
    steps = 0
    while memory.is_short_expected != expected:
        step()
        steps += 1
    return steps


# What is done


async def exchange(scene: Scene, pair: Pair, *, pause_s: float = 0.0) -> int:
    """Sends a request, and waits until the processor sleeps again. Returns how often it polled."""
    await scene.sleep(pause_s)
    polls, answered = scene.poll.polls, len(pair.masks)
    pair.far.send(b"request")
    await scene.settled()
    assert len(pair.masks) == answered + 1
    return scene.poll.polls - polls


AWAKE = 3
"""Questions around one request without a spin: what woke it, that there is nothing else, and one to spare."""
WHOLE_SPIN = 90
"""Questions of a spin in vain at the least: one takes a microsecond, the spin a hundred of them."""


def test_without_a_time_to_spin_it_sleeps_at_once_however_quick_the_requests_are(pair: Pair) -> None:
    async def scenario(scene: Scene) -> None:
        scene.processor.add(pair.near, pair.read)
        assert max([await exchange(scene, pair) for _ in range(20)]) <= AWAKE

    with_processor(scenario)


def test_it_begins_to_spin_when_requests_come_soon_after_each_other(pair: Pair) -> None:
    async def scenario(scene: Scene) -> None:
        scene.processor.add(pair.near, pair.read)
        await scene.sleep(1)
        counts = [await exchange(scene, pair) for _ in range(3)]
        assert counts[0] <= AWAKE
        assert counts[-1] >= WHOLE_SPIN

    with_processor(scenario, spin_s=SPIN_S)


def test_a_spin_in_vain_is_not_tried_again_before_other_short_pauses(pair: Pair) -> None:
    async def scenario(scene: Scene) -> None:
        scene.processor.add(pair.near, pair.read)
        await scene.sleep(1)
        spins = [await exchange(scene, pair) >= WHOLE_SPIN for _ in range(9)]
        assert spins == [False, False, True] * 3

    with_processor(scenario, spin_s=SPIN_S)


def test_requests_that_take_their_time_are_not_spun_for(pair: Pair) -> None:
    async def scenario(scene: Scene) -> None:
        scene.processor.add(pair.near, pair.read)
        assert max([await exchange(scene, pair, pause_s=0.01) for _ in range(50)]) <= AWAKE

    with_processor(scenario, spin_s=SPIN_S)


def test_requests_that_come_during_spins_are_answered_without_any_sleep(pair: Pair) -> None:
    many = 50
    next_request_at: list[int] = []

    async def scenario(scene: Scene) -> None:
        poll = scene.poll

        def send_next_request() -> None:
            # The client is done with its last answer some questions after it.
            if next_request_at and poll.polls >= next_request_at[0]:
                next_request_at.clear()
                pair.far.send(b"request")

        def answer(mask: int) -> None:
            pair.read(mask)
            if 1 < len(pair.masks) < many:
                next_request_at.append(poll.polls + 10)

        scene.processor.add(pair.near, answer)
        poll.on_poll = send_next_request
        await exchange(scene, pair)
        slept = poll.slept
        pair.far.send(b"request")
        await scene.settled()
        assert len(pair.masks) == many
        assert poll.slept == slept + 1, "one sleep, after the last of them"
        assert await exchange(scene, pair) >= WHOLE_SPIN, "the spin in vain at the end counts for less than all of them"

    with_processor(scenario, spin_s=SPIN_S)


def test_an_idle_processor_sleeps_even_after_busy_times(pair: Pair) -> None:
    async def scenario(scene: Scene) -> None:
        scene.processor.add(pair.near, pair.read)
        for _ in range(20):
            await exchange(scene, pair)
        polls = scene.poll.polls
        await scene.sleep(3600)
        assert scene.poll.polls == polls
        assert await exchange(scene, pair) <= AWAKE
        assert scene.poll.polls - polls <= AWAKE

    with_processor(scenario, spin_s=SPIN_S)
