"""Reads the primitives; see wire.py."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from struct import Struct
from typing import Any, Final, NoReturn

from kwire_protocol.wire_types import MAX_ARRAY_LENGTH, MAX_STRING_BYTES, MAX_TAGGED_FIELDS, Buffer, ProtocolError, Uuid

_INT8 = Struct(">b")
_INT16 = Struct(">h")
_UINT16 = Struct(">H")
_INT32 = Struct(">i")
_UINT32 = Struct(">I")
_INT64 = Struct(">q")
_FLOAT64 = Struct(">d")
_UUID = Struct("16s")

SHORT_TEXT: Final = [Struct(f"{max(size - 1, 0)}sB") for size in range(128)]
"""The layout of a compact string's bytes and of the byte after them, by the string's first byte. The byte after them
always exists, because a struct that is read with these ends with the count of its tagged fields."""

MALFORMED: Final = (IndexError, struct.error, UnicodeDecodeError)
"""Errors that the generated code leaves to Python: indexing and unpacking past the end, and text that is not UTF-8."""


class Reader:
    """Reads values from `buf`, from `pos` to `end`. It cannot be used any more after a ProtocolError.

    `buf` ends at `end` too; within a tagged field both are that field's end. So code that indexes `buf`, or unpacks
    from it, need not check `end`.

    `max_elements` limits the elements of all arrays together: a struct of two bytes on the wire becomes an object of a
    hundred bytes here, so the size of a message does not limit its cost.
    """

    __slots__ = ("buf", "elements_left", "end", "pos")

    buf: memoryview
    pos: int
    end: int
    elements_left: int

    def __init__(self, buf: Buffer, pos: int = 0, max_elements: int = MAX_ARRAY_LENGTH) -> None:
        self.buf = buf if type(buf) is memoryview else memoryview(buf)
        self.pos = pos
        self.end = len(buf)
        self.elements_left = max_elements

    @property
    def remaining(self) -> int:
        return self.end - self.pos

    def _truncated(self) -> NoReturn:
        raise ProtocolError(f"the message ends within a field: {self.end} bytes are not enough")

    def malformed(self, error: Exception) -> ProtocolError:
        """The ProtocolError for an error of MALFORMED."""
        if isinstance(error, UnicodeDecodeError):
            return ProtocolError(f"a string is not UTF-8: {error.reason}")
        return ProtocolError(f"the message ends within a field: {self.end} bytes are not enough")

    # Numbers

    def unpack(self, layout: Struct) -> tuple[Any, ...]:
        """Reads several fixed-width fields at once."""
        pos = self.pos
        self.pos = stop = pos + layout.size
        if stop > self.end:
            self._truncated()
        return layout.unpack_from(self.buf, pos)

    def boolean(self) -> bool:
        return self.int8() != 0

    def int8(self) -> int:
        pos = self.pos
        self.pos = stop = pos + 1
        if stop > self.end:
            self._truncated()
        value: int = _INT8.unpack_from(self.buf, pos)[0]
        return value

    def int16(self) -> int:
        pos = self.pos
        self.pos = stop = pos + 2
        if stop > self.end:
            self._truncated()
        value: int = _INT16.unpack_from(self.buf, pos)[0]
        return value

    def uint16(self) -> int:
        value: int = self.unpack(_UINT16)[0]
        return value

    def int32(self) -> int:
        pos = self.pos
        self.pos = stop = pos + 4
        if stop > self.end:
            self._truncated()
        value: int = _INT32.unpack_from(self.buf, pos)[0]
        return value

    def uint32(self) -> int:
        value: int = self.unpack(_UINT32)[0]
        return value

    def int64(self) -> int:
        pos = self.pos
        self.pos = stop = pos + 8
        if stop > self.end:
            self._truncated()
        value: int = _INT64.unpack_from(self.buf, pos)[0]
        return value

    def float64(self) -> float:
        value: float = self.unpack(_FLOAT64)[0]
        return value

    def uuid(self) -> Uuid:
        pos = self.pos
        self.pos = stop = pos + 16
        if stop > self.end:
            self._truncated()
        value: Uuid = _UUID.unpack_from(self.buf, pos)[0]
        return value

    def unsigned_varint(self) -> int:
        """Reads a varint of at most five bytes; most have one."""
        pos = self.pos
        try:
            value = self.buf[pos]
            if value < 128:
                self.pos = pos + 1
                return value
            second = self.buf[pos + 1]
            if second > 127:
                return self._long_varint(pos, value)
        except IndexError:
            self._truncated()
        self.pos = pos + 2
        return value + (second - 1 << 7)

    def _long_varint(self, pos: int, first: int) -> int:
        value = first & 127
        for shift in (7, 14, 21, 28):
            pos += 1
            byte = self.buf[pos]
            value |= (byte & 127) << shift
            if byte < 128:
                self.pos = pos + 1
                return value
        raise ProtocolError("a varint has more than five bytes")

    # Strings and byte strings

    def _take(self, length: int) -> memoryview:
        pos = self.pos
        self.pos = stop = pos + length
        if stop > self.end:
            self._truncated()
        return self.buf[pos:stop]

    def _text(self, length: int) -> str:
        if length > MAX_STRING_BYTES:
            raise ProtocolError(f"a string claims {length} bytes")
        pos = self.pos
        self.pos = stop = pos + length
        if stop > self.end:
            self._truncated()
        try:
            return self.buf[pos:stop].tobytes().decode()
        except UnicodeDecodeError as error:
            raise ProtocolError(f"a string is not UTF-8: {error.reason}") from None

    def string(self) -> str:
        length = self.int16()
        if length < 0:
            raise ProtocolError("a string that must not be null is null")
        return self._text(length)

    def nullable_string(self) -> str | None:
        length = self.int16()
        return None if length < 0 else self._text(length)

    def compact_string(self) -> str:
        text = self.compact_nullable_string()
        if text is None:
            raise ProtocolError("a string that must not be null is null")
        return text

    def compact_nullable_string(self) -> str | None:
        pos = self.pos
        try:
            length = self.buf[pos]  # one more than the length, in one byte nearly always
        except IndexError:
            self._truncated()
        if length == 0:
            self.pos = pos + 1
            return None
        if length > 127:
            length = self.unsigned_varint() - 1
            return None if length < 0 else self._text(length)
        self.pos = stop = pos + length
        if stop > self.end:
            self._truncated()
        try:
            return self.buf[pos + 1 : stop].tobytes().decode()
        except UnicodeDecodeError as error:
            raise ProtocolError(f"a string is not UTF-8: {error.reason}") from None

    def blob(self) -> bytes:
        length = self.int32()
        if length < 0:
            raise ProtocolError("a byte string that must not be null is null")
        return self._take(length).tobytes()

    def nullable_blob(self) -> bytes | None:
        length = self.int32()
        return None if length < 0 else self._take(length).tobytes()

    def compact_blob(self) -> bytes:
        length = self.unsigned_varint() - 1
        if length < 0:
            raise ProtocolError("a byte string that must not be null is null")
        return self._take(length).tobytes()

    def compact_nullable_blob(self) -> bytes | None:
        length = self.unsigned_varint() - 1
        return None if length < 0 else self._take(length).tobytes()

    def records(self) -> memoryview:
        """Reads records as a slice of the buffer: not a copy, and valid only as long as the buffer."""
        length = self.int32()
        if length < 0:
            raise ProtocolError("records that must not be null are null")
        return self._take(length)

    def nullable_records(self) -> memoryview | None:
        length = self.int32()
        return None if length < 0 else self._take(length)

    def compact_records(self) -> memoryview:
        length = self.unsigned_varint() - 1
        if length < 0:
            raise ProtocolError("records that must not be null are null")
        return self._take(length)

    def compact_nullable_records(self) -> memoryview | None:
        buf = self.buf
        pos = self.pos
        try:
            size = buf[pos]
            if size < 128:
                pos += 1
            elif (second := buf[pos + 1]) < 128:
                size += second - 1 << 7
                pos += 2
            elif (third := buf[pos + 2]) < 128:
                size += (second - 1 << 7) + (third - 1 << 14)
                pos += 3
            else:
                size = self.unsigned_varint()
                pos = self.pos
        except IndexError:
            self._truncated()
        if size == 0:
            self.pos = pos
            return None
        self.pos = stop = pos + size - 1
        if stop > self.end:
            self._truncated()
        return buf[pos:stop]

    # Arrays

    def _bounded(self, count: int, element_bytes: int) -> int:
        if count * element_bytes > self.end - self.pos:
            raise ProtocolError(f"an array claims {count} elements, but {self.end - self.pos} bytes are left")
        self.elements_left -= count
        if self.elements_left < 0:
            raise ProtocolError(f"the arrays have too many elements: {-self.elements_left} more than the limit")
        return count

    @staticmethod
    def _null_array() -> NoReturn:
        raise ProtocolError("an array that must not be null is null")

    def count(self, element_bytes: int) -> int:
        """Reads the number of elements of an array, each of at least `element_bytes`."""
        count = self.int32()
        if count < 0:
            self._null_array()
        return self._bounded(count, element_bytes)

    def nullable_count(self, element_bytes: int) -> int | None:
        count = self.int32()
        return None if count < 0 else self._bounded(count, element_bytes)

    def compact_count(self, element_bytes: int) -> int:
        pos = self.pos
        try:
            first = self.buf[pos]
        except IndexError:
            self._truncated()
        self.pos = pos + 1
        return self.elements(first, element_bytes)

    def elements(self, first: int, element_bytes: int) -> int:
        """Returns the `compact_count` whose first byte has been read."""
        count = first - 1
        left = self.elements_left - count
        if 0 <= count < 127 and left >= 0 and count * element_bytes <= self.end - self.pos:
            self.elements_left = left
            return count
        self.pos -= 1
        count = self.unsigned_varint() - 1  # which may be a long encoding of a small number
        if count < 0:
            self._null_array()
        return self._bounded(count, element_bytes)

    def nullable_elements(self, first: int, element_bytes: int) -> int | None:
        """Returns the `compact_nullable_count` whose first byte has been read."""
        if first == 0:
            return None
        self.pos -= 1
        return self.compact_nullable_count(element_bytes)

    def compact_nullable_count(self, element_bytes: int) -> int | None:
        count = self.unsigned_varint() - 1
        return None if count < 0 else self._bounded(count, element_bytes)

    def _many(self, layout: str, size: int) -> list[int]:
        pos = self.pos
        self.pos = stop = pos + size
        if stop > self.end:
            self._truncated()
        return list(struct.unpack_from(layout, self.buf, pos))

    def int8s(self, count: int) -> list[int]:
        return self._many(f">{count}b", 1 * count)

    def int16s(self, count: int) -> list[int]:
        return self._many(f">{count}h", 2 * count)

    def int32s(self, count: int) -> list[int]:
        return self._many(f">{count}i", 4 * count)

    def int64s(self, count: int) -> list[int]:
        return self._many(f">{count}q", 8 * count)

    # Tagged fields

    def skip_tags(self) -> None:
        """Skips the tagged fields of a struct that defines none."""
        pos = self.pos
        try:
            if self.buf[pos] == 0:
                self.pos = pos + 1
                return
        except IndexError:
            self._truncated()
        for _ in self.tags():
            pass

    def unknown_tags(self, pos: int) -> int:
        """Does the same as `skip_tags`, from `pos` on. Returns the position of their end."""
        self.pos = pos
        self.skip_tags()
        return self.pos

    def tags(self) -> Iterable[int]:
        """The tags of a struct's tagged fields. The caller reads the known fields; the others are skipped."""
        count = self.unsigned_varint()
        return self._tags(count) if count else ()

    def _tags(self, count: int) -> Iterator[int]:
        buf = self.buf
        end = self.end
        if count > MAX_TAGGED_FIELDS:
            raise ProtocolError(f"a struct claims {count} tagged fields; the limit is {MAX_TAGGED_FIELDS}")
        for _ in range(count):
            tag = self.unsigned_varint()
            size = self.unsigned_varint()
            start = self.pos
            stop = start + size
            if stop > end:
                self._truncated()
            self.end = stop  # reads must not go beyond this field
            self.buf = buf[:stop]
            yield tag
            if self.pos == start:
                self.pos = stop
            elif self.pos != stop:
                raise ProtocolError(f"tagged field {tag} has {size} bytes, but its value takes {self.pos - start}")
            self.end = end
            self.buf = buf
