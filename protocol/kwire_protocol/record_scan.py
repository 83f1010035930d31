"""Scans the records of a batch without decoding them: the end and offset of each, and its key on request.

Batches for a compacted topic are checked in this way, and compaction reads them so: one short loop per record. Values
and headers are only checked against the record's length, and timestamps are skipped; `read_timestamps` reads them when
they are needed.

The loop does not branch on the widths of varints. A record begins with four of them (length, timestamp delta, offset
delta, key length), and adjacent records nearly always have the same widths, although their sizes differ. The widths of
one record choose its `_Shape`: a `struct` that reads the four at once, and the tables that turn the raw fields into
numbers. The shape is used until a record does not fit it. That needs no test: the table has no number for a field of
another width, and Python raises. A record that no shape fits (one of 8 KiB or more, say) is read field by field.

It accepts the same records as `decode_records`, and raises the same errors.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import chain
from typing import Any, NamedTuple

import attrs

from kwire_protocol.record_batch import BatchHeader
from kwire_protocol.record_codec import (
    LEAST_RECORD_BYTES,
    LEAST_TIMESTAMP,
    MOST_TIMESTAMP,
    check_headers_count,
    invalid_record,
    read_varint,
    read_varlong,
    to_int64,
)

MOST_RECORDS_AT_ONCE = 8192
"""The maximum number of records in a scan, at some hundred bytes each: a compressed batch may have millions."""

_MOST_SIZE = 8191
"""The largest length that a varint of two bytes has."""
_MOST_TIMESTAMP_WIDTH = 10
_TIMESTAMP_DELTAS = [byte >> 1 ^ -(byte & 1) for byte in range(1 << 7)]
"""The values of the zigzag varints of one byte."""

Table = Sequence[Any]
"""Numbers by raw field; None, or no entry, for a field of another width or a negative one."""


@attrs.define(eq=False)
class RecordScan:
    """Adjacent records of a batch: all of them, unless there are more than MOST_RECORDS_AT_ONCE."""

    header: BatchHeader
    content: bytes
    """The bytes behind the batch's header, decompressed."""
    first_index: int
    """The number of records of the batch before these."""
    start_position: int
    """The position of the first of these in `content`."""
    offsets: list[int] = attrs.field(factory=list)
    """The absolute offset of each record."""
    ends: list[int] = attrs.field(factory=list)
    """The position of each record's end in `content`, which is the start of the next one."""
    keys: list[bytes | None] = attrs.field(factory=list)
    """The key of each record; empty unless requested."""
    null_keys: list[int] = attrs.field(factory=list)
    """The records without a key, as ascending indexes into `offsets`."""
    null_values: list[int] = attrs.field(factory=list)
    """The records without a value, as ascending indexes into `offsets`."""
    timestamp_width: int = 1
    """The size in bytes of the widest timestamp delta."""

    @property
    def starts(self) -> Iterator[int]:
        """The position of each record in `content`."""
        return chain((self.start_position,), self.ends[:-1]) if self.ends else iter(())

    def bounds_of(self, indexes: Iterable[int]) -> list[tuple[int, int]]:
        """Returns the start and end in `content` of the records with these indexes."""
        bounds = [self.start_position, *self.ends]
        return [(bounds[index], bounds[index + 1]) for index in indexes]


class _Shape(NamedTuple):
    """The layout of the beginning of records whose varints have the same widths."""

    unpack: Callable[[bytes, int], tuple[Any, ...]]
    """Length, timestamp delta, offset delta and key length, as raw little-endian fields."""
    length_width: int
    prefix: int
    """The number of bytes before the key."""
    lengths: Table
    timestamp_checks: Table
    """0 for a timestamp delta of this width."""
    offset_deltas: Table
    key_sizes: Table
    timestamp_width: int
    has_null_key: bool


def scan_records(content: bytes, header: BatchHeader, *, with_keys: bool = False) -> Iterator[RecordScan]:
    """Yields the records of a batch, found in its `content` (see `batch_content`).

    Raises InvalidBatch(INVALID_RECORD) if a record's lengths are wrong, or if the batch has more or fewer records than
    its header counts.
    """
    count = header.records_count
    size = len(content)
    if count < 0 or count * LEAST_RECORD_BYTES > size:
        invalid_record(f"{count} records in {size} bytes")
    pos = 0
    for first_index in range(0, count, MOST_RECORDS_AT_ONCE):
        scan = RecordScan(header, content, first_index, pos)
        _scan(scan, min(count - first_index, MOST_RECORDS_AT_ONCE), with_keys=with_keys)
        yield scan
        pos = scan.ends[-1]
    if pos != size:
        invalid_record(f"{size - pos} bytes behind the last record")


def _scan(scan: RecordScan, count: int, *, with_keys: bool) -> None:
    content = scan.content
    size = len(content)
    base_offset = scan.header.base_offset
    value_sizes = _value_sizes()
    starts_with = content.startswith
    add_offset, add_end, add_key = scan.offsets.append, scan.ends.append, scan.keys.append
    pos = scan.start_position
    index = 0
    # If two shapes alternate, as for sizes around 64 bytes, the one before is tried first.
    shape = before = _shape_at(content, pos)
    is_looked_up = True
    while index < count:
        first = index
        if shape is not None:
            unpack, length_width, prefix, lengths, timestamp_checks, offset_deltas, key_sizes, _, _ = shape
            try:
                for index in range(first, count):
                    length, timestamp_delta, offset_delta, key_size = unpack(content, pos)
                    end = pos + length_width + lengths[length] + timestamp_checks[timestamp_delta]
                    offset = base_offset + offset_deltas[offset_delta]
                    key_start = pos + prefix
                    key_end = key_start + key_sizes[key_size]
                    # A value that fills the rest, and no headers: nearly every record is like that.
                    if not starts_with(value_sizes[end - key_end], key_end) or content[end - 1]:
                        if key_end >= end or end > size:
                            break
                        if _has_null_value(content, key_end, end):
                            scan.null_values.append(index)
                    add_offset(offset)
                    add_end(end)
                    if with_keys:
                        add_key(content[key_start:key_end])
                    pos = end
                else:
                    index = count
            except (TypeError, IndexError, struct.error):
                pass
            if index > first:
                scan.timestamp_width = max(scan.timestamp_width, shape.timestamp_width)
                if shape.has_null_key:
                    scan.null_keys.extend(range(first, index))
                    if with_keys:
                        scan.keys[first:] = [None] * (index - first)
                shape, before = before, shape
                is_looked_up = False
                continue
        if is_looked_up:
            pos = _scan_one(scan, pos, with_keys=with_keys)
            index += 1
        shape = _shape_at(content, pos)
        is_looked_up = True


def _scan_one(scan: RecordScan, pos: int, *, with_keys: bool) -> int:
    """Reads the record at `pos`, field by field; returns the position of its end."""
    content = scan.content
    try:
        length, at = read_varint(content, pos)
        end = at + length
        if length < LEAST_RECORD_BYTES - 1 or end > len(content):
            invalid_record(f"a record of {length} bytes where {len(content) - at} are left")
        timestamp_at = at + 1
        _, at = read_varlong(content, timestamp_at)
        scan.timestamp_width = max(scan.timestamp_width, at - timestamp_at)
        offset_delta, at = read_varint(content, at)
        key_size, at = read_varint(content, at)
        key_end = _pass(key_size, at, end) if key_size >= 0 else at
        has_null_value = _has_null_value(content, key_end, end)
    except IndexError:
        invalid_record("the last record is cut short")
    if key_size < 0:
        scan.null_keys.append(len(scan.offsets))
    if has_null_value:
        scan.null_values.append(len(scan.offsets))
    if with_keys:
        scan.keys.append(content[at:key_end] if key_size >= 0 else None)
    scan.offsets.append(scan.header.base_offset + offset_delta)
    scan.ends.append(end)
    return end


def _has_null_value(content: bytes, pos: int, end: int) -> bool:
    """Checks the bytes after a record's key at `pos`. Raises InvalidBatch, or IndexError at the end of the content."""
    value_size, pos = read_varint(content, pos)
    if value_size >= 0:
        pos = _pass(value_size, pos, end)
    headers_count, pos = read_varint(content, pos)
    if headers_count:
        check_headers_count(headers_count, end - pos)
        for _ in range(headers_count):
            name_size, pos = read_varint(content, pos)
            if name_size < 0:
                invalid_record("a header without a name")
            pos = _pass(name_size, pos, end)
            header_size, pos = read_varint(content, pos)
            if header_size >= 0:
                pos = _pass(header_size, pos, end)
    if pos != end:
        invalid_record(f"a record's length is wrong by {pos - end} bytes")
    return value_size < 0


def _pass(size: int, pos: int, end: int) -> int:
    if size > end - pos:
        invalid_record(f"a field of {size} bytes where {end - pos} are left")
    return pos + size


def read_timestamps(header: BatchHeader, content: bytes, starts: Iterable[int]) -> list[int]:
    """Returns the timestamps, in ms, that a consumer would see for the records at `starts`, which a scan found."""
    if header.timestamp_type:
        return [header.max_timestamp for _ in starts]
    base_timestamp = header.base_timestamp
    timestamps: list[int] = []
    add, deltas = timestamps.append, _TIMESTAMP_DELTAS
    for at in starts:
        while content[at] > 0x7F:
            at += 1
        byte = content[at + 2]
        add(base_timestamp + (deltas[byte] if byte < 0x80 else read_varlong(content, at + 2)[0]))
    if timestamps and (min(timestamps) < LEAST_TIMESTAMP or max(timestamps) > MOST_TIMESTAMP):
        return [to_int64(timestamp) for timestamp in timestamps]
    return timestamps


def timestamp_bounds(scan: RecordScan) -> tuple[int, int]:
    """The bounds of all timestamps, both included, in ms; computed without reading any timestamp."""
    header = scan.header
    if header.timestamp_type:
        return header.max_timestamp, header.max_timestamp
    beyond = 1 << min(7 * scan.timestamp_width - 1, 63)
    least, most = header.base_timestamp - beyond, header.base_timestamp + beyond - 1
    if least < LEAST_TIMESTAMP or most > MOST_TIMESTAMP:  # one may have overflowed
        return LEAST_TIMESTAMP, MOST_TIMESTAMP
    return least, most


# -- shapes

_NULL_KEY_SIZE = 1
"""The varint -1."""


def _shape_at(content: bytes, pos: int) -> _Shape | None:
    """The shape of the record at `pos`; None if it has none, or if there is no record."""
    try:
        length_width = 1 if content[pos] < 0x80 else 2
        timestamp_at = pos + length_width + 1
        if content[timestamp_at - 2] > 0x7F:
            return None
        at = timestamp_at
        while content[at] > 0x7F:
            at += 1
        offset_at = at + 1
        key_size_at = offset_at + (1 if content[offset_at] < 0x80 else 2)
        key_size = content[key_size_at]
    except IndexError:
        return None
    key_size_width = (0 if key_size == _NULL_KEY_SIZE else 1) if key_size < 0x80 else 2
    return _shape(length_width, offset_at - timestamp_at, key_size_at - offset_at, key_size_width)


@cache
def _shape(length_width: int, timestamp_width: int, offset_width: int, key_size_width: int) -> _Shape | None:
    """The shape for these widths; `key_size_width` is 0 for a null key, whose size is one byte as well."""
    if timestamp_width > _MOST_TIMESTAMP_WIDTH:
        return None
    timestamp = "_BH"[timestamp_width] if timestamp_width <= 2 else f"{timestamp_width}s"
    fields = struct.Struct("<" + "_BH"[length_width] + "x" + timestamp + "_BH"[offset_width] + "BBH"[key_size_width])
    return _Shape(
        unpack=fields.unpack_from,
        length_width=length_width,
        prefix=fields.size,
        lengths=_sizes(length_width),
        timestamp_checks=_timestamp_checks(timestamp_width),
        offset_deltas=_sizes(offset_width),
        key_sizes=_sizes(key_size_width) if key_size_width else [None, 0],
        timestamp_width=timestamp_width,
        has_null_key=not key_size_width,
    )


@cache
def _sizes(width: int) -> Table:
    """The non-negative numbers of the zigzag varints of one or two bytes."""
    if width == 1:
        return [None if field % 2 else field // 2 for field in range(1 << 7)]
    numbers: list[int | None] = [None] * (1 << 16)
    for second in range(1 << 7):
        numbers[second << 8 | 0x80 : (second + 1) << 8 : 2] = range(second << 6, (second + 1) << 6)
    return numbers


@cache
def _timestamp_checks(width: int) -> Table:
    if width == 1:
        return [0] * (1 << 7)
    if width == 2:
        checks: list[int | None] = [None] * (1 << 16)
        for second in range(1 << 7):
            checks[second << 8 | 0x80 : (second + 1) << 8] = [0] * (1 << 7)
        return checks
    return _LongTimestampChecks(width)


class _LongTimestampChecks(Sequence[Any]):
    """Replaces a table by the bytes of a varint, which would be too large."""

    def __init__(self, width: int) -> None:
        self._mask = int.from_bytes(b"\x80" * width, "little")
        self._wanted = int.from_bytes(b"\x80" * (width - 1), "little")

    def __getitem__(self, field: Any) -> Any:
        return 0 if int.from_bytes(field, "little") & self._mask == self._wanted else None

    def __len__(self) -> int:
        return 0


@cache
def _value_sizes() -> Table:
    """The bytes of a value's length, by the size of the record after its key: this length, the value, no headers.

    An entry is None if there is no such length; further ones are for every negative index that two of `_sizes` may
    make.
    """
    sizes: list[bytes | None] = [None, None]
    sizes += [bytes((size << 1,)) for size in range(64)]
    sizes.append(None)
    sizes += [bytes((0x80 | size << 1 & 0x7F, size >> 6)) for size in range(64, _MOST_SIZE + 1)]
    return sizes + [None] * (_MOST_SIZE + 32)
