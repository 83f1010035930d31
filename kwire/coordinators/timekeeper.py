"""The clock of machines that have deadlines, and the sleep of the task that carries out what is due.

A driver of machines does two things with it. Its task sleeps until the next deadline (`sleep_until`). And before it
passes a request to a machine, it reads the time (`now`), carries out what is due by then, and passes the same reading
to the machine. So a request never sees what a deadline has ended, even if the task wakes up late.

**A broker that was paused.** While a process is stopped, or its virtual machine is, or one callback takes seconds, the
requests of its clients wait in the sockets. If that time counted, the sessions of all members that sent heartbeats in
it would end. So it is not counted: the clock stops with the broker, as it does for a failure detector that does not
suspect others of its own pauses. The task detects a pause. It wakes up `LEAD_MS` before a deadline and again at the
deadline. If it is more than `LEAD_MS` late at either of them, nothing was served in between, and the time continues
from where the task had to wake up. A short delay in a busy broker is no pause, and is counted.

While no deadline is set the task does not wake up at all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import trio

from kwire.coordinators.effects import Now
from kwire.runtime.clock import Clock

LEAD_MS = 500


class Timekeeper:
    """The time of one driver. It never goes backwards, and is behind `clock` by the pauses that it did not count.

    `awaited_ms` is the deadline until which the task sleeps: a caller that sets an earlier one calls `wake`.
    """

    __slots__ = ("_behind_ms", "_clock", "_may_be_silent_until_ms", "_wake", "awaited_ms")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._behind_ms = 0
        self.awaited_ms: float = math.inf
        self._may_be_silent_until_ms: float = math.inf
        """The time at which the task wakes up. After that, the time of the last reading."""
        self._wake = trio.Event()

    def now(self) -> Now:
        now_ms = self._clock.monotonic_ms() - self._behind_ms
        if now_ms > self._may_be_silent_until_ms:
            now_ms = self._after_silence(now_ms)
        return Now(self._clock.now_ms(), now_ms)

    def _after_silence(self, now_ms: int) -> int:
        silent_ms = now_ms - int(self._may_be_silent_until_ms)
        if silent_ms > LEAD_MS:
            self._behind_ms += silent_ms
            return now_ms - silent_ms
        self._may_be_silent_until_ms = now_ms
        return now_ms

    def wake(self) -> None:
        """Wakes the task, which carries out what is due and computes its next sleep."""
        self._wake.set()

    async def run(self, settle: Callable[[], None], deadlines_ms: Callable[[], Iterable[int | None]]) -> None:
        """Calls `settle` at the earliest deadline, and whenever `wake` was called, until cancelled.

        deadlines_ms: returns the next deadline of each machine; None for a machine without one.
        """
        while True:
            settle()
            await self.sleep_until(min((it for it in deadlines_ms() if it is not None), default=None))

    async def sleep_until(self, deadline_ms: int | None) -> None:
        """Returns at the deadline, or earlier."""
        if deadline_ms is None:
            self.awaited_ms = self._may_be_silent_until_ms = math.inf
            await self._wake.wait()
        else:
            now_ms = self.now().monotonic_ms
            left_ms = max(deadline_ms - now_ms, 0)
            sleep_ms = left_ms - LEAD_MS if left_ms > LEAD_MS else left_ms
            self.awaited_ms, self._may_be_silent_until_ms = deadline_ms, now_ms + sleep_ms
            with trio.move_on_after(sleep_ms / 1000):
                await self._wake.wait()
        self._wake = trio.Event()
