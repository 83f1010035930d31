"""The transaction machine: all transactional ids of one partition of `__transaction_state`.

Its inputs are requests, the outcome of appends and markers, and the time. Its outputs are effects: records to append,
replies to send, markers to write. It neither waits nor reads a clock, so a test of it is a list of calls with numbers.

    start:   apply(key, value) for every record of the partition, then loaded(now)
    running: init_producer_id / add_partitions / end / ...    and expire(now) whenever next_deadline_ms() has come
    end:     unload(now), and no call after it

`transaction.py` has the rules, `completion.py` completes decided transactions.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from itertools import islice

from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.describe_transactions import TransactionState as DescribedTransaction
from kwire_protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from kwire_protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kwire_protocol.messages.list_transactions import TransactionState as ListedTransaction

from kwire.coordinators.deadlines import Deadline, Deadlines
from kwire.coordinators.effects import Effect, Now, ProducerIdAndEpoch, Step, Token, response_error
from kwire.transactions.completion import Transactions
from kwire.transactions.config import TransactionConfig
from kwire.transactions.listing import TransactionFilter, described
from kwire.transactions.records import TransactionChange, read_record
from kwire.transactions.transaction import (
    EPOCH_BUMP_VERSION,
    NO_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMEOUT_MS,
    NewProducerId,
    TopicPartition,
    Transaction,
)

log = logging.getLogger(__name__)

MAX_PARTITIONS = 100_000
"""The maximum number in one transaction. Each record has all of them, and a batch is limited to about a mebibyte."""

MAX_ID_BYTES = 2**15 - 1
"""The maximum size of a transactional id in UTF-8, which is the limit of the record's key."""

MAX_RECORDS_PER_CLEANUP_BATCH = 1_000


class TransactionShard:
    """`coordinator_epoch` is the leader epoch of the partition; `transaction_version` returns the current level of that
    feature; `new_producer_id` returns an id that was never used, or raises KafkaError.
    """

    def __init__(
        self,
        config: TransactionConfig,
        *,
        coordinator_epoch: int,
        new_producer_id: NewProducerId,
        transaction_version: Callable[[], int],
    ) -> None:
        self.config = config
        self.coordinator_epoch = coordinator_epoch
        self._timers = Deadlines()
        self.next_deadline_ms = self._timers.next_deadline_ms
        """The earliest time at which something may be due."""
        self._cleanup = Deadline(self._clean_up)
        self._transactions = Transactions(
            self._timers,
            coordinator_epoch=coordinator_epoch,
            new_producer_id=new_producer_id,
            transaction_version=transaction_version,
        )

    # Start, time, end

    def apply(
        self,
        key: bytes,
        value: bytes | None,
        producer_id: int = NO_PRODUCER_ID,  # noqa: ARG002
        *,
        offset: int = -1,  # noqa: ARG002
    ) -> None:
        """Replays one record. Raises ProtocolError or UnsupportedVersion if the bytes cannot be decoded."""
        change = read_record(key, value)
        if change is not None:
            self._transactions.apply(change)

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """Does nothing, since no record of this topic is part of a transaction."""

    def go_on(self, transactional_id: str, *, now: Now) -> list[Effect]:
        """Retries this id's markers at once, since their obstacle is gone."""
        step = Step(now)
        self._transactions.go_on(step, transactional_id)
        return step.effects

    def loaded(self, *, now: Now) -> list[Effect]:
        """After the replay: completes prepared transactions, and sets the deadlines of open ones."""
        step = Step(now)
        self._transactions.resume(step)
        self._schedule_cleanup(step)
        return step.effects

    def expire(self, *, now: Now) -> list[Effect]:
        """Handles what is due, up to the first append; call again while `next_deadline_ms()` is not after `now`."""
        step = Step(now)
        self._timers.expire(step)
        return step.effects

    def appends_succeed(self) -> None:
        """Appends succeed again after failures: the work that waits for that is now due."""
        self._timers.appends_succeed()

    def unload(self, *, now: Now) -> list[Effect]:
        """This broker no longer coordinates these ids. No request is pending: each is answered with its own append."""
        step = Step(now)
        self._transactions.forget_all()
        self._timers.cancel(self._cleanup)
        return step.effects

    # Producers

    def init_producer_id(self, request: InitProducerIdRequest, token: Token, *, now: Now) -> list[Effect]:
        """Initializes a producer with a transactional id. Replies with an InitProducerIdResponse.

        While a transaction is open or being completed, the reply is CONCURRENT_TRANSACTIONS and the client retries. An
        open transaction is aborted.
        """
        step = Step(now)
        try:
            self._initialize(step, request, token)
        except KafkaError as refused:
            step.reply(token, _no_producer(refused.code))
        return step.effects

    def _initialize(self, step: Step, request: InitProducerIdRequest, token: Token) -> None:
        transactional_id, timeout_ms, expected = self._check_initialization(request)
        transaction = self._transactions.get(transactional_id)
        if transaction is None:
            ready = Transaction.new(
                transactional_id, self._transactions.new_producer_id(), timeout_ms=timeout_ms, now_ms=step.now.wall_ms
            )
        else:
            transaction.check_initialization(expected)
            if transaction.is_open:
                self._transactions.fence(step, transaction)
                step.reply_when_appended(token, _no_producer(ErrorCode.CONCURRENT_TRANSACTIONS), _no_producer)
                return
            ready = transaction.initialized(
                expected,
                timeout_ms=timeout_ms,
                new_producer_id=self._transactions.new_producer_id,
                now_ms=step.now.wall_ms,
            )
        self._transactions.append(step, ready)
        answer = InitProducerIdResponse(producer_id=ready.producer_id, producer_epoch=ready.producer_epoch)
        step.reply_when_appended(token, answer, _no_producer)

    def _check_initialization(self, request: InitProducerIdRequest) -> tuple[str, int, ProducerIdAndEpoch | None]:
        """Checks the transactional id, the timeout, and the producer's own id and epoch. Raises KafkaError."""
        if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_EPOCH):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "a producer's id and its epoch go together")
        transactional_id = _checked_id(request.transactional_id)
        if request.enable2_pc and not self.config.two_phase_commit_enable:
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "two-phase commit is not enabled")
        if request.keep_prepared_txn:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "a prepared transaction cannot be kept")
        timeout_ms = NO_TIMEOUT_MS if request.enable2_pc else request.transaction_timeout_ms
        if not request.enable2_pc and not 0 < timeout_ms <= self.config.max_timeout_ms:
            raise KafkaError(
                ErrorCode.INVALID_TRANSACTION_TIMEOUT,
                f"transaction.timeout.ms is {timeout_ms}, and transaction.max.timeout.ms {self.config.max_timeout_ms}",
            )
        expected = (
            None
            if request.producer_id == NO_PRODUCER_ID
            else ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
        )
        return transactional_id, timeout_ms, expected

    # Transactions

    def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        token: Token,
        *,
        transaction_version: int,
        now: Now,
    ) -> list[Effect]:
        """Replies with one ErrorCode for all partitions. The partitions must exist.

        `transaction_version` is the client's: 2 with AddPartitionsToTxn v4 and Produce v12, 0 below.
        """
        step = Step(now)
        try:
            transaction = self._find(transactional_id)
            enlarged = transaction.with_partitions(
                producer_id, producer_epoch, partitions, version=transaction_version, now_ms=now.wall_ms
            )
            if len(enlarged.partitions) > MAX_PARTITIONS:
                raise KafkaError(
                    response_error(ErrorCode.MESSAGE_TOO_LARGE),
                    f"a transaction has {MAX_PARTITIONS} partitions at most",
                )
        except KafkaError as refused:
            step.reply(token, refused.code)
            return step.effects
        if enlarged is not transaction:
            self._transactions.append(step, enlarged)
        step.reply_when_appended(token, ErrorCode.NONE, lambda error: error)
        return step.effects

    def verify_partitions(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """Returns NONE for those in the producer's transaction, else TRANSACTION_ABORTABLE; or one error for all."""
        try:
            transaction = self._find(transactional_id)
            transaction.check_verification(producer_id, producer_epoch)
        except KafkaError as refused:
            return dict.fromkeys(partitions, refused.code)
        return {
            partition: ErrorCode.NONE if partition in transaction.partitions else ErrorCode.TRANSACTION_ABORTABLE
            for partition in partitions
        }

    def end(self, request: EndTxnRequest, token: Token, *, transaction_version: int, now: Now) -> list[Effect]:
        """Replies with an EndTxnResponse; it names the producer's next id and epoch from transaction version 2 on.

        `transaction_version` is the client's: 2 with EndTxn v5, 0 below.
        """
        step = Step(now)
        try:
            transaction = self._find(request.transactional_id)
            prepared = transaction.ended(
                request.producer_id,
                request.producer_epoch,
                request.committed,
                version=transaction_version,
                new_producer_id=self._transactions.new_producer_id,
                now_ms=now.wall_ms,
            )
        except KafkaError as refused:
            step.reply(token, EndTxnResponse(error_code=refused.code))
            return step.effects
        answer = EndTxnResponse()
        if transaction_version >= EPOCH_BUMP_VERSION:
            following = prepared.next_producer
            answer.producer_id, answer.producer_epoch = following.producer_id, following.epoch
        if prepared is not transaction:
            self._transactions.prepare(step, prepared)
        step.reply_when_appended(token, answer, lambda error: EndTxnResponse(error_code=error))
        return step.effects

    def markers_written(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Iterable[TopicPartition],
        *,
        now: Now,
    ) -> list[Effect]:
        """The outcome of a `WriteMarkers`: these partitions have the marker, or do not need it."""
        step = Step(now)
        self._transactions.markers_written(step, transactional_id, producer_id, producer_epoch, partitions)
        return step.effects

    # Administration

    def describe(self, transactional_ids: Iterable[str]) -> list[DescribedTransaction]:
        return [
            described(transactional_id, self._transactions.get(transactional_id))
            for transactional_id in transactional_ids
        ]

    def list_transactions(self, wanted: TransactionFilter, *, now: Now) -> list[ListedTransaction]:
        """Returns the ids that the filter accepts. Raises KafkaError if its pattern takes too much work."""
        return [
            ListedTransaction(
                transactional_id=transaction.transactional_id,
                producer_id=transaction.producer_id,
                transaction_state=transaction.state.value,
            )
            for transaction in self._transactions
            if wanted.accepts(transaction, now_ms=now.wall_ms)
        ]

    def _find(self, transactional_id: str) -> Transaction:
        if not transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "a transactional id must not be empty")
        transaction = self._transactions.get(transactional_id)
        if transaction is None:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        return transaction

    # Removal

    def _clean_up(self, step: Step) -> None:
        """Removes ids that were unused for transactional.id.expiration.ms."""
        before_ms = step.now.wall_ms - self.config.id_expiration_ms
        expired = [
            TransactionChange(transaction.transactional_id, None)
            for transaction in self._transactions
            if transaction.is_idle and transaction.last_update_ms <= before_ms
        ]
        self._append_in_batches(step, expired)
        self._schedule_cleanup(step)

    def _schedule_cleanup(self, step: Step) -> None:
        self._timers.schedule(self._cleanup, step.now.monotonic_ms + self.config.expiration_check_interval_ms)

    def _append_in_batches(self, step: Step, changes: Sequence[TransactionChange]) -> None:
        rest = iter(changes)
        while batch := list(islice(rest, MAX_RECORDS_PER_CLEANUP_BATCH)):
            step.append(
                [change.record(self._transactions.transaction_version()) for change in batch],
                partial(self._forget, batch),
            )

    def _forget(self, expired: list[TransactionChange], _: Step, error: ErrorCode) -> None:
        if error is ErrorCode.NONE:
            log.info("%d transactional ids have expired", len(expired))
            for change in expired:
                self._transactions.apply(change)


def _checked_id(transactional_id: str | None) -> str:
    if not transactional_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a transactional id must not be empty")
    if len(transactional_id.encode()) > MAX_ID_BYTES:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"a transactional id has {MAX_ID_BYTES} bytes at most")
    return transactional_id


def _no_producer(error: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=error, producer_id=NO_PRODUCER_ID, producer_epoch=NO_EPOCH)
