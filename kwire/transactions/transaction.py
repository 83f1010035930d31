"""The state of one transactional id, and how each request changes it: Kafka's `TransactionMetadata`.

                            +--(EndTxn)----------------> PrepareCommit --(every marker is in)--> CompleteCommit
                            |
    Empty --(partitions)--> Ongoing
                            |
                            +--(EndTxn, fence, time-out)--> PrepareAbort --(every marker is in)--> CompleteAbort

    CompleteCommit, CompleteAbort --(partitions)--> Ongoing, --(InitProducerId)--> Empty

The Prepare record decides a transaction: its markers will be written even if something fails afterwards.

Producer id and epoch identify the producer that may use the id. InitProducerId raises the epoch, and so fences the
previous producer. With transaction version 2 (KIP-890) the end of each transaction raises it too, which fences a
producer that missed its own end. The last usable epoch is 32,766: the one after it is reserved for fencing. Then a new
producer id begins at epoch 0.

A `Transaction` is a value. A method returns a new one and changes nothing: the shard appends it first. A method that
refuses raises KafkaError. In Kafka a prepared transaction has a pending transition until its markers are written, so it
is CONCURRENT_TRANSACTIONS for every producer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any, Final, TypeAlias

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError

from kwire.coordinators.effects import ProducerIdAndEpoch

NO_PRODUCER_ID: Final = -1
NO_EPOCH: Final = -1
NO_TIMESTAMP: Final = -1

MAX_EPOCH: Final = 2**15 - 1
"""The epoch that is reserved for fencing. No producer gets it."""
LAST_USABLE_EPOCH: Final = MAX_EPOCH - 1

NO_TIMEOUT_MS: Final = 2**31 - 1
"""The time-out of a transaction that takes part in a two-phase commit: it waits for its coordinator (KIP-939)."""

CLASSIC_VERSION: Final = 0
"""The transaction version of clients that do not support version 2."""
EPOCH_BUMP_VERSION: Final = 2
"""The transaction.version with which the end of a transaction raises the epoch."""

TopicPartition: TypeAlias = tuple[str, int]
"""Topic name and partition index."""

NewProducerId: TypeAlias = Callable[[], int]
"""Returns a producer id that was never used. May raise KafkaError."""


class TransactionState(Enum):
    """The values are the names in DescribeTransactions and ListTransactions, in the order of their numbers in the log.

    The last two are never stored: a dead id is a tombstone, and a fence goes from Ongoing to PrepareAbort in one step.
    """

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    DEAD = "Dead"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"


PREPARED: Final = (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)
COMPLETE: Final = (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)


@attrs.frozen
class Transaction:
    """The state of a transactional id. Times are milliseconds since 1970."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    """The epoch. While prepared it may be one above the last usable: then the producer id is exhausted."""
    timeout_ms: int
    state: TransactionState
    last_update_ms: int
    partitions: frozenset[TopicPartition] = frozenset()
    """All partitions while it is open; those that still lack their marker once it is prepared."""
    start_ms: int = NO_TIMESTAMP
    previous_producer_id: int = NO_PRODUCER_ID
    """The producer id before the latest change of any field."""
    next_producer_id: int = NO_PRODUCER_ID
    """The producer id after completion of the transaction, if the current one is exhausted."""
    next_producer_epoch: int = NO_EPOCH
    """The next epoch of a prepared transaction that was taken over (KIP-939). It is read and kept, never set."""
    client_version: int = CLASSIC_VERSION
    """The transaction version of the client that last changed it."""
    last_producer_epoch: int = NO_EPOCH
    """The epoch before the current one, to detect retries. It is not in the log, as in Kafka."""

    @classmethod
    def new(cls, transactional_id: str, producer_id: int, *, timeout_ms: int, now_ms: int) -> Transaction:
        """Creates the state at an id's first use. The producer id and epoch that the client sent are ignored."""
        return cls(
            transactional_id,
            producer_id,
            0,
            timeout_ms,
            TransactionState.EMPTY,
            now_ms,
            previous_producer_id=producer_id,
        )

    @property
    def is_open(self) -> bool:
        return self.state is TransactionState.ONGOING

    @property
    def is_prepared(self) -> bool:
        return self.state in PREPARED

    @property
    def is_idle(self) -> bool:
        """True if no transaction is open or being completed."""
        return not self.is_open and not self.is_prepared

    @property
    def is_exhausted(self) -> bool:
        """True if the producer id has no epochs left."""
        return self.producer_epoch >= LAST_USABLE_EPOCH

    @property
    def deadline_ms(self) -> int | None:
        """The time at which an open transaction is aborted; None if it never is."""
        if not self.is_open or self.timeout_ms == NO_TIMEOUT_MS:
            return None
        return self.start_ms + self.timeout_ms

    # InitProducerId

    def check_initialization(self, expected: ProducerIdAndEpoch | None) -> None:
        """Raises KafkaError unless a producer with `expected` (KIP-360), or any producer (None), may begin.

        As in Kafka, epochs are not checked while a transaction is open: the client has to retry.
        """
        if self.is_prepared:
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        if expected is None or expected.producer_id == self.producer_id:
            return
        # The response with a new producer id may have been lost.
        if expected.producer_id == self.previous_producer_id and expected.epoch >= LAST_USABLE_EPOCH:
            return
        raise KafkaError(ErrorCode.PRODUCER_FENCED)

    def initialized(
        self, expected: ProducerIdAndEpoch | None, *, timeout_ms: int, new_producer_id: NewProducerId, now_ms: int
    ) -> Transaction:
        """Returns the state for a new producer, with an epoch that fences the previous one; no transaction is open."""
        if self.is_exhausted and (expected is None or expected.epoch == self.producer_epoch):
            last = NO_EPOCH if expected is None else self.producer_epoch
            producer_id, epoch = new_producer_id(), 0
        elif expected is None:
            producer_id, epoch, last = self.producer_id, self.producer_epoch + 1, NO_EPOCH
        elif expected.epoch == self.producer_epoch:
            producer_id, epoch, last = self.producer_id, self.producer_epoch + 1, self.producer_epoch
        elif expected.epoch == self.last_producer_epoch:
            # This is a retry of a bump that was answered. A new producer would have reset `last_producer_epoch`.
            producer_id, epoch, last = self.producer_id, self.producer_epoch, self.last_producer_epoch
        else:
            raise KafkaError(ErrorCode.PRODUCER_FENCED)
        return self._becomes(
            TransactionState.EMPTY,
            producer_id=producer_id,
            producer_epoch=epoch,
            last_producer_epoch=last,
            timeout_ms=timeout_ms,
            partitions=frozenset(),
            start_ms=NO_TIMESTAMP,
            last_update_ms=now_ms,
        )

    def fenced(self, version: int, *, new_producer_id: NewProducerId, now_ms: int) -> Transaction:
        """Returns the state prepared to abort the open transaction; its producer's epoch is no longer valid."""
        if version >= EPOCH_BUMP_VERSION:
            return self._prepared_with_bump(False, version, new_producer_id, now_ms)
        return self._prepared(
            False, now_ms, producer_epoch=min(self.producer_epoch + 1, MAX_EPOCH), last_producer_epoch=NO_EPOCH
        )

    # AddPartitionsToTxn

    def with_partitions(
        self,
        producer_id: int,
        producer_epoch: int,
        partitions: Iterable[TopicPartition],
        *,
        version: int,
        now_ms: int,
    ) -> Transaction:
        """Adds the partitions to the transaction, which begins if none is open. Returns itself if they are in it."""
        # This comes before the check of the producer id: a client may have the next one before it is the current one.
        if self.is_prepared:
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        self._check_producer(producer_id, producer_epoch)
        if self.is_open and self.partitions.issuperset(partitions):
            return self
        return self._becomes(
            TransactionState.ONGOING,
            partitions=self.partitions.union(partitions),
            start_ms=self.start_ms if self.is_open else now_ms,
            last_update_ms=now_ms,
            client_version=version,
        )

    def check_verification(self, producer_id: int, producer_epoch: int) -> None:
        """Raises KafkaError unless this producer may verify the partitions of its transaction."""
        self._check_producer(producer_id, producer_epoch)
        if self.is_prepared:
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)

    def _check_producer(self, producer_id: int, producer_epoch: int) -> None:
        if producer_id != self.producer_id:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        if producer_epoch != self.producer_epoch:
            raise KafkaError(ErrorCode.PRODUCER_FENCED)

    # EndTxn

    def ended(
        self,
        producer_id: int,
        producer_epoch: int,
        committed: bool,
        *,
        version: int,
        new_producer_id: NewProducerId,
        now_ms: int,
    ) -> Transaction:
        """Returns the state prepared to commit or abort; itself if it has already ended that way."""
        if version < EPOCH_BUMP_VERSION:
            return self._ended_classic(producer_id, producer_epoch, committed, now_ms)
        if self.is_prepared:
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        # The previous end is retried if its response (an epoch more, or a new producer id) was lost.
        is_retry_over_exhaustion = (
            producer_id == self.previous_producer_id
            and producer_epoch == LAST_USABLE_EPOCH
            and self.producer_epoch == 0
        )
        is_retry = self.state in COMPLETE and (is_retry_over_exhaustion or producer_epoch + 1 == self.producer_epoch)
        if producer_id != self.producer_id and not is_retry_over_exhaustion:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        if producer_epoch != self.producer_epoch and not is_retry:
            raise KafkaError(ErrorCode.PRODUCER_FENCED)
        if is_retry:
            return self._check_outcome(committed)
        # A producer of version 2 may abort without partitions, because it is not notified that its first one was added.
        if committed and not self.is_open:
            raise KafkaError(ErrorCode.INVALID_TXN_STATE)
        return self._prepared_with_bump(committed, version, new_producer_id, now_ms)

    def _ended_classic(self, producer_id: int, producer_epoch: int, committed: bool, now_ms: int) -> Transaction:
        """Ends a transaction before transaction version 2: the epoch stays, so all retries get the same response."""
        self._check_producer(producer_id, producer_epoch)
        if self.is_prepared:
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        return self._prepared(committed, now_ms) if self.is_open else self._check_outcome(committed)

    def _check_outcome(self, committed: bool) -> Transaction:
        wanted = TransactionState.COMPLETE_COMMIT if committed else TransactionState.COMPLETE_ABORT
        if self.state is not wanted:
            raise KafkaError(ErrorCode.INVALID_TXN_STATE)
        return self

    # Completion

    def without(self, partitions: Iterable[TopicPartition]) -> Transaction:
        """Returns the prepared state after the markers were written in these partitions."""
        return attrs.evolve(self, partitions=self.partitions.difference(partitions))

    @property
    def next_producer(self) -> ProducerIdAndEpoch:
        """The producer that may use the id once a prepared transaction is complete, or now if it is complete."""
        if self.client_version >= EPOCH_BUMP_VERSION and self.next_producer_id != NO_PRODUCER_ID:
            return ProducerIdAndEpoch(self.next_producer_id, 0)
        return ProducerIdAndEpoch(self.producer_id, self.producer_epoch)

    def completed(self, *, now_ms: int) -> Transaction:
        """Returns the complete state, after all markers of a prepared transaction were written."""
        producer = self.next_producer
        committed = self.state is TransactionState.PREPARE_COMMIT
        return self._becomes(
            TransactionState.COMPLETE_COMMIT if committed else TransactionState.COMPLETE_ABORT,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            next_producer_id=NO_PRODUCER_ID,
            next_producer_epoch=NO_EPOCH,
            partitions=frozenset(),
            last_update_ms=now_ms,
        )

    def _prepared(
        self, committed: bool, now_ms: int, *, client_version: int = CLASSIC_VERSION, **changes: Any
    ) -> Transaction:
        return self._becomes(
            TransactionState.PREPARE_COMMIT if committed else TransactionState.PREPARE_ABORT,
            start_ms=self.start_ms if self.is_open else now_ms,
            last_update_ms=now_ms,
            client_version=client_version,
            **changes,
        )

    def _prepared_with_bump(
        self, committed: bool, version: int, new_producer_id: NewProducerId, now_ms: int
    ) -> Transaction:
        return self._prepared(
            committed,
            now_ms,
            producer_epoch=min(self.producer_epoch + 1, MAX_EPOCH),
            last_producer_epoch=self.producer_epoch,
            next_producer_id=new_producer_id() if self.is_exhausted else NO_PRODUCER_ID,
            client_version=version,
        )

    def _becomes(self, state: TransactionState, **changes: Any) -> Transaction:
        return attrs.evolve(self, state=state, previous_producer_id=self.producer_id, **changes)
