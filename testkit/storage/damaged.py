"""A log of known batches to spoil, and what of it can still be read."""

from __future__ import annotations

from kwire_protocol.records import Record, build_batch
from kwire_storage import names
from kwire_storage.disk.memory_disk import MemoryDisk
from kwire_storage.errors import CorruptLogError
from kwire_storage.log.log import Log, LogConfig

from testkit.storage.logs import append_bytes, open_log

CONFIG = LogConfig(segment_bytes=2000, index_interval_bytes=200, retention_ms=-1)


def filled(batches: int = 50, config: LogConfig = CONFIG) -> Log:
    """Segments 0, 40 and 80; batch n has offsets 2n and 2n + 1, and timestamps of 1000 + 10n and one more."""
    log = open_log(MemoryDisk(), config)
    for number in range(batches):
        content = [Record(delta, 1000 + 10 * number + delta, None, b"x" * 11) for delta in range(2)]
        append_bytes(log, build_batch(content, producer_id=1, producer_epoch=0, base_sequence=2 * number))
    return log


def path(base: int) -> str:
    return f"orders-0/{names.offset_name(base, names.LOG)}"


def location(batch: int) -> tuple[str, int]:
    """File and position of the batch with that number."""
    log = filled()
    segment = log.segments[log.segments.bases.index(max(base for base in log.segments.bases if base <= 2 * batch))]
    found = segment.locate(2 * batch)
    assert found is not None
    return segment.path + names.LOG, found[0]


def overwrite(log: Log, batch: int, at: int, by: bytes) -> None:
    """Replaces bytes of a batch, counted from its beginning."""
    file, position = location(batch)
    data = bytearray(log.disk.read_bytes(file))
    data[position + at : position + at + len(by)] = by
    log.disk.write_bytes(file, bytes(data))


def reopened(log: Log, *, recovery_point: int | None = None) -> Log:
    """After a clean stop, or else after a crash with that recovery point."""
    if recovery_point is None:
        return open_log(log.disk, log.config)
    return open_log(log.disk, log.config, clean=False, recovery_point=recovery_point)


def readable(log: Log) -> list[int]:
    """Numbers of the batches that are read at their offsets."""
    found = []
    for number in range(log.log_end_offset // 2):
        try:
            piece = log.read(2 * number, max_bytes=1, max_offset=log.log_end_offset)
        except CorruptLogError:
            continue
        if piece.base_offset == 2 * number and piece.size:
            found.append(number)
    return found


def all_but(*missing: int) -> list[int]:
    return [number for number in range(50) if number not in missing]


GARBAGE = b"\xff" * 30
