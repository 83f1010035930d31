"""Sums of durations. The owner adds to them, and `kwire.metrics` reads them."""

from __future__ import annotations

import attrs


@attrs.define(eq=False)
class Durations:
    """The number of durations, and their sum in milliseconds."""

    count: int = 0
    total_ms: int = 0

    def add(self, took_ms: int) -> None:
        self.count += 1
        self.total_ms += took_ms
