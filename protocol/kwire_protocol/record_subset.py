"""Builds a batch without some of its records, from the bytes of the others, for compaction.

Offsets, and usually timestamps, are deltas against fields of the header, which do not change. So records are copied as
they are. Only a delete horizon replaces the base timestamp (KIP-534): then each record gets another timestamp delta.
"""

from __future__ import annotations

from collections.abc import Sequence

from crc32c import crc32c

from kwire_protocol.compression import compress
from kwire_protocol.record_batch import (
    BATCH_HEADER_SIZE,
    DELETE_HORIZON_FLAG,
    HEADER,
    LENGTH_OVERHEAD,
    NO_TIMESTAMP,
    BatchHeader,
)
from kwire_protocol.record_codec import read_varint, read_varlong, to_int64, write_varint
from kwire_protocol.record_scan import read_timestamps


def build_subset(
    header: BatchHeader, content: bytes, retained: Sequence[tuple[int, int]], *, delete_horizon_ms: int | None = None
) -> bytes:
    """Returns the batch with only the records at `retained`, the start and end of each in its `content`.

    A scan has found them. A `delete_horizon_ms` is written into the header; without one the batch retains its own, if
    it has one. The codec is unchanged.
    """
    starts = [start for start, _ in retained]
    if delete_horizon_ms is None:
        base_timestamp, attributes = header.base_timestamp, header.attributes
        records: bytes | bytearray = b"".join([content[start:end] for start, end in retained])
    else:
        base_timestamp, attributes = delete_horizon_ms, header.attributes | DELETE_HORIZON_FLAG
        records = _with_base_timestamp(header, content, retained, delete_horizon_ms)
    if header.timestamp_type:
        max_timestamp = header.max_timestamp
    else:
        max_timestamp = max(read_timestamps(header, content, starts), default=NO_TIMESTAMP)
    payload = compress(header.compression, records)
    out = bytearray(BATCH_HEADER_SIZE + len(payload))
    out[BATCH_HEADER_SIZE:] = payload
    HEADER.pack_into(
        out,
        0,
        *header._replace(
            batch_length=len(out) - LENGTH_OVERHEAD,
            crc=0,
            attributes=attributes,
            base_timestamp=base_timestamp,
            max_timestamp=max(max_timestamp, NO_TIMESTAMP),
            records_count=len(retained),
        ),
    )
    out[17:21] = crc32c(memoryview(out)[21:]).to_bytes(4, "big")
    return bytes(out)


def _with_base_timestamp(
    header: BatchHeader, content: bytes, retained: Sequence[tuple[int, int]], base_timestamp: int
) -> bytearray:
    records = bytearray()
    timestamps = read_timestamps(header, content, [start for start, _ in retained])
    for (start, end), timestamp in zip(retained, timestamps, strict=True):
        _, at = read_varint(content, start)
        _, following = read_varlong(content, at + 1)
        body = bytearray(content[at : at + 1])
        write_varint(body, to_int64(timestamp - base_timestamp))
        body += content[following:end]
        write_varint(records, len(body))
        records += body
    return records
