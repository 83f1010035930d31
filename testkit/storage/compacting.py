"""A cleaning from plan to swap in one call, and the state of a log afterwards."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kwire_protocol.records import Record, build_batch, iter_records
from kwire_storage.compaction import planning as compaction
from kwire_storage.compaction import swap
from kwire_storage.compaction.planning import Compaction
from kwire_storage.log.log import AppendResult, Log, LogConfig

from testkit.storage.logs import append_bytes

COMPACTED = LogConfig(segment_bytes=1000, index_interval_bytes=100, cleanup_policy="compact", delete_retention_ms=1000)
ROOM = 1 << 20


def put(
    log: Log,
    *pairs: tuple[str, str | None],
    timestamp_ms: int = 1000,
    producer_id: int = -1,
    sequence: int = -1,
    transactional: bool = False,
    compression: int = 0,
    leader_epoch: int = 0,
) -> AppendResult:
    """Appends a batch of these keys and values; None deletes."""
    batch = build_batch(
        [
            Record(number, timestamp_ms, key.encode(), None if value is None else value.encode())
            for number, (key, value) in enumerate(pairs)
        ],
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        base_sequence=sequence,
        transactional=transactional,
        compression=compression,
    )
    return append_bytes(log, batch, leader_epoch=leader_epoch, now_ms=timestamp_ms)


def steps(log: Log, *, now_ms: int = 0, map_bytes: int = ROOM) -> Compaction:
    """Plans and writes, and changes nothing yet."""
    log.flush()
    dirt = compaction.measure(log, compaction.cleanable_end(log, log.log_end_offset), now_ms)
    cleaning = Compaction.begin(log, dirt, now_ms=now_ms, map_bytes=map_bytes)
    for _ in cleaning.write():
        pass
    return cleaning


def compact(log: Log, *, now_ms: int = 0, map_bytes: int = ROOM) -> int:
    """The whole of it; returns up to where the log is clean then."""
    exchange(log, steps(log, now_ms=now_ms, map_bytes=map_bytes), now_ms=now_ms)
    return log.cleaned_offset


def exchange(log: Log, cleaning: Compaction, *, now_ms: int = 0, meanwhile: Callable[[], None] = lambda: None) -> None:
    """Does the steps after the writing, and calls `meanwhile` wherever something else may happen."""
    swap.begin(log, cleaning)
    meanwhile()
    swap.commit(cleaning)
    meanwhile()
    for _ in swap.replace(log, cleaning, now_ms):
        meanwhile()
    swap.sync(cleaning)
    meanwhile()
    for _ in swap.finish(log, cleaning):
        meanwhile()
    swap.sync(cleaning)
    meanwhile()
    swap.conclude(log, cleaning, now_ms)


def all_records(log: Log) -> list[Record]:
    return [record for _, piece in log.batches() for record in iter_records(piece.read())]


def pairs(log: Log) -> list[tuple[int, str, str | None]]:
    """(offset, key, value) of all data records."""
    return [
        (record.offset, record.key.decode(), None if record.value is None else record.value.decode())
        for header, piece in log.batches()
        if not header.is_control
        for record in iter_records(piece.read())
        if record.key is not None
    ]


def table(rows: Sequence[tuple[int, str, str | None]]) -> dict[str, str]:
    """Returns the final values of a reader that reads from the beginning."""
    found: dict[str, str] = {}
    for _, key, value in rows:
        if value is None:
            found.pop(key, None)
        else:
            found[key] = value
    return found
