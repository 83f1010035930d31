"""Moves partitions between the log dirs and changes configurations, while other clients write to the topics.

The configurations are those of the topics, and the rate limit of the cleaner.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence

import attrs

from testkit.everything_at_once.admin import Admin
from testkit.everything_at_once.keeper import HARMLESS as HARMLESS_TO_KEEPERS
from testkit.everything_at_once.worker import Reporter
from testkit.kills.group_ledger import Spot

# Nothing is ever deleted from these topics, and their batches are larger. So their segments are larger, and fewer.
HARMLESS = {name: values for name, values in HARMLESS_TO_KEEPERS.items() if name != "internal.segment.bytes"} | {
    "segment.ms": ("500", "2000", "10000")
}
_PAUSE_S = 0.2
CLEANER_LIMITS = ("50000", "200000", None)
"""A limit makes a cleaning last so long that its log changes meanwhile, but mostly not longer than the broker runs."""


@attrs.frozen
class Order:
    bootstrap: str
    spots: Sequence[Spot]
    own: Sequence[Spot]
    """Partitions of the broker's internal topics, which are only moved."""
    folders: Sequence[str]
    seed: int

    def __call__(self, reporter: Reporter) -> Tinker:
        return Tinker(self, reporter)


@attrs.define(eq=False)
class Tinker:
    order: Order
    reporter: Reporter
    _random: random.Random = attrs.field(init=False)
    _admin: Admin = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._random = random.Random(self.order.seed)
        self._admin = Admin(self.order.bootstrap)

    def step(self) -> None:
        chance = self._random
        if chance.random() < 0.05:
            limit = chance.choice(CLEANER_LIMITS)
            self._admin.configure_brokers({"log.cleaner.io.max.bytes.per.second": limit})
            self.reporter.count("limits of the cleaner changed")
        elif chance.random() < 0.6:
            spot = chance.choice([*self.order.spots, *self.order.own])
            if self._admin.move(spot, chance.choice(self.order.folders)):
                self.reporter.count("moves")
        else:
            topic = chance.choice(self.order.spots)[0]
            names = chance.sample(sorted(HARMLESS), chance.randrange(1, 4))
            self._admin.configure(topic, {name: chance.choice(HARMLESS[name]) for name in names})
            self.reporter.count("configurations changed")
        time.sleep(chance.random() * _PAUSE_S)

    def settle(self) -> None:
        self._admin.configure_brokers({"log.cleaner.io.max.bytes.per.second": None})
        self._admin.close()

    def judge(self) -> None:
        pass

    def leave(self) -> None:
        pass

    def close(self) -> None:
        self._admin.close()
