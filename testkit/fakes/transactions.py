"""Transaction coordinators that give the answers of a test, and the markers that they would write."""

from __future__ import annotations

from collections.abc import Callable

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError

from kwire.node.broker import Broker
from kwire.runtime.futures import Future


@attrs.frozen
class Enlistment:
    """A request of a partition's leader to the coordinator."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    topic: str
    index: int
    adds: bool


def _ignore(_enlistment: Enlistment) -> None: ...


@attrs.define(eq=False)
class FakeTransactions:
    """A coordinator that agrees to everything at once, unless `answers` has something else, one for each request."""

    answers: list[ErrorCode | Future[KafkaError | None] | None] = attrs.field(factory=list)
    """A refusal at once, or what the answer will be in; None agrees."""
    enlistments: list[Enlistment] = attrs.field(factory=list)
    on_enlistment: Callable[[Enlistment], None] = _ignore

    def enlist(
        self, transactional_id: str, producer_id: int, producer_epoch: int, topic: str, index: int, *, adds: bool
    ) -> Future[KafkaError | None] | None:
        enlistment = Enlistment(transactional_id, producer_id, producer_epoch, topic, index, adds)
        self.enlistments.append(enlistment)
        self.on_enlistment(enlistment)
        answer = self.answers.pop(0) if self.answers else None
        if isinstance(answer, ErrorCode):
            raise KafkaError(answer)
        return answer

    def stand_in(self, broker: Broker) -> FakeTransactions:
        """Makes the partitions and groups of the broker use this coordinator."""
        broker.transactions.enlist = self.enlist  # type: ignore[method-assign]
        return self


def write_marker(
    broker: Broker, topic: str, index: int, *, committed: bool, producer_id: int, epoch: int, version: int = 0
) -> None:
    """The coordinator's marker is appended to the partition; `version` is the transaction version."""
    broker.partitions.find(topic, index).write_marker(
        producer_id=producer_id,
        producer_epoch=epoch,
        committed=committed,
        coordinator_epoch=0,
        transaction_version=version,
        now_ms=broker.clock.now_ms(),
    )
