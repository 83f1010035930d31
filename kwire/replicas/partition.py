"""One partition as its leader sees it: a log, a leader epoch, replicas, and how far the replicas agree.

`log_start <= last_stable <= high_watermark <= log_end` holds after every change. Embedded there is one replica, so the
high watermark follows the log's end at once; nothing outside this file may rely on that. Whoever waits for new data
registers a `ParkedFetch` in `waiters`; the append that moves the high watermark wakes it.

Synchronous and free of trio: appends go to the page cache (see ARCHITECTURE.md), so there is nothing to await.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import attrs
from kwire_protocol.control_records import build_end_transaction_batch
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.records import BatchHeader, InvalidBatch, read_header
from kwire_protocol.wire import NULL_UUID, Uuid
from kwire_storage.config import LogConfig
from kwire_storage.errors import CorruptLogError, is_passing
from kwire_storage.log.log import AppendResult, Log, LogSlice, TimestampOffset
from kwire_storage.producers.states import EndTxnMarker, ProducerEntry, ProducerStates, Verification
from kwire_storage.producers.txn_index import AbortedTxn

from kwire.replicas.flush_gate import FlushDriver, FlushGate
from kwire.replicas.validation import TopicRules
from kwire.topic_names import is_internal
from kwire.waits import ParkedFetch

NO_EPOCH = -1

_LEADER_ERRORS = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})


def _nobody(_producer_id: int, _committed: bool) -> None: ...


def is_leader_error(code: int) -> bool:
    """Whether a client should look for the partition's leader again."""
    return code in _LEADER_ERRORS


@attrs.define(eq=False)
class Partition:
    """The leader's side of one topic partition.

    `isr` are node ids; this node is always among them while it leads.
    """

    topic: str
    topic_id: Uuid
    index: int
    log: Log
    node_id: int
    rules: TopicRules
    flush_driver: FlushDriver
    leader_id: int = -1
    leader_epoch: int = 0
    replicas: list[int] = attrs.field(factory=list)
    isr: list[int] = attrs.field(factory=list)
    directory_id: Uuid = NULL_UUID
    """The log folder that the metadata say this node's replica is in."""
    high_watermark: int = 0
    waiters: set[ParkedFetch] = attrs.field(factory=set)
    closed: bool = False
    """Set when the topic is deleted or the log's folder is offline: a parked fetch that wakes must not read on."""
    is_cleaning: bool = False
    """Whether the log is being compacted: until that is over it stays where it is."""
    refusal: ErrorCode = ErrorCode.NOT_LEADER_OR_FOLLOWER
    """What is answered when this node does not lead the partition, or does so no longer."""
    on_marker: Callable[[int, bool], None] = _nobody
    """Called with the producer id, and whether it was committed, when a transaction's end has been appended here."""
    flush_gate: FlushGate = attrs.field(init=False)
    is_internal: bool = attrs.field(init=False)
    _is_alone: bool = attrs.field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        self.is_internal = is_internal(self.topic)
        self.flush_gate = FlushGate(self.log, self.flush_driver, self._advance_high_watermark)

    def configure(self, rules: TopicRules, config: LogConfig) -> None:
        """The topic's configuration has changed."""
        self.rules = rules
        self.log.config = config
        self.flush_gate.set_trigger()

    @property
    def log_start_offset(self) -> int:
        return self.log.log_start_offset

    @property
    def log_end_offset(self) -> int:
        return self.log.log_end_offset

    @property
    def last_stable_offset(self) -> int:
        """Below it every transaction is decided (Kafka's LSO); the bound of read_committed."""
        unstable = self.log.producers.first_unstable_offset(self.high_watermark)
        if unstable is None:
            return self.high_watermark
        # The transaction may have begun with records that are deleted, or above what is replicated.
        return min(max(unstable, self.log.log_start_offset), self.high_watermark)

    def has_follower(self, replica_id: int) -> bool:
        return replica_id in self.replicas and replica_id != self.leader_id

    def check_leader(self, current_leader_epoch: int = NO_EPOCH) -> None:
        """Raises NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH (KIP-320)."""
        if self.leader_id != self.node_id or self.closed:
            raise KafkaError(self.refusal)
        if current_leader_epoch != NO_EPOCH and current_leader_epoch != self.leader_epoch:
            if current_leader_epoch < self.leader_epoch:
                raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
            raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH)

    def append(self, batch: memoryview, header: BatchHeader, *, acks: int, now_ms: int) -> AppendResult:
        """Appends what a client sent, or answers a producer's repeated batch with its first offset.

        Raises KafkaError: NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS, OUT_OF_ORDER_SEQUENCE_NUMBER,
        INVALID_PRODUCER_EPOCH, UNKNOWN_PRODUCER_ID, KAFKA_STORAGE_ERROR.
        """
        self.check_leader()
        if acks == -1 and len(self.isr) < self.rules.min_insync_replicas:
            self._check_in_sync()
        if header[9] >= 0 and self.log.producers.check(header, now_ms=now_ms) is not None:
            repeat = self.log.producers.find_repeat(header)
            assert repeat is not None
            return AppendResult(repeat.first_offset, repeat.last_offset, repeat.timestamp_ms)
        return self.append_checked(batch, header, now_ms=now_ms)

    def _check_in_sync(self) -> None:
        # Kafka never asks for more than the partition has (Partition.effectiveMinIsr).
        if len(self.isr) < min(self.rules.min_insync_replicas, len(self.replicas)):
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{self.topic}-{self.index} has {len(self.isr)} replicas in sync, "
                f"min.insync.replicas asks for {self.rules.min_insync_replicas}",
            )

    def holds_transaction(self, header: BatchHeader) -> bool:
        """Whether an open transaction of the batch's producer and epoch is here.

        If not, the coordinator is asked between `begin_verification` and `check_verified`. Raises KafkaError as `read`.
        """
        return self._producers.holds_transaction(header)

    def begin_verification(self, header: BatchHeader, *, adds: bool, now_ms: int) -> Verification:
        """Before the coordinator is asked to add the partition to the transaction, or whether it is part of it.

        Raises KafkaError: NOT_LEADER_OR_FOLLOWER, INVALID_PRODUCER_EPOCH, KAFKA_STORAGE_ERROR.
        """
        self.check_leader()
        return self._producers.begin_verification(header, adds=adds, now_ms=now_ms)

    def check_verified(self, header: BatchHeader, verification: Verification) -> None:
        """The coordinator has said yes: whether the batch may still be appended, right after this.

        Raises KafkaError: INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE, OUT_OF_ORDER_SEQUENCE_NUMBER.
        """
        self._producers.check_verified(header, verification)

    def drop_verification(self, header: BatchHeader) -> None:
        """The coordinator has refused for good."""
        self._producers.drop_verification(header)

    def write_marker(
        self,
        *,
        producer_id: int,
        producer_epoch: int,
        committed: bool,
        coordinator_epoch: int,
        transaction_version: int,
        now_ms: int,
    ) -> AppendResult:
        """Appends the end of a producer's transaction, whether or not one is open here, and tells `on_marker`.

        It may use the room that is kept back for a full disk: it lets readers go on. Until `flush_gate.when_flushed`
        the coordinator must not take it for done.
        Raises KafkaError: NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS, INVALID_PRODUCER_EPOCH,
        TRANSACTION_COORDINATOR_FENCED, KAFKA_STORAGE_ERROR.
        """
        self.check_leader()
        self._check_in_sync()
        batch = memoryview(
            bytearray(
                build_end_transaction_batch(
                    commit=committed,
                    producer_id=producer_id,
                    producer_epoch=producer_epoch,
                    coordinator_epoch=coordinator_epoch,
                    timestamp_ms=now_ms,
                )
            )
        )
        header = read_header(batch)
        marker = EndTxnMarker(committed, coordinator_epoch)
        self._producers.check_marker(header, marker, transaction_version=transaction_version)
        result = self.append_checked(batch, header, now_ms=now_ms, necessary=True)
        self.on_marker(producer_id, committed)
        return result

    def describe_producers(self, *, now_ms: int) -> list[ProducerEntry]:
        """Every producer that is remembered, with the first offset of its open transaction (DescribeProducers).

        Raises KafkaError: NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR.
        """
        self.check_leader()
        producers = self._producers
        producers.expire_if_due(now_ms)
        return list(producers.entries.values())

    @property
    def _producers(self) -> ProducerStates:
        try:
            return self.log.producers
        except OSError as error:
            raise self.storage_error(error) from error

    def append_checked(
        self, batch: memoryview, header: BatchHeader, *, now_ms: int, necessary: bool = False
    ) -> AppendResult:
        """Appends without asking about producers and replicas: what the broker itself writes.

        What is `necessary` may use the room that is kept back for a full disk, and nothing else may. What is at or
        above `flush_gate.held_from` afterwards must not be acknowledged before `when_flushed`.
        """
        try:
            log = self.log
            if necessary:
                result = log.reserve.spend(
                    partial(log.append, batch, header, leader_epoch=self.leader_epoch, now_ms=now_ms)
                )
            else:
                if log.reserve.is_out:
                    log.reserve.check()
                result = log.append(batch, header, leader_epoch=self.leader_epoch, now_ms=now_ms)
        except OSError as error:
            if header.has_producer_id:
                self.log.producers.refuse(header)
            raise self.storage_error(error) from error
        except CorruptLogError as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        if log.log_end_offset - log.recovery_point >= self.flush_gate.trigger_messages:
            self.flush_gate.reached(result.base_offset)
        self._advance_high_watermark()
        return result

    def read(self, offset: int, *, max_bytes: int, committed: bool, min_one_batch: bool) -> LogSlice:
        """Whole batches from the one that holds `offset`.

        Raises KafkaError: OFFSET_OUT_OF_RANGE, KAFKA_STORAGE_ERROR, CORRUPT_MESSAGE.
        """
        self.check_offset(offset)
        bound = self.last_stable_offset if committed else self.high_watermark
        try:
            return self.log.read(offset, max_bytes=max_bytes, max_offset=bound, min_one_batch=min_one_batch)
        except (OSError, CorruptLogError) as error:
            raise self._unreadable(error) from error

    def check_offset(self, offset: int) -> None:
        """Raises KafkaError(OFFSET_OUT_OF_RANGE) where nothing can be read, now or after the next append."""
        if not self.log.log_start_offset <= offset <= self.high_watermark:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)

    def aborted_transactions(self, offset: int, piece: LogSlice) -> list[AbortedTxn]:
        """What a read_committed reader of `piece`, from `offset` on, must leave out. Raises KafkaError as `read`."""
        try:
            return self.log.aborted_transactions(offset, piece)
        except (OSError, CorruptLogError) as error:
            raise self._unreadable(error) from error

    def find_time(self, timestamp_ms: int, max_offset: int) -> TimestampOffset | None:
        """The first record below `max_offset` at or after the time. Raises KafkaError as `read`."""
        try:
            return self.log.offset_for_timestamp(timestamp_ms, max_offset=max_offset)
        except (OSError, CorruptLogError, InvalidBatch) as error:
            raise self._unreadable(error) from error

    def find_newest(self, max_offset: int) -> TimestampOffset | None:
        """The record below `max_offset` with the largest timestamp. Raises KafkaError as `read`."""
        try:
            return self.log.max_timestamp_offset(max_offset=max_offset)
        except (OSError, CorruptLogError, InvalidBatch) as error:
            raise self._unreadable(error) from error

    def delete_records_before(self, offset: int, *, now_ms: int) -> int:
        """DeleteRecords: moves the log start up to `offset` (-1: the high watermark). Returns the low watermark.

        Raises KafkaError: OFFSET_OUT_OF_RANGE, KAFKA_STORAGE_ERROR, POLICY_VIOLATION (cleanup.policy lacks delete).
        """
        self.check_leader()
        if not self.rules.deletable:
            raise KafkaError(ErrorCode.POLICY_VIOLATION)
        target = self.high_watermark if offset == -1 else offset
        if target < 0 or target > self.high_watermark:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        if target > self.log.log_start_offset:
            try:
                self.log.advance_log_start(target, now_ms=now_ms)
            except OSError as error:
                raise self.storage_error(error) from error
        return self.log.log_start_offset

    def close(self) -> None:
        """The partition is gone from this node: whoever waits on it learns it now."""
        self.closed = True
        self.flush_gate.close(KafkaError(self.refusal))
        self._wake()

    def replace_log(self, log: Log) -> None:
        """The same records are in another log folder now."""
        assert log.log_end_offset == log.recovery_point == self.log.log_end_offset, "nothing is lost on the way"
        log.config = self.log.config
        self.log = log
        self.flush_gate.release()
        self.flush_gate = FlushGate(log, self.flush_driver, self._advance_high_watermark)
        self._advance_high_watermark()

    def take_offline(self) -> None:
        """The folder of the log is out of service: so is the partition, until the next start."""
        self.refusal = ErrorCode.KAFKA_STORAGE_ERROR
        self.close()

    def storage_error(self, error: OSError) -> KafkaError:
        """What the client is told. Where the disk has failed, and does not just lack room, its folder goes offline."""
        if not is_passing(error):
            self.log.fail(error)
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))

    def _unreadable(self, error: Exception) -> KafkaError:
        if isinstance(error, OSError):
            return self.storage_error(error)
        return KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error))

    def lead(self, *, leader_id: int, leader_epoch: int, replicas: list[int], isr: list[int]) -> None:
        """Takes over what the metadata log says of this partition."""
        changed = leader_epoch != self.leader_epoch or leader_id != self.leader_id
        self.leader_id, self.leader_epoch = leader_id, leader_epoch
        self.replicas, self.isr = list(replicas), list(isr)
        self._is_alone = self.isr == [self.node_id]
        if changed:
            self._wake()
        self._advance_high_watermark()

    def _advance_high_watermark(self) -> None:
        # With replication this becomes the lowest log end of the ISR; alone, the leader is the whole ISR.
        if not self._is_alone:
            return
        log = self.log
        end, held_from = log.log_end_offset, self.flush_gate.held_from
        self.high_watermark = end if end < held_from else held_from
        assert log.log_start_offset <= self.high_watermark
        if self.waiters:
            self._wake()

    def _wake(self) -> None:
        for waiter in tuple(self.waiters):
            waiter.wake()
