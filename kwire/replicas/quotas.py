"""The quotas of replication on the brokers' network and disks (KIP-73). Pure: `now_ms` is monotonic.

    record(size)    bytes of throttled replicas have been sent, fetched, or copied
    is_exceeded     the rate was higher than the limit: throttled replicas that are not in sync must wait
    free_at_ms      until then

As in Kafka's ReplicationQuotaManager: the rate is measured over the last samples, from the start of the first of them
to now, but over one sample at least. The size of a response is not known in advance, so one may exceed the limit, and
the responses after it wait. Samples are forgotten, so a replica waits for `samples` times their length at most, and
makes progress at any limit.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

import attrs

UNLIMITED: Final = 2**63 - 1

MOST_SAMPLES: Final = 1000
"""The maximum number of samples. If more are configured, they are longer, for the same time in all."""


@attrs.define(eq=False)
class ReplicationQuota:
    """`limit` returns the current rate in bytes per second. It is measured over `samples` of `sample_ms` each."""

    limit: Callable[[], int]
    samples: int = 11
    sample_ms: int = 1000
    _taken: deque[list[int]] = attrs.field(factory=deque, init=False)
    """The start of each sample, in ms, and its bytes; the oldest first."""

    def __attrs_post_init__(self) -> None:
        if self.samples > MOST_SAMPLES:
            self.sample_ms = -(-self.samples * self.sample_ms // MOST_SAMPLES)
            self.samples = MOST_SAMPLES

    def record(self, size: int, now_ms: int) -> None:
        """Counts bytes of throttled replicas, whether or not these are in sync."""
        self._forget(now_ms)
        if not self._taken or now_ms - self._taken[-1][0] >= self.sample_ms:
            self._taken.append([now_ms, 0])
        self._taken[-1][1] += size

    def is_exceeded(self, now_ms: int) -> bool:
        """True if more than the limit was recorded in the last samples."""
        limit = self.limit()
        if limit >= UNLIMITED:
            return False
        self._forget(now_ms)
        if not self._taken:
            return False
        return sum(size for _, size in self._taken) * 1000 > limit * max(now_ms - self._taken[0][0], self.sample_ms)

    def free_at_ms(self) -> int:
        """The time after which the limit is not exceeded, if nothing else is recorded; 0 if nothing is."""
        limit, left_bytes, at_ms = self.limit(), sum(size for _, size in self._taken), 0
        for began_ms, size in self._taken:
            forgotten_ms = began_ms + self.samples * self.sample_ms
            if limit:
                enough_ms = max(-(-left_bytes * 1000 // limit), 0)
                if enough_ms <= self.sample_ms:
                    return at_ms
                if began_ms + enough_ms < forgotten_ms:
                    return max(at_ms, began_ms + enough_ms)
            elif not left_bytes:
                return at_ms
            left_bytes -= size
            at_ms = forgotten_ms
        return at_ms

    def _forget(self, now_ms: int) -> None:
        while self._taken and now_ms - self._taken[0][0] >= self.samples * self.sample_ms:
            self._taken.popleft()


def _unlimited() -> int:
    return UNLIMITED


def no_quota() -> ReplicationQuota:
    return ReplicationQuota(_unlimited)


@attrs.frozen
class ThrottledReplicas:
    """The replicas that a quota is for: a topic's leader. or follower.replication.throttled.replicas."""

    pairs: frozenset[tuple[int, int]] = frozenset()
    """Partition and node id."""
    are_all: bool = False

    @classmethod
    def parse(cls, value: Iterable[str]) -> ThrottledReplicas:
        """Parses `*`, or `partition:broker` pairs; some of them may be empty."""
        pairs = [it.partition(":") for it in value if it]
        if any(partition == "*" for partition, _, _ in pairs):
            return ALL_REPLICAS
        return cls(frozenset((int(partition), int(node_id)) for partition, _, node_id in pairs))

    def has(self, index: int, node_id: int) -> bool:
        """True if that broker's replica of the partition is one of them."""
        return self.are_all or (index, node_id) in self.pairs


NO_REPLICAS: Final = ThrottledReplicas()
ALL_REPLICAS: Final = ThrottledReplicas(are_all=True)
