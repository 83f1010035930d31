"""Virtual time: the clock of a trio loop, which stands still while anything runs, and then jumps to what is next."""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any, cast

import attrs
import trio
import trio._core._run as trio_loop

CALLS_PER_TURN = 50
"""After so many callbacks trio's tasks have a turn, even if more are due now."""


@attrs.define(eq=False)
class Calendar(trio.abc.Clock):
    """Callbacks at their times, in seconds. trio gets the time from it, and how long to sleep when no task can run.

    The callbacks are called then, outside of any task. One that raises ends `run`, a task, with what it raised.
    """

    now: float = 0.0
    _due: list[tuple[float, int, Callable[[], object]]] = attrs.field(factory=list)
    _numbers: Iterator[int] = attrs.field(factory=count)
    _has_failed: trio.Event = attrs.field(factory=trio.Event)
    _failure: BaseException | None = None

    def at(self, time: float, callback: Callable[[], object]) -> None:
        heapq.heappush(self._due, (time, next(self._numbers), callback))

    def after(self, seconds: float, callback: Callable[[], object]) -> None:
        self.at(self.now + seconds, callback)

    def soon(self, callback: Callable[[], object]) -> None:
        """Calls it when the callbacks that are due already have been called."""
        self.at(self.now, callback)

    async def run(self) -> None:
        await self._has_failed.wait()
        assert self._failure is not None
        raise self._failure

    # The clock interface of trio

    def start_clock(self) -> None:
        pass

    def current_time(self) -> float:
        return self.now

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """Advances the time to the next due callback, because no task can run before the deadline. Returns no sleep."""
        next_s = min(self._due[0][0], deadline) if self._due else deadline
        if next_s == math.inf:
            return math.inf
        self.now = max(self.now, next_s)
        try:
            for _ in range(CALLS_PER_TURN):
                if not self._due or self._due[0][0] > self.now:
                    break
                heapq.heappop(self._due)[2]()
        except BaseException as error:
            self._failure = error
            self._has_failed.set()
        return 0


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """trio orders tasks that can run at the same time by chance; its tests use the same switch."""
    module = cast(Any, trio_loop)
    before, state = module._ALLOW_DETERMINISTIC_SCHEDULING, module._r.getstate()
    module._ALLOW_DETERMINISTIC_SCHEDULING = True
    module._r.seed(seed)
    try:
        yield
    finally:
        module._ALLOW_DETERMINISTIC_SCHEDULING = before
        module._r.setstate(state)


def run_virtually(seed: int, main: Callable[[random.Random, Calendar], Awaitable[None]]) -> None:
    """Runs `main` on a clock that stands still while anything runs. The same seed gives the same run."""
    calendar = Calendar()
    with _seeded(seed):
        trio.run(main, random.Random(seed), calendar, clock=calendar)
