"""Waits for a state of a broker or a client: polls until it is reached, or until the deadline."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

# Generous: it is only waited out by a test that fails, and the machine may be busy.
PATIENCE_S = 30.0
PAUSE_S = 0.02


def eventually(probe: Callable[[], T], what: str, *, within_s: float = PATIENCE_S, pause_s: float = PAUSE_S) -> T:
    """The first truthy answer of `probe`. Fails, with the last answer, when there is none within `within_s`."""
    deadline = time.monotonic() + within_s
    while True:
        answer = probe()
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {within_s} s: {what} (the last answer was {answer!r})")
        time.sleep(pause_s)


class Deadline:
    """A deadline for loops that must poll a client themselves: `while deadline.not_over("the third record"): ...`."""

    def __init__(self, within_s: float = PATIENCE_S) -> None:
        self._within_s = within_s
        self._end = time.monotonic() + within_s

    def not_over(self, what: str) -> bool:
        if time.monotonic() > self._end:
            raise AssertionError(f"not within {self._within_s} s: {what}")
        return True
