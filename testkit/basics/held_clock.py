"""Worker threads under trio's mock clock: real work takes no time there."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import attrs
import trio


@attrs.define(eq=False)
class Threads:
    """Keeps trio's mock clock from jumping while worker threads are at work: it jumps when all tasks are blocked."""

    _run: Callable[..., Awaitable[Any]]
    _count: int = 0
    _began: trio.Event = attrs.field(factory=trio.Event)

    async def run(self, *what: Any, **how: Any) -> Any:
        self._count += 1
        self._began.set()
        try:
            return await self._run(*what, **how)
        finally:
            self._count -= 1

    async def hold_the_clock(self) -> None:
        while True:
            await self._began.wait()
            while self._count:
                await trio.sleep(0)
            self._began = trio.Event()
