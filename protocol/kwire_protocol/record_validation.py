"""The rules for a producer's batch, beyond being complete (`record_batch.check_batch`).

There are two levels. `read_produced_batch` checks only the header and the CRC, for every Produce. `validate_records`
checks the records as well, if needed: for compacted topics, whose records need keys, and for batches with a timestamp
out of range by their header.

The checks and their order are Apache Kafka's: first those of its ProduceRequest (no batch, another format, zstd
below v7, a second batch), then its log (a base offset, the size, the CRC), then its validator (counts, control batches,
sequences). Three errors are better than Kafka's, which returns UNKNOWN_SERVER_ERROR for an unknown codec and for
records that cannot be decompressed, and no error for null instead of a batch.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from crc32c import crc32c

from kwire_protocol.batch_errors import CorruptBatch, InvalidBatch
from kwire_protocol.compression import CODEC_NAMES, ZSTD
from kwire_protocol.errors import ErrorCode
from kwire_protocol.record_batch import (
    BATCH_HEADER_SIZE,
    CODEC_MASK,
    CONTROL_FLAG,
    CREATE_TIME,
    LEAST_LEGACY_LENGTH,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME_FLAG,
    MAGIC_POSITION,
    NO_TIMESTAMP,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    check_batch,
    read_header,
    set_create_time,
)
from kwire_protocol.record_codec import (
    DEFAULT_MAX_DECOMPRESSED_BYTES,
    LEAST_RECORD_BYTES,
    LEAST_TIMESTAMP,
    MOST_TIMESTAMP,
    batch_content,
)
from kwire_protocol.record_scan import RecordScan, read_timestamps, scan_records, timestamp_bounds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kwire_protocol.record_batch import Buffer

_ATTRIBUTES_BEFORE_ZSTD = frozenset(flag | codec for flag in (0, TRANSACTIONAL_FLAG) for codec in range(ZSTD))
_ORDINARY_ATTRIBUTES = _ATTRIBUTES_BEFORE_ZSTD | {ZSTD, ZSTD | TRANSACTIONAL_FLAG}
"""The attributes of ordinary batches: a known codec, transactional or not, no control batch, create time."""

PLAIN_ATTRIBUTES = frozenset(range(ZSTD + 1))
"""The attributes of plain batches: a known codec, neither transactional nor a control batch, create time."""

MAX_RECORD_ERRORS = 1000
"""The maximum number of errors per batch: a batch may have millions of bad records, and each takes memory."""


class RecordError(NamedTuple):
    """One invalid record in a batch; `code` is INVALID_RECORD or INVALID_TIMESTAMP."""

    batch_index: int
    message: str
    code: ErrorCode = ErrorCode.INVALID_RECORD


def read_produced_batch(
    records: memoryview | None,
    *,
    max_message_bytes: int | None = None,
    zstd_allowed: bool = True,
    timestamp_type: int = CREATE_TIME,
) -> BatchHeader:
    """Returns the header of a Produce's one batch for a partition, after every check that needs no decoding.

    `zstd_allowed` is false below Produce v7; `timestamp_type` is the topic's. The batch is
    `records[:header.size_in_bytes]`: an incomplete batch may follow it, which Kafka cuts off as well. A batch with the
    flag of log-append time is refused by a topic that has it; otherwise the flag is removed, in place, as in Kafka.
    Raises InvalidBatch.
    """
    if records is None or len(records) < BATCH_HEADER_SIZE:
        raise _no_batch(records)
    header = read_header(records)
    ordinary = _ORDINARY_ATTRIBUTES if zstd_allowed else _ATTRIBUTES_BEFORE_ZSTD
    if header[5] in ordinary and _is_ordinary(records, header, max_message_bytes):
        return header
    return _validate_in_order(records, header, max_message_bytes, zstd_allowed, timestamp_type)


def read_plain_batch(records: memoryview) -> BatchHeader | None:
    """Returns the header of a plain batch that `read_produced_batch` accepts unchanged, and that is all of `records`.

    None is no verdict: other batches may be valid, too. A topic may still refuse the size (max.message.bytes).
    """
    try:
        header = read_header(records)
    except InvalidBatch:
        return None
    return header if header[5] in PLAIN_ATTRIBUTES and _is_ordinary(records, header, None) else None


def _is_ordinary(records: memoryview, header: BatchHeader, max_message_bytes: int | None) -> bool:
    """Returns True if the batch is clearly valid: the short path of nearly all batches.

    After False the single checks decide. The attributes were checked before.
    """
    base_offset, length, _, _, crc, attributes, last_offset_delta, _, _, producer_id, _, base_sequence, count = header
    size = length + 12
    return (
        size == len(records)
        and base_offset == 0
        and (max_message_bytes is None or size <= max_message_bytes)
        and 0 <= last_offset_delta == count - 1
        and (attributes & CODEC_MASK != 0 or count * LEAST_RECORD_BYTES <= length)
        and (base_sequence >= 0 or producer_id < 0)
        and crc32c(records[21:]) == crc
    )


def _validate_in_order(
    records: memoryview, header: BatchHeader, max_message_bytes: int | None, zstd_allowed: bool, timestamp_type: int
) -> BatchHeader:
    """Runs the checks one by one, in Kafka's order, so that the error is that of the first check that fails."""
    size = header[1] + LENGTH_OVERHEAD
    if size > len(records):
        raise _no_batch(records)
    if not zstd_allowed and header[5] & CODEC_MASK == ZSTD:
        raise InvalidBatch(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs Produce version 7 or later")
    if size < len(records) and _another_batch_follows(records, size):
        raise InvalidBatch(ErrorCode.INVALID_RECORD, "more than one record batch for a partition")
    if header[0] != 0:
        raise InvalidBatch(ErrorCode.INVALID_RECORD, f"the base offset of a produced batch must be 0, not {header[0]}")
    if max_message_bytes is not None and size > max_message_bytes:
        raise InvalidBatch(
            ErrorCode.MESSAGE_TOO_LARGE,
            "The request included a message larger than the max message size the server will accept: "
            f"a record batch of {size} bytes, and max.message.bytes is {max_message_bytes}.",
        )
    check_client_batch(records, header)
    if header[5] & LOG_APPEND_TIME_FLAG:
        if timestamp_type != CREATE_TIME or header[8] == NO_TIMESTAMP:
            raise InvalidBatch(ErrorCode.INVALID_TIMESTAMP, "a producer may not claim log-append time")
        set_create_time(records, 0)
        return read_header(records)
    return header


def check_client_batch(buf: Buffer, header: BatchHeader, pos: int = 0) -> None:
    """Raises InvalidBatch unless the batch at `pos` is whole (`check_batch`), and a client may send it."""
    check_batch(buf, header, pos)
    count = header[12]
    if header[6] + 1 != count:
        raise InvalidBatch(ErrorCode.INVALID_RECORD, f"{count} records, but a last offset delta of {header[6]}")
    attributes = header[5]
    if attributes & 0x27:
        _check_attributes(attributes)
    elif count * LEAST_RECORD_BYTES > header[1]:
        # Kafka decodes every record instead: this is a cheap bound on a claimed count.
        raise InvalidBatch(ErrorCode.INVALID_RECORD, f"{count} records cannot be in a batch of {header[1]} bytes")
    if header[11] < 0 <= header[9]:
        raise InvalidBatch(
            ErrorCode.INVALID_RECORD, f"base sequence {header[11]} in a batch of producer id {header[9]}"
        )


def _check_attributes(attributes: int) -> None:
    if attributes & CONTROL_FLAG:
        raise InvalidBatch(ErrorCode.INVALID_RECORD, "clients may not write control records")
    if attributes & CODEC_MASK > ZSTD:
        raise InvalidBatch(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"compression type {attributes & CODEC_MASK} is none of {', '.join(CODEC_NAMES)}",
        )


def _no_batch(records: Buffer | None) -> InvalidBatch:
    """Returns the error for bytes without one whole batch."""
    size = 0 if records is None else len(records)
    if records is not None and size > MAGIC_POSITION:
        try:
            read_header(records)
        except InvalidBatch as error:
            # An old format, an unknown one or an impossible length; but an incomplete header is no batch at all.
            if error.code != ErrorCode.CORRUPT_MESSAGE or not _may_start_a_batch(records, 0):
                return error
    return InvalidBatch(ErrorCode.INVALID_RECORD, f"no whole record batch in {size} bytes")


def _another_batch_follows(records: Buffer, pos: int) -> bool:
    if len(records) - pos <= MAGIC_POSITION:
        return False
    if not _may_start_a_batch(records, pos):
        raise CorruptBatch("what follows the record batch is none")
    return pos + LENGTH_OVERHEAD + int.from_bytes(records[pos + 8 : pos + 12], "big") <= len(records)


def _may_start_a_batch(records: Buffer, pos: int) -> bool:
    length = int.from_bytes(records[pos + 8 : pos + 12], "big", signed=True)
    return length >= LEAST_LEGACY_LENGTH and records[pos + MAGIC_POSITION] <= 2


def validate_records(
    buf: Buffer,
    pos: int,
    header: BatchHeader,
    *,
    require_keys: bool,
    min_timestamp_ms: int | None = None,
    max_timestamp_ms: int | None = None,
    max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
) -> list[RecordError]:
    """Returns the records of a checked batch that a log must refuse, each with its error.

    Offsets must rise by one from the base offset, lengths must be exact; with `require_keys` (a compacted topic) every
    record needs a key; timestamps, unless absent (-1), must lie between the given ones. Kafka answers the partition
    with INVALID_TIMESTAMP if any of the errors has that code, else with INVALID_RECORD.
    It stops after MAX_RECORD_ERRORS. Raises InvalidBatch if the records cannot be read at all.
    """
    errors: list[RecordError] = []
    least_ms = LEAST_TIMESTAMP if min_timestamp_ms is None else min_timestamp_ms
    most_ms = MOST_TIMESTAMP if max_timestamp_ms is None else max_timestamp_ms
    for scan in scan_records(batch_content(buf, pos, header, max_decompressed_bytes), header):
        earliest, latest = timestamp_bounds(scan)
        first_offset = header.base_offset + scan.first_index
        if (
            (scan.null_keys and require_keys)
            or earliest < least_ms
            or latest > most_ms
            or scan.offsets != list(range(first_offset, first_offset + len(scan.offsets)))
        ):
            found = _record_errors(scan, require_keys, least_ms, most_ms)
            errors += islice(found, MAX_RECORD_ERRORS - len(errors))
            if len(errors) == MAX_RECORD_ERRORS:
                break
    return errors


def _record_errors(scan: RecordScan, require_keys: bool, least_ms: int, most_ms: int) -> Iterator[RecordError]:
    null_keys = set(scan.null_keys) if require_keys else ()
    first_offset = scan.header.base_offset + scan.first_index
    timestamps = read_timestamps(scan.header, scan.content, scan.starts)
    for index, (offset, timestamp) in enumerate(zip(scan.offsets, timestamps, strict=True)):
        batch_index = scan.first_index + index
        if offset != first_offset + index:
            yield RecordError(batch_index, f"the offset delta is {offset - scan.header.base_offset}, not {batch_index}")
        elif index in null_keys:
            yield RecordError(batch_index, "Compacted topic cannot accept message without key.")
        elif timestamp != NO_TIMESTAMP and not least_ms <= timestamp <= most_ms:
            message = f"Timestamp {timestamp} is out of range. The timestamp should be within [{least_ms}, {most_ms}]."
            yield RecordError(batch_index, message, ErrorCode.INVALID_TIMESTAMP)
