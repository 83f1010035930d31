"""The time of day, for jobs and their commands."""

from __future__ import annotations

import time


def now_ms() -> int:
    """Returns the milliseconds since 1970, by this machine's clock."""
    return time.time_ns() // 1_000_000
