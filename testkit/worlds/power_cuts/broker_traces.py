"""The traces of a broker. To add one, write a function of a few lines."""

from __future__ import annotations

from collections.abc import Callable

from testkit.worlds.power_cuts.broker_trace import BrokerTrace


def produce_and_commit(it: BrokerTrace) -> None:
    it.create_topic("t")
    it.produce("t", 1, 2, 1)
    it.commit("g", "t", 2)
    it.commit("h", "t", 1)
    it.commit("g", "t", 4)
    it.take_producer_id()
    it.flush("__consumer_offsets")
    it.produce("t", 3)
    it.commit("g", "t", 7)
    it.roll("t")
    it.roll("__consumer_offsets")
    it.checkpoint()
    it.produce("t", 1)
    it.commit("g", "t", 8)
    it.delete_records("t", 3)
    it.checkpoint()
    it.die()
    it.open()
    it.produce("t", 1)
    it.commit("h", "t", 9)


def topics_come_and_go(it: BrokerTrace) -> None:
    it.create_topic("t")
    it.produce("t", 2)
    it.create_topic("u", {"retention.ms": "100000000"})
    it.produce("u", 1, 2)
    it.commit("g", "t", 1)
    it.delete_topic("t")
    it.create_topic("t")
    it.produce("t", 1)
    it.checkpoint()
    it.take_producer_id()
    it.remove_deleted()
    it.delete_topic("u")
    it.create_topic("u")
    it.close()
    it.open()
    it.delete_topic("t")
    it.produce("u", 1)


def flush_each_append(it: BrokerTrace) -> None:
    it.create_topic("t", {"flush.messages": "1"})
    it.produce("t", 1, 3, flushed=True)
    it.commit("g", "t", 4)
    it.roll("t")
    it.produce("t", 2, 1, flushed=True)
    it.checkpoint()
    it.die()
    it.open()
    it.produce("t", 1, flushed=True)
    it.delete_records("t", 6)
    it.checkpoint()
    it.produce("t", 2, flushed=True)


def compact(it: BrokerTrace) -> None:
    """A topic, and the group offsets, whose tails were not flushed."""
    it.create_topic("t", {"cleanup.policy": "compact"})
    it.produce("t", 2, 1, 2)
    it.commit("g", "t", 2)
    it.commit("g", "t", 4)
    it.roll("t")
    it.roll("__consumer_offsets")
    it.clean()
    it.produce("t", 1)
    it.commit("g", "t", 5)
    it.roll("t")
    it.clean()
    it.checkpoint()
    it.remove_deleted()
    it.produce("t", 2)


def stop_and_start(it: BrokerTrace) -> None:
    it.create_topic("t")
    it.produce("t", 2, 2)
    it.commit("g", "t", 3)
    it.close()
    it.open()
    it.produce("t", 1)
    it.commit("g", "t", 5)
    it.close()
    it.open()
    it.close()


BROKER_TRACES: dict[str, Callable[[BrokerTrace], None]] = {
    f"broker: {steps.__name__.replace('_', ' ')}": steps
    for steps in (produce_and_commit, topics_come_and_go, flush_each_append, compact, stop_and_start)
}


def broker_trace(name: str) -> BrokerTrace:
    return BrokerTrace(name, BROKER_TRACES[name])
