"""The task that serves all sockets: real ones, with a virtual clock that only polls and sleeps move."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import pytest

from kwire.runtime.poll import READ, WRITE
from kwire.runtime.processor import CALLS_PER_TURN, EVENTS_PER_TURN
from testkit.scenes.processor_scene import Pair, Scene, new_pair, with_processor


@pytest.fixture
def pairs() -> Iterator[list[Pair]]:
    """Makes more pairs than have their turn at once."""
    pairs = [new_pair() for _ in range(3 * EVENTS_PER_TURN)]
    yield pairs
    for pair in pairs:
        pair.near.close()
        pair.far.close()


@pytest.fixture
def pair(pairs: list[Pair]) -> Pair:
    return pairs[0]


# Sockets


def test_a_socket_with_something_to_read_is_called_back_each_turn_until_it_is_read(pair: Pair) -> None:
    def reads_at_the_third_call(mask: int) -> None:
        pair.note(mask)
        if len(pair.masks) == 3:
            pair.near.recv(10)

    async def scenario(scene: Scene) -> None:
        scene.processor.add(pair.near, reads_at_the_third_call)
        await scene.settled()
        assert pair.masks == []
        pair.far.send(b"x")
        await scene.settled()
        assert pair.masks == [READ] * 3

    with_processor(scenario)


def test_a_socket_is_called_back_for_each_time_that_something_comes(pair: Pair) -> None:
    async def scenario(scene: Scene) -> None:
        scene.processor.add(pair.near, pair.read)
        for count in range(1, 4):
            pair.far.send(b"x")
            await scene.settled()
            assert len(pair.masks) == count

    with_processor(scenario)


def test_a_peer_that_hangs_up_is_something_to_read(pair: Pair) -> None:
    async def scenario(scene: Scene) -> None:
        def finds_the_end(mask: int) -> None:
            pair.read(mask)
            scene.processor.remove(pair.near)

        scene.processor.add(pair.near, finds_the_end)
        pair.far.close()
        await scene.settled()
        assert pair.masks == [READ]

    with_processor(scenario)


def test_a_socket_that_is_watched_for_room_is_not_called_for_input_and_then_it_is_again(pair: Pair) -> None:
    async def scenario(scene: Scene) -> None:
        processor = scene.processor

        def takes_turns(mask: int) -> None:
            if mask & READ:
                pair.read(mask)
            else:
                pair.note(mask)
                processor.watch(pair.near, READ)

        processor.add(pair.near, takes_turns)
        while True:
            try:
                pair.near.send(bytes(1 << 16))
            except BlockingIOError:
                break

        processor.watch(pair.near, WRITE)
        pair.far.send(b"input")
        await scene.settled()
        assert pair.masks == []
        pair.far.recv(1 << 20)
        await scene.settled()
        assert pair.masks == [WRITE, READ]

    with_processor(scenario)


def test_a_socket_that_was_removed_is_called_no_more_and_may_be_added_again(pair: Pair) -> None:
    async def scenario(scene: Scene) -> None:
        scene.processor.add(pair.near, pair.read)
        scene.processor.remove(pair.near)
        pair.far.send(b"x")
        await scene.settled()
        assert pair.masks == []
        scene.processor.add(pair.near, pair.read)
        await scene.settled()
        assert pair.masks == [READ]

    with_processor(scenario)


def test_a_socket_removed_by_another_is_not_called_though_it_was_ready(pairs: list[Pair]) -> None:
    one, other = pairs[:2]

    async def scenario(scene: Scene) -> None:
        calls = []

        def removes_both(mask: int) -> None:
            calls.append(mask)
            scene.processor.remove(one.near)
            scene.processor.remove(other.near)

        scene.processor.add(one.near, removes_both)
        scene.processor.add(other.near, removes_both)
        one.far.send(b"x")
        other.far.send(b"x")
        await scene.settled()
        assert calls == [READ]

    with_processor(scenario)


def test_a_thousand_silent_sockets_are_no_work(pairs: list[Pair]) -> None:
    async def scenario(scene: Scene) -> None:
        for pair in pairs:
            scene.processor.add(pair.near, pair.read)
        await scene.sleep(3600)
        polls = scene.poll.polls
        await scene.sleep(3600)
        assert scene.poll.polls == polls

    with_processor(scenario)


# What is called soon


def test_what_is_called_soon_is_called_after_the_callbacks_of_the_same_turn(pairs: list[Pair]) -> None:
    called: list[str] = []

    async def scenario(scene: Scene) -> None:
        def reads(pair: Pair) -> Callable[[int], None]:
            def read(mask: int) -> None:
                pair.read(mask)
                called.append("ready")
                scene.processor.call_soon(lambda: called.append(f"soon, turn {scene.poll.polls}"))

            return read

        for pair in pairs[:3]:
            scene.processor.add(pair.near, reads(pair))
            pair.far.send(b"x")
        polls = scene.poll.polls
        await scene.settled()
        # The question that it slept in finds all three, and they are answered.
        assert called == ["ready"] * 3 + [f"soon, turn {polls}"] * 3

    with_processor(scenario)


def test_what_is_called_soon_by_such_a_call_waits_for_the_sockets_of_the_next_turn(pair: Pair) -> None:
    called: list[str] = []

    async def scenario(scene: Scene) -> None:
        call_soon = scene.processor.call_soon

        def soon() -> None:
            called.append("soon")
            call_soon(lambda: called.append("later"))

        def ready(_: int) -> None:
            called.append("ready")
            if len(called) == 1:
                call_soon(soon)
            else:
                pair.near.recv(10)

        scene.processor.add(pair.near, ready)
        pair.far.send(b"x")
        await scene.settled()
        assert called == ["ready", "soon", "ready", "later"]

    with_processor(scenario)


# Time


def test_the_time_is_that_of_the_turn(pair: Pair) -> None:
    times: list[float] = []

    async def scenario(scene: Scene) -> None:
        def read(mask: int) -> None:
            pair.read(mask)
            times.append(scene.processor.now)

        scene.processor.add(pair.near, read)
        for _ in range(2):
            await scene.sleep(10)
            pair.far.send(b"x")
            await scene.settled()
        assert times == pytest.approx([10, 20], abs=0.001)

    with_processor(scenario)


def test_sockets_have_their_turn_while_very_many_calls_wait(pair: Pair) -> None:
    async def scenario(scene: Scene) -> None:
        done: list[int] = []
        done_at_first_event: list[int] = []

        def reads(mask: int) -> None:
            pair.read(mask)
            done_at_first_event.append(len(done))

        scene.processor.add(pair.near, reads)
        for number in range(10 * CALLS_PER_TURN):
            scene.processor.call_soon(partial(done.append, number))
            if number == CALLS_PER_TURN:
                scene.processor.call_soon(lambda: pair.note(pair.far.send(b"x")))
        await scene.settled()
        assert done == list(range(10 * CALLS_PER_TURN))
        assert done_at_first_event[0] <= 3 * CALLS_PER_TURN

    with_processor(scenario)
