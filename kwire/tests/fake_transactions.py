"""Coordinators of transactions that say what a test tells them to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError

from kwire.broker import Broker
from kwire.waits import Slot


@attrs.frozen
class Asked:
    """What a partition's leader asked."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    topic: str
    index: int
    adds: bool


def _nobody(_asked: Asked) -> None: ...


@attrs.define(eq=False)
class FakeTransactions:
    """Agrees to everything at once, unless `refusals` or `slots` have an answer; these are used up, one a question."""

    asked: list[Asked] = attrs.field(factory=list)
    refusals: list[ErrorCode | None] = attrs.field(factory=list)
    slots: list[Slot[KafkaError | None]] = attrs.field(factory=list)
    on_asked: Callable[[Asked], None] = _nobody

    def enlist(
        self, transactional_id: str, producer_id: int, producer_epoch: int, topic: str, index: int, *, adds: bool
    ) -> Slot[KafkaError | None] | None:
        asked = Asked(transactional_id, producer_id, producer_epoch, topic, index, adds)
        self.asked.append(asked)
        self.on_asked(asked)
        if self.refusals and (code := self.refusals.pop(0)) is not None:
            raise KafkaError(code)
        return self.slots.pop(0) if self.slots else None


class Enlisting(Protocol):
    def enlist(
        self, transactional_id: str, producer_id: int, producer_epoch: int, topic: str, index: int, *, adds: bool
    ) -> Slot[KafkaError | None] | None: ...


def stand_in(broker: Broker, fake: Enlisting) -> None:
    """Has partitions and groups of the broker ask the fake."""
    broker.transactions.enlist = fake.enlist  # type: ignore[method-assign]
