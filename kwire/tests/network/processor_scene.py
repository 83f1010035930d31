"""A processor under a mock clock, on real sockets, and a poll that counts how often it is asked."""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable

import attrs
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from kwire.network.poll import READ, WRITE, new_poll
from kwire.network.processor import Processor

STEP_S = 1e-6


class CountedPoll:
    """Real sockets, mock time: each question takes a microsecond of it.

    So a processor that asks again and again, as when it spins, comes to the end of its time without a real clock; and
    one that should sleep and does not is found by its count, instead of turning round for ever.
    """

    def __init__(self, clock: MockClock) -> None:
        self.asked = 0
        self.slept = 0
        """How often the processor went to sleep on its descriptor, which nothing else is for."""
        self.on_question: Callable[[], None] = lambda: None
        self._clock = clock
        self._poll = new_poll()
        self.register, self.modify, self.unregister = self._poll.register, self._poll.modify, self._poll.unregister
        self.close = self._poll.close

    def poll(self, timeout: float, maxevents: int, /) -> list[tuple[int, int]]:
        assert timeout == 0, "only trio may wait"
        self.asked += 1
        self._clock.jump(STEP_S)
        self.on_question()
        return self._poll.poll(timeout, maxevents)

    def fileno(self) -> int:
        self.slept += 1
        return self._poll.fileno()


def count_questions(processor: Processor, clock: MockClock) -> CountedPoll:
    """Gives a processor that has no connections yet such a poll."""
    processor.close()
    processor._poll = counted = CountedPoll(clock)
    return counted


@attrs.define(eq=False)
class Scene:
    """A processor that runs, and what a test needs beside it."""

    processor: Processor
    clock: MockClock
    poll: CountedPoll


def with_processor(scenario: Callable[[Scene], Awaitable[None]], *, spin_s: float = 0.0) -> None:
    """Runs `scenario` beside a processor that sleeps."""
    clock = MockClock(autojump_threshold=0)

    async def main() -> None:
        processor = Processor(spin_s=spin_s)
        scene = Scene(processor, clock, count_questions(processor, clock))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(processor.run)
            await wait_all_tasks_blocked()
            await scenario(scene)
            nursery.cancel_scope.cancel()
        processor.close()

    trio.run(main, clock=clock)


@attrs.define(eq=False)
class Pair:
    """Two ends of a connection; the processor serves the near one."""

    near: socket.socket
    far: socket.socket
    masks: list[int] = attrs.field(factory=list)
    """What the processor has called `read` and `note` with."""

    def read(self, mask: int) -> None:
        self.masks.append(mask & (READ | WRITE))
        self.near.recv(1 << 16)

    def note(self, mask: int) -> None:
        self.masks.append(mask & (READ | WRITE))


def new_pair() -> Pair:
    near, far = socket.socketpair()
    near.setblocking(False)
    far.setblocking(False)
    return Pair(near, far)
