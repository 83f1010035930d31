"""The fate of each record of a share group, from the reports of its members and the dead-letter topic.

A record ends once: it is accepted, or it has failed and is in the dead-letter topic. So of each record

* at most one end was confirmed: one member's accept, or a letter;
* there is one, unless a member that was killed, or lost its broker, may have accepted it without the response;
* a confirmed rejection left a letter, with the count of that delivery;
* a letter without a confirmed rejection has the count of a rejection without a response, or the limit.

Without dead letters, as in Apache Kafka 4.3.1, a confirmed rejection is an end, and one without a response may be.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import attrs

from testkit.clients.share_consumers import ACCEPT, REJECT

DELIVERY_LIMIT = 5
"""share.delivery.count.limit, as it is by default."""

Spot: TypeAlias = tuple[int, int]
"""Partition and offset."""

_Ends: TypeAlias = dict[Spot, list[int]]
"""The delivery counts with which records ended."""


class Letter(NamedTuple):
    """A record of the dead-letter topic: the position of the original record, and its delivery count."""

    spot: Spot
    delivery_count: int


@attrs.define(eq=False)
class ShareLedger:
    """The ledger of a share group. Threads of members write to it."""

    has_letters: bool = True
    deliveries: int = 0
    most_deliveries: int = 0
    accepted: _Ends = attrs.field(factory=lambda: defaultdict(list))
    rejected: _Ends = attrs.field(factory=lambda: defaultdict(list))
    _announced_accepts: set[Spot] = attrs.field(factory=set)
    _announced_rejects: _Ends = attrs.field(factory=lambda: defaultdict(list))
    _lock: threading.Lock = attrs.field(factory=threading.Lock)

    def note(self, what: str, partition: int, *words: Sequence[int]) -> None:
        """Notes a line of share_reader.py."""
        with self._lock:
            for offset, count, kind in words:
                self._note((partition, offset), count, kind, is_confirmed=what == "said")

    def _note(self, spot: Spot, count: int, kind: int, *, is_confirmed: bool) -> None:
        if not is_confirmed:
            self.deliveries += 1
            self.most_deliveries = max(self.most_deliveries, count)
        if kind == ACCEPT:
            if is_confirmed:
                self.accepted[spot].append(count)
            self._announced_accepts.add(spot)
        elif kind == REJECT:
            (self.rejected if is_confirmed else self._announced_rejects)[spot].append(count)

    def open(self, ends: Mapping[int, int], letters: Iterable[Letter]) -> list[Spot]:
        """The records before these ends of the partitions that have no end yet."""
        ended = {it.spot for it in letters}
        with self._lock:
            ended |= self.accepted.keys() | self._announced_accepts
            if not self.has_letters:
                ended |= self.rejected.keys() | self._announced_rejects.keys()
            return [
                spot
                for partition, end in ends.items()
                for offset in range(end)
                if (spot := (partition, offset)) not in ended
            ]

    def faults(self, letters: Sequence[Letter]) -> list[str]:
        """Yields violations, regardless of the kills and of what follows."""
        with self._lock:
            return list(self._faults(letters))

    def _faults(self, letters: Sequence[Letter]) -> Iterator[str]:
        if self.most_deliveries > DELIVERY_LIMIT:
            yield f"a record was delivered for the {self.most_deliveries}th time"
        of_spot: _Ends = defaultdict(list)
        for letter in letters:
            of_spot[letter.spot].append(letter.delivery_count)
        failed = of_spot if self.has_letters else self.rejected
        for spot in sorted(self.accepted.keys() | failed.keys() | self.rejected.keys()):
            accepted, ended_badly = self.accepted.get(spot, []), failed.get(spot, [])
            rejected = self.rejected.get(spot, [])
            if len(accepted) + len(ended_badly) > 1 or (accepted and rejected) or len(rejected) > 1:
                yield (
                    f"{spot} was accepted {len(accepted)} times, rejected {len(rejected)} times, "
                    f"and has {len(of_spot.get(spot, []))} dead letters"
                )
            if self.has_letters and ended_badly and (rejected or ended_badly[0] != DELIVERY_LIMIT):
                expected = rejected or self._announced_rejects.get(spot, [])
                if ended_badly[0] not in expected:
                    yield f"{spot} was rejected in the deliveries {expected}, and its dead letter says {ended_badly[0]}"

    def without_letters(self, letters: Iterable[Letter]) -> list[Spot]:
        """Records whose rejection was confirmed, and that are not in the dead-letter topic yet."""
        if not self.has_letters:
            return []
        there = {it.spot for it in letters}
        with self._lock:
            return sorted(self.rejected.keys() - there)
