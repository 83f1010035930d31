"""Helpers of trio tasks: loops over many partitions that yield to other work, and waiting for futures."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar, cast

import attrs
import trio

from kwire.runtime.futures import Future

T = TypeVar("T")

TURN_S = 0.002
"""The time for which a loop over partitions may hold the event loop; the work of one partition may exceed it."""


@attrs.define
class TimeSlice:
    """A time slice of a loop over many partitions: `if slice.is_over: await slice.yield_to_others()` after each."""

    _checks: int = 0
    _ends: float = attrs.field(factory=lambda: trio.current_time() + TURN_S)

    @property
    def is_over(self) -> bool:
        # Reading the time costs as much as a partition without work.
        self._checks += 1
        return not self._checks & 15 and trio.current_time() >= self._ends

    async def yield_to_others(self) -> None:
        """Returns when all other work has had a turn."""
        await trio.lowlevel.checkpoint()
        self._ends = trio.current_time() + TURN_S


async def in_this_task(coroutine: Coroutine[Future[Any], None, T]) -> T:
    """Returns the result of a coroutine that awaits futures. A cancellation does not cancel the futures."""
    try:
        while True:
            try:
                future = coroutine.send(None)
            except StopIteration as done:
                return cast(T, done.value)
            was_set = trio.Event()
            future.when_set(was_set.set)
            await was_set.wait()
    finally:
        coroutine.close()
