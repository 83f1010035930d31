"""The load of the SIGKILL loop, with its ledger, in a process of its own. Nothing is ever deleted from its topics."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack

import attrs

from testkit.clients.transactions.queries import group_offset
from testkit.everything_at_once.admin import LATEST, Admin
from testkit.everything_at_once.worker import Reporter
from testkit.kills.group_ledger import Spot
from testkit.kills.sigkill.ledger import Ledger
from testkit.kills.sigkill.load import Load, read_values

# Enough load for any fault to come during a write. Reading all records back takes half of a run.
PAUSE_S = 0.2
SIZES = (*[(10, 200)] * 12, *[(1_000, 4_000)] * 3)
_STEP_S = 0.2


@attrs.frozen
class Order:
    bootstrap: str
    spots: Sequence[Spot]
    group: str
    seed: int

    def __call__(self, reporter: Reporter) -> Kept:
        return Kept(self, reporter)


@attrs.define(eq=False)
class Kept:
    order: Order
    reporter: Reporter
    _admin: Admin = attrs.field(init=False)
    _ledger: Ledger = attrs.field(factory=Ledger)
    _running: ExitStack = attrs.field(factory=ExitStack)
    _reported: int = 0
    _counted: tuple[int, int] = (0, 0)

    def __attrs_post_init__(self) -> None:
        order = self.order
        self._admin = Admin(order.bootstrap)
        load = Load(
            order.bootstrap, order.spots, order.group, self._ledger, seed=order.seed, pause_s=PAUSE_S, sizes=SIZES
        )
        self._running.enter_context(load.running())

    def step(self) -> None:
        ends = {spot: self._ledger.end_of(spot) for spot in self.order.spots}
        for spot, known in ends.items():
            self._ledger.check_end(spot, known, self._admin.offset(spot, LATEST))
        self._report()
        time.sleep(_STEP_S)

    def settle(self) -> None:
        self._running.close()
        self._admin.close()
        self._report()

    def judge(self) -> None:
        order, ledger = self.order, self._ledger
        for spot in order.spots:
            end = self._admin.offset(spot, LATEST)
            ledger.check_end(spot, ledger.end_of(spot), end)
            ledger.check_log(spot, end, read_values(order.bootstrap, spot, end))
        known = ledger.group.known()
        found = {spot: group_offset(order.bootstrap, order.group, spot) or 0 for spot in order.spots}
        ledger.check_committed(known, found)
        self._admin.close()
        self._report()

    def leave(self) -> None:
        pass

    def close(self) -> None:
        self._admin.close()

    def _report(self) -> None:
        ledger = self._ledger
        for complaint in ledger.complaints[self._reported :]:
            self.reporter.complain(complaint)
        self._reported = len(ledger.complaints)
        now = ledger.acknowledged.total(), ledger.group.deliveries
        self.reporter.count("records acknowledged to kept producers", now[0] - self._counted[0])
        self.reporter.count("records delivered to kept members", now[1] - self._counted[1])
        self._counted = now
