"""Finds a record by time inside one batch, for ListOffsets: the time index only leads to a batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kwire_protocol.record_codec import DEFAULT_MAX_DECOMPRESSED_BYTES, batch_content
from kwire_protocol.record_scan import read_timestamps, scan_records

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kwire_protocol.record_batch import BatchHeader, Buffer


def first_record_at_or_after(
    buf: Buffer,
    pos: int,
    header: BatchHeader,
    timestamp_ms: int,
    max_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
    *,
    min_offset: int = 0,
) -> tuple[int, int] | None:
    """Returns offset and timestamp of the first record, in offset order, that is not older than `timestamp_ms`.

    Timestamps need not be in order. Records below `min_offset` are skipped. None if there is none.
    """
    if header.max_timestamp < timestamp_ms:
        return None
    for offset, timestamp in _times(buf, pos, header, max_bytes):
        if timestamp >= timestamp_ms and offset >= min_offset:
            return offset, timestamp
    return None


def max_timestamp_record(
    buf: Buffer, pos: int, header: BatchHeader, max_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES
) -> tuple[int, int] | None:
    """Returns offset and timestamp of the newest record, the first of equals; None for a batch without records."""
    best: tuple[int, int] | None = None
    for offset, timestamp in _times(buf, pos, header, max_bytes):
        if best is None or timestamp > best[1]:
            best = offset, timestamp
    return best


def _times(buf: Buffer, pos: int, header: BatchHeader, max_bytes: int) -> Iterator[tuple[int, int]]:
    for scan in scan_records(batch_content(buf, pos, header, max_bytes), header):
        yield from zip(scan.offsets, read_timestamps(header, scan.content, scan.starts), strict=True)
