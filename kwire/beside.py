"""What goes on beside the requests without a task of its own: long work in slices, and what blocks in a worker thread.

Whoever does it is a coroutine that awaits slots (`kwire.waits.drive`). Until a server attaches its loop, and after the
server has ended, there is nobody to give way to: everything happens at once, in the caller's thread.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import attrs
from outcome import Outcome, capture

from kwire import workers
from kwire.waits import Slot
from kwire.workers import Worker

T = TypeVar("T")

CallSoon = Callable[[Callable[[], object]], None]
StartSoon = Callable[[Callable[[], Awaitable[object]]], object]


@attrs.frozen
class Loop:
    """`call_soon` calls back after others have had a turn, `start_soon` starts a task."""

    call_soon: CallSoon
    start_soon: StartSoon


@attrs.define(eq=False)
class Beside:
    """`loop` is None while no server runs."""

    loop: Loop | None = None

    def next_turn(self) -> Slot[None]:
        """Set when all others have had a turn."""
        slot: Slot[None] = Slot()
        if self.loop is None:
            slot.set(None)
        else:
            self.loop.call_soon(lambda: slot.set(None))
        return slot

    def in_worker(self, worker: Worker, work: Callable[[], T]) -> Slot[Outcome[T]]:
        """Does `work` in a worker thread. A server that ends waits for it."""
        slot: Slot[Outcome[T]] = Slot()
        if self.loop is None:
            slot.set(capture(work))
            return slot

        async def run() -> None:
            slot.set(await workers.run_to_its_end(worker, work))

        self.loop.start_soon(run)
        return slot


@attrs.define
class Slices:
    """For a loop over many things: `await slices.after(1)` behind each of them.

    Work is counted, not timed, so that it is cut at the same places each time.
    """

    beside: Beside
    size: int
    """So much is done in one turn."""
    _done: int = 0

    async def after(self, count: int) -> None:
        """So much more was done: gives way to the others where that makes a slice."""
        self._done += count
        if self._done >= self.size:
            self._done = 0
            await self.beside.next_turn()
