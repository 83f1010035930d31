"""A rate limit in records per second, independent of clock changes and of the work in between. Pure."""

from __future__ import annotations

from typing import Final

_AHEAD_S: Final = 0.02
"""A record that is due within this time may go now: waits between records of a fast replay are too short to time."""
_BEHIND_S: Final = 1.0
"""The part of a slower period that can be caught up."""


class Pace:
    """A rate limit: in `t` seconds at most `rate_per_s * (t + 1.02) + 1` records go. Times are of a monotonic clock."""

    def __init__(self, rate_per_s: float, now_s: float) -> None:
        self._each_s = 1 / rate_per_s
        self._due_s = now_s

    def wait_s(self, now_s: float) -> float:
        """Returns the time that the next record has to wait; 0 if it may go now."""
        wait_s = self._due_s - now_s
        return wait_s if wait_s > _AHEAD_S else 0.0

    def went(self, now_s: float) -> None:
        """Counts a record that went."""
        self._due_s = max(self._due_s, now_s - _BEHIND_S) + self._each_s
