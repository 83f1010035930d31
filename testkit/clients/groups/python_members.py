"""The parts that members of kafka-python and aiokafka share: both clients have the same listeners and batches."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from testkit.basics.waiting import Deadline
from testkit.clients.groups.client import GIVEN, TAKEN, Taken


class ChangeListener:
    """The methods of a ConsumerRebalanceListener: adds what is given and taken to `changes`."""

    def __init__(self, changes: list[tuple[str, list[int]]]) -> None:
        self._changes = changes

    def on_partitions_revoked(self, revoked: Collection[Any]) -> None:
        self._changes.append((TAKEN, sorted(it.partition for it in revoked)))

    def on_partitions_assigned(self, assigned: Collection[Any]) -> None:
        self._changes.append((GIVEN, sorted(it.partition for it in assigned)))


def records_of(batches: Mapping[Any, Collection[Any]]) -> list[Taken]:
    """Returns the records that a poll has returned by partition."""
    return [Taken(it.partition, it.offset, it.value) for batch in batches.values() for it in batch]


def take(poll: Callable[[int], list[Taken]], count: int) -> list[Taken]:
    """Polls until there are `count` records. `poll` gets the number of records that it may return."""
    records: list[Taken] = []
    deadline = Deadline()
    while len(records) < count and deadline.not_over(f"{count} records; got {records}"):
        records += poll(count - len(records))
    return records
