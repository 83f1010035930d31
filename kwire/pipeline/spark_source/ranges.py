"""The range of a partition's offsets that one task reads, and the division of the offsets among tasks.

The rules are those of Spark's Kafka connector, so that a query has the same tasks with either:

* Each partition with something to read is one range.
* maxRecordsPerPartition splits a longer range into as many equal pieces as needed.
* If there are fewer ranges than minPartitions, the long ones are split in proportion. A partition whose share is one
  piece stays whole, and the others share the remaining pieces.

Offsets are counted, not records: a compacted partition may have far fewer records.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

import attrs

from kwire.client.cluster import TopicPartition


@attrs.frozen
class OffsetRange:
    """The records of `at` from offset `start` to before `stop`."""

    at: TopicPartition
    start: int
    stop: int

    @property
    def size(self) -> int:
        return self.stop - self.start


def split(
    ranges: Iterable[OffsetRange], *, min_partitions: int | None = None, max_records: int | None = None
) -> list[OffsetRange]:
    """The ranges of the tasks, in order; none is empty."""
    found = sorted((it for it in ranges if it.size > 0), key=lambda it: (it.at, it.start))
    if max_records is not None:
        found = [piece for it in found for piece in _pieces(it, -(-it.size // max_records))]
    if min_partitions is not None and min_partitions > len(found):
        found = _split_to(found, min_partitions)
    return found


def _split_to(ranges: Sequence[OffsetRange], wanted: int) -> list[OffsetRange]:
    total = sum(it.size for it in ranges)
    whole = [it for it in ranges if _share(it.size, total, wanted) == 1]
    left = total - sum(it.size for it in whole)
    left_wanted = max(wanted - len(whole), 1)
    found: list[OffsetRange] = []
    for it in ranges:
        found += [it] if it in whole else _pieces(it, _share(it.size, left, left_wanted))
    return found


def _share(size: int, total: int, wanted: int) -> int:
    """This range's share of the wanted pieces; a half rounds up."""
    return max((2 * size * wanted + total) // (2 * total), 1)


def _pieces(it: OffsetRange, count: int) -> list[OffsetRange]:
    """Splits a range into pieces that are as equal as possible, the longer ones last."""
    bounds = [it.start]
    for left in range(count, 0, -1):
        bounds.append(bounds[-1] + (it.stop - bounds[-1]) // left)
    return [OffsetRange(it.at, start, stop) for start, stop in pairwise(bounds) if start < stop]
