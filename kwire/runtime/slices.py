"""Background work without a task of its own: long work in slices, and blocking work in a worker thread.

Such work is a coroutine that awaits futures (`kwire.runtime.futures.drive`). Before a server attaches its loop, and
after the server has ended, there is no other work to yield to: everything runs at once, in the caller's thread.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import attrs
from outcome import Outcome, capture

from kwire.runtime import workers
from kwire.runtime.futures import Future
from kwire.runtime.workers import Worker

T = TypeVar("T")

CallSoon = Callable[[Callable[[], object]], None]
StartSoon = Callable[[Callable[[], Awaitable[object]]], object]


@attrs.frozen
class Loop:
    """`call_soon` calls a callback after other work has had a turn; `start_soon` starts a task."""

    call_soon: CallSoon
    start_soon: StartSoon


@attrs.define(eq=False)
class Beside:
    """`loop` is None while no server runs."""

    loop: Loop | None = None

    def next_turn(self) -> Future[None]:
        """A future that is set when all other work has had a turn."""
        future: Future[None] = Future()
        if self.loop is None:
            future.set(None)
        else:
            self.loop.call_soon(lambda: future.set(None))
        return future

    def in_worker(self, worker: Worker, work: Callable[[], T]) -> Future[Outcome[T]]:
        """Runs `work` in a worker thread. A server that stops waits for it."""
        future: Future[Outcome[T]] = Future()
        if self.loop is None:
            future.set(capture(work))
            return future

        async def run() -> None:
            future.set(await workers.run_to_its_end(worker, work))

        self.loop.start_soon(run)
        return future


@attrs.define
class Slices:
    """For a loop over many items: call `await slices.after(1)` after each of them.

    Work is counted, not timed, so that the slices are the same each time.
    """

    beside: Beside
    size: int
    """How much is done in one turn."""
    _done: int = 0

    async def after(self, count: int) -> None:
        """Counts work that was done, and yields to other work when a slice is full."""
        self._done += count
        if self._done >= self.size:
            self._done = 0
            await self.beside.next_turn()
