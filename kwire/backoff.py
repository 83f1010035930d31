"""The pauses between retries: Kafka's `ExponentialBackoff`, without randomness.

A pause is twice the one before, up to a limit, and a success resets it. So a condition that passes at once costs little
time, and one that lasts costs little work.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Generic, TypeVar

import attrs

N = TypeVar("N", int, float)


@attrs.frozen
class Backoff(Generic[N]):
    """The `first` pause, which is above 0, and the `longest` one. All pauses are in the same unit of time."""

    first: N
    longest: N
    _shorter: tuple[N, ...] = attrs.field(init=False, repr=False, eq=False)
    """The pauses before the longest one. A transaction's retry is scheduled before it is clear that one is needed, so
    they are computed once."""

    @_shorter.default
    def _doubled(self) -> tuple[N, ...]:
        assert self.first > 0
        pauses, pause = [], self.first
        while pause < self.longest:
            pauses.append(pause)
            pause *= 2
        return tuple(pauses)

    def after(self, failures: int) -> N:
        """Returns the pause after this number of consecutive failures, which is at least 1."""
        try:
            return self._shorter[failures - 1]
        except IndexError:
            return self.longest

    def __iter__(self) -> Iterator[N]:
        """Yields the pauses in their order, without end."""
        return map(self.after, count(1))
