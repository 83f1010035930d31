"""How long things took: what happened, added up. Its owner counts, and `kwire.metrics` reads."""

from __future__ import annotations

import attrs


@attrs.define(eq=False)
class Durations:
    """How many there were, and the milliseconds of all of them together."""

    count: int = 0
    total_ms: int = 0

    def add(self, took_ms: int) -> None:
        self.count += 1
        self.total_ms += took_ms
