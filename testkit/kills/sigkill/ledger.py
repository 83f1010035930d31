"""The acknowledgements, and the log that must follow from them.

Every record names its producer and its number among that producer's records of the partition, so that a log alone shows
if a record is missing, duplicated or out of order. The ledger has no client and no broker: tests pass it numbers. Its
findings are in `complaints`.
"""

from __future__ import annotations

import struct
import threading
import zlib
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

import attrs

from testkit.kills.complaints import Complaints
from testkit.kills.group_ledger import GroupLedger, Spot

_HEAD = struct.Struct(">IIII")


class Mark(NamedTuple):
    """A record's identity: the producer's number, and its place among those it sent to the partition, from 0."""

    producer: int
    sequence: int

    def value(self, filling: bytes) -> bytes:
        """The record's value: the mark, and filling with its CRC."""
        return _HEAD.pack(*self, len(filling), zlib.crc32(filling)) + filling

    @classmethod
    def of(cls, value: bytes) -> Mark:
        """Raises ValueError when these are not the bytes that were sent."""
        try:
            producer, sequence, size, crc = _HEAD.unpack_from(value)
        except struct.error as error:
            raise ValueError(str(error)) from None
        filling = value[_HEAD.size :]
        if len(filling) != size or zlib.crc32(filling) != crc:
            raise ValueError(f"the filling of record {sequence} of producer {producer} has changed")
        return cls(producer, sequence)


@attrs.define(eq=False)
class Ledger:
    """Written to from several threads."""

    sent: Counter[tuple[Spot, int]] = attrs.field(factory=Counter)
    known: dict[Spot, dict[int, Mark]] = attrs.field(factory=lambda: defaultdict(dict))
    """The records by offset, from acknowledgements: each must stay there for ever."""
    acknowledged: Counter[Spot] = attrs.field(factory=Counter)
    group: GroupLedger = attrs.field(factory=GroupLedger)
    complaints: Complaints = attrs.field(factory=Complaints)
    _ends: Counter[Spot] = attrs.field(factory=Counter)
    _lock: threading.Lock = attrs.field(factory=threading.Lock)

    def complain(self, what: str) -> None:
        self.complaints.add(what)

    # -- what happens

    def next_mark(self, spot: Spot, producer: int) -> Mark:
        """Returns the mark of a record that is about to be sent."""
        sequence = self.sent[spot, producer]
        self.sent[spot, producer] = sequence + 1
        return Mark(producer, sequence)

    def acknowledge(self, spot: Spot, offset: int, mark: Mark) -> None:
        with self._lock:
            self.acknowledged[spot] += 1
            self._is_at(spot, offset, mark, "was acknowledged")

    def deliver(self, spot: Spot, offset: int, value: bytes) -> None:
        try:
            mark = Mark.of(value)
        except ValueError as error:
            self.complain(f"{_text(spot)} at {offset}, delivered: {error}")
            return
        self.group.deliver(spot, offset)
        with self._lock:
            self._is_at(spot, offset, mark, "was delivered")

    def _is_at(self, spot: Spot, offset: int, mark: Mark, how: str) -> None:
        self._ends[spot] = max(self._ends[spot], offset + 1)
        known = self.known[spot].setdefault(offset, mark)
        if known != mark:
            self.complain(f"{_text(spot)} at {offset}: {mark} {how} where {known} had been")

    # -- what must be so after a start

    def end_of(self, spot: Spot) -> int:
        """Returns the lowest possible end of the log, from acknowledgements."""
        return self._ends[spot]

    def check_end(self, spot: Spot, known: int, found: int) -> None:
        """Checks the log's end. `known` is the result of `end_of` before the request."""
        if found < known:
            self.complain(f"{_text(spot)} ends at {found}, but clients know of records up to {known}")

    def check_committed(self, known: Mapping[Spot, int], found: Mapping[Spot, int]) -> None:
        """Checks the committed offsets. `known` is the state of the group's ledger before the request."""
        self.complaints.add_all(self.group.lost(known, found))
        self.complaints.add_all(self.group.ahead(found))

    # -- what must be so in the end

    def check_log(
        self,
        spot: Spot,
        end_offset: int,
        records: Iterable[tuple[int, bytes]],
        *,
        killed: Collection[int] = (),
        is_consumed: bool = True,
    ) -> int:
        """Compares a whole partition with the acknowledgements, when the producers' queues are empty; returns the
        records.

        The number of records of the `killed` producers is unknown. A group has had all records if it `is_consumed`.
        """
        found: dict[int, Mark] = {}
        behind: Counter[int] = Counter()
        for index, (offset, value) in enumerate(records):
            if offset != index:
                self.complain(f"{_text(spot)} has offset {offset} where {index} was to come")
            try:
                mark = found[offset] = Mark.of(value)
            except ValueError as error:
                self.complain(f"{_text(spot)} at {offset}: {error}")
                continue
            wanted = behind[mark.producer]
            if mark.sequence < wanted:
                self.complain(f"{_text(spot)} at {offset}: {mark} comes twice, or late: {wanted} was to come")
            elif mark.sequence > wanted:
                self.complain(f"{_text(spot)} at {offset}: {mark} where {wanted} was to come: some are lost, or late")
            behind[mark.producer] = max(wanted, mark.sequence + 1)
        for (where, producer), count in self.sent.items():
            if where == spot and producer not in killed and behind[producer] != count:
                self.complain(f"{_text(spot)} has {behind[producer]} records of producer {producer}, not {count}")
        for offset, mark in self.known[spot].items():
            if found.get(offset) != mark:
                self.complain(f"{_text(spot)} at {offset}: {found.get(offset)}, but clients were told {mark}")
        if end_offset != len(found):
            self.complain(f"{_text(spot)} ends at {end_offset}, but has {len(found)} records")
        missed = found.keys() - self.group.delivered[spot] if is_consumed else set()
        if missed:
            self.complain(f"{_text(spot)}: the group was never given {len(missed)} records, such as {min(missed)}")
        return len(found)


def _text(spot: Spot) -> str:
    return f"{spot[0]}-{spot[1]}"
