"""A processor with real sockets and a virtual time, which passes only while it would sleep, or polls."""

from __future__ import annotations

import socket
import types
from collections.abc import Callable, Coroutine, Generator
from typing import Any

import attrs
from outcome import Outcome, Value

from kwire.runtime.poll import READ, WRITE, new_poll
from kwire.runtime.processor import Processor

STEP_S = 1e-6


class CountedPoll:
    """Real sockets, virtual time: each poll takes a microsecond of it. So a processor that spins reaches the end of its
    time without a real clock.

    When it would wait, `on_sleep` returns the events until then.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self.polls = 0
        """The number of polls, those that the processor slept in included."""
        self.slept = 0
        self.on_poll: Callable[[], None] = lambda: None
        self.on_sleep: Callable[[float], None] = lambda timeout: None
        self._poll = new_poll()
        self.register, self.modify, self.unregister = self._poll.register, self._poll.modify, self._poll.unregister
        self.close = self._poll.close

    def poll(self, timeout: float, maxevents: int, /) -> list[tuple[int, int]]:
        self.polls += 1
        self.now += STEP_S
        self.on_poll()
        events = self._poll.poll(0, maxevents)
        if not events and timeout:
            self.slept += 1
            self.on_sleep(timeout)
            events = self._poll.poll(0, maxevents)
        return events

    @property
    def has_events(self) -> bool:
        return bool(self._poll.poll(0, 1))


@types.coroutine
def _until(time: float) -> Generator[float, None, None]:
    yield time


@attrs.define(eq=False)
class Scene:
    """A processor that runs, and the other tools of a test: the test continues whenever the processor would sleep."""

    processor: Processor
    poll: CountedPoll
    _scenario: Coroutine[float, None, None] = attrs.field(init=False)
    _resumes_at: float = 0.0
    _done: list[Outcome[None]] = attrs.field(factory=list)

    def time(self) -> float:
        return self.poll.now

    async def settled(self) -> None:
        """Waits until the processor has nothing more to do."""
        await _until(self.time())

    async def sleep(self, seconds: float) -> None:
        await _until(self.time() + seconds)

    async def sleep_until(self, time: float) -> None:
        await _until(time)

    def serve(self, scenario: Coroutine[Any, None, None]) -> None:
        """Runs the processor's loop until the scenario is over."""
        self._scenario = scenario
        self.poll.on_sleep = self._on_sleep
        self.processor._serve_until(self._done, self.time)

    def _on_sleep(self, timeout: float) -> None:
        wakes_at = self.time() + timeout if timeout > 0 else float("inf")
        while not self._done and not self.processor._soon and not self.poll.has_events:
            if self._resumes_at > wakes_at:
                self.poll.now = max(self.poll.now, wakes_at)
                return
            self.poll.now = max(self.poll.now, self._resumes_at)
            try:
                self._resumes_at = self._scenario.send(None)
            except StopIteration:
                self._done.append(Value(None))


def with_processor(scenario: Callable[[Scene], Coroutine[Any, None, None]], *, spin_s: float = 0.0) -> None:
    """Runs `scenario` with a processor that sleeps."""
    processor = Processor(spin_s=spin_s)
    processor.close()
    processor._poll = poll = CountedPoll()
    scene = Scene(processor, poll)
    try:
        scene.serve(scenario(scene))
    finally:
        processor.close()


@attrs.define(eq=False)
class Pair:
    """Two ends of a connection; the processor serves the near one."""

    near: socket.socket
    far: socket.socket
    masks: list[int] = attrs.field(factory=list)
    """The arguments of the processor's calls of `read` and `note`."""

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
