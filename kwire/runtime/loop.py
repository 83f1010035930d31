"""The event loop's interface for the parts of a broker: turns of other work, tasks, and blocking work in a thread.

Work without a task of its own is a coroutine that awaits futures (`kwire.runtime.futures.drive`). While no server runs,
there is no other work to yield to: everything runs at once, in the caller's thread.
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
class Host:
    """The running server. `call_soon` calls a callback after other work has had a turn; `start_soon` starts a task."""

    call_soon: CallSoon
    start_soon: StartSoon


@attrs.define(eq=False)
class Loop:
    """The event loop. `host` is None while no server runs."""

    host: Host | None = None

    def next_turn(self) -> Future[None]:
        """Returns a future that is set when all other work has had a turn."""
        future: Future[None] = Future()
        if self.host is None:
            future.set(None)
        else:
            self.host.call_soon(lambda: future.set(None))
        return future

    def in_worker(self, worker: Worker, work: Callable[[], T]) -> Future[Outcome[T]]:
        """Runs `work` in a worker thread. A server that stops waits for it."""
        future: Future[Outcome[T]] = Future()
        if self.host is None:
            future.set(capture(work))
            return future

        async def run() -> None:
            future.set(await workers.run_to_its_end(worker, work))

        self.host.start_soon(run)
        return future
