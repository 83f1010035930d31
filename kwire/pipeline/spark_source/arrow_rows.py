"""Record batches as Arrow columns: the rows of Spark's Kafka connector, made without a Python object for each.

Records follow each other, and each begins with its length, so the start of a record depends on the record before it.
Finding the starts is the only loop in Python, a few bytecodes per record (`_walk`). Everything else is done by Arrow's
kernels for all records at once: a column of positions selects a varint's bytes from the records' content, which gives
the next column of positions (`_Content.varints`).

Keys and values are not copied one by one either. The content is treated as a column of binaries whose offsets are the
starts and ends of values. Every second entry is a value, the others are the bytes in between, and Arrow takes out all
values at once.

Several record batches make one Arrow batch, up to ROWS_AT_ONCE: small ones would cost more to pass on than to read.

The layout of a record, where every number except the attributes is a zigzag varint (see
`kwire_protocol/record_codec.py`):

    length | attributes | timestamp delta | offset delta | key length, key | value length, value | headers
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, Final

import attrs
import pyarrow as pa
import pyarrow.compute as pc
from kwire_protocol.record_codec import (
    LEAST_RECORD_BYTES,
    batch_content,
    check_headers_count,
    invalid_record,
    read_varint,
)
from kwire_protocol.records import InvalidBatch

from kwire.client.fetching import Batch, CorruptRecords

ROWS_AT_ONCE: Final = 10_000
"""The maximum rows of an Arrow batch, as spark.sql.execution.arrow.maxRecordsPerBatch. Larger batches stay whole."""
BYTES_AT_ONCE: Final = 16 << 20

HEADERS_TYPE: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
SCHEMA: Final = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestampType", pa.int32()),
    ]
)
SCHEMA_WITH_HEADERS: Final = SCHEMA.append(pa.field("headers", HEADERS_TYPE))

_NO_HEADERS = 0
_LONGEST_VARINT = 10
_US_IN_MS = 1000
assert sys.byteorder == "little", "two positions are put into one number"


def rows(batches: Iterable[Batch], *, include_headers: bool) -> Iterator[pa.RecordBatch]:
    """The records inside the range of each of a partition's batches, in order. Raises CorruptRecords."""
    gathered = _Gathered()
    for batch in batches:
        if not batch.header.records_count:
            continue  # compaction has left none of its records
        if gathered.batches and not gathered.has_room_for(batch):
            yield gathered.rows(include_headers=include_headers)
            gathered = _Gathered()
        gathered.add(batch)
        if gathered.is_full:
            yield gathered.rows(include_headers=include_headers)
            gathered = _Gathered()
    if gathered.batches:
        yield gathered.rows(include_headers=include_headers)


@attrs.define(eq=False)
class _Gathered:
    """Record batches whose content is concatenated."""

    batches: list[Batch] = attrs.field(factory=list)
    _contents: list[bytes] = attrs.field(factory=list)
    _rows: int = 0
    _bytes: int = 0

    @property
    def is_full(self) -> bool:
        return self._rows >= ROWS_AT_ONCE or self._bytes >= BYTES_AT_ONCE

    def has_room_for(self, batch: Batch) -> bool:
        """Returns True if the batch fits. Records with the broker's timestamps are not mixed with others."""
        return (
            self._rows + batch.header.records_count <= ROWS_AT_ONCE
            and batch.header.timestamp_type == self.batches[0].header.timestamp_type
        )

    def add(self, batch: Batch) -> None:
        try:
            content = batch_content(batch.data, 0, batch.header, batch.max_decompressed_bytes)
            count = batch.header.records_count
            if count < 0 or count * LEAST_RECORD_BYTES > len(content):
                invalid_record(f"{count} records in {len(content)} bytes")
        except InvalidBatch as error:
            raise _corrupt(batch, error.message) from None
        self.batches.append(batch)
        self._contents.append(content)
        self._rows += count
        self._bytes += len(content)

    def rows(self, *, include_headers: bool) -> pa.RecordBatch:
        content = self._contents[0] if len(self._contents) == 1 else b"".join(self._contents)
        begins = array("i")
        base_offsets, base_timestamps = array("q"), array("q")
        pos = 0
        for batch, its_content in zip(self.batches, self._contents, strict=True):
            count = batch.header.records_count
            end = pos + len(its_content)
            try:
                _walk(content, pos, end, count, begins)
            except (InvalidBatch, IndexError) as error:
                raise _corrupt(batch, getattr(error, "message", "the last record is cut short")) from None
            base_offsets.extend(array("q", (batch.header.base_offset,)) * count)
            append_time = batch.header.timestamp_type
            base_ms = batch.header.max_timestamp if append_time else batch.header.base_timestamp
            base_timestamps.extend(array("q", (base_ms,)) * count)
            pos = end
        ends = begins[1:]
        ends.append(pos)
        try:
            found = _columns(
                content,
                _from_array(begins, pa.int32()),
                _from_array(ends, pa.int32()),
                _from_array(base_offsets, pa.int64()),
                _from_array(base_timestamps, pa.int64()),
                self.batches[0],
                include_headers=include_headers,
            )
        except (pa.ArrowException, InvalidBatch, IndexError) as error:
            raise _corrupt(self.batches[0], str(error) or "a record is cut short") from None
        return found if all(it.is_whole for it in self.batches) else self._cut(found)

    def _cut(self, found: pa.RecordBatch) -> pa.RecordBatch:
        """Removes the records outside the range, such as the beginning of the first batch."""
        offsets = found.column("offset")
        start, stop = self.batches[0].start, self.batches[0].stop
        return found.filter(pc.and_(pc.greater_equal(offsets, start), pc.less(offsets, stop)))


def _walk(content: bytes, pos: int, end: int, count: int, begins: array[int]) -> None:
    """Adds where each of `count` records begins. Raises InvalidBatch or IndexError unless they end at `end`."""
    found: list[int] = []
    add = found.append
    for _ in range(count):
        add(pos)
        first = content[pos]
        if first < 0x80:
            pos += 1 + (first >> 1)
        else:
            second = content[pos + 1]
            if second < 0x80:
                pos += 2 + (second << 6 | (first & 0x7F) >> 1)
            else:
                length, pos = read_varint(content, pos)
                if length < 0:
                    invalid_record(f"a record of {length} bytes")
                pos += length
    if pos != end:
        invalid_record(f"the records end {abs(end - pos)} bytes {'before' if pos < end else 'behind'} the batch")
    begins.fromlist(found)


def _columns(
    content: bytes,
    begins: pa.Array,
    ends: pa.Array,
    base_offsets: pa.Array,
    base_timestamps: pa.Array,
    batch: Batch,
    *,
    include_headers: bool,
) -> pa.RecordBatch:
    found = _Content(content)
    count = len(begins)
    _, at = found.varints(begins)
    timestamp_deltas, at = found.varints(pc.add(at, _int32(1)))
    offset_deltas, at = found.varints(at)
    keys, at = found.binaries(at, ends)
    values, at = found.binaries(at, ends)
    is_stamped = batch.header.timestamp_type
    timestamps = base_timestamps if is_stamped else pc.add(base_timestamps, timestamp_deltas)
    columns = [
        keys,
        values,
        pa.repeat(pa.scalar(batch.at.topic), count),
        pa.repeat(_int32(batch.at.partition), count),
        pc.add(base_offsets, offset_deltas),
        pc.multiply_checked(timestamps, pa.scalar(_US_IN_MS, pa.int64())).cast(pa.timestamp("us", tz="UTC")),
        pa.repeat(_int32(is_stamped), count),
    ]
    # The most common end of a record, checked for all at once: no headers, and nothing after them.
    last = pc.subtract(ends, _int32(1))
    has_none = pc.and_(pc.equal(at, last), pc.equal(found.octets(last), pa.scalar(_NO_HEADERS, pa.uint8())))
    if not include_headers:
        if not pc.all(pc.less(at, ends)).as_py() and count:
            invalid_record("a record is shorter than its value")
        return pa.record_batch(columns, schema=SCHEMA)
    headers: list[Any] = [None] * count
    for index in pc.indices_nonzero(pc.invert(has_none)).to_pylist():
        headers[index] = _headers(content, at[index].as_py(), ends[index].as_py()) or None
    return pa.record_batch([*columns, pa.array(headers, HEADERS_TYPE)], schema=SCHEMA_WITH_HEADERS)


class _Content:
    """Bytes of records, as columns. Positions are columns of int32 with one entry per record."""

    def __init__(self, content: bytes) -> None:
        self._size = len(content)
        self._buffer = pa.py_buffer(content)
        self._octets = pa.Array.from_buffers(pa.uint8(), self._size, [None, self._buffer])

    def octets(self, at: pa.Array) -> pa.Array:
        """The byte at each position. Raises ArrowIndexError beyond the end."""
        return pc.take(self._octets, at)

    def varints(self, at: pa.Array) -> tuple[pa.Array, pa.Array]:
        """The zigzag varint at each position, as int64, and the positions after them."""
        raw, following = self._raw_varints(at)
        sign = pc.negate(pc.bit_wise_and(raw, _int64(1)))
        # Numbers of 64 bits are wrong, because the highest bit is a sign here. No valid time in us is so large.
        return pc.bit_wise_xor(pc.shift_right(raw, _int64(1)), sign), following

    def _raw_varints(self, at: pa.Array) -> tuple[pa.Array, pa.Array]:
        octet = self.octets(at)
        following = pc.add(at, _int32(1))
        if not len(octet) or pc.max(octet).as_py() < 0x80:
            return octet.cast(pa.int64()), following
        raw = pc.bit_wise_and(octet, _LOW_BITS).cast(pa.int64())
        goes_on = pc.greater_equal(octet, _HIGH_BIT)
        for index in range(1, _LONGEST_VARINT):
            # After the end of a number its last byte is read again, and counts as nothing.
            octet = self.octets(pc.if_else(goes_on, following, at))
            part = pc.if_else(goes_on, pc.bit_wise_and(octet, _LOW_BITS), pa.scalar(0, pa.uint8()))
            raw = pc.bit_wise_or(raw, pc.shift_left(part.cast(pa.int64()), _int64(7 * index)))
            following = pc.add(following, goes_on.cast(pa.int32()))
            goes_on = pc.and_(goes_on, pc.greater_equal(octet, _HIGH_BIT))
            if not pc.any(goes_on).as_py():
                return raw, following
        return invalid_record("a number of more than 64 bits")

    def binaries(self, at: pa.Array, ends: pa.Array) -> tuple[pa.Array, pa.Array]:
        """The lengths and bytes at each position, null for a length of -1, and the positions after them."""
        sizes, begins = self.varints(at)
        count = len(sizes)
        if not count:
            return pa.array([], pa.binary()), begins
        shortest = pc.min(sizes).as_py()
        if shortest < -1:
            invalid_record(f"a field of {shortest} bytes")
        is_null = None
        if shortest < 0:
            is_null = pc.less(sizes, _int64(0))
            sizes = pc.max_element_wise(sizes, _int64(0))
        stops = pc.add_checked(begins, sizes.cast(pa.int32()))
        if pc.any(pc.greater_equal(stops, ends)).as_py():
            invalid_record("a field is longer than its record")
        if is_null is not None and pc.all(is_null).as_py():
            return pa.nulls(count, pa.binary()), stops
        # [begin, stop, begin, stop, ...]: as one number of 64 bits each, the begin in its lower half.
        bounds = pc.bit_wise_or(
            pc.shift_left(stops.cast(pa.int64()), _int64(32)),
            begins.cast(pa.int64()),
        )
        both = pa.Array.from_buffers(pa.binary(), 2 * count - 1, [None, bounds.buffers()[1], self._buffer])
        wanted = _even_numbers(count)
        if is_null is not None:
            wanted = pc.if_else(is_null, pa.scalar(None, pa.int32()), wanted)
        return pc.take(both, wanted), stops


def _headers(content: bytes, at: int, end: int) -> list[dict[str, str | bytes | None]]:
    count, at = read_varint(content, at)
    check_headers_count(count, end - at)
    found: list[dict[str, str | bytes | None]] = []
    for _ in range(count):
        name, at = _bytes_at(content, at, end)
        value, at = _bytes_at(content, at, end)
        if name is None:
            invalid_record("a header without a name")
        # Spark's text is UTF-8, so invalid bytes are replaced, as in Java.
        found.append({"key": name.decode("utf-8", "replace"), "value": value})
    if at != end:
        invalid_record(f"a record's length is wrong by {at - end} bytes")
    return found


def _bytes_at(content: bytes, at: int, end: int) -> tuple[bytes | None, int]:
    size, at = read_varint(content, at)
    if size < 0:
        return None, at
    if size > end - at:
        invalid_record(f"a field of {size} bytes where {end - at} are left")
    return content[at : at + size], at + size


def _corrupt(batch: Batch, why: str) -> CorruptRecords:
    return CorruptRecords(f"the records of {batch.at} from offset {batch.header.base_offset} on are corrupt: {why}")


def _from_array(numbers: array[int], kind: pa.DataType) -> pa.Array:
    """The same memory as an Arrow array."""
    return pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(numbers)])


def _even_numbers(count: int) -> pa.Array:
    """Returns the numbers 0, 2, 4, ..."""
    if count <= ROWS_AT_ONCE:
        return _first_even_numbers().slice(0, count)
    return _from_array(array("i", range(0, 2 * count, 2)), pa.int32())


@cache
def _first_even_numbers() -> pa.Array:
    return _from_array(array("i", range(0, 2 * ROWS_AT_ONCE, 2)), pa.int32())


def _int32(number: int) -> pa.Scalar:
    return pa.scalar(number, pa.int32())


def _int64(number: int) -> pa.Scalar:
    return pa.scalar(number, pa.int64())


_LOW_BITS = pa.scalar(0x7F, pa.uint8())
_HIGH_BIT = pa.scalar(0x80, pa.uint8())
