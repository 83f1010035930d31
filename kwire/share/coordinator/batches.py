"""Combines state batches: each offset has the state of the highest rank that was ever written for it.

The rank is the delivery count, then the delivery state. So writes may be repeated, and their order does not matter, as
long as the leader never undoes a delivery. Offsets below the start offset are cut off. Adjacent batches of the same
state are merged. Kafka's `PersisterStateBatchCombiner`, except:

* A batch whose last offset is before its first holds no offset, and is dropped. Kafka stores one such batch, and never
  returns from combining two.
* Kafka leaves a few adjacent batches of the same state apart, depending on the order of its steps.

A state has thousands of batches at most, and a write usually touches the last of them. So only the batches that a
write overlaps or adjoins are combined; the others are copied.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from heapq import heappop, heappush
from itertools import pairwise
from operator import attrgetter
from typing import Final

from kwire.share.coordinator.state import UNINITIALIZED_START_OFFSET, StateBatch

_last_offset: Final = attrgetter("last_offset")
_first_offset: Final = attrgetter("first_offset")


def combined(
    so_far: Sequence[StateBatch], written: Iterable[StateBatch], start_offset: int = UNINITIALIZED_START_OFFSET
) -> tuple[StateBatch, ...]:
    """Returns the combined batches. `so_far` is sorted and disjoint, as is the result; `written` may be in any order,
    and overlap.

    Takes O(written x log(written)), and the same for the batches of `so_far` that `written` overlaps or adjoins.
    """
    new = [batch for batch in written if batch.first_offset <= batch.last_offset]
    if start_offset != UNINITIALIZED_START_OFFSET:
        # Since it is sorted, only the batch at the start offset can be cut.
        pruned = bisect_left(so_far, start_offset, key=_last_offset)
        so_far, new = (*_cut(so_far[pruned : pruned + 1], start_offset), *so_far[pruned + 1 :]), _cut(new, start_offset)
    if not new:
        return tuple(so_far)
    # Adjacent batches are included: they may have the same state.
    lowest = bisect_left(so_far, min(batch.first_offset for batch in new) - 1, key=_last_offset)
    above = bisect_left(so_far, max(batch.last_offset for batch in new) + 2, key=_first_offset)
    met = [*so_far[lowest:above], *new]
    return (*so_far[:lowest], *(met if len(met) == 1 else _swept(met)), *so_far[above:])


def _cut(batches: Iterable[StateBatch], start_offset: int) -> list[StateBatch]:
    return [
        batch if batch.first_offset >= start_offset else batch._replace(first_offset=start_offset)
        for batch in batches
        if batch.last_offset >= start_offset
    ]


def _swept(batches: list[StateBatch]) -> list[StateBatch]:
    """Sweeps the offsets at which batches begin or end. Of overlapping batches, the highest rank counts."""
    batches.sort(key=_first_offset)
    edges = sorted({edge for batch in batches for edge in (batch.first_offset, batch.last_offset + 1)})
    result: list[StateBatch] = []
    here: list[tuple[int, int, int]] = []
    """A heap of the batches that have begun, the highest rank first: negated count and state, and the last offset."""
    waiting = iter(batches)
    following = next(waiting, None)
    for edge, next_edge in pairwise(edges):
        while following is not None and following.first_offset == edge:
            heappush(here, (-following.delivery_count, -following.delivery_state, following.last_offset))
            following = next(waiting, None)
        while here and here[0][2] < edge:
            heappop(here)
        if here:
            _add(result, StateBatch(edge, next_edge - 1, -here[0][1], -here[0][0]))
    return result


def _add(batches: list[StateBatch], batch: StateBatch) -> None:
    if batches and batches[-1].last_offset + 1 == batch.first_offset and batches[-1].rank == batch.rank:
        batches[-1] = batches[-1]._replace(last_offset=batch.last_offset)
    else:
        batches.append(batch)
