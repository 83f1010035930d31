"""A rate that is measured over samples, and a bucket of tokens. Pure: `now_ms` is monotonic.

    Rate          records usage, and compares it with the bound
    TokenBucket   has a stock, so that a short burst does not exceed the bound

Both are Kafka's arithmetic (Rate with SampledStat, and TokenBucket), because it determines how long clients wait. A
rate counts from the start of its oldest sample, and as if all samples but one were over already: the first request of
a client does not exceed its quota merely because it is the first. (The rate of a `ReplicationQuota` counts over one
sample at least, which is why these are two machines.)
"""

from __future__ import annotations

import math
from typing import Final

import attrs

MOST_SAMPLES: Final = 1000
"""The maximum number of samples that are kept. If more are configured, fewer but longer ones cover the same time."""

LONGEST_MS: Final = 2**31 - 1
"""The longest throttle time that fits into a response."""


@attrs.frozen
class Window:
    """A rate is measured over `samples` of `sample_ms` each: quota.window.num, and quota.window.size.seconds."""

    samples: int
    sample_ms: int

    @classmethod
    def of(cls, samples: int, seconds: int) -> Window:
        sample_ms = seconds * 1000
        if samples > MOST_SAMPLES:
            return cls(MOST_SAMPLES, -(-samples * sample_ms // MOST_SAMPLES))
        return cls(samples, sample_ms)

    @property
    def length_ms(self) -> int:
        return self.samples * self.sample_ms


@attrs.define(eq=False)
class _Sample:
    start_ms: int
    last_ms: int
    value: float = 0.0

    def restart(self, now_ms: int) -> None:
        self.start_ms = self.last_ms = now_ms
        self.value = 0.0


@attrs.define(eq=False)
class Rate:
    """The rate per second of the values recorded recently."""

    window: Window
    _ring: list[_Sample] = attrs.field(factory=list)
    """The samples, at most one more than the window has."""
    _current: int = 0

    def record(self, value: float, now_ms: int) -> None:
        """Records a value. Negative values undo former ones."""
        ring = self._ring
        if not ring:
            ring.append(_Sample(now_ms, now_ms))
        sample = ring[self._current]
        if now_ms - sample.start_ms >= self.window.sample_ms:
            self._current = (self._current + 1) % (self.window.samples + 1)
            if self._current == len(ring):
                ring.append(_Sample(now_ms, now_ms))
            else:
                ring[self._current].restart(now_ms)
            sample = ring[self._current]
        sample.value += value
        sample.last_ms = now_ms

    def measure(self, now_ms: int) -> float:
        """The rate per second."""
        total, length_ms = self._read(now_ms)
        return total / (length_ms / 1000)

    def throttle_ms(self, bound: float, now_ms: int) -> int:
        """Returns the pause in milliseconds after which the rate falls to `bound`; 0 if it is no higher."""
        total, length_ms = self._read(now_ms)
        rate = total / (length_ms / 1000)
        if rate <= bound:
            return 0
        if bound <= 0:
            return LONGEST_MS
        return rounded_ms((rate - bound) / bound * length_ms)

    def is_empty(self, now_ms: int) -> bool:
        """True if nothing was recorded recently."""
        return not self._read(now_ms)[0]

    def _read(self, now_ms: int) -> tuple[float, int]:
        """Returns the sum of the samples, and the milliseconds that they cover."""
        window, total, oldest_ms = self.window, 0.0, now_ms
        for sample in self._ring:
            if now_ms - sample.last_ms >= window.length_ms:
                sample.restart(now_ms)
            total += sample.value
            oldest_ms = min(oldest_ms, sample.start_ms)
        elapsed_ms = now_ms - oldest_ms
        missing = window.samples - 1 - elapsed_ms // window.sample_ms
        return total, max(elapsed_ms + max(missing, 0) * window.sample_ms, 1)


@attrs.define(eq=False)
class TokenBucket:
    """A stock of tokens: it grows by `bound` each second, up to the tokens of a whole window.

    More may be taken than there is. The stock is negative then, and clients have to wait until it is not.
    """

    window: Window
    _tokens: float = math.inf
    """The stock; a new bucket is full."""
    _filled_ms: int = 0

    def take(self, count: float, bound: float, now_ms: int) -> None:
        """Takes tokens. Negative counts return them."""
        self._tokens = min(self.left(bound, now_ms) - count, self._most(bound))

    def left(self, bound: float, now_ms: int) -> float:
        """Returns the stock at this time."""
        since_s = (now_ms - self._filled_ms) / 1000
        self._tokens = min(self._tokens + bound * since_s, self._most(bound))
        self._filled_ms = now_ms
        return self._tokens

    def throttle_ms(self, bound: float, now_ms: int) -> int:
        """Returns the time in milliseconds until the stock is no longer negative; 0 if it is not."""
        left = self.left(bound, now_ms)
        if left >= 0:
            return 0
        return rounded_ms(-left / bound * 1000) if bound > 0 else LONGEST_MS

    def _most(self, bound: float) -> float:
        return self.window.length_ms / 1000 * bound


def rounded_ms(value: float) -> int:
    return math.floor(value + 0.5) if value < LONGEST_MS else LONGEST_MS
