"""Looking for a record by time inside one batch: what ListOffsets needs where the time index ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kwire_protocol.record_codec import DEFAULT_MAX_DECOMPRESSED_BYTES, batch_content, decode_records

if TYPE_CHECKING:
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
    """Offset and timestamp of the first record, in offset order, that is not older than `timestamp_ms`.

    Timestamps need not be in order. Records below `min_offset` are passed over. None if there is none.
    """
    if header.max_timestamp < timestamp_ms:
        return None
    for record in decode_records(batch_content(buf, pos, header, max_bytes), header):
        if record.timestamp >= timestamp_ms and record.offset >= min_offset:
            return record.offset, record.timestamp
    return None


def max_timestamp_record(
    buf: Buffer, pos: int, header: BatchHeader, max_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES
) -> tuple[int, int] | None:
    """Offset and timestamp of the newest record, the first of equals; None in a batch without records."""
    best: tuple[int, int] | None = None
    for record in decode_records(batch_content(buf, pos, header, max_bytes), header):
        if best is None or record.timestamp > best[1]:
            best = record.offset, record.timestamp
    return best
