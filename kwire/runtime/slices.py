"""Long work in slices, between which other work has its turn."""

from __future__ import annotations

import attrs

from kwire.runtime.loop import Loop


@attrs.define
class Slices:
    """Slices of a loop over many items: call `await slices.after(1)` after each of them.

    Work is counted, not timed, so that the slices are the same each time.
    """

    loop: Loop
    size: int
    """The amount of work in one turn."""
    _done: int = 0

    async def after(self, count: int) -> None:
        """Counts completed work, and yields to other work when a slice is full."""
        self._done += count
        if self._done >= self.size:
            self._done = 0
            await self.loop.next_turn()
