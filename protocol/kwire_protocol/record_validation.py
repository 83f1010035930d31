"""What a batch must fulfil to be taken from a producer, beyond being whole (`record_batch.check_batch`).

Two depths. `read_produced_batch` looks at the header and the CRC only and is what every Produce pays.
`validate_records` decodes the records and is for the topics that need it: compacted ones, whose records need keys.

The refusals and their order are Apache Kafka's: first what its ProduceRequest refuses (no batch, another format, zstd
below v7, a second batch), then its log (a base offset, the size, the CRC), then its validator (counts, control batches,
sequences).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kwire_protocol.batch_errors import CorruptBatch, ErrorCode, InvalidBatch
from kwire_protocol.compression import CODEC_NAMES, ZSTD
from kwire_protocol.record_batch import BATCH_HEADER_SIZE, BatchHeader, check_batch, read_header
from kwire_protocol.record_codec import DEFAULT_MAX_DECOMPRESSED_BYTES, batch_content, decode_records

if TYPE_CHECKING:
    from kwire_protocol.record_batch import Buffer


class RecordError(NamedTuple):
    """One record that spoils its batch; `code` is INVALID_RECORD or INVALID_TIMESTAMP."""

    batch_index: int
    message: str
    code: ErrorCode = ErrorCode.INVALID_RECORD


def read_produced_batch(
    records: Buffer | None, *, max_message_bytes: int | None = None, zstd_allowed: bool = True
) -> BatchHeader:
    """The header of the one batch that a Produce brings for a partition, after every check that needs no decoding.

    `zstd_allowed` is false below Produce v7. The batch is `records[:header.size_in_bytes]`; behind it there may be the
    torn start of another, which Kafka cuts off as well. Raises InvalidBatch.
    """
    if records is None or len(records) < BATCH_HEADER_SIZE:
        raise _no_batch(records)
    header = read_header(records)
    size = header[1] + 12
    if size > len(records):
        raise _no_batch(records)
    attributes = header[5]
    if not zstd_allowed and attributes & 7 == ZSTD:
        raise InvalidBatch(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd is not for produce requests below version 7")
    if size < len(records) and _another_batch_follows(records, size):
        raise InvalidBatch(ErrorCode.INVALID_RECORD, "more than one record batch for a partition")
    if header[0] != 0:
        raise InvalidBatch(ErrorCode.INVALID_RECORD, f"the base offset of a produced batch must be 0, not {header[0]}")
    if max_message_bytes is not None and size > max_message_bytes:
        raise InvalidBatch(
            ErrorCode.MESSAGE_TOO_LARGE, f"the record batch has {size} bytes, more than the {max_message_bytes} allowed"
        )
    check_batch(records, header)
    check_client_batch(header)
    return header


def check_client_batch(header: BatchHeader) -> None:
    """Raises InvalidBatch unless a client may send a batch with this header (whose CRC has been found right)."""
    if header[6] + 1 != header[12] or header[12] <= 0:
        raise InvalidBatch(
            ErrorCode.INVALID_RECORD, f"{header[12]} records do not fill a last offset delta of {header[6]}"
        )
    attributes = header[5]
    if attributes & 0x27 > ZSTD:
        if attributes & 0x20:
            raise InvalidBatch(ErrorCode.INVALID_RECORD, "clients may not write control records")
        raise InvalidBatch(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"compression type {attributes & 7} is none of {', '.join(CODEC_NAMES)}",
        )
    if header[11] < 0 <= header[9]:
        raise InvalidBatch(
            ErrorCode.INVALID_RECORD, f"base sequence {header[11]} in a batch of producer id {header[9]}"
        )


def _no_batch(records: Buffer | None) -> InvalidBatch:
    """What is wrong where not even one whole batch is."""
    if records is not None and len(records) > 16:
        try:
            header = read_header(records)
        except InvalidBatch as error:
            if error.code != ErrorCode.CORRUPT_MESSAGE or len(records) >= BATCH_HEADER_SIZE:
                return error
        else:
            return InvalidBatch(
                ErrorCode.INVALID_RECORD, f"a record batch of {header.size_in_bytes} bytes is cut to {len(records)}"
            )
    return InvalidBatch(ErrorCode.INVALID_RECORD, "no record batch for a partition")


def _another_batch_follows(records: Buffer, pos: int) -> bool:
    if len(records) - pos <= 16:
        return False
    length = int.from_bytes(records[pos + 8 : pos + 12], "big", signed=True)
    if length < 14 or records[pos + 16] > 2:
        raise CorruptBatch("what follows the first record batch is none")
    return pos + 12 + length <= len(records)


def validate_records(
    buf: Buffer,
    pos: int,
    header: BatchHeader,
    *,
    require_keys: bool,
    max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
) -> list[RecordError]:
    """Decodes the records of a checked batch and says which of them a log must not take.

    Offsets must go up by one from the batch's own, lengths must be exact; with `require_keys` (a compacted topic) every
    record needs a key. Raises InvalidBatch when the records cannot be read at all.
    """
    errors: list[RecordError] = []
    expected = header.base_offset
    for index, record in enumerate(decode_records(batch_content(buf, pos, header, max_decompressed_bytes), header)):
        if record.offset != expected:
            errors.append(RecordError(index, f"the offset delta is {record.offset - header.base_offset}, not {index}"))
        elif require_keys and record.key is None:
            errors.append(RecordError(index, "a compacted topic takes no record without a key"))
        expected += 1
    return errors
