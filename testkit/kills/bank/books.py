"""The orders, and the bookings that must be seen of them. Has no client, no broker and no clock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import attrs

from testkit.kills.complaints import Complaints


class Order(NamedTuple):
    number: int
    payer: int
    payee: int
    amount: int

    def value(self) -> bytes:
        return b"%d %d %d %d" % self

    @classmethod
    def of(cls, value: bytes) -> Order:
        return cls(*map(int, value.split()))

    def halves(self) -> tuple[Half, Half]:
        return Half(self.number, self.payer, -self.amount), Half(self.number, self.payee, self.amount)


class Half(NamedTuple):
    """One of the two records of an order."""

    number: int
    account: int
    amount: int

    def value(self) -> bytes:
        return b"%d %d %d" % self

    @classmethod
    def of(cls, value: bytes) -> Half:
        return cls(*map(int, value.split()))


@attrs.define(eq=False)
class Books:
    """Order `n` is the record at offset `n // partitions` of partition `n % partitions`.

    What is wrong goes into `complaints`.
    """

    partitions: int
    orders: dict[int, Order] = attrs.field(factory=dict)
    booked: Counter[int] = attrs.field(factory=Counter)
    """The number of orders of which both halves were seen, by partition."""
    balances: Counter[int] = attrs.field(factory=Counter)
    longest_wait_s: float = 0.0
    """The longest wait for the second half of an order, once the first was seen."""
    complaints: Complaints = attrs.field(factory=Complaints)
    _halves: dict[int, list[Half]] = attrs.field(factory=dict)
    _waiting: dict[int, float] = attrs.field(factory=dict)
    """The times since which only one half of an order has been seen."""

    def complain(self, what: str) -> None:
        self.complaints.add(what)

    @property
    def done(self) -> int:
        return self.booked.total()

    @property
    def total(self) -> int:
        return self.balances.total()

    def order(self, order: Order) -> None:
        self.orders[order.number] = order

    def see(self, half: Half, now_s: float) -> None:
        """A reader of read_committed was given this."""
        order = self.orders.get(half.number)
        if order is None or half not in order.halves():
            self.complain(f"{half} is of no order: {order}")
            return
        halves = self._halves.setdefault(half.number, [])
        if half in halves:
            self.complain(f"{half} is seen twice")
            return
        halves.append(half)
        self.balances[half.account] += half.amount
        if len(halves) == 1:
            self._waiting[half.number] = now_s
        else:
            self.longest_wait_s = max(self.longest_wait_s, now_s - self._waiting.pop(half.number))
            self.booked[half.number % self.partitions] += 1

    def restart_waits(self, now_s: float) -> None:
        """Restarts the waits, because the broker was down, or nothing was read, until now."""
        self._waiting = dict.fromkeys(self._waiting, now_s)

    def check_waits(self, now_s: float, longest_s: float) -> None:
        """No half may have been seen for so long without the other."""
        for number, since_s in self._waiting.items():
            if now_s - since_s > longest_s:
                self.complain(f"of {self.orders[number]} one half is seen for {now_s - since_s:.1f} s, the other not")

    def check_at_rest(self, offsets: Sequence[int]) -> None:
        """Checks whole orders, and those that the tellers have not booked. No teller is at work, no transaction is
        open, and everything was read.

        `offsets` are the committed offsets by partition; -1 for none.
        """
        for number in self._waiting:
            self.complain(f"of {self.orders[number]} only one half was booked")
        if self.total:
            self.complain(f"the sum of all accounts is {self.total}, not 0")
        for partition, offset in enumerate(offsets):
            behind = {number for number in self.orders if number % self.partitions == partition} - self._halves.keys()
            seen = {number for number in self._halves if number % self.partitions == partition}
            if skipped := {number for number in behind if number // self.partitions < offset}:
                self.complain(
                    f"the offset {offset} of partition {partition} is committed, and {len(skipped)} orders before it "
                    f"are not booked, such as {self.orders[min(skipped)]}"
                )
            if ahead := {number for number in seen if number // self.partitions >= offset}:
                self.complain(
                    f"the offset {offset} of partition {partition} is committed, and {len(ahead)} orders behind it are "
                    f"booked, such as {self.orders[min(ahead)]}"
                )

    def check_the_end(self) -> None:
        """Checks the final state, with every order done."""
        missing = self.orders.keys() - self._halves.keys()
        if missing:
            self.complain(f"{len(missing)} orders were never booked, such as {self.orders[min(missing)]}")
        expected: Counter[int] = Counter()
        for order in self.orders.values():
            for half in order.halves():
                expected[half.account] += half.amount
        if self.balances != expected:
            self.complain(f"the balances are {dict(self.balances)}, not {dict(expected)}")
