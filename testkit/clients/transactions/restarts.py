"""Transactions over a restart of the broker. One restart is for all steps: each has a producer of its own.

A transaction is five actions, and a step is the number of actions that are done before the restart. Afterwards each
producer continues, and the outcome is the same for each step.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import ClassVar

import attrs
import pytest

from testkit.basics.values import numbered
from testkit.basics.waiting import eventually
from testkit.clients import confluent
from testkit.clients.transactions.client import Client, Producer, Source
from testkit.clients.transactions.queries import end_offset, group_offset, is_stable
from testkit.raw import topics
from testkit.servers.brokers import RestartableBroker

STEPS = ("initialised", "begun", "sent", "offsets sent", "all sent", "committed")
ABANDONED = ("sent", "all sent")

_numbers = itertools.count(1)


@attrs.define(eq=False)
class Transaction:
    """The transaction of one producer: it consumes from its source topic, and produces to its target topic."""

    bootstrap: str
    name: str
    producer: Producer
    member: Source
    step: str

    @property
    def source(self) -> str:
        return f"{self.name}-source"

    @property
    def target(self) -> str:
        return f"{self.name}-target"

    @property
    def actions(self) -> list[Callable[[], None]]:
        return [
            self.producer.begin,
            lambda: self.producer.send(self.target, [b"first"], partition=0),
            lambda: self.producer.send_offsets({(self.source, 0): 3}, self.member),
            lambda: self.producer.send(self.target, [b"second"], partition=1),
            self.producer.commit,
        ]

    def up_to_the_step(self) -> None:
        for action in self.actions[: STEPS.index(self.step)]:
            action()

    def from_the_step(self) -> None:
        for action in self.actions[STEPS.index(self.step) :]:
            action()

    def group_offset(self) -> int | None:
        return group_offset(self.bootstrap, self.name, (self.source, 0))

    def seen(self, client: Client, *, committed: bool = True) -> list[bytes]:
        """Returns the records when the transaction has ended and its markers are written."""
        spots = [(self.target, partition) for partition in range(2)]
        eventually(lambda: all(is_stable(self.bootstrap, spot) for spot in spots), "no transaction is open")
        return client.values(self.bootstrap, self.target, (0, 1), committed=committed)


@contextmanager
def transaction(client: Client, bootstrap: str, step: str) -> Iterator[Transaction]:
    """Up to the step."""
    name = f"over-a-restart-{next(_numbers)}"
    topics.create(bootstrap, f"{name}-source")
    topics.create(bootstrap, f"{name}-target", partitions=2)
    confluent.fill(bootstrap, f"{name}-source", numbered(5))
    with client.reading(bootstrap, name, f"{name}-source") as member, client.producing(bootstrap, name) as producer:
        member.take(5)
        begun = Transaction(bootstrap, name, producer, member, step)
        begun.up_to_the_step()
        yield begun


@attrs.define(eq=False)
class World:
    """A broker that was restarted, and the transactions that were at a step of theirs when that happened."""

    left_open: dict[str, Transaction]
    to_be_aborted: Transaction
    abandoned: dict[str, Transaction]


class RestartScenes:
    client: ClassVar[Client]

    @pytest.fixture(scope="class", params=["stop", "kill"])
    @classmethod
    def world(cls, request: pytest.FixtureRequest, restartable_broker: RestartableBroker) -> Iterator[World]:
        client, broker = cls.client, restartable_broker
        with ExitStack() as stack:
            abandoned = {}
            for step in ABANDONED:
                with transaction(client, broker.bootstrap, step) as left:
                    abandoned[step] = left
            left_open = {step: stack.enter_context(transaction(client, broker.bootstrap, step)) for step in STEPS}
            to_be_aborted = stack.enter_context(transaction(client, broker.bootstrap, "all sent"))
            if request.param == "stop":
                broker.restart()
            else:
                broker.kill_and_restart()
            yield World(left_open, to_be_aborted, abandoned)

    @pytest.mark.parametrize("step", STEPS)
    def test_a_transaction_that_met_a_restart_is_finished_by_its_producer(self, world: World, step: str) -> None:
        it = world.left_open[step]
        if step not in ("initialised", "begun", "committed"):
            assert end_offset(it.bootstrap, (it.target, 0), committed=True) == 0, "still open"
        it.from_the_step()
        assert it.seen(self.client) == [b"first", b"second"]
        assert it.seen(self.client, committed=False) == [b"first", b"second"]
        eventually(lambda: it.group_offset() == 3, "the offset is there")
        it.producer.begin()
        it.producer.send(it.target, [b"next"], partition=0)
        it.producer.commit()
        assert it.seen(self.client) == [b"first", b"next", b"second"]

    def test_a_transaction_that_met_a_restart_is_aborted_by_its_producer(self, world: World) -> None:
        it = world.to_be_aborted
        assert it.group_offset() is None
        it.producer.abort()
        assert it.seen(self.client) == []
        assert it.seen(self.client, committed=False) == [b"first", b"second"]
        eventually(lambda: it.group_offset() == -1, "the offset is given up")

    @pytest.mark.parametrize("step", ABANDONED)
    def test_a_transaction_whose_producer_is_gone_as_well_is_aborted_by_the_next(self, world: World, step: str) -> None:
        it = world.abandoned[step]
        assert not is_stable(it.bootstrap, (it.target, 0))
        with self.client.producing(it.bootstrap, it.name) as heir:
            assert it.seen(self.client) == []
            eventually(lambda: it.group_offset() == -1, "the offset is given up")
            heir.begin()
            heir.send(it.target, [b"heir"], partition=0)
            heir.commit()
        assert it.seen(self.client) == [b"heir"]
