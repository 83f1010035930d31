"""Virtual time: callbacks at their times, in one task of a trio loop whose clock jumps to whatever is due next."""

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
from trio.testing import MockClock

CALLS_PER_TURN = 50
"""After so many callbacks trio's tasks have a turn."""


@attrs.define(eq=False)
class Calendar:
    """Times are in seconds. `run` is a task that ends when it is cancelled."""

    _due: list[tuple[float, int, Callable[[], object]]] = attrs.field(factory=list)
    _numbers: Iterator[int] = attrs.field(factory=count)
    _wake: trio.Event = attrs.field(factory=trio.Event)
    _sleeps_until: float = -math.inf

    @property
    def now(self) -> float:
        return trio.current_time()

    def at(self, time: float, callback: Callable[[], object]) -> None:
        heapq.heappush(self._due, (time, next(self._numbers), callback))
        if time < self._sleeps_until:
            self._wake.set()

    def after(self, seconds: float, callback: Callable[[], object]) -> None:
        self.at(trio.current_time() + seconds, callback)

    def soon(self, callback: Callable[[], object]) -> None:
        """When the callbacks that are due already have been called."""
        self.at(trio.current_time(), callback)

    async def run(self) -> None:
        while True:
            for _ in range(CALLS_PER_TURN):
                if not self._due or self._due[0][0] > trio.current_time():
                    break
                heapq.heappop(self._due)[2]()
            else:
                await trio.lowlevel.checkpoint()
                continue
            self._sleeps_until = self._due[0][0] if self._due else math.inf
            self._wake = trio.Event()
            with trio.CancelScope(deadline=self._sleeps_until):
                await self._wake.wait()
            self._sleeps_until = -math.inf


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


def run_virtually(seed: int, main: Callable[[random.Random], Awaitable[None]]) -> None:
    """Runs `main` on a clock that stands still while anything runs. The same seed gives the same run."""
    with _seeded(seed):
        trio.run(main, random.Random(seed), clock=MockClock(autojump_threshold=0))
