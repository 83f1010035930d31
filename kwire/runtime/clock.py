"""The clock and the random numbers: the only place where the server reads the time or makes random values.

All other code takes `now_ms` or an id as an argument, so that a test controls both (design: time and randomness are
arguments).
"""

from __future__ import annotations

import random
import time
from typing import Protocol

_SYSTEM = random.SystemRandom()

running_ns = time.perf_counter_ns
"""The nanoseconds since an arbitrary moment, to measure running times."""


class Clock(Protocol):
    """Time and new ids."""

    def now_ms(self) -> int:
        """The milliseconds since the epoch, as in record timestamps. The clock may be set forwards and backwards."""
        ...

    def monotonic_ms(self) -> int:
        """The milliseconds since an arbitrary moment. They never decrease, so deadlines use them."""
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
            fresh = bytearray(_SYSTEM.randbytes(16))
            # Kafka's Uuid.randomUuid(): Kafka's tools would take an id that begins with "-" in base64 for a flag.
            if fresh[0] >> 2 != 0b111110:
                # Version 4, and the variant of RFC 4122; without an object of `uuid`, whose checks cost more than this.
                fresh[6] = fresh[6] & 0x0F | 0x40
                fresh[8] = fresh[8] & 0x3F | 0x80
                return bytes(fresh)

    def draw(self, bound: int) -> int:
        return random.randrange(bound)


def secret_of(clock: Clock) -> bytes:
    """Returns 32 secret bytes, 244 bits of which are random. For salts, nonces, and keys of a run."""
    return clock.uuid() + clock.uuid()
