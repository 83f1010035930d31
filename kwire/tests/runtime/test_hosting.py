"""The processor as the thread's own loop, with trio as its guest: real time, real sockets, no starvation."""

from __future__ import annotations

import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from queue import SimpleQueue

import pytest
import trio
from outcome import Outcome, capture

from kwire.runtime import guest_clock
from kwire.runtime.guest_clock import POLL_S
from kwire.runtime.poll import READ, Poll, new_poll
from kwire.runtime.processor import SHORTEST_PAUSE_S, Processor, Timer, _Bell
from testkit.scenes.processor_scene import Pair, new_pair

TIMEOUT_S = 30
A_MOMENT_S = 0.02


class CountingPoll:
    """A poll that counts its calls."""

    def __init__(self) -> None:
        self.polls = 0
        self._poll: Poll = new_poll()
        self.register, self.modify, self.unregister = self._poll.register, self._poll.modify, self._poll.unregister
        self.close = self._poll.close

    def poll(self, timeout: float, maxevents: int, /) -> list[tuple[int, int]]:
        self.polls += 1
        return self._poll.poll(timeout, maxevents)


@pytest.fixture
def processor() -> Iterator[Processor]:
    processor = Processor()
    processor.close()
    processor._poll = CountingPoll()
    yield processor
    assert processor._on_ready == {}, "the bell was not taken down"
    processor.close()


@pytest.fixture
def pair() -> Iterator[Pair]:
    pair = new_pair()
    with pair.near, pair.far:
        yield pair


def hosted(processor: Processor, main: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        with trio.fail_after(TIMEOUT_S):
            await main()

    processor.host(bounded)


def test_it_serves_until_the_task_of_its_guest_is_over(processor: Processor, pair: Pair) -> None:
    async def main() -> None:
        answered = trio.Event()

        def answer(_: int) -> None:
            pair.near.send(pair.near.recv(10).upper())
            answered.set()

        processor.add(pair.near, answer)
        pair.far.send(b"hello")
        await answered.wait()
        processor.remove(pair.near)

    hosted(processor, main)
    assert pair.far.recv(10) == b"HELLO"


def test_what_the_task_raises_is_raised(processor: Processor) -> None:
    async def main() -> None:
        await trio.lowlevel.checkpoint()
        raise LookupError("of the guest")

    with pytest.raises(LookupError, match="of the guest"):
        hosted(processor, main)


def test_an_error_of_its_own_ends_the_tasks_of_its_guest_before_it_is_raised(processor: Processor) -> None:
    ended: list[str] = []

    def fail() -> None:
        raise LookupError("of the host")

    async def main() -> None:
        processor.call_soon(fail)
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(A_MOMENT_S)
            ended.append("in order")

    began = time.monotonic()
    with pytest.raises(LookupError, match="of the host"):
        hosted(processor, main)
    assert time.monotonic() - began < TIMEOUT_S, "it was the test's own bound that ended it"
    assert ended == ["in order"]


def test_it_may_be_run_again(processor: Processor) -> None:
    runs = 0

    async def main() -> None:
        nonlocal runs
        await trio.sleep(0)
        runs += 1

    for _ in range(2):
        hosted(processor, main)
    assert runs == 2


def test_a_thread_wakes_a_task_while_the_processor_sleeps(processor: Processor) -> None:
    async def main() -> None:
        gate = threading.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.to_thread.run_sync, lambda: gate.wait(TIMEOUT_S))
            await trio.sleep(A_MOMENT_S)
            gate.set()

    hosted(processor, main)


def test_a_thread_may_ring_after_its_callback_was_the_last(
    processor: Processor, pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop has found the callback without the bell, because a socket was ready."""
    has_ended = threading.Event()
    outcomes: SimpleQueue[Outcome[None]] = SimpleQueue()
    ring = _Bell.ring

    def ring_late(bell: _Bell) -> None:
        assert has_ended.wait(TIMEOUT_S)
        outcomes.put(capture(ring, bell))

    monkeypatch.setattr(_Bell, "ring", ring_late)

    async def main() -> None:
        processor.add(pair.near, lambda _: None)
        pair.far.send(b"x")
        await trio.sleep(A_MOMENT_S)
        processor.remove(pair.near)

    hosted(processor, main)
    has_ended.set()
    outcomes.get(timeout=TIMEOUT_S).unwrap()


def test_it_serves_a_guest_for_which_no_thread_can_be_started(
    processor: Processor, pair: Pair, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def main() -> None:
        processor.add(pair.near, pair.read)
        pair.far.send(b"hello")
        await trio.sleep(A_MOMENT_S)
        poll = processor._poll
        assert isinstance(poll, CountingPoll)
        polls = poll.polls
        await trio.sleep(5 * POLL_S)
        assert poll.polls - polls < 20, "it looked for events all the time"
        processor.remove(pair.near)

    # The threads of trio's cache are taken, so that the guest finds none.
    taken, may_continue = threading.Semaphore(0), threading.Event()

    def take() -> None:
        taken.release()
        assert may_continue.wait(TIMEOUT_S)

    with monkeypatch.context() as limited:
        limited.setattr(threading.Thread, "start", refuse)
        try:
            while True:
                trio.lowlevel.start_thread_soon(take, lambda _: None)
                assert taken.acquire(timeout=TIMEOUT_S)
        except RuntimeError:
            pass
        try:
            hosted(processor, main)
        finally:
            may_continue.set()
    assert pair.masks == [READ]
    assert len(caplog.messages) == 1
    assert "no thread can be started to wait for events" in caplog.messages[0]


def test_a_guest_whose_thread_may_have_ended_waits_in_another(
    processor: Processor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guest_clock, "FRESH_S", 0.0)  # it may have ended at once
    started = 0
    start_thread_soon = trio.lowlevel.start_thread_soon

    def count(work: Callable[[], None], deliver: Callable[[Outcome[None]], object]) -> None:
        nonlocal started
        started += 1
        start_thread_soon(work, deliver)

    monkeypatch.setattr(trio.lowlevel, "start_thread_soon", count)

    async def main() -> None:
        for _ in range(5):
            await trio.sleep(A_MOMENT_S)

    hosted(processor, main)
    assert started >= 5


def test_a_task_and_a_timer_have_their_time_while_no_socket_is_ready(processor: Processor) -> None:
    async def main() -> None:
        rung = trio.Event()
        began = trio.current_time()
        processor.start_timer(Timer(rung.set), began + 2 * A_MOMENT_S)
        await trio.sleep_until(began + A_MOMENT_S)
        assert trio.current_time() - began >= A_MOMENT_S
        await rung.wait()
        assert trio.current_time() - began >= 2 * A_MOMENT_S

    hosted(processor, main)


def test_it_sleeps_where_nothing_happens(processor: Processor, pair: Pair) -> None:
    async def main() -> None:
        processor.add(pair.near, pair.note)
        await trio.sleep(A_MOMENT_S)
        poll = processor._poll
        assert isinstance(poll, CountingPoll)
        polls, pauses = poll.polls, processor.pauses
        await trio.sleep(A_MOMENT_S)
        assert poll.polls - polls < 10
        assert processor.pauses > pauses
        processor.remove(pair.near)

    hosted(processor, main)


def test_a_socket_that_is_always_ready_does_not_starve_its_guest(processor: Processor, pair: Pair) -> None:
    async def main() -> None:
        pair.far.send(b"never read")
        processor.add(pair.near, pair.note)
        pauses = processor.pauses
        while len(pair.masks) < 20:
            await trio.sleep(0.001)
        assert processor.pauses - pauses < len(pair.masks) / 2, "there was always something to do"
        processor.remove(pair.near)

    hosted(processor, main)


def test_a_guest_that_is_always_busy_does_not_starve_a_socket(processor: Processor, pair: Pair) -> None:
    async def main() -> None:
        processor.add(pair.near, pair.read)
        for number in range(10):
            pair.far.send(b"x")
            while len(pair.masks) == number:
                await trio.lowlevel.checkpoint()
        processor.remove(pair.near)

    hosted(processor, main)


def test_no_pause_is_counted_while_there_is_something_to_do(processor: Processor) -> None:
    async def main() -> None:
        await trio.sleep(A_MOMENT_S)
        done = trio.Event()
        counted: list[int] = []

        def again() -> None:
            counted.append(processor.pauses)
            work_until = time.perf_counter() + 2 * SHORTEST_PAUSE_S
            while time.perf_counter() < work_until:
                pass
            if len(counted) < 20:
                processor.call_soon(again)
            else:
                done.set()

        processor.call_soon(again)
        await done.wait()
        assert len(set(counted)) == 1

    hosted(processor, main)
