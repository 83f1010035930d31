"""The clock and the random numbers: the only place where the server reads the time or makes random values.

All other code takes `now_ms` or an id as an argument, so that a test controls both (design: time and chance come in as
arguments).
"""

from __future__ import annotations

import random
import time
import uuid
from typing import Protocol

running_ns = time.perf_counter_ns
"""Nanoseconds since an arbitrary moment, to measure running times."""


class Clock(Protocol):
    """Time and new ids."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch, as in record timestamps. The clock may be set forwards and backwards."""
        ...

    def monotonic_ms(self) -> int:
        """Milliseconds since an arbitrary moment. It never goes backwards, so deadlines use it."""
        ...

    def uuid(self) -> bytes:
        """16 random bytes, a version 4 UUID that Kafka accepts as a topic id."""
        ...

    def draw(self, bound: int) -> int:
        """A uniformly random number from 0 to `bound` - 1."""
        ...


class SystemClock:
    """The machine's own clock and randomness."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def uuid(self) -> bytes:
        while True:
            fresh = uuid.uuid4()
            # Kafka's Uuid.randomUuid(): an id that begins with "-" in base64 would be taken for a flag by its tools.
            if fresh.bytes[0] >> 2 != 0b111110:
                return fresh.bytes

    def draw(self, bound: int) -> int:
        return random.randrange(bound)


def secret_of(clock: Clock) -> bytes:
    """Returns 32 bytes that nobody can guess; 244 of their bits are random. For salts, nonces, and keys of a run."""
    return clock.uuid() + clock.uuid()
