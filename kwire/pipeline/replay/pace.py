"""A rate limit in records per second, independent of clock changes and of the work in between. Pure."""

from __future__ import annotations

from typing import Final

_AHEAD_S: Final = 0.02
"""A record that is due within this time may go now: waits between records of a fast replay are too short to time."""
_BEHIND_S: Final = 1.0
"""How much of a slower period can be caught up."""


class Pace:
    """In `t` seconds no more than `rate_per_s * (t + 1.02)` records go, and one. Times are of a monotonic clock."""

    def __init__(self, rate_per_s: float, now_s: float) -> None:
        self._each_s = 1 / rate_per_s
        self._due_s = now_s

    def wait_s(self, now_s: float) -> float:
        """How long the next record has to wait; 0 for one that may go."""
        wait_s = self._due_s - now_s
        return wait_s if wait_s > _AHEAD_S else 0.0

    def went(self, now_s: float) -> None:
        """A record did."""
        self._due_s = max(self._due_s, now_s - _BEHIND_S) + self._each_s
