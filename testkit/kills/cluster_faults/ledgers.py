"""The answers to clients, and the records that the cluster must have because of them: pure, tests pass it numbers.

Each producer has a topic of its own. `found` are the values in the topic's partitions in the end, by offset.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import attrs

Found = Sequence[Mapping[int, bytes]]


@attrs.define(eq=False)
class Acknowledged:
    """The ledger of a producer that writes increasing numbers."""

    partitions: int
    values: list[dict[int, bytes]] = attrs.field(init=False)
    """The acknowledged values of each partition, by offset."""
    values_somewhere: list[set[bytes]] = attrs.field(init=False)
    """The values of each partition that were acknowledged without an offset. The producer's retry found the record
    there.
    """
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
    """The ledger of a transactional producer that writes each number to every partition."""

    committed: set[bytes] = attrs.field(factory=set)
    aborted: set[bytes] = attrs.field(factory=set)
    unknown: set[bytes] = attrs.field(factory=set)
    """The numbers whose outcome the client does not have: each is committed everywhere, or nowhere."""
    errors: list[str] = attrs.field(factory=list)
    longest_wait_s: float = 0.0
    """The longest wait for a commit."""

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
