"""The transactions that were begun and ended, and the records that a reader of committed records must get. Has no
client.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

import attrs

from testkit.kills.group_ledger import Spot
from testkit.kills.sigkill.ledger import Mark

Complain = Callable[[str], None]


@attrs.frozen
class Began:
    """A transaction is about to write one record to each of `spots`, and then to commit, or not."""

    producer: int
    number: int
    spots: tuple[Spot, ...]
    commits: bool


@attrs.frozen
class Ended:
    """The transaction ended as requested, and its producer got the response."""

    producer: int
    number: int


@attrs.define(eq=False)
class Transactions:
    complain: Complain
    _begun: dict[Mark, Began] = attrs.field(factory=dict)
    _ended: set[Mark] = attrs.field(factory=set)

    def begin(self, began: Began) -> None:
        self._begun[Mark(began.producer, began.number)] = began

    def end(self, ended: Ended) -> None:
        self._ended.add(Mark(ended.producer, ended.number))

    def next_number(self, producer: int) -> int:
        return max((mark.sequence for mark in self._begun if mark.producer == producer), default=-1) + 1

    def check(
        self, records: dict[Spot, list[Mark]], balances: Iterable[Mark], group_offsets: dict[int, int | None]
    ) -> int:
        """Everything is at rest, and this was read: of each partition, and of the compacted one, in order.

        `group_offsets` are what was committed, by producer. Returns how many transactions were committed.
        """
        seen: dict[Mark, Counter[Spot]] = {}
        for spot, marks in records.items():
            last: dict[int, int] = {}
            for mark in marks:
                if mark.sequence <= last.get(mark.producer, -1):
                    self.complain(f"{spot} has {mark} behind {last[mark.producer]}")
                last[mark.producer] = mark.sequence
                seen.setdefault(mark, Counter())[spot] += 1
        for mark, spots in seen.items():
            began = self._begun.get(mark)
            if began is None or not began.commits:
                self.complain(f"{mark} is seen in {dict(spots)}, but {began} was never to be committed")
            elif spots != Counter(began.spots):
                self.complain(f"{mark} is seen in {dict(spots)}, and was to be in each of {began.spots} once")
        for mark in self._ended:
            if self._begun[mark].commits and mark not in seen:
                self.complain(f"{mark} was committed, and is not seen at all")
        latest: dict[int, int] = {}
        for mark in seen:
            latest[mark.producer] = max(latest.get(mark.producer, -1), mark.sequence)
        balance: dict[int, int] = {}
        for mark in balances:
            if mark not in seen:
                self.complain(f"the compacted topic has {mark}, of a transaction that is not seen elsewhere")
            balance[mark.producer] = mark.sequence
        for producer, number in latest.items():
            if balance.get(producer) != number:
                self.complain(
                    f"the last transaction of {producer} is {number}, and the compacted topic has "
                    f"{balance.get(producer)}"
                )
            if group_offsets.get(producer) != number:
                self.complain(
                    f"the last transaction of {producer} is {number}, and the offset of its group "
                    f"{group_offsets.get(producer)}"
                )
        return len(seen)
