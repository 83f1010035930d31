"""How much one micro-batch of a stream may hold, and whether it is worth one yet. Counted in offsets. Pure.

The rules are those of Spark's Kafka connector: `maxOffsetsPerTrigger` is shared out to partitions in proportion to what
each has to be read; `minOffsetsPerTrigger` holds a batch back until there are so many, or `maxTriggerDelay` is over.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import attrs

from kwire.client.cluster import TopicPartition
from kwire.pipeline.spark_source.positions import Positions


def limited(start: Positions, latest: Positions, most: int) -> dict[TopicPartition, int]:
    """Where a batch ends that holds about `most` offsets: each partition of `latest` has its share, and one at least.

    `start` has the partitions that are new, too, with their first offsets.
    """
    sizes = {at: end - start[at] for at, end in latest.items() if at in start and end > start[at]}
    total = sum(sizes.values())
    if not total:
        return dict(latest)
    ends = dict(latest)
    for at, size in sizes.items():
        share = most * (size / total)
        # A small partition is not starved: less than one is one.
        ends[at] = min(latest[at], start[at] + (math.ceil(share) if share < 1 else math.floor(share)))
    return ends


@attrs.define
class Patience:
    """Whether a batch is to wait for more.

    least: so many offsets make a batch at once.
    longest_ms: after so long without a batch whatever there is makes one.
    """

    least: int
    longest_ms: int
    _batch_at_ms: int | None = None

    def is_over(self, start: Positions, latest: Mapping[TopicPartition, int], *, now_ms: int) -> bool:
        """Whether there shall be a batch now. The first one does not wait."""
        waited_ms = None if self._batch_at_ms is None else now_ms - self._batch_at_ms
        there = sum(end - start.get(at, 0) for at, end in latest.items())
        if waited_ms is not None and waited_ms < self.longest_ms and there < self.least:
            return False
        self._batch_at_ms = now_ms
        return True
