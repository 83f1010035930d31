"""Clients that are killed at work: idempotent producers, and members of a group.

Their responses are passed to the conductor at once, which has the ledger: the fate of their last requests is unknown.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any

import attrs
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer

from testkit.clients.confluent import is_of_a_downgraded_group, quiet
from testkit.everything_at_once.worker import Reporter
from testkit.kills.group_ledger import Spot
from testkit.kills.sigkill.ledger import Mark
from testkit.kills.sigkill.load import EXPECTED_MEMBER_ERRORS, RECONNECT
from testkit.raw.groups import CLASSIC, PROTOCOLS

FLUSH_WITHIN_S = 60.0
MOST_IN_QUEUE = 200


@attrs.frozen
class Acknowledged:
    spot: Spot
    offset: int
    mark: Mark


@attrs.frozen
class Going:
    """A member has come so far, and may be about to commit it."""

    positions: dict[Spot, int]


@attrs.frozen
class Committed:
    offsets: dict[Spot, int]


@attrs.frozen
class ProducerOrder:
    bootstrap: str
    spots: Sequence[Spot]
    number: int
    """Which no other producer of the run has."""
    seed: int

    def __call__(self, reporter: Reporter) -> VanishingProducer:
        return VanishingProducer(self, reporter)


@attrs.define(eq=False)
class VanishingProducer:
    order: ProducerOrder
    reporter: Reporter
    _random: random.Random = attrs.field(init=False)
    _producer: Producer = attrs.field(init=False)
    _sent: Counter[Spot] = attrs.field(factory=Counter)

    def __attrs_post_init__(self) -> None:
        self._random = random.Random(self.order.seed)
        settings = {
            "bootstrap.servers": self.order.bootstrap,
            "enable.idempotence": True,
            "acks": "all",
            "linger.ms": 1,
            "batch.num.messages": 20,
            **RECONNECT,
            "retry.backoff.max.ms": 100,
        }
        self._producer = Producer(settings, logger=quiet)

    def step(self) -> None:
        for _ in range(self._random.randrange(1, 30)):
            if len(self._producer) < MOST_IN_QUEUE:
                spot = self._random.choice(self.order.spots)
                mark = Mark(self.order.number, self._sent[spot])
                self._sent[spot] += 1
                value = mark.value(self._random.randbytes(self._random.randrange(200)))
                self._producer.produce(
                    spot[0], value, partition=spot[1], on_delivery=partial(self._on_delivery, spot, mark)
                )
        self._producer.poll(self._random.random() * 0.1)

    def _on_delivery(self, spot: Spot, mark: Mark, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.reporter.complain(f"{spot}: {mark} was refused: {error}")
        else:
            self.reporter.send(Acknowledged(spot, int(message.offset() or 0), mark))
            self.reporter.count("records acknowledged to producers that vanish")

    def settle(self) -> None:
        left = self._producer.flush(FLUSH_WITHIN_S)
        if left:
            self.reporter.complain(f"{left} records were not acknowledged within {FLUSH_WITHIN_S} s")

    def judge(self) -> None:
        pass

    def leave(self) -> None:
        pass

    def close(self) -> None:
        pass


@attrs.frozen
class MemberOrder:
    bootstrap: str
    topics: Sequence[str]
    group: str
    seed: int

    def __call__(self, reporter: Reporter) -> VanishingMember:
        return VanishingMember(self, reporter)


@attrs.define(eq=False)
class VanishingMember:
    order: MemberOrder
    reporter: Reporter
    _random: random.Random = attrs.field(init=False)
    _consumer: Consumer = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._random = random.Random(self.order.seed)
        self._consumer = self._new()

    def _new(self) -> Consumer:
        """Returns a member with either protocol, so the group changes its type again and again."""
        protocol = self._random.choice(PROTOCOLS)
        sessions = {"heartbeat.interval.ms": 200, "session.timeout.ms": 1_000} if protocol == CLASSIC else {}
        settings: dict[str, Any] = {
            "bootstrap.servers": self.order.bootstrap,
            "group.id": self.order.group,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": self._random.choice(("read_committed", "read_uncommitted")),
            "fetch.wait.max.ms": 50,
            **sessions,
            "topic.metadata.refresh.interval.ms": 500,
            **RECONNECT,
        }
        consumer = Consumer(settings, logger=quiet)
        consumer.subscribe(list(self.order.topics))
        self.reporter.count("members that joined")
        return consumer

    def step(self) -> None:
        is_over = self._random.random() < 0.02
        for message in self._consumer.consume(num_messages=100, timeout=0.1):
            error = message.error()
            if error is None:
                self.reporter.count("records delivered to members that vanish")
            elif is_of_a_downgraded_group(error):
                is_over = True
            elif error.code() not in EXPECTED_MEMBER_ERRORS:
                self.reporter.complain(f"a member got {error}")
        if self._random.random() < 0.3:
            self._commit()
        if is_over:
            self._consumer.close()
            self._consumer = self._new()

    def _commit(self) -> None:
        positions = [it for it in self._consumer.position(self._consumer.assignment()) if it.offset >= 0]
        if not positions:
            return
        self.reporter.send(Going({(it.topic, it.partition): it.offset for it in positions}))
        try:
            taken = self._consumer.commit(offsets=positions, asynchronous=False)
        except KafkaException:  # not acknowledged, whatever the reason
            return
        self.reporter.send(Committed({(it.topic, it.partition): it.offset for it in taken if it.error is None}))
        self.reporter.count("commits")

    def settle(self) -> None:
        self._consumer.close()

    def judge(self) -> None:
        pass

    def leave(self) -> None:
        pass

    def close(self) -> None:
        pass
