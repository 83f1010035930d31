"""A partition of which this node has a replica: a log, a role, and the high watermark.

`log_start <= last_stable <= high_watermark <= log_end` holds after every change. The role decides what this node may do
with the partition (`roles.py`): only a leader appends, and every append checks that. A fetch that waits for new data
puts itself into `waiters`, and each change that concerns it wakes it. A producer that waits for its batch
calls `when_committed`, and a request that deletes records calls `when_deleted`.

Synchronous and independent of trio: appends go to the page cache (see ARCHITECTURE.md), so there is nothing to await.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from operator import attrgetter
from typing import Protocol, final

import attrs
from kwire_protocol.control_records import build_end_transaction_batch
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.records import BatchHeader, InvalidBatch, read_header
from kwire_protocol.wire import NULL_UUID, Uuid
from kwire_storage.config import LogConfig
from kwire_storage.errors import CorruptLogError, OffsetOutOfRange, is_passing
from kwire_storage.log.log import AppendResult, LogSlice, TimestampOffset
from kwire_storage.producers.states import EndTxnMarker, ProducerEntry, ProducerStates, Verification
from kwire_storage.producers.txn_index import AbortedTxn

from kwire.names.topic_names import is_internal
from kwire.replicas.acknowledging import ALL_IN_SYNC, DELETED_BY_ALL, Acknowledgement, Acknowledgements
from kwire.replicas.flush_gate import FlushDriver, FlushGate
from kwire.replicas.partition_log import LogRead, PartitionLog
from kwire.replicas.roles import NO_EPOCH, Absent, Follower, Leader, Role, check_epoch
from kwire.replicas.validation import TopicRules
from kwire.runtime.callbacks import ignore
from kwire.runtime.futures import Waiter

CONSUMER = -1
READ_UNCOMMITTED = 0
READ_COMMITTED = 1

_LOG_END_OFFSET = attrgetter("log_end_offset")
_HIGH_WATERMARK = attrgetter("high_watermark")
_LAST_STABLE_OFFSET = attrgetter("last_stable_offset")


class IsrDriver(Protocol):
    """Maintains the ISR of the partitions that this node leads."""

    def fetched(self, partition: Partition, role: Leader, replica_id: int, now_ms: int) -> None:
        """Called when a follower that is not in the ISR has fetched."""

    def is_alive(self, node_id: int) -> bool:
        """True if that broker is in service, by this node's metadata."""


class _NoFollowers:
    """Changes no ISR."""

    def is_alive(self, node_id: int) -> bool:  # noqa: ARG002
        return True

    def fetched(self, partition: Partition, role: Leader, replica_id: int, now_ms: int) -> None:
        pass


@final
@attrs.define(eq=False)
class Partition:
    """This node's replica of a topic partition.

    `role` changes with the metadata (`take_role`). Once it is Absent, every operation on the object is refused.
    """

    topic: str
    topic_id: Uuid
    index: int
    log: PartitionLog
    rules: TopicRules
    flush_driver: FlushDriver
    directory_id: Uuid = NULL_UUID
    """The log dir of this node's replica, according to the metadata."""
    high_watermark: int = 0
    """At the start, the value of the last checkpoint."""
    isr_driver: IsrDriver = attrs.field(factory=_NoFollowers)
    role: Role = attrs.field(factory=Absent, init=False)
    waiters: dict[Waiter, None] = attrs.field(factory=dict, init=False)
    """The waiting fetches. A change of their result wakes them: an append, if there are followers; the high watermark,
    the log start, the role."""
    is_cleaning: bool = attrs.field(default=False, init=False)
    """True while the log is being compacted. Meanwhile it is not moved to another log dir."""
    on_marker: Callable[[int, bool], None] = attrs.field(default=ignore, init=False)
    """Called after a transaction marker has been appended here, with its producer id and whether it commits."""
    on_durable: Callable[[], None] = attrs.field(default=ignore, init=False)
    """Called on a follower after a flush that its fetches wait for."""
    flush_gate: FlushGate = attrs.field(init=False)
    is_internal: bool = attrs.field(init=False)
    _acknowledgements: Acknowledgements = attrs.field(factory=Acknowledgements, init=False)

    def __attrs_post_init__(self) -> None:
        self.is_internal = is_internal(self.topic)
        self.flush_gate = self._new_gate()
        self.high_watermark = min(max(self.high_watermark, self.log.log_start_offset), self.log.log_end_offset)

    def _new_gate(self) -> FlushGate:
        return FlushGate(self.log, self.flush_driver, self._advance_high_watermark, self._fail_held)

    def configure(self, rules: TopicRules, config: LogConfig) -> None:
        """Applies the topic's changed configuration."""
        self.rules = rules
        self.log.config = config
        self.flush_gate.set_trigger()
        if not self.role.is_alone:
            self._advance_high_watermark()  # min.insync.replicas may be less than before

    @property
    def log_start_offset(self) -> int:
        return self.log.log_start_offset

    @property
    def log_end_offset(self) -> int:
        return self.log.log_end_offset

    @property
    def last_stable_offset(self) -> int:
        """The offset below which every transaction has ended (Kafka's LSO); the bound of read_committed."""
        unstable = self.log.producers.first_unstable_offset(self.high_watermark)
        if unstable is None:
            return self.high_watermark
        # The transaction may have begun in records that are deleted, or above the high watermark.
        return min(max(unstable, self.log.log_start_offset), self.high_watermark)

    @property
    def closed(self) -> bool:
        """True if this node has lost the replica, with its topic or its log dir."""
        return type(self.role) is Absent

    @property
    def is_leader_throttled(self) -> bool:
        """True if leader.replication.throttled.replicas names this node's replica, which leads."""
        return self.rules.throttled_leaders.has(self.index, self.role.leader_id)

    def leader(self, current_leader_epoch: int = NO_EPOCH) -> Leader:
        """This node's role, which must be Leader. `current_leader_epoch` is the client's, or -1 (KIP-320).

        Raises KafkaError: NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH.
        """
        role = self.role
        if type(role) is not Leader:
            raise role.refusal(current_leader_epoch)
        if current_leader_epoch != NO_EPOCH and current_leader_epoch != role.leader_epoch:
            check_epoch(current_leader_epoch, role.leader_id, role.leader_epoch)
        return role

    def readable(self, current_leader_epoch: int = NO_EPOCH) -> Leader | Follower:
        """This node's role, Leader or Follower: consumers read from both (KIP-392). Raises KafkaError as `leader`."""
        role = self.role
        if type(role) is Absent:
            raise role.refusal()
        if current_leader_epoch != NO_EPOCH and current_leader_epoch != role.leader_epoch:
            check_epoch(current_leader_epoch, role.leader_id, role.leader_epoch)
        return role

    # Appending

    def append(self, batch: memoryview, header: BatchHeader, *, acks: int, now_ms: int) -> AppendResult:
        """Appends a client's batch, or answers a producer's repeated batch with its first offset.

        Raises KafkaError: NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS, OUT_OF_ORDER_SEQUENCE_NUMBER,
        INVALID_PRODUCER_EPOCH, UNKNOWN_PRODUCER_ID, KAFKA_STORAGE_ERROR.
        """
        role = self.role
        if type(role) is not Leader:
            raise role.refusal()
        if acks == ALL_IN_SYNC and not role.all_in_sync:
            self._check_in_sync(role)
        if header.producer_id >= 0 and self.log.producers.check(header, now_ms=now_ms) is not None:
            repeat = self.log.producers.find_repeat(header)
            assert repeat is not None
            return AppendResult(repeat.first_offset, repeat.last_offset, repeat.timestamp_ms)
        return self._append(role, batch, header, now_ms=now_ms)

    def append_own(
        self, batch: memoryview, header: BatchHeader, *, now_ms: int, necessary: bool = False
    ) -> AppendResult:
        """Appends the broker's own batch: without a producer, and with acks=-1.

        With `necessary` it may use the room that is reserved for a full disk; other appends may not.
        Raises KafkaError: NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS, KAFKA_STORAGE_ERROR.
        """
        role = self.leader()
        if not role.all_in_sync:
            self._check_in_sync(role)
        return self._append(role, batch, header, now_ms=now_ms, necessary=necessary)

    def _check_in_sync(self, role: Leader) -> None:
        if role.lacks_replicas(self.rules.min_insync_replicas):
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{self.topic}-{self.index} has {len(role.isr)} replicas in sync, "
                f"min.insync.replicas requires {self.rules.min_insync_replicas}",
            )

    def holds_transaction(self, header: BatchHeader) -> bool:
        """True if the batch's producer has an open transaction here in the batch's epoch.

        If not, a request to the coordinator is sent between `begin_verification` and `check_verified`. Raises
        KafkaError as `read`.
        """
        return self._producers.holds_transaction(header)

    def begin_verification(self, header: BatchHeader, *, adds: bool, now_ms: int) -> Verification:
        """Begins a verification, before the coordinator adds the partition to the transaction, or confirms that it did.

        Raises KafkaError: NOT_LEADER_OR_FOLLOWER, INVALID_PRODUCER_EPOCH, KAFKA_STORAGE_ERROR.
        """
        self.leader()
        return self._producers.begin_verification(header, adds=adds, now_ms=now_ms)

    def verifies(self, verification: Verification) -> bool:
        """True if no marker has come since `begin_verification`, so that the coordinator's answer counts."""
        return self._producers.verifies(verification)

    def check_verified(self, header: BatchHeader, verification: Verification) -> None:
        """Checks, after the coordinator has agreed, that the batch may still be appended, right after this call.

        Raises KafkaError: INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE, OUT_OF_ORDER_SEQUENCE_NUMBER.
        """
        self._producers.check_verified(header, verification)

    def drop_verification(self, header: BatchHeader) -> None:
        """Ends a verification that the coordinator has refused for good."""
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
        """Appends a transaction marker, whether or not the producer has a transaction here, and calls `on_marker`.

        It may use the room that is reserved for a full disk, because readers wait for it. Until it is committed
        (`when_committed`) the coordinator must not regard it as written.
        Raises KafkaError: NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS, INVALID_PRODUCER_EPOCH,
        TRANSACTION_COORDINATOR_FENCED, KAFKA_STORAGE_ERROR.
        """
        role = self.leader()
        self._check_in_sync(role)
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
        result = self._append(role, batch, header, now_ms=now_ms, necessary=True)
        self.on_marker(producer_id, committed)
        return result

    def describe_producers(self, *, now_ms: int) -> list[ProducerEntry]:
        """Returns every producer with state here, with the first offset of its open transaction (DescribeProducers).

        Every replica answers from its own state: kafka-transactions find-hanging contacts the broker of its option.
        Raises KafkaError: NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR.
        """
        self.readable()
        producers = self._producers
        producers.expire_if_due(now_ms)
        return list(producers.entries.values())

    @property
    def _producers(self) -> ProducerStates:
        try:
            return self.log.producers
        except OSError as error:
            raise self.storage_error(error) from error

    def _append(
        self, role: Leader, batch: memoryview, header: BatchHeader, *, now_ms: int, necessary: bool = False
    ) -> AppendResult:
        try:
            log = self.log
            if necessary:
                result = log.reserve.spend(
                    partial(log.append, batch, header, leader_epoch=role.leader_epoch, now_ms=now_ms)
                )
            else:
                if log.reserve.is_out:
                    log.reserve.check()
                result = log.append(batch, header, leader_epoch=role.leader_epoch, now_ms=now_ms)
        except OSError as error:
            if header.has_producer_id:
                self.log.producers.refuse(header)
            raise self.storage_error(error) from error
        except CorruptLogError as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        if log.log_end_offset - log.recovery_point >= self.flush_gate.trigger_messages:
            self.flush_gate.reached(result.base_offset)
        self._advance_high_watermark(True)
        return result

    def when_committed(self, last_offset: int, acks: int) -> Acknowledgement | None:
        """Returns None if the batch that ends at `last_offset` is acknowledged already; else a future to be set later.

        With acks=1 it must be in the leader's log, as durable as flush.messages requires; with acks=-1 in the logs of
        all replicas in sync. With acks=0 nothing waits. The future's error is the reason why the batch cannot be
        acknowledged: NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS_AFTER_APPEND, KAFKA_STORAGE_ERROR; and
        REQUEST_TIMED_OUT, if the producer has set a limit.
        """
        bound = self.high_watermark if acks == ALL_IN_SYNC else self.flush_gate.held_from
        if last_offset < bound or not acks:
            return None
        role = self.role
        if type(role) is Leader:
            waits_for_others = acks == ALL_IN_SYNC and not role.is_alone
            return self._acknowledgements.add(last_offset, acks, waits_for_others=waits_for_others)
        refused = Acknowledgement()
        refused.set(role.refusal())
        return refused

    # Reading

    def read(self, offset: int, *, max_bytes: int, max_offset: int, min_one_batch: bool) -> LogRead:
        """Returns whole batches from the one that has `offset`, below `max_offset`, which comes from `read_bound`.

        Empty if there is nothing yet. Raises KafkaError: OFFSET_OUT_OF_RANGE, KAFKA_STORAGE_ERROR, CORRUPT_MESSAGE.
        If the log must wait for the bytes, it returns a future, which is for `arrived`.
        """
        try:
            return self.log.read(offset, max_bytes=max_bytes, max_offset=max_offset, min_one_batch=min_one_batch)
        except OffsetOutOfRange as error:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE) from error
        except (OSError, CorruptLogError) as error:
            raise self._unreadable(error) from error

    async def arrived(self, read: LogRead) -> LogSlice:
        """Returns the slice that `read` has returned, or waits for it. Raises KafkaError, as `read` does."""
        if isinstance(read, LogSlice):
            return read
        found = await read
        try:
            return found.unwrap()
        except (OSError, CorruptLogError) as error:
            raise self._unreadable(error) from error

    def check_offset(self, offset: int) -> None:
        """Raises KafkaError(OFFSET_OUT_OF_RANGE) if the offset is outside the log.

        Offsets above the high watermark are valid, but cannot be read yet. A reader that got so far with a former
        leader waits until this leader's high watermark has caught up.
        """
        log = self.log
        if not log.log_start_offset <= offset <= log.log_end_offset:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)

    def aborted_transactions(self, offset: int, piece: LogSlice) -> list[AbortedTxn]:
        """The transactions that a read_committed reader of `piece` must skip from `offset` on. KafkaError as `read`."""
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
        """Moves the log start up to `offset` (-1: the high watermark) for DeleteRecords. Returns the offset.

        Raises KafkaError: OFFSET_OUT_OF_RANGE, KAFKA_STORAGE_ERROR, POLICY_VIOLATION (cleanup.policy lacks delete).
        """
        self.leader()
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
            self._wake()
        return target

    @property
    def low_watermark(self) -> int:
        """The first offset that a live replica has (Kafka's `lowWatermarkIfLeader`)."""
        low_watermark = self.log.log_start_offset
        role = self.role
        if type(role) is Leader:
            for node_id, follower in role.followers.items():
                if follower.log_start_offset < low_watermark and self.isr_driver.is_alive(node_id):
                    low_watermark = follower.log_start_offset
        return low_watermark

    def when_deleted(self, offset: int) -> Acknowledgement | None:
        """Returns None if no live replica has records below `offset`; else a future that is set later, or to an error.

        The errors are NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR, and REQUEST_TIMED_OUT, if a limit was set.
        """
        if self.low_watermark >= offset:
            return None
        return self._acknowledgements.add(offset - 1, DELETED_BY_ALL, waits_for_others=True)

    def maintain(self, now_ms: int) -> int:
        """Rolls the log, or deletes old segments and returns their number. Raises OSError, CorruptLogError."""
        count = self.log.maintain(now_ms, self.high_watermark)
        if count:
            self._wake()
        return count

    # Changes

    def take_role(self, role: Role) -> None:
        """Applies this node's new role in the partition, from the metadata log."""
        before, self.role = self.role, role
        if type(role) is Leader:
            if not role.succeeds(before) and not role.is_alone:
                self._begin_epoch(role)
            self._advance_high_watermark()
        else:
            self._acknowledgements.fail(role.refusal())
        if type(role) is Absent:
            self.flush_gate.close()
        self._wake()

    def _begin_epoch(self, role: Leader) -> None:
        """Begins the leader epoch at the log end, also for followers that request its start before any append."""
        role.epoch_start_offset = self.log.log_end_offset
        try:
            self.log.leader_epochs.assign(role.leader_epoch, role.epoch_start_offset)
        except OSError as error:
            self.storage_error(error)

    def note_fetch(
        self, replica_id: int, offset: int, *, start_offset: int = 0, now_ms: int = 0, broker_epoch: int = NO_EPOCH
    ) -> None:
        """Notes that a follower has fetched from `offset` on: it has everything below it, from `start_offset` on.

        Raises KafkaError(NOT_LEADER_OR_FOLLOWER) for a fetch from before the follower's restart (KIP-903).
        """
        role = self.leader()
        role.fetched(
            replica_id,
            offset,
            start_offset=start_offset,
            leader_end=self.log.log_end_offset,
            now_ms=now_ms,
            broker_epoch=broker_epoch,
        )
        if replica_id not in role.isr:
            self.isr_driver.fetched(self, role, replica_id, now_ms)
        self._advance_high_watermark()

    def propose_isr(self, isr: tuple[int, ...]) -> None:
        """Notes a proposed ISR, whose members count for the high watermark from now on."""
        self.leader().propose(isr)

    def settle_isr(self) -> None:
        """Ends the proposal, whose outcome is known."""
        role = self.role
        if type(role) is Leader:
            role.settle()
            self._advance_high_watermark()

    def set_joining(self, joining: frozenset[int]) -> None:
        """Sets the followers that are about to join the ISR, and count for the high watermark."""
        role = self.role
        if type(role) is Leader and joining != role.joining:
            role.set_joining(joining)
            self._advance_high_watermark()

    # Following: each checks that this node still follows in that leader epoch, and raises KafkaError:
    # NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH, KAFKA_STORAGE_ERROR

    def _check_follows(self, leader_epoch: int) -> None:
        role = self.role
        if type(role) is Follower:
            check_epoch(leader_epoch, role.leader_id, role.leader_epoch)
        elif type(role) is Leader:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        else:
            raise role.refusal()

    @property
    def is_held(self) -> bool:
        """True if the end of the log waits for the flush that flush.messages requires."""
        return self.flush_gate.held_from < self.log.log_end_offset

    def append_fetched(self, records: memoryview, *, leader_epoch: int, now_ms: int) -> None:
        """Appends the leader's records, byte for byte: whole, checked batches from the log end on.

        If the disk refuses some of them, those before are appended.
        """
        self._check_follows(leader_epoch)
        log = self.log
        base_offset = log.log_end_offset
        try:
            if log.reserve.is_out:
                log.reserve.check()
            log.append_as_is(records, now_ms=now_ms)
        except OSError as error:
            raise self.storage_error(error) from error
        except CorruptLogError as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        if log.log_end_offset - log.recovery_point >= self.flush_gate.trigger_messages:
            self.flush_gate.reached(base_offset)

    def follow_leader(self, *, leader_epoch: int, high_watermark: int, log_start_offset: int, now_ms: int) -> None:
        """Copies the leader's high watermark and log start, as far as this log reaches. Neither decreases."""
        self._check_follows(leader_epoch)
        log = self.log
        high_watermark = min(high_watermark, log.log_end_offset)
        if high_watermark > self.high_watermark:
            self.high_watermark = high_watermark
            self._wake()
        log_start_offset = min(log_start_offset, self.high_watermark)
        if log_start_offset > log.log_start_offset:
            try:
                log.advance_log_start(log_start_offset, now_ms=now_ms)
            except OSError as error:
                raise self.storage_error(error) from error
            self._wake()

    def truncate(self, offset: int, *, leader_epoch: int, now_ms: int) -> None:
        """Removes the records from `offset` on, which the leader does not have. Checkpoints must be lowered before."""
        self._check_follows(leader_epoch)
        self._shorten(partial(self.log.truncate_to, offset, now_ms=now_ms))

    def start_afresh(self, offset: int, *, leader_epoch: int, now_ms: int) -> None:
        """Removes all records, and continues at `offset`. Checkpoints must be lowered before."""
        self._check_follows(leader_epoch)
        self._shorten(partial(self.log.truncate_fully_and_start_at, offset, now_ms=now_ms))

    def _shorten(self, shorten: Callable[[], None]) -> None:
        log = self.log
        try:
            log.reserve.spend(shorten)
        except OSError as error:
            raise self.storage_error(error) from error
        except CorruptLogError as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        finally:
            self.high_watermark = min(max(self.high_watermark, log.log_start_offset), log.log_end_offset)
            self.flush_gate.forget_from(log.log_end_offset)
            self._wake()

    def close(self) -> None:
        """Closes a partition that this node has lost: everything that waits for it gets an error now."""
        self._leave(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def take_offline(self) -> None:
        """Takes the partition out of service, together with the log's folder, until the next start."""
        self._leave(ErrorCode.KAFKA_STORAGE_ERROR)

    def _leave(self, error: ErrorCode) -> None:
        role = self.role
        if type(role) is not Absent:
            self.take_role(Absent(role.leader_id, role.leader_epoch, error))

    def replace_log(self, log: PartitionLog) -> None:
        """Continues with `log`, which has the same records in another log dir."""
        assert log.log_end_offset == log.recovery_point == self.log.log_end_offset, "nothing is lost on the way"
        log.config = self.log.config
        self.log = log
        self.flush_gate.release()
        self.flush_gate = self._new_gate()
        self._advance_high_watermark()

    def storage_error(self, error: OSError) -> KafkaError:
        """The error for the client. If the disk has failed, and is not just full, its folder goes offline."""
        if not is_passing(error):
            self.log.fail(error)
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))

    def _unreadable(self, error: Exception) -> KafkaError:
        if isinstance(error, OSError):
            return self.storage_error(error)
        return KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error))

    def _advance_high_watermark(self, appended: bool = False) -> None:
        role = self.role
        if type(role) is not Leader:
            if not self.is_held:
                self.on_durable()
            return
        end, held_from = self.log.log_end_offset, self.flush_gate.held_from
        if held_from < end:
            end = held_from
        if role.counts_others:
            end = role.committed_end(end)
            if role.lacks_replicas(self.rules.min_insync_replicas):
                end = self.high_watermark  # until enough replicas have it (KIP-966)
        if end > self.high_watermark:
            self.high_watermark = end
            if self.waiters:
                self._wake()
        elif appended and self.waiters and not role.is_alone:
            self._wake()  # followers read on before the high watermark moves, and move it by that
        if self._acknowledgements.waiting:
            lacks_replicas = role.lacks_replicas(self.rules.min_insync_replicas)
            self._acknowledgements.settle(self._done_until, lacks_replicas=lacks_replicas)

    def _done_until(self, acks: int) -> int:
        """The first offset for which a request with these acks still waits."""
        if acks == ALL_IN_SYNC:
            return self.high_watermark
        return self.low_watermark if acks == DELETED_BY_ALL else self.flush_gate.held_from

    def _fail_held(self, error: KafkaError) -> None:
        self._acknowledgements.fail(error, from_offset=self.flush_gate.held_from)

    def _wake(self) -> None:
        for waiter in tuple(self.waiters):
            waiter.wake()


def read_bound(replica_id: int, isolation_level: int) -> Callable[[Partition], int]:
    """Returns the function that gives the offset of a partition below which this reader may read.

    For a follower it is the log end, for a consumer the high watermark, and with read_committed the last stable offset.
    """
    if replica_id != CONSUMER:
        return _LOG_END_OFFSET
    return _BOUNDS.get(isolation_level, _no_bound)


def _no_bound(_: Partition) -> int:
    """Refuses an unknown isolation level, as in Kafka."""
    raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "the isolation level is neither 0 nor 1")


_BOUNDS: dict[int, Callable[[Partition], int]] = {
    READ_UNCOMMITTED: _HIGH_WATERMARK,
    READ_COMMITTED: _LAST_STABLE_OFFSET,
}
