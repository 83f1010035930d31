"""One partition on a disk in memory, its producers' transactions, and what a reader of committed data sees of them."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import pytest
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.records import BatchHeader, Record, build_batch, iter_headers, read_header
from kwire_storage.config import LogConfig
from kwire_storage.disk.memory_disk import MemoryDisk
from kwire_storage.log.log import AppendResult, Log

from kwire.replicas.flush_gate import FlushGate
from kwire.replicas.partition import Partition
from kwire.replicas.roles import role_of
from kwire.replicas.validation import TopicRules
from testkit.scenes.partition_files import at_hand, log_files
from testkit.storage.compacting import all_records

SMALL = LogConfig(segment_bytes=400, index_interval_bytes=100)
NOW_MS = 5000


@attrs.define(eq=False)
class Driver:
    """Flushes by hand only."""

    def flush_soon(self, gate: FlushGate) -> None: ...

    def flush_within(self, gate: FlushGate, delay_ms: int) -> None: ...


class Scene:
    """A partition that leads alone, on a disk in memory."""

    def __init__(self, config: LogConfig = SMALL) -> None:
        self.disk = MemoryDisk()
        self.config = config
        self.partition = self._open(clean=True, log_start_offset=0)

    def _open(self, *, clean: bool, log_start_offset: int, recovery_point: int = 0) -> Partition:
        log = Log.open(
            self.disk,
            "t-0",
            self.config,
            now_ms=0,
            clean_shutdown=clean,
            log_start_offset=log_start_offset,
            recovery_point=recovery_point,
        )
        partition = Partition("t", bytes(16), 0, log, TopicRules(), Driver())
        partition.take_role(role_of(1, leader_id=1, leader_epoch=0, replicas=[1], isr=[1]))
        return partition

    def restart(self, *, clean: bool) -> None:
        log = log_files(self.partition)
        log.close(clean=clean)
        # A compaction writes its file of recovery points; nothing else need have been.
        known = log.recovery_point if log.cleaned_offset else 0
        self.partition = self._open(clean=clean, log_start_offset=log.log_start_offset, recovery_point=known)

    def send(self, producer_id: int, sequence: int, count: int = 1, *, epoch: int = 0) -> int:
        batch, header = a_batch(producer_id, sequence, count, epoch=epoch)
        return self.partition.append(batch, header, acks=-1, now_ms=NOW_MS).base_offset

    def send_plain(self, producer_id: int = -1, *, timestamp_ms: int = 1000) -> int:
        """A record without a transaction."""
        epoch, sequence = (0, 0) if producer_id >= 0 else (-1, -1)
        batch = memoryview(
            bytearray(
                build_batch(
                    [Record(0, timestamp_ms, b"k", b"plain")],
                    producer_id=producer_id,
                    producer_epoch=epoch,
                    base_sequence=sequence,
                )
            )
        )
        return self.partition.append(batch, read_header(batch), acks=1, now_ms=NOW_MS).base_offset

    def flush(self) -> None:
        gate = self.partition.flush_gate
        flush = gate.begin()
        flush.run()
        gate.finish(flush)

    def end(
        self,
        producer_id: int,
        *,
        commit: bool,
        epoch: int = 0,
        coordinator_epoch: int = 0,
        version: int = 0,
        now_ms: int = NOW_MS,
    ) -> AppendResult:
        return self.partition.write_marker(
            producer_id=producer_id,
            producer_epoch=epoch,
            committed=commit,
            coordinator_epoch=coordinator_epoch,
            transaction_version=version,
            now_ms=now_ms,
        )

    def seen(self) -> list[int]:
        """The offsets that a consumer with read_committed is given from the log start on, markers left out."""
        partition = self.partition
        offset = partition.log_start_offset
        offsets: list[int] = []
        while True:
            end = partition.last_stable_offset
            piece = at_hand(partition.read(offset, max_bytes=300, max_offset=end, min_one_batch=True))
            if not piece.size:
                return offsets
            aborted = partition.aborted_transactions(offset, piece)
            for _, header in iter_headers(memoryview(piece.read())):
                hidden = any(
                    header.is_transactional
                    and txn.producer_id == header.producer_id
                    and txn.first_offset <= header.base_offset <= txn.last_offset
                    for txn in aborted
                )
                if not header.is_control and not hidden:
                    offsets += range(max(header.base_offset, offset), header.next_offset)
                offset = header.next_offset


def a_batch(producer_id: int, sequence: int, count: int = 1, *, epoch: int = 0) -> tuple[memoryview, BatchHeader]:
    batch = memoryview(
        bytearray(
            build_batch(
                [Record(number, 1000, b"k", bytes(20)) for number in range(count)],
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=sequence,
                transactional=True,
            )
        )
    )
    return batch, read_header(batch)


def offsets_in(log: Log) -> list[int]:
    """The offsets of the records in the partition, markers included."""
    return [record.offset for record in all_records(log)]


def refusal(step: Callable[[], object]) -> ErrorCode:
    with pytest.raises(KafkaError) as refused:
        step()
    return refused.value.code
