"""Records inside a batch: read one after another, and written into new batches.

A record, every number but the attributes a zigzag varint:

    length | attributes (1 byte, 0) | timestamp delta | offset delta | key length, key | value length, value
           | headers count, then for each: key length, key (UTF-8), value length, value

A length of -1 is null; `length` counts what follows it. The deltas are against the batch's base timestamp and base
offset. Only what follows the batch header is compressed, and all of it together.

Produce and Fetch do not use this module. Reading copies keys and values, so a Record outlives the buffer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, NoReturn

from crc32c import crc32c

from kwire_protocol.batch_errors import CorruptBatch, InvalidBatch
from kwire_protocol.compression import NONE, CorruptData, DecompressionTooLarge, UnknownCodec, compress, decompress
from kwire_protocol.errors import ErrorCode
from kwire_protocol.record_batch import (
    BATCH_HEADER_SIZE,
    CONTROL_FLAG,
    CREATE_TIME,
    DELETE_HORIZON_FLAG,
    HEADER,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME_FLAG,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    read_header,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    Buffer = bytes | bytearray | memoryview

DEFAULT_MAX_DECOMPRESSED_BYTES = 128 * 1024 * 1024
"""The limit of a reader without its own; Kafka has none."""

LEAST_RECORD_BYTES = 7  # length, attributes, two deltas, two null lengths, no headers
_LEAST_HEADER_BYTES = 2

LEAST_TIMESTAMP = -(1 << 63)
MOST_TIMESTAMP = (1 << 63) - 1

_NUMBERS = [byte >> 1 ^ -(byte & 1) for byte in range(1 << 7)]
"""The values of the zigzag varints of one byte."""
_NULL_SIZE = 1

_new_tuple = tuple.__new__


class Record(NamedTuple):
    """One record. `timestamp` is in ms since the epoch, -1 for none; headers that are read are a tuple."""

    offset: int = 0
    timestamp: int = NO_TIMESTAMP
    key: bytes | None = None
    value: bytes | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()


def batch_content(
    buf: Buffer, pos: int, header: BatchHeader, max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES
) -> bytes:
    """Returns the records' bytes of the batch at `pos`, decompressed.

    Raises InvalidBatch: CORRUPT_MESSAGE if the batch is cut short, INVALID_RECORD if its content is no stream of its
    codec, UNSUPPORTED_COMPRESSION_TYPE for an unknown codec, MESSAGE_TOO_LARGE beyond the limit.
    """
    end = pos + header.size_in_bytes
    if end > len(buf):
        raise CorruptBatch(f"the batch has {header.size_in_bytes} bytes by its length, {len(buf) - pos} are there")
    content = memoryview(buf)[pos + BATCH_HEADER_SIZE : end]
    codec = header.compression
    if codec == NONE:
        return bytes(content)
    try:
        return decompress(codec, content, max_decompressed_bytes)
    except CorruptData as error:
        # The CRC was right, so these are the producer's bytes: INVALID_RECORD, which it does not try again.
        raise InvalidBatch(ErrorCode.INVALID_RECORD, f"the records cannot be decompressed: {error}") from None
    except DecompressionTooLarge as error:
        raise InvalidBatch(ErrorCode.MESSAGE_TOO_LARGE, f"decompressed, {error}") from None
    except UnknownCodec as error:
        raise InvalidBatch(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, str(error)) from None


def iter_records(
    buf: Buffer, pos: int = 0, *, max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES
) -> Iterator[Record]:
    """Yields the records of the batch at `pos`, with absolute offsets and the timestamps that a consumer would see.

    Raises InvalidBatch as `read_header` and `batch_content` do, and INVALID_RECORD if a record's lengths are wrong, or
    if the batch has more or fewer records than its header counts.
    """
    header = read_header(buf, pos)
    return decode_records(batch_content(buf, pos, header, max_decompressed_bytes), header)


def decode_records(content: bytes, header: BatchHeader) -> Iterator[Record]:
    """Yields the records in `content`, which is decompressed already.

    Varints of one byte, or two if that is usual, are decoded inline: calls took more than half of the time.
    """
    count = header.records_count
    end = len(content)
    if count < 0 or count * LEAST_RECORD_BYTES > end:
        invalid_record(f"{count} records in {end} bytes")
    base_offset = header.base_offset
    base_timestamp = header.base_timestamp
    append_time = header.max_timestamp if header.timestamp_type else None
    numbers = _NUMBERS
    pos = 0
    for _ in range(count):
        try:
            byte = content[pos]
            if byte < 0x80:
                length = numbers[byte]
                pos += 1
            elif (second := content[pos + 1]) < 0x80:
                field = byte & 0x7F | second << 7
                length = (field >> 1) ^ -(field & 1)
                pos += 2
            else:
                length, pos = read_varint(content, pos)
            record_end = pos + length
            if length < LEAST_RECORD_BYTES - 1 or record_end > end:
                invalid_record(f"a record of {length} bytes where {end - pos} are left")
            byte = content[pos + 1]
            if byte < 0x80:
                timestamp_delta = numbers[byte]
                pos += 2
            elif (second := content[pos + 2]) < 0x80:
                field = byte & 0x7F | second << 7
                timestamp_delta = (field >> 1) ^ -(field & 1)
                pos += 3
            else:
                timestamp_delta, pos = read_varlong(content, pos + 1)
            byte = content[pos]
            if byte < 0x80:
                offset_delta = numbers[byte]
                pos += 1
            elif (second := content[pos + 1]) < 0x80:
                field = byte & 0x7F | second << 7
                offset_delta = (field >> 1) ^ -(field & 1)
                pos += 2
            else:
                offset_delta, pos = read_varint(content, pos)
            byte = content[pos]
            if byte == _NULL_SIZE:
                key = None
                pos += 1
            elif byte < 0x80 and not byte & 1 and (key_end := pos + 1 + (byte >> 1)) <= record_end:
                key = content[pos + 1 : key_end]
                pos = key_end
            else:
                key, pos = _read_bytes(content, pos, record_end)
            byte = content[pos]
            if byte < 0x80:
                size = numbers[byte]
                pos += 1
            elif (second := content[pos + 1]) < 0x80:
                field = byte & 0x7F | second << 7
                size = (field >> 1) ^ -(field & 1)
                pos += 2
            else:
                size, pos = read_varint(content, pos)
            if size < 0:
                value = None
            else:
                value_end = pos + size
                if value_end > record_end:
                    invalid_record(f"a field of {size} bytes where {record_end - pos} are left")
                value = content[pos:value_end]
                pos = value_end
            headers: Sequence[tuple[str, bytes | None]] = ()
            if content[pos]:
                headers_count, pos = read_varint(content, pos)
                if headers_count:  # a zero may be written in more bytes than it needs
                    headers, pos = _read_headers(content, pos, record_end, headers_count)
            else:
                pos += 1
        except IndexError:
            invalid_record("the last record is cut short")
        if pos != record_end:
            invalid_record(f"a record's length is wrong by {pos - record_end} bytes")
        timestamp = base_timestamp + timestamp_delta if append_time is None else append_time
        if not LEAST_TIMESTAMP <= timestamp <= MOST_TIMESTAMP:
            timestamp = to_int64(timestamp)
        yield _new_tuple(Record, (base_offset + offset_delta, timestamp, key, value, headers))
    if pos != end:
        invalid_record(f"{end - pos} bytes behind the last record")


def _read_headers(
    content: bytes, pos: int, record_end: int, count: int
) -> tuple[tuple[tuple[str, bytes | None], ...], int]:
    check_headers_count(count, record_end - pos)
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        name, pos = _read_bytes(content, pos, record_end)
        if name is None:
            invalid_record("a header without a name")
        value, pos = _read_bytes(content, pos, record_end)
        # Text that is not UTF-8 must stay unchanged when compaction writes it again.
        headers.append((name.decode("utf-8", "surrogateescape"), value))
    return tuple(headers), pos


def check_headers_count(count: int, size: int) -> None:
    """Raises InvalidBatch unless `size` bytes have room for `count` headers."""
    if count < 0 or count * _LEAST_HEADER_BYTES > size:
        invalid_record(f"{count} headers in {size} bytes")


def to_int64(number: int) -> int:
    """Wraps a number that needs more than 64 bits, as Java does."""
    return (number - LEAST_TIMESTAMP) % (1 << 64) + LEAST_TIMESTAMP


def invalid_record(message: str) -> NoReturn:
    raise InvalidBatch(ErrorCode.INVALID_RECORD, message)


def read_varint(buf: bytes, pos: int) -> tuple[int, int]:
    """Returns a zigzag varint of 32 bits and the position behind it. Raises IndexError at the end of the buffer."""
    byte = buf[pos]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), pos + 1
    return _read_long_varint(buf, pos, 32)


def read_varlong(buf: bytes, pos: int) -> tuple[int, int]:
    """Returns a zigzag varint of 64 bits and the position behind it. Raises IndexError at the end of the buffer."""
    byte = buf[pos]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), pos + 1
    return _read_long_varint(buf, pos, 64)


def _read_long_varint(buf: bytes, pos: int, bits: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = buf[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift >= bits:
            invalid_record(f"a number of more than {bits} bits")
    value &= (1 << bits) - 1  # the last byte has more bits than are left; Java drops them too
    return (value >> 1) ^ -(value & 1), pos


def _read_bytes(buf: bytes, pos: int, end: int) -> tuple[bytes | None, int]:
    size, pos = read_varint(buf, pos)
    if size < 0:
        return None, pos
    following = pos + size
    if following > end:
        invalid_record(f"a field of {size} bytes where {end - pos} are left")
    return buf[pos:following], following


def write_varint(out: bytearray, value: int) -> None:
    """Appends `value` as a zigzag varint (of up to 64 bits)."""
    value = (value << 1) ^ (value >> 63)
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def _write_bytes(out: bytearray, value: bytes | None) -> None:
    if value is None:
        out.append(1)
    else:
        write_varint(out, len(value))
        out += value


def build_batch(
    records: Iterable[Record],
    *,
    base_offset: int = 0,
    compression: int = NONE,
    compression_level: int | None = None,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    leader_epoch: int = NO_LEADER_EPOCH,
    transactional: bool = False,
    control: bool = False,
    timestamp_type: int = CREATE_TIME,
    log_append_time: int | None = None,
    keep_offsets: bool = False,
    last_offset_delta: int | None = None,
    delete_horizon_ms: int | None = None,
) -> bytes:
    """Returns a batch of `records`, the same as that of Kafka's own builder.

    Records are numbered from `base_offset` on, and their `offset` is ignored, unless `keep_offsets` is set (a compacted
    batch has holes, and its own `last_offset_delta`, even without any records). With the log-append timestamp type,
    every reader sees `log_append_time`.
    """
    content = bytearray()
    base_timestamp = delete_horizon_ms
    max_timestamp = NO_TIMESTAMP
    count = offset_delta = 0
    for record in records:
        offset_delta = record.offset - base_offset if keep_offsets else count
        timestamp = record.timestamp
        if base_timestamp is None:
            base_timestamp = timestamp
        max_timestamp = max(max_timestamp, timestamp)
        body = bytearray(1)
        write_varint(body, timestamp - base_timestamp)
        write_varint(body, offset_delta)
        _write_bytes(body, record.key)
        _write_bytes(body, record.value)
        write_varint(body, len(record.headers))
        for name, value in record.headers:
            _write_bytes(body, name.encode("utf-8", "surrogateescape"))
            _write_bytes(body, value)
        write_varint(content, len(body))
        content += body
        count += 1
    attributes = compression
    if timestamp_type != CREATE_TIME:
        attributes |= LOG_APPEND_TIME_FLAG
        if log_append_time is not None:
            max_timestamp = log_append_time
    if transactional:
        attributes |= TRANSACTIONAL_FLAG
    if control:
        attributes |= CONTROL_FLAG
    if delete_horizon_ms is not None:
        attributes |= DELETE_HORIZON_FLAG
    payload = compress(compression, content, compression_level)
    out = bytearray(BATCH_HEADER_SIZE + len(payload))
    out[BATCH_HEADER_SIZE:] = payload
    HEADER.pack_into(
        out,
        0,
        base_offset,
        len(out) - LENGTH_OVERHEAD,
        leader_epoch,
        2,
        0,
        attributes,
        offset_delta if last_offset_delta is None else last_offset_delta,
        NO_TIMESTAMP if base_timestamp is None else base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        count,
    )
    out[17:21] = crc32c(memoryview(out)[21:]).to_bytes(4, "big")
    return bytes(out)
