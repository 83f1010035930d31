"""The clock and the dice: the only place where the server asks for the time or for randomness.

Everything else is handed `now_ms` or an id, so that a test can be a list of numbers (design: time and chance come in
as arguments).
"""

from __future__ import annotations

import random
import time
import uuid
from typing import Protocol


class Clock(Protocol):
    """Time and fresh ids."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch, as they stand in record timestamps. It may be set, forwards and backwards."""
        ...

    def monotonic_ms(self) -> int:
        """Milliseconds since some moment. It only goes on: deadlines of those who wait follow it."""
        ...

    def uuid(self) -> bytes:
        """16 random bytes, a version 4 UUID that Kafka accepts as a topic id."""
        ...

    def draw(self, bound: int) -> int:
        """A number from 0 up to, and without, `bound`, each as likely as the others."""
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
