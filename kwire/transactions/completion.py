"""Completes transactions, from the Prepare record to the last marker, for all ids of a shard.

An id changes only with its record: a failed append changes nothing. Between a Prepare record and its Complete record
the machine requests the transaction's markers, with growing pauses, until all of them are reported. It does the same
for a Prepare record without a Complete record that it finds at the start.

Each id needs only one timer: while its transaction is open, the timer aborts it after transaction.timeout.ms; while it
is prepared, the timer requests the markers again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TypeAlias

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError, quoted

from kwire.coordinators.deadlines import Deadline, Deadlines
from kwire.coordinators.effects import Step
from kwire.runtime.callbacks import ignore
from kwire.transactions.effects import Ended, WriteMarkers
from kwire.transactions.records import TransactionChange
from kwire.transactions.transaction import NewProducerId, TopicPartition, Transaction

log = logging.getLogger(__name__)

Then: TypeAlias = Callable[[Step, ErrorCode], None]
"""A callback after an append, with its error."""


@attrs.define(eq=False)
class _Known:
    """A transactional id and its timer."""

    transaction: Transaction
    timer: Deadline = attrs.field(factory=Deadline)
    timed_start_ms: int | None = None
    """The start time of the open transaction for which the timer is set; None if there is none."""


class Transactions:
    """The ids of a shard. `coordinator_epoch`, `new_producer_id` and `transaction_version` are the shard's."""

    def __init__(
        self,
        timers: Deadlines,
        *,
        coordinator_epoch: int,
        new_producer_id: NewProducerId,
        transaction_version: Callable[[], int],
    ) -> None:
        self.coordinator_epoch = coordinator_epoch
        self.new_producer_id = new_producer_id
        self.transaction_version = transaction_version
        self._timers = timers
        self._known: dict[str, _Known] = {}

    def get(self, transactional_id: str) -> Transaction | None:
        known = self._known.get(transactional_id)
        return None if known is None else known.transaction

    def __iter__(self) -> Iterator[Transaction]:
        return (known.transaction for known in self._known.values())

    # Records

    def apply(self, change: TransactionChange) -> None:
        """Applies a record."""
        if change.transaction is None:
            # Only idle ids expire, and those have no deadline.
            self._known.pop(change.transactional_id, None)
        elif (known := self._known.get(change.transactional_id)) is not None:
            known.transaction = change.transaction
        else:
            known = self._known[change.transactional_id] = _Known(change.transaction)
            known.timer.on_expiry = partial(self._due, known)

    def append(self, step: Step, transaction: Transaction, then: Then = ignore) -> None:
        """Appends the id's new state, and applies it on success. Then calls `then` with the error."""
        change = TransactionChange(transaction.transactional_id, transaction)

        def appended(step: Step, error: ErrorCode) -> None:
            if error is ErrorCode.NONE:
                self.apply(change)
                known = self._known[transaction.transactional_id]
                known.timer.failures = 0
                self._set_deadline(step, known)
            then(step, error)

        step.append([change.record(self.transaction_version())], appended)

    # Completion

    def resume(self, step: Step) -> None:
        """After the replay: completes prepared transactions, and sets the deadlines of open ones."""
        for known in self._known.values():
            self._set_deadline(step, known)
            if known.transaction.is_prepared:
                self._finish(step, known)

    def fence(self, step: Step, transaction: Transaction, failed: Then = ignore) -> None:
        """Aborts an open transaction without its producer. Raises KafkaError if there is no new producer id."""
        fenced = transaction.fenced(
            self.transaction_version(), new_producer_id=self.new_producer_id, now_ms=step.now.wall_ms
        )
        self.prepare(step, fenced, failed)

    def prepare(self, step: Step, prepared: Transaction, failed: Then = ignore) -> None:
        """Appends the Prepare record, which decides the transaction, and then requests its markers."""

        def appended(step: Step, error: ErrorCode) -> None:
            if error is ErrorCode.NONE:
                self._finish(step, self._known[prepared.transactional_id])
            else:
                failed(step, error)

        self.append(step, prepared, appended)

    def markers_written(
        self,
        step: Step,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Iterable[TopicPartition],
    ) -> None:
        known = self._known.get(transactional_id)
        if known is None or not known.transaction.is_prepared:
            return
        transaction = known.transaction
        if (producer_id, producer_epoch) != (transaction.producer_id, transaction.producer_epoch):
            return
        known.transaction = transaction.without(partitions)
        if transaction.partitions and not known.transaction.partitions:
            self._finish(step, known)

    def go_on(self, step: Step, transactional_id: str) -> None:
        """Retries a prepared transaction at once, instead of after its pause."""
        known = self._known.get(transactional_id)
        if known is not None and known.transaction.is_prepared:
            self._finish(step, known)

    def _finish(self, step: Step, known: _Known) -> None:
        """Requests the missing markers of a prepared transaction, or appends its Complete record."""
        if known.transaction.partitions:
            step.effects.append(WriteMarkers.of(known.transaction, self.coordinator_epoch))
            self._try_again_later(step, known)
            return

        def appended(step: Step, error: ErrorCode) -> None:
            if error is ErrorCode.NONE:
                step.effects.append(Ended(known.transaction.transactional_id))
            else:
                self._try_again_later(step, known)

        self.append(step, known.transaction.completed(now_ms=step.now.wall_ms), appended)

    # Time

    def _due(self, known: _Known, step: Step) -> None:
        transaction = known.transaction
        if transaction.is_prepared:
            self._finish(step, known)
            return
        name = quoted(transaction.transactional_id)

        def failed(step: Step, error: ErrorCode) -> None:
            if not known.timer.failures:
                log.warning(
                    "the transaction of %s could not be aborted (%s), which is tried again, with growing pauses",
                    name,
                    error.name,
                )
            self._try_again_later(step, known)

        if not known.timer.failures:
            log.info("the transaction of %s took longer than its %d ms and is aborted", name, transaction.timeout_ms)
        try:
            self.fence(step, transaction, failed)
        except KafkaError as error:
            failed(step, error.code)

    def _try_again_later(self, step: Step, known: _Known) -> None:
        self._timers.retry(known.timer, step.now.monotonic_ms)

    def _set_deadline(self, step: Step, known: _Known) -> None:
        """Sets the deadline of an open transaction once. After that it does not depend on the wall clock."""
        transaction = known.transaction
        deadline_ms = transaction.deadline_ms
        if deadline_ms is None:
            self._timers.cancel(known.timer)
            known.timed_start_ms = None
        elif known.timed_start_ms != transaction.start_ms:
            left_ms = min(max(deadline_ms - step.now.wall_ms, 0), transaction.timeout_ms)
            self._timers.schedule(known.timer, step.now.monotonic_ms + left_ms)
            known.timed_start_ms = transaction.start_ms

    def forget_all(self) -> None:
        for known in self._known.values():
            self._timers.cancel(known.timer)
        self._known.clear()
