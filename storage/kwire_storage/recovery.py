"""After anything but a clean stop: walking over the segments from the recovery point on.

Everything below the recovery point was synced and is trusted. Of the segment that holds it, and of the later ones, each
batch is checked (length, CRC-32C, ascending offsets), and indexes, largest timestamps, leader epochs, producers and
aborted transactions are made anew from what was read. The first bytes that are not a good batch end the log: they are
cut off with all that follows, later segments included, since what was appended after a loss must not seem to follow
what was appended before it. A segment that ends before the next one begins has lost its tail, too (the next one's name
may reach the medium before this one's bytes) unless compaction may have taken it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
from kwire_protocol.records import BATCH_HEADER_SIZE, BatchHeader, InvalidBatch, check_batch, read_header

from kwire_storage import durability, replay, truncation
from kwire_storage.markers import apply_batch, decode_marker

if TYPE_CHECKING:
    from kwire_storage.log import Log
    from kwire_storage.segment import Segment

_CHUNK_BYTES = 1 << 20
_MAX_RELATIVE_OFFSET = 2**31 - 1


@attrs.frozen
class Recovery:
    """What was done, for the operator's eyes."""

    scanned_bytes: int = 0
    cut_bytes: int = 0
    deleted_segments: int = 0
    reason: str = ""


def recover(log: Log, recovery_point: int, now_ms: int) -> Recovery:
    """Brings a log whose segments are listed, and nothing else, to a state in which it can be used."""
    # Not the segment that begins at the recovery point but the one before: its indexes may not have been synced yet.
    first = max(sum(base < recovery_point for base in log.bases) - 1, 0)
    log.log_end_offset = log.bases[first]
    log.producers_or_none = replay.load_producers(log)
    log.leader_epochs.truncate_from_end(log.log_end_offset)
    scanned = cut = 0
    reason = ""
    deleted = 0
    for number in range(first, len(log.segments)):
        segment = log.segments[number]
        if segment.base_offset < log.log_end_offset:
            reason = f"{segment.path} begins at an offset that its forerunner has"
            deleted = len(log.segments) - number
            break
        may_have_holes = log.config.compacts or segment.base_offset <= log.cleaned_offset
        if number > first and segment.base_offset > log.log_end_offset and not may_have_holes:
            reason = f"{log.path} has nothing of offsets {log.log_end_offset} to {segment.base_offset - 1}"
            deleted = len(log.segments) - number
            break
        log.log_end_offset = segment.base_offset
        good, reason = _recover_segment(log, segment)
        scanned += segment.size
        if good < segment.size:
            cut += segment.size - good
            segment.file.truncate(good)
            # Were the cut bytes to come back once the recovery point is past them, they would be taken for records.
            segment.file.sync()
            deleted = len(log.segments) - number - 1
            break
    truncation.delete_newest(log, deleted, now_ms)
    log.leader_epochs.truncate_from_end(log.log_end_offset)
    durability.drop_snapshots_above(log, log.log_end_offset)
    log.is_active = True
    return Recovery(scanned, cut, deleted, reason)


def _recover_segment(log: Log, segment: Segment) -> tuple[int, str]:
    """Folds the good batches from the segment's start on; returns where they end and why."""
    segment.begin_rebuild()
    file, size = segment.file, segment.size
    position = 0
    wanted = _CHUNK_BYTES
    while position < size:
        data = memoryview(file.read(position, wanted))
        at = 0
        wanted = _CHUNK_BYTES
        while at < len(data):
            if len(data) - at < BATCH_HEADER_SIZE and position + len(data) < size:
                break
            try:
                header = read_header(data, at)
                if at + header.size_in_bytes > len(data) and position + at + header.size_in_bytes <= size:
                    wanted = max(_CHUNK_BYTES, header.size_in_bytes)
                    break
                check_batch(data, header, at)
                _check_offsets(log, segment, header)
            except (InvalidBatch, ValueError) as error:
                return position + at, f"{segment.path} at {position + at}: {error}"
            _fold(log, segment, header, position + at, data, at)
            at += header.size_in_bytes
        position += at
    return size, ""


def _check_offsets(log: Log, segment: Segment, header: BatchHeader) -> None:
    if header.base_offset < log.log_end_offset:
        raise ValueError(f"offset {header.base_offset} where {log.log_end_offset} was to come")
    if header.last_offset - segment.base_offset > _MAX_RELATIVE_OFFSET:
        raise ValueError(f"offset {header.last_offset} is too far from the segment's base")


def _fold(log: Log, segment: Segment, header: BatchHeader, position: int, data: memoryview, at: int) -> None:
    base_offset, timestamp = header.base_offset, header.max_timestamp
    segment.note(base_offset, header.last_offset, position, header.size_in_bytes, header.newest_record_ms)
    log.log_end_offset = header.last_offset + 1
    log.leader_epochs.assign(header.partition_leader_epoch, base_offset)
    if header.producer_id >= 0:
        marker = decode_marker(data, at, header) if header.is_control else None
        apply_batch(log.producers, segment, header, base_offset, timestamp, marker)
