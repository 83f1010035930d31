"""The records that members of a group got, and the offsets that they committed: pure, tests pass it numbers.

Committed offsets are those of the next record. A coordinator is queried after the ledger: `known` is the ledger's state
before that, and `found` is the answer.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import TypeAlias

import attrs

Spot: TypeAlias = tuple[str, int]
"""Topic and partition."""


@attrs.define(eq=False)
class GroupLedger:
    """Members write to it from threads of their own."""

    delivered: dict[Spot, set[int]] = attrs.field(factory=lambda: defaultdict(set))
    deliveries: int = 0
    positions: dict[Spot, int] = attrs.field(factory=dict)
    """Behind the last record that any member was given."""
    committed: dict[Spot, int] = attrs.field(factory=dict)
    """The highest offset whose commit was acknowledged."""
    errors: list[str] = attrs.field(factory=list)
    """The errors of members, none of which they should have got."""
    _lock: threading.Lock = attrs.field(factory=threading.Lock)

    @property
    def count(self) -> int:
        """Grows with each commit."""
        return sum(self.committed.values())

    # -- what happens

    def deliver(self, spot: Spot, *offsets: int) -> None:
        with self._lock:
            self.deliveries += len(offsets)
            self.delivered[spot].update(offsets)
        self.go_to(spot, max(offsets) + 1)

    def go_to(self, spot: Spot, position: int) -> None:
        """A member was given what is before this."""
        with self._lock:
            self.positions[spot] = max(self.positions.get(spot, 0), position)

    def commit(self, offsets: Mapping[Spot, int]) -> None:
        """It was acknowledged."""
        with self._lock:
            for spot, offset in offsets.items():
                self.committed[spot] = max(self.committed.get(spot, 0), offset)

    # -- what must be so at any time

    def known(self) -> dict[Spot, int]:
        """The commits that were acknowledged so far."""
        with self._lock:
            return dict(self.committed)

    @staticmethod
    def lost(known: Mapping[Spot, int], found: Mapping[Spot, int]) -> Iterator[str]:
        for spot, offset in known.items():
            if found.get(spot, -1) < offset:
                yield f"the commit of {offset} for {spot} was acknowledged, and the group is at {found.get(spot)}"

    def ahead(self, found: Mapping[Spot, int]) -> Iterator[str]:
        """Yields commits beyond the read records. Not for readers of committed records: their position passes markers,
        too.
        """
        for spot, offset in found.items():
            if offset > self.positions.get(spot, 0):
                yield f"the group is at {offset} of {spot}, but was given {self.positions.get(spot, 0)} only"

    def missing(self, spot: Spot, end: int) -> list[int]:
        """The offsets before `end` that no member was given."""
        with self._lock:
            return sorted(set(range(end)) - self.delivered[spot])

    # -- what must be so in the end; `found` are the records of each partition, by offset

    def is_behind(self, found: Mapping[Spot, Mapping[int, bytes]]) -> bool:
        """True if records are left to read, or to commit."""
        committed = self.known()
        return any(values and committed.get(spot, 0) <= max(values) for spot, values in found.items())

    def complaints(self, found: Mapping[Spot, Mapping[int, bytes]]) -> Iterator[str]:
        """Yields the complaints, when the group is not behind any more."""
        yield from (f"a member was told {it}" for it in self.errors)
        for spot, values in found.items():
            if missed := values.keys() - self.delivered[spot]:
                yield f"no member was given {len(missed)} records of {spot}, such as offset {min(missed)}"
            if extra := self.delivered[spot] - values.keys():
                yield f"members were given {len(extra)} records of {spot} that are not there, such as {min(extra)}"
