"""A partition's state of its producers: enough to refuse gaps, to recognise repeats, and to see open transactions.

For each producer id: its epoch, the sequences and offsets of its last five batches, and the start of its open
transaction. The rules are Kafka's:

* an epoch below the known one is fenced (INVALID_PRODUCER_EPOCH); a higher one must begin with sequence 0;
* within an epoch the next sequence is the last one's successor, and 0 follows 2^31 - 1;
* a batch with the same epoch and sequences as one of the last five is a repeat, answered with its first offset;
* any sequence is accepted from a producer without state: its records may have been deleted since;
* when the disk had no room for a batch, later batches are refused with the same error until it is sent again, even if
  there is room by then. In Kafka the whole folder is offline, with the same result. If they were refused as out of
  order, librdkafka would take a new epoch and send batches again that may already be in the log;
* while a transaction is open, all batches of the producer must be transactional;
* a transaction begins here only after a request to its coordinator, and if no marker came meanwhile (KIP-890);
* a producer that has appended nothing for `producer.id.expiration.ms` expires, unless its transaction is open; this is
  checked every `producer.id.expiration.check.interval.ms`. Kafka compares the clock with the timestamps of its records
  instead: a producer that writes timestamps of last month is forgotten while it sends, so its retry is appended twice,
  and one that writes timestamps of the future is never forgotten.

Snapshots and batches do not have the time of an append. A state that was read from them gets its timestamp instead, but
not a future one, and is kept for at least an hour (`LOADED_FOR_MS`): so a producer can repeat batches from before a
restart. If the full time began at each restart, a broker that restarts every night would never forget a producer.

`check` decides and changes nothing; `apply` and `apply_marker` change the state and are what recovery replays, so the
state is always a fold over the batches. `snapshots.py` reads and writes snapshots of it.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.records import BatchHeader

REMEMBERED_BATCHES: Final = 5
NO_EPOCH: Final = -1
NO_SEQUENCE: Final = -1
MAX_SEQUENCE: Final = 2**31 - 1
MOST_REFUSED: Final = 10_000
"""The maximum number of producers that are remembered because the disk had no room for their batch."""
DEFAULT_EXPIRATION_MS: Final = 86_400_000
DEFAULT_EXPIRATION_CHECK_INTERVAL_MS: Final = 600_000
LOADED_FOR_MS: Final = 3_600_000
"""The minimum time in ms that a producer is kept if it was read from a snapshot, or from its batches; far longer than
clients try to deliver a batch (`delivery.timeout.ms`, two minutes)."""
NOT_KNOWN: Final = -1
"""The time of an append before the states were loaded."""


class BatchMetadata(NamedTuple):
    """One of the last batches of a producer."""

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp_ms: int


class EndTxnMarker(NamedTuple):
    """The content of a control record that ends a transaction."""

    committed: bool
    coordinator_epoch: int


class CompletedTxn(NamedTuple):
    """A transaction that a marker has just ended; `last_offset` is the marker's."""

    producer_id: int
    first_offset: int
    last_offset: int
    aborted: bool


@attrs.define(eq=False)
class ProducerEntry:
    """One producer. `batches` holds the last five, oldest first."""

    producer_id: int
    epoch: int = NO_EPOCH
    coordinator_epoch: int = -1
    last_timestamp_ms: int = -1
    """The timestamp of its newest records, which DescribeProducers returns."""
    txn_first_offset: int | None = None
    batches: list[BatchMetadata] = attrs.field(factory=list)
    appended_ms: int = NOT_KNOWN
    """The time of its last append, by the broker's clock."""

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    def find_repeat(self, header: BatchHeader) -> BatchMetadata | None:
        """Returns the batch that this one repeats, or None."""
        if header.producer_epoch == self.epoch:
            first, last = header.base_sequence, header.last_sequence
            for batch in self.batches:
                if batch.first_sequence == first and batch.last_sequence == last:
                    return batch
        return None


class Refused(NamedTuple):
    """A batch that was in order and had no room on the disk."""

    epoch: int
    sequence: int


@attrs.define(eq=False)
class Verification:
    """A transaction that its coordinator has to verify before its first batch is appended (VerificationStateEntry).

    A marker ends it: an earlier answer of the coordinator is no longer valid. `lowest_sequence` refuses later batches
    if an earlier one must be sent again because of the coordinator's answer.
    """

    producer_id: int
    began_ms: int
    epoch: int
    lowest_sequence: int
    adds: bool
    """True if the first request added the partition, not just verified it: the client uses transaction version 2."""


class ProducerStates:
    """The producers of one partition."""

    def __init__(
        self,
        expiration_ms: int = DEFAULT_EXPIRATION_MS,
        check_interval_ms: int = DEFAULT_EXPIRATION_CHECK_INTERVAL_MS,
    ) -> None:
        self.expiration_ms = expiration_ms
        self.check_interval_ms = check_interval_ms
        self.entries: dict[int, ProducerEntry] = {}
        # First offsets of open transactions, ascending, with their producers.
        self._open: dict[int, int] = {}
        # Ended transactions, (first offset, marker's offset): they bound the last stable offset until the marker is
        # replicated.
        self._ended: list[tuple[int, int]] = []
        self._verifications: dict[int, Verification] = {}
        self._refused: dict[int, Refused] = {}
        self._next_expiration_ms = 0

    # -- decisions

    def check(self, header: BatchHeader, *, now_ms: int) -> int | None:
        """Returns None if the batch may be appended, or else the first offset of the batch that it repeats.

        A batch without sequences (written by a coordinator) is checked by its epoch only. Raises KafkaError:
        INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_TXN_STATE, KAFKA_STORAGE_ERROR.
        """
        if now_ms >= self._next_expiration_ms:
            self.expire(now_ms)
        entry = self.entries.get(header.producer_id)
        if entry is None:
            if self._refused:
                self._check_refused(header, None)
            return None
        sequence = header.base_sequence
        if sequence != NO_SEQUENCE and (repeat := entry.find_repeat(header)) is not None:
            return repeat.first_offset
        if header.producer_epoch < entry.epoch:
            raise _stale(entry, header)
        if sequence != NO_SEQUENCE:
            try:
                _check_sequence(entry, header)
            except KafkaError:
                self._check_refused(header, entry)
                raise
        if entry.txn_first_offset is not None and not header.is_transactional:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {header.producer_id} has an open transaction, the batch is not transactional",
            )
        return None

    def refuse(self, header: BatchHeader) -> None:
        """Remembers a batch that `check` accepted, and for which the disk has no room."""
        if header.base_sequence == NO_SEQUENCE:
            return
        if len(self._refused) >= MOST_REFUSED:
            self._refused.clear()
        self._refused[header.producer_id] = Refused(header.producer_epoch, header.base_sequence)

    def _check_refused(self, header: BatchHeader, entry: ProducerEntry | None) -> None:
        """Raises KafkaError(KAFKA_STORAGE_ERROR) for a batch that was sent after one without room."""
        refused = self._refused.get(header.producer_id)
        if refused is None or refused.epoch != header.producer_epoch or header.base_sequence <= refused.sequence:
            return
        # The refused batch may have been sent again, and appended.
        if entry is None or entry.epoch != refused.epoch or refused.sequence == entry.last_sequence + 1:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"producer {header.producer_id} sent sequence {header.base_sequence} behind {refused.sequence}, for "
                "which the disk had no room: that one comes first",
            )

    def find_repeat(self, header: BatchHeader) -> BatchMetadata | None:
        """Returns the batch that this one repeats, of any producer, or None."""
        entry = self.entries.get(header.producer_id)
        return entry.find_repeat(header) if entry is not None else None

    def holds_transaction(self, header: BatchHeader) -> bool:
        """Returns True if the batch's producer has an open transaction here, with the same epoch."""
        entry = self.entries.get(header.producer_id)
        return entry is not None and entry.txn_first_offset is not None and entry.epoch == header.producer_epoch

    def begin_verification(self, header: BatchHeader, *, adds: bool, now_ms: int) -> Verification:
        """Called before a request to the coordinator about the first batch of a transaction (KIP-890).

        Raises KafkaError(INVALID_PRODUCER_EPOCH).
        """
        self.expire_if_due(now_ms)
        producer_id, epoch, sequence = header.producer_id, header.producer_epoch, header.base_sequence
        entry = self.entries.get(producer_id)
        if entry is not None and epoch < entry.epoch:
            raise _stale(entry, header)
        known = self._verifications.get(producer_id)
        if known is None:
            known = self._verifications[producer_id] = Verification(producer_id, now_ms, epoch, sequence, adds)
        elif epoch > known.epoch:
            known.epoch, known.lowest_sequence = epoch, sequence
        elif epoch == known.epoch:
            known.lowest_sequence = min(known.lowest_sequence, sequence)
        return known

    def drop_verification(self, header: BatchHeader) -> None:
        """Ends a verification because the coordinator has refused its epoch; one of a newer epoch continues."""
        known = self._verifications.get(header.producer_id)
        if known is not None and known.epoch <= header.producer_epoch:
            del self._verifications[header.producer_id]

    def verifies(self, verification: Verification) -> bool:
        """Returns True if no marker has come since `begin_verification`."""
        return self._verifications.get(verification.producer_id) is verification

    def check_verified(self, header: BatchHeader, verification: Verification) -> None:
        """Checks that a batch may begin its transaction here, which the coordinator has verified; `check` applies, too.

        Raises KafkaError: INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE (a marker has come since `begin_verification`),
        OUT_OF_ORDER_SEQUENCE_NUMBER.
        """
        producer_id, sequence = header.producer_id, header.base_sequence
        entry = self.entries.get(producer_id)
        if entry is not None and header.producer_epoch < entry.epoch:
            raise _stale(entry, header)
        if not self.verifies(verification):
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"the transaction of producer {producer_id} ended during a request to its coordinator",
            )
        # With transaction version 2 every transaction has its own epoch, and so its own sequences.
        if verification.adds and sequence > 0 and (entry is None or not entry.batches):
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {producer_id} begins with sequence {sequence}, not 0",
            )
        if sequence > verification.lowest_sequence:
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {producer_id} sent sequence {sequence} before it repeated {verification.lowest_sequence}",
            )

    def check_marker(self, header: BatchHeader, marker: EndTxnMarker, *, transaction_version: int = 0) -> None:
        """Checks that a coordinator's marker may be appended.

        From transaction version 2 on the marker's epoch must be above the producer's (KIP-890), or equal to it if the
        transaction has ended already: the coordinator repeats the marker. Raises KafkaError: INVALID_PRODUCER_EPOCH,
        TRANSACTION_COORDINATOR_FENCED.
        """
        entry = self.entries.get(header.producer_id)
        if entry is None:
            return
        epoch = header.producer_epoch
        strict = transaction_version >= 2 and entry.txn_first_offset is not None
        if epoch < entry.epoch or (strict and epoch == entry.epoch):
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"producer {header.producer_id} has epoch {entry.epoch}, the marker has {epoch}",
            )
        if marker.coordinator_epoch < entry.coordinator_epoch:
            raise KafkaError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"the marker is of coordinator epoch {marker.coordinator_epoch}, now it is {entry.coordinator_epoch}",
            )

    # -- the fold

    def apply(
        self, header: BatchHeader, base_offset: int, timestamp_ms: int | None = None, now_ms: int = NOT_KNOWN
    ) -> None:
        """Applies a data batch at `base_offset`; `timestamp_ms` replaces its largest timestamp.

        `now_ms` is the time of the append.
        """
        producer_id = header.producer_id
        entry = self.entries.get(producer_id)
        if entry is None:
            entry = self.entries[producer_id] = ProducerEntry(producer_id)
        batches = entry.batches
        if header.producer_epoch != entry.epoch:
            entry.epoch = header.producer_epoch
            batches.clear()
        elif len(batches) == REMEMBERED_BATCHES:
            del batches[0]
        timestamp = header.max_timestamp if timestamp_ms is None else timestamp_ms
        last_offset = base_offset + header.last_offset_delta
        batches.append(BatchMetadata(header.base_sequence, header.last_sequence, base_offset, last_offset, timestamp))
        entry.last_timestamp_ms = timestamp
        entry.appended_ms = now_ms
        if header.is_transactional and entry.txn_first_offset is None:
            entry.txn_first_offset = base_offset
            self._open[base_offset] = producer_id
            self._verifications.pop(producer_id, None)

    def apply_marker(
        self,
        header: BatchHeader,
        base_offset: int,
        marker: EndTxnMarker,
        timestamp_ms: int,
        now_ms: int = NOT_KNOWN,
    ) -> CompletedTxn | None:
        """Applies a control batch; returns the transaction that it ended, if one was open."""
        producer_id = header.producer_id
        entry = self.entries.get(producer_id)
        if entry is None:
            entry = self.entries[producer_id] = ProducerEntry(producer_id)
        if header.producer_epoch != entry.epoch:
            entry.epoch = header.producer_epoch
            entry.batches.clear()
        entry.coordinator_epoch = marker.coordinator_epoch
        entry.last_timestamp_ms = timestamp_ms
        entry.appended_ms = now_ms
        self._verifications.pop(producer_id, None)
        first_offset, entry.txn_first_offset = entry.txn_first_offset, None
        if first_offset is None:
            return None
        del self._open[first_offset]
        self._ended.append((first_offset, base_offset))
        return CompletedTxn(producer_id, first_offset, base_offset, aborted=not marker.committed)

    def expire_if_due(self, now_ms: int) -> None:
        """Forgets idle producers if the check interval has passed."""
        if now_ms >= self._next_expiration_ms:
            self.expire(now_ms)

    def expire(self, now_ms: int) -> int:
        """Forgets idle producers; returns their number."""
        self._next_expiration_ms = now_ms + self.check_interval_ms
        horizon = now_ms - self.expiration_ms
        for entry in self.entries.values():
            if entry.appended_ms == NOT_KNOWN:
                earliest_ms = horizon + min(LOADED_FOR_MS, self.expiration_ms)
                entry.appended_ms = max(min(entry.last_timestamp_ms, now_ms), earliest_ms)
        idle = [
            entry.producer_id
            for entry in self.entries.values()
            if entry.appended_ms <= horizon and entry.txn_first_offset is None
        ]
        for producer_id in idle:
            del self.entries[producer_id]
        self._refused.clear()
        self._verifications = {
            it: verification for it, verification in self._verifications.items() if verification.began_ms > horizon
        }
        return len(idle)

    def load(self, entries: list[ProducerEntry]) -> None:
        """Replaces the state by that of a snapshot."""
        self.entries = {entry.producer_id: entry for entry in entries}
        self._open = dict(
            sorted(
                (entry.txn_first_offset, entry.producer_id) for entry in entries if entry.txn_first_offset is not None
            )
        )
        self._ended.clear()

    # -- transactions

    @property
    def first_undecided_offset(self) -> int | None:
        """The first offset of the earliest open transaction."""
        return next(iter(self._open), None)

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        """The earliest offset of a transaction that is open, or whose marker is not below the high watermark."""
        if not self._open and not self._ended:
            return None
        if self._ended:
            self._ended = [ended for ended in self._ended if ended[1] >= high_watermark]
        first = self.first_undecided_offset
        if self._ended:
            ended = min(self._ended)[0]
            return ended if first is None else min(first, ended)
        return first

    def last_stable_offset_after(self, completed: CompletedTxn) -> int:
        """The last stable offset once this transaction has ended (all replicated)."""
        first = self.first_undecided_offset
        return completed.last_offset + 1 if first is None else first


def _stale(entry: ProducerEntry, header: BatchHeader) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_PRODUCER_EPOCH,
        f"Producer {header.producer_id} attempted to produce with an old epoch: {header.producer_epoch}, and it has "
        f"{entry.epoch}.",
    )


def _check_sequence(entry: ProducerEntry, header: BatchHeader) -> None:
    sequence = header.base_sequence
    if header.producer_epoch != entry.epoch:
        # A marker alone leaves an entry without epoch only in theory; then any sequence is accepted.
        if sequence != 0 and entry.epoch != NO_EPOCH:
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"The broker received an out of order sequence number: producer {header.producer_id} begins epoch "
                f"{header.producer_epoch} with {sequence}, not 0.",
            )
        return
    last = entry.last_sequence
    if sequence != last + 1 and not (sequence == 0 and last == MAX_SEQUENCE):
        raise KafkaError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"The broker received an out of order sequence number: {sequence} after {last} of producer "
            f"{header.producer_id}.",
        )
