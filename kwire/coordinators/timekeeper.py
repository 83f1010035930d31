"""What time it is for machines that have deadlines, and the sleep of the task that carries out what is due.

A driver of machines does two things with it. Its task sleeps until the next deadline (`sleep_until`). And before it
gives a machine a request, it reads the time (`now`), carries out what is due by then, and hands the machine the same
reading. So a request never meets what a deadline has ended, however late the task wakes up.

**A broker that stood still.** While a process is stopped, or its virtual machine is, or one callback takes seconds, the
requests of its clients wait in the sockets. To count that time would end the sessions of everybody who sent heartbeats
in it. So it is not counted: time stands still with the broker, as it does for a failure detector that does not suspect
others of its own pauses. The task notices. It wakes up `LEAD_MS` before a deadline and again at the deadline, and if it
is later than `LEAD_MS` at either of them, nothing was served in between, and the time goes on from where it was to wake
up. What comes a little late in a busy broker is no stand-still, and is counted.

While nothing is due to happen the task does not wake up at all.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import trio

from kwire.coordinators.effects import Now
from kwire.runtime.clock import Clock

LEAD_MS = 500


class Timekeeper:
    """The time of one driver. It never goes backwards, and is behind `clock` by what it did not count.

    `awaited_ms` is the deadline that the task sleeps for: whoever has an earlier one calls `wake`.
    """

    __slots__ = ("_behind_ms", "_clock", "_may_be_silent_until_ms", "_wake", "awaited_ms")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._behind_ms = 0
        self.awaited_ms: float = math.inf
        self._may_be_silent_until_ms: float = math.inf
        """When the task wakes up. After that: when the time was read last."""
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
        """The task looks again at what is due, and at how long it may sleep."""
        self._wake.set()

    async def run(self, settle: Callable[[], None], next_deadline_ms: Callable[[], int | None]) -> None:
        """Calls `settle` at each deadline, and whenever `wake` was called, until cancelled."""
        while True:
            settle()
            await self.sleep_until(next_deadline_ms())

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
