"""Threads that take turns far more often than usual, so that a race shows within a test."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

SWITCH_INTERVAL_S = 1e-6


@contextmanager
def switching_often() -> Iterator[None]:
    """Lets the interpreter switch between threads after each microsecond."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    try:
        yield
    finally:
        sys.setswitchinterval(before)
