"""What clients were told, and what the cluster must have by that: pure, tests hand it numbers.

Each producer has a topic of its own. `found` is what the partitions of the topic have in the end, values by offset.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import attrs

Found = Sequence[Mapping[int, bytes]]
Spot = tuple[str, int]
"""Topic and partition."""


@attrs.define(eq=False)
class Acknowledged:
    """Of a producer that writes increasing numbers."""

    partitions: int
    values: list[dict[int, bytes]] = attrs.field(init=False)
    """Of each partition, by offset."""
    values_somewhere: list[set[bytes]] = attrs.field(init=False)
    """Of each partition: acknowledged, but the producer could not say where. Its retry found the record there."""
    errors: list[str] = attrs.field(factory=list)
    longest_wait_s: float = 0.0
    count: int = 0

    def __attrs_post_init__(self) -> None:
        self.values = [{} for _ in range(self.partitions)]
        self.values_somewhere = [set() for _ in range(self.partitions)]

    def acknowledge(self, partition: int, offset: int | None, value: bytes, waited_s: float) -> None:
        if offset is None:
            self.values_somewhere[partition].add(value)
        elif offset in self.values[partition]:
            self.errors.append(f"offset {offset} of partition {partition} was acknowledged twice")
        else:
            self.values[partition][offset] = value
        self.longest_wait_s = max(self.longest_wait_s, waited_s)
        self.count += 1

    def complaints(self, found: Found) -> Iterator[str]:
        yield from (f"the producer was told {it}" for it in self.errors)
        for partition, (acknowledged, values) in enumerate(zip(self.values, found, strict=True)):
            somewhere = self.values_somewhere[partition]
            if missing := somewhere - {*values.values()}:
                yield f"partition {partition} has lost {len(missing)} acknowledged records, such as {min(missing)!r}"
            if lost := acknowledged.keys() - values.keys():
                yield f"partition {partition} has lost {len(lost)} acknowledged records, such as offset {min(lost)}"
            if extra := {it for it in values.keys() - acknowledged.keys() if values[it] not in somewhere}:
                yield f"partition {partition} has {len(extra)} records that nobody was told of, such as {min(extra)}"
            if changed := {it for it in acknowledged.keys() & values.keys() if acknowledged[it] != values[it]}:
                yield f"partition {partition} has another record than was acknowledged at {min(changed)}"
            numbers = [int(values[offset]) for offset in sorted(values)]
            if len(numbers) != len(set(numbers)):
                yield f"partition {partition} has records twice"
            elif numbers != sorted(numbers):
                yield f"the records of partition {partition} are out of order"


@attrs.define(eq=False)
class Decided:
    """Of a transactional producer that writes each number to every partition."""

    committed: set[bytes] = attrs.field(factory=set)
    aborted: set[bytes] = attrs.field(factory=set)
    unknown: set[bytes] = attrs.field(factory=set)
    """The client could not tell what became of it: it is committed everywhere, or nowhere."""
    errors: list[str] = attrs.field(factory=list)
    longest_wait_s: float = 0.0
    """For a commit."""

    @property
    def count(self) -> int:
        return len(self.committed)

    def commit(self, value: bytes, waited_s: float) -> None:
        self.committed.add(value)
        self.longest_wait_s = max(self.longest_wait_s, waited_s)

    def complaints(self, found: Found) -> Iterator[str]:
        for partition, values in enumerate(found):
            numbers = [int(values[offset]) for offset in sorted(values)]
            seen = set(values.values())
            if len(numbers) != len(seen):
                yield f"partition {partition} has a transaction's record twice"
            elif numbers != sorted(numbers):
                yield f"the transactions of partition {partition} are out of order"
            if lost := self.committed - seen:
                yield f"partition {partition} has lost {len(lost)} committed transactions, such as {min(lost)!r}"
            if extra := seen - self.committed - self.unknown:
                yield f"partition {partition} has {len(extra)} transactions that did not commit, such as {min(extra)!r}"
            if seen != set(found[0].values()):
                yield f"partition {partition} has other transactions than partition 0"


@attrs.define(eq=False)
class Group:
    """Of the members of a group, which commit what they have read. Offsets of commits are those to go on at."""

    delivered: dict[Spot, set[int]] = attrs.field(factory=lambda: defaultdict(set))
    committed: dict[Spot, int] = attrs.field(factory=dict)
    errors: list[str] = attrs.field(factory=list)
    _lock: threading.Lock = attrs.field(factory=threading.Lock)

    @property
    def count(self) -> int:
        return sum(self.committed.values())

    def deliver(self, spot: Spot, offset: int) -> None:
        with self._lock:
            self.delivered[spot].add(offset)

    def commit(self, spot: Spot, offset: int) -> None:
        """It was acknowledged."""
        with self._lock:
            self.committed[spot] = max(self.committed.get(spot, 0), offset)

    def acknowledged_commits(self) -> dict[Spot, int]:
        with self._lock:
            return dict(self.committed)

    def is_behind(self, found: Mapping[Spot, Mapping[int, bytes]]) -> bool:
        """Whether records are left to read, or to commit."""
        committed = self.acknowledged_commits()
        return any(values and committed.get(spot, 0) <= max(values) for spot, values in found.items())

    @staticmethod
    def lost_commits(acknowledged: Mapping[Spot, int], found: Mapping[Spot, int]) -> Iterator[str]:
        """`acknowledged` is of before the coordinator was asked for `found`."""
        for spot, offset in acknowledged.items():
            if found.get(spot, -1) < offset:
                yield f"the commit of {offset} for {spot} was acknowledged, and the group is at {found.get(spot)}"

    def complaints(self, found: Mapping[Spot, Mapping[int, bytes]]) -> Iterator[str]:
        """`found` by spot, when the group is not behind any more."""
        yield from (f"a member was told {it}" for it in self.errors)
        for spot, values in found.items():
            if missed := values.keys() - self.delivered[spot]:
                yield f"no member was given {len(missed)} records of {spot}, such as offset {min(missed)}"
            if extra := self.delivered[spot] - values.keys():
                yield f"members were given {len(extra)} records of {spot} that are not there, such as {min(extra)}"
