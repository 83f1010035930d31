"""Batches to append, logs to append them to, and the whole content of a log for comparing."""

from __future__ import annotations

from collections.abc import Sequence

from kwire_protocol.control_records import build_end_transaction_batch
from kwire_protocol.records import BatchHeader, Record, build_batch, iter_headers, read_header
from kwire_storage.directory.log_dir import LogDir
from kwire_storage.disk.files import Disk
from kwire_storage.disk.lease import Lease
from kwire_storage.errors import CorruptRangeError
from kwire_storage.log.log import AppendResult, Log, LogConfig

SMALL = LogConfig(segment_bytes=2000, index_interval_bytes=200)
"""Segments of a handful of batches."""


def open_log(
    disk: Disk,
    config: LogConfig = SMALL,
    *,
    path: str = "orders-0",
    now_ms: int = 0,
    clean: bool = True,
    recovery_point: int = 0,
    log_start_offset: int = 0,
) -> Log:
    """`disk` may be that of another log, whose files are opened again."""
    return Log.open(
        disk.disk if isinstance(disk, Lease) else disk,
        path,
        config,
        now_ms=now_ms,
        clean_shutdown=clean,
        recovery_point=recovery_point,
        log_start_offset=log_start_offset,
    )


def open_logs(folder: LogDir, config: LogConfig = SMALL, *, now_ms: int = 0) -> None:
    """Opens every log found in the folder that is not open yet."""
    for topic, partition in sorted(folder.found - folder.logs.keys()):
        folder.open_log(topic, partition, config, now_ms=now_ms)


def records(count: int, *, timestamp_ms: int = 1000, size: int = 20, key: bytes = b"k") -> list[Record]:
    return [Record(number, timestamp_ms + number, key, bytes(size)) for number in range(count)]


def append_bytes(log: Log, batch: bytes, *, leader_epoch: int = 0, now_ms: int = 0) -> AppendResult:
    buffer = memoryview(bytearray(batch))
    return log.append(buffer, read_header(buffer), leader_epoch=leader_epoch, now_ms=now_ms)


def append(
    log: Log,
    count: int = 1,
    *,
    timestamp_ms: int = 1000,
    size: int = 20,
    leader_epoch: int = 0,
    now_ms: int = 0,
    producer_id: int = -1,
    producer_epoch: int = 0,
    sequence: int = -1,
    transactional: bool = False,
) -> AppendResult:
    batch = build_batch(
        records(count, timestamp_ms=timestamp_ms, size=size),
        producer_id=producer_id,
        producer_epoch=producer_epoch if producer_id >= 0 else -1,
        base_sequence=sequence,
        transactional=transactional,
    )
    return append_bytes(log, batch, leader_epoch=leader_epoch, now_ms=now_ms)


def end_transaction(
    log: Log,
    producer_id: int,
    *,
    commit: bool,
    producer_epoch: int = 0,
    coordinator_epoch: int = 0,
    leader_epoch: int = 0,
) -> AppendResult:
    batch = build_end_transaction_batch(
        commit=commit,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        coordinator_epoch=coordinator_epoch,
        timestamp_ms=1000,
    )
    return append_bytes(log, batch, leader_epoch=leader_epoch)


def header_of(
    *,
    producer_id: int = 1,
    epoch: int = 0,
    sequence: int = 0,
    count: int = 1,
    transactional: int = False,
    timestamp_ms: int = 1000,
) -> BatchHeader:
    """The header of a data batch of one producer."""
    return read_header(
        build_batch(
            records(count, timestamp_ms=timestamp_ms, size=0),
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=bool(transactional),
        )
    )


def read_all(log: Log, *, max_bytes: int = 1000, past_corrupt: bool = False) -> list[tuple[int, int]]:
    """Returns (base offset, last offset) of every batch, found as a consumer does.

    `past_corrupt`: seeks past ranges that are reported as corrupt.
    """
    found: list[tuple[int, int]] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        try:
            piece = log.read(offset, max_bytes=max_bytes, max_offset=log.log_end_offset)
        except CorruptRangeError as error:
            if not past_corrupt:
                raise
            offset = error.end_offset
            continue
        assert piece.size, f"nothing to read at {offset}"
        for _, header in iter_headers(piece.read()):
            found.append((header.base_offset, header.last_offset))
            offset = header.next_offset
    return found


def bases(pieces: Sequence[tuple[int, int]]) -> list[int]:
    return [base for base, _ in pieces]
