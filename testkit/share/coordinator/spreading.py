"""State batches spread out over their offsets."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from kwire.share.coordinator.state import StateBatch

Offsets = dict[int, tuple[int, int]]
"""Delivery count and state by offset: the slow and obvious form."""


def spread(batches: Iterable[StateBatch]) -> Offsets:
    offsets: Offsets = {}
    for batch in batches:
        for offset in range(batch.first_offset, batch.last_offset + 1):
            offsets[offset] = max(offsets.get(offset, batch.rank), batch.rank)
    return offsets


def assert_is_normal(batches: tuple[StateBatch, ...]) -> None:
    """Sorted, disjoint, and not longer than it has to be."""
    assert all(batch.first_offset <= batch.last_offset for batch in batches)
    for before, after in pairwise(batches):
        assert before.last_offset < after.first_offset
        assert before.last_offset + 1 < after.first_offset or before.rank != after.rank
