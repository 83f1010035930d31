"""The traces of a broker with transactions. To add one, write a function of a few lines."""

from __future__ import annotations

from collections.abc import Callable

from testkit.scenes.direct.clients import CLASSIC
from testkit.worlds.power_cuts.transaction_trace import TransactionTrace


def transactions(it: TransactionTrace) -> None:
    """Two of one producer, whose epoch is raised between them; offsets in both."""
    it.create_topic("t")
    it.create_topic("u")
    it.commit("g", "t", 1)
    one = it.producer("one")
    one.send("t", 2)
    one.send("u")
    one.commit("g", "t", 2)
    one.end(committed=True)
    one.send("t")
    one.send("u")
    one.commit("g", "t", 3)
    one.commit("h", "u", 4)
    one.end(committed=False)
    one.send("t")


def two_producers(it: TransactionTrace) -> None:
    """The second one speaks as clients did before transaction version 2."""
    it.create_topic("t")
    it.create_topic("u")
    one = it.producer("one")
    two = it.producer("two", CLASSIC)
    one.send("t")
    two.send("t")
    two.send("u")
    two.commit("g", "t", 2)
    one.send("u")
    one.commit("g", "t", 1)
    two.end(committed=True)
    two.send("u")
    one.end(committed=False)
    two.send("t")
    two.commit("g", "t", 4)
    two.end(committed=True)


def restarts(it: TransactionTrace) -> None:
    """A death of the process, a timeout, and a producer that starts again over its open transaction."""
    it.create_topic("t")
    it.create_topic("u")
    one = it.producer("one")
    one.send("t")
    one.send("u")
    it.commit("g", "t", 1)
    one.commit("g", "t", 2)
    it.die()
    it.open()
    one.end(committed=True)
    one.send("t")
    one.send("u")
    it.time_passes()
    one = it.producer("one")
    one.send("u")
    one.send("t")
    one = it.producer("one")
    one.send("t")
    it.close()
    it.open()
    one.end(committed=True)


TRANSACTION_TRACES: dict[str, tuple[Callable[[TransactionTrace], None], bool]] = {
    f"broker: {steps.__name__.replace('_', ' ')}{', each flushed' if flushed else ''}": (steps, flushed)
    for flushed in (True, False)
    for steps in (transactions, two_producers, restarts)
}


def transaction_trace(name: str) -> TransactionTrace:
    steps, flushed = TRANSACTION_TRACES[name]
    return TransactionTrace(name, steps, flushed=flushed)
