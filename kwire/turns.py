"""Rounds over many partitions, on the event loop and in turns with everybody else."""

from __future__ import annotations

import attrs
import trio

TURN_S = 0.002
"""So long a round over all partitions holds the event loop; one partition's work may make it longer."""


@attrs.define
class Turns:
    """For rounds over many partitions: `if turns.is_over: await turns.give_way()` after each."""

    _looks: int = 0
    _ends: float = attrs.field(factory=lambda: trio.current_time() + TURN_S)

    @property
    def is_over(self) -> bool:
        # To ask for the time costs as much as a partition that has nothing to do.
        self._looks += 1
        return not self._looks & 15 and trio.current_time() >= self._ends

    async def give_way(self) -> None:
        """Returns when everybody else has had a turn."""
        await trio.lowlevel.checkpoint()
        self._ends = trio.current_time() + TURN_S
