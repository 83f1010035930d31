"""The maximum size of a stream's micro-batch, and the time when it may begin. Sizes are in offsets. Pure.

The rules are those of Spark's Kafka connector. `maxOffsetsPerTrigger` is divided among the partitions in proportion to
their unread offsets. `minOffsetsPerTrigger` delays a batch until there are so many, or until `maxTriggerDelay` is over.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import attrs

from kwire.client.cluster import TopicPartition
from kwire.pipeline.spark_source.positions import Positions


def limited(start: Positions, latest: Positions, most: int) -> dict[TopicPartition, int]:
    """The end of a batch of about `most` offsets. Each partition of `latest` has its share, and at least one offset.

    `start` also has new partitions, with their first offsets.
    """
    sizes = {at: end - start[at] for at, end in latest.items() if at in start and end > start[at]}
    total = sum(sizes.values())
    if not total:
        return dict(latest)
    ends = dict(latest)
    for at, size in sizes.items():
        share = most * (size / total)
        # A small partition is not starved: its share is at least one.
        ends[at] = min(latest[at], start[at] + (math.ceil(share) if share < 1 else math.floor(share)))
    return ends


@attrs.define
class Patience:
    """Decides whether a batch waits for more offsets.

    least: with this many offsets a batch begins at once.
    longest_ms: after this time without a batch it begins with the offsets that exist.
    """

    least: int
    longest_ms: int
    _batch_at_ms: int | None = None

    def is_over(self, start: Positions, latest: Mapping[TopicPartition, int], *, now_ms: int) -> bool:
        """Returns True if a batch begins now. The first one does not wait."""
        waited_ms = None if self._batch_at_ms is None else now_ms - self._batch_at_ms
        there = sum(end - start.get(at, 0) for at, end in latest.items())
        if waited_ms is not None and waited_ms < self.longest_ms and there < self.least:
            return False
        self._batch_at_ms = now_ms
        return True
