"""For trio tasks: loops over many partitions that yield to other work, and waiting for futures."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar, cast

import attrs
import trio

from kwire.runtime.futures import Future

T = TypeVar("T")

TURN_S = 0.002
"""How long a loop over partitions may hold the event loop at a time; one partition's work may make it longer."""


@attrs.define
class TimeSlice:
    """For loops over many partitions: `if turns.is_over: await turns.give_way()` after each."""

    _looks: int = 0
    _ends: float = attrs.field(factory=lambda: trio.current_time() + TURN_S)

    @property
    def is_over(self) -> bool:
        # Reading the time costs as much as a partition that has nothing to do.
        self._looks += 1
        return not self._looks & 15 and trio.current_time() >= self._ends

    async def yield_to_others(self) -> None:
        """Returns when all other work has had a turn."""
        await trio.lowlevel.checkpoint()
        self._ends = trio.current_time() + TURN_S


async def in_this_task(coroutine: Coroutine[Future[Any], None, T]) -> T:
    """Returns the result of a coroutine that awaits futures. A cancellation does not cancel what it waits for."""
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
