"""The primitives of Kafka's wire format: a Reader over bytes that are there, a Writer of bytes to be sent.

Numbers are big-endian. A string, byte string or array is preceded by its length, and has two encodings:

* classic: a signed int16 (strings) or int32 (the rest); negative means null;
* compact, in flexible versions (KIP-482): length + 1 as an unsigned varint; 0 means null.

A struct of a flexible version ends with its tagged fields: a count, then for each its tag, its size, its bytes.
Whoever does not know a tag skips it.

Reading trusts nobody. Every read is checked against the end of the buffer, and a claimed count is compared with the
bytes that are left, divided by the least that one element can take, before anything is allocated. Whatever is wrong
with the bytes is a ProtocolError, never another exception. As Kafka does: a repeated tag replaces the earlier one,
a varint may be longer than it needs but not than five bytes, a negative classic length is null, bytes after a
message are left alone (`Reader.remaining`).

Writing trusts the caller: a number that does not fit is a struct.error and a bug.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterable, Iterator, Sequence
from struct import Struct
from typing import Any, ClassVar, NoReturn, Protocol, Self, TypeAlias, TypeVar, runtime_checkable

Uuid: TypeAlias = bytes
"""16 raw bytes, most significant first."""

NULL_UUID: Uuid = bytes(16)

Buffer: TypeAlias = bytes | bytearray | memoryview

MAX_STRING_BYTES = 0x7FFF  # Kafka refuses longer strings in both encodings, though the compact one could carry them.
OWN_PIECE_BYTES = 4096  # from this size on, a copy costs more than one more entry of a sendmsg

_INT8 = Struct(">b")
_INT16 = Struct(">h")
_UINT16 = Struct(">H")
_INT32 = Struct(">i")
_UINT32 = Struct(">I")
_INT64 = Struct(">q")
_FLOAT64 = Struct(">d")
_UUID = Struct("16s")

_T = TypeVar("_T")


class ProtocolError(Exception):
    """The peer broke the framing or the encoding. Nothing more can be read from it: the connection is closed."""


class UnsupportedVersion(ValueError):
    """The message has no such version."""

    def __init__(self, message: str, version: int) -> None:
        super().__init__(f"{message} has no version {version}")


class UnsupportedField(ValueError):
    """The field has a value, but the version to be written has no room for it."""

    def __init__(self, field: str, version: int) -> None:
        super().__init__(f"{field} cannot be written in version {version}")


@runtime_checkable
class Region(Protocol):
    """Bytes that are elsewhere, such as a range of a file, for the socket layer to send without copying them here."""

    @property
    def size(self) -> int: ...


class Message(Protocol):
    """What every generated struct can do."""

    @classmethod
    def read(cls, r: Reader, version: int) -> Self: ...

    def write(self, w: Writer, version: int) -> None: ...


class ApiMessage(Message, Protocol):
    """What every generated request, response and record with a type number can do."""

    api_key: ClassVar[int]
    versions: ClassVar[range]
    flexible_since: ClassVar[int | None]


def uuid_to_text(uuid: Uuid) -> str:
    """Kafka's text form: base64 for URLs without padding, 22 characters."""
    return base64.urlsafe_b64encode(uuid)[:22].decode("ascii")


def uuid_from_text(text: str) -> Uuid:
    """The reverse of uuid_to_text. ValueError when `text` is not 22 characters of base64."""
    if len(text) != 22:
        raise ValueError(f"a Kafka UUID has 22 characters: {text!r}")
    return base64.b64decode(text + "==", altchars=b"-_", validate=True)


def required(value: _T | None, field: str) -> _T:
    """`value`, which this version does not allow to be null."""
    if value is None:
        raise ValueError(f"{field} must not be null in this version")
    return value


class Reader:
    """Reads values from `buf`, from `pos` on. Not to be used further after a ProtocolError."""

    __slots__ = ("buf", "end", "pos")

    buf: memoryview
    pos: int
    end: int

    def __init__(self, buf: Buffer, pos: int = 0) -> None:
        self.buf = buf if type(buf) is memoryview else memoryview(buf)
        self.pos = pos
        self.end = len(buf)

    @property
    def remaining(self) -> int:
        return self.end - self.pos

    def _truncated(self) -> NoReturn:
        raise ProtocolError(f"the message ends within a field: {self.end} bytes are not enough")

    # Numbers

    def unpack(self, layout: Struct) -> tuple[Any, ...]:
        """A run of fixed-width fields at once."""
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
        """At most five bytes; most are one."""
        pos = self.pos
        try:
            value = self.buf[pos]
            if value > 127:
                return self._long_varint(pos, value)
        except IndexError:
            self._truncated()
        self.pos = pos + 1
        return value

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

    def nullable_records(self) -> memoryview | None:
        """A slice of the buffer: no copy, and only as lasting as the buffer."""
        length = self.int32()
        return None if length < 0 else self._take(length)

    def compact_nullable_records(self) -> memoryview | None:
        length = self.unsigned_varint() - 1
        return None if length < 0 else self._take(length)

    # Arrays

    def _bounded(self, count: int, element_bytes: int) -> int:
        if count * element_bytes > self.end - self.pos:
            raise ProtocolError(f"an array claims {count} elements, but {self.end - self.pos} bytes are left")
        return count

    def count(self, element_bytes: int) -> int:
        """The number of elements of an array, each of which takes at least `element_bytes`."""
        count = self.int32()
        if count < 0:
            raise ProtocolError("an array that must not be null is null")
        return self._bounded(count, element_bytes)

    def nullable_count(self, element_bytes: int) -> int | None:
        count = self.int32()
        return None if count < 0 else self._bounded(count, element_bytes)

    def compact_count(self, element_bytes: int) -> int:
        pos = self.pos
        try:
            count = self.buf[pos] - 1  # in one byte nearly always
        except IndexError:
            self._truncated()
        if count > 126:
            count = self.unsigned_varint() - 1
        else:
            self.pos = pos + 1
        if count < 0:
            raise ProtocolError("an array that must not be null is null")
        if count * element_bytes > self.end - self.pos:
            self._bounded(count, element_bytes)
        return count

    def compact_nullable_count(self, element_bytes: int) -> int | None:
        count = self.unsigned_varint() - 1
        return None if count < 0 else self._bounded(count, element_bytes)

    def int8s(self, count: int) -> list[int]:
        return list(self.unpack(Struct(f">{count}b")))

    def int16s(self, count: int) -> list[int]:
        return list(self.unpack(Struct(f">{count}h")))

    def int32s(self, count: int) -> list[int]:
        return list(self.unpack(Struct(f">{count}i")))

    def int64s(self, count: int) -> list[int]:
        return list(self.unpack(Struct(f">{count}q")))

    # Tagged fields

    def skip_tags(self) -> None:
        """The tagged fields of a struct that knows none."""
        pos = self.pos
        try:
            if self.buf[pos] == 0:
                self.pos = pos + 1
                return
        except IndexError:
            self._truncated()
        for _ in self.tags():
            pass

    def tags(self) -> Iterable[int]:
        """The tags of a struct's tagged fields. The caller reads the fields that it knows; the others are skipped."""
        count = self.unsigned_varint()
        return self._tags(count) if count else ()

    def _tags(self, count: int) -> Iterator[int]:
        end = self.end
        for _ in range(self._bounded(count, 2)):
            tag = self.unsigned_varint()
            size = self.unsigned_varint()
            start = self.pos
            stop = start + size
            if stop > end:
                self._truncated()
            self.end = stop  # what is read now must not reach beyond this field
            yield tag
            if self.pos == start:
                self.pos = stop
            elif self.pos != stop:
                raise ProtocolError(f"tagged field {tag} has {size} bytes, but its value takes {self.pos - start}")
            self.end = end


class Writer:
    """Collects what is to be sent: `buf`, and between its bytes the pieces that are not copied into it."""

    __slots__ = ("_frame_attached", "_frame_start", "attached_bytes", "attachments", "buf")

    buf: bytearray
    attachments: list[tuple[int, Buffer | Region]]  # where in `buf` each belongs, in order
    attached_bytes: int

    def __init__(self) -> None:
        self.buf = bytearray()
        self.attachments = []
        self.attached_bytes = 0
        self._frame_start = 0
        self._frame_attached = 0

    @property
    def size(self) -> int:
        """Bytes written so far, attachments included."""
        return len(self.buf) + self.attached_bytes

    def pieces(self) -> list[Buffer | Region]:
        """Everything in order. The Writer must not be written to afterwards: slices of `buf` are handed out."""
        if not self.attachments:
            return [self.buf]
        view = memoryview(self.buf)
        pieces: list[Buffer | Region] = []
        start = 0
        for position, attachment in self.attachments:
            if position > start:
                pieces.append(view[start:position])
                start = position
            pieces.append(attachment)
        if start < len(view):
            pieces.append(view[start:])
        return pieces

    def getvalue(self) -> bytes:
        """Everything as one byte string. TypeError when a Region was written: its bytes are not here."""
        pieces = self.pieces()
        if any(not isinstance(piece, Buffer) for piece in pieces):
            raise TypeError("a region's bytes are elsewhere: use pieces()")
        return b"".join(piece for piece in pieces if isinstance(piece, Buffer))

    def begin_frame(self) -> None:
        """Leaves room for a frame's size, which end_frame fills in. Frames may follow each other in one Writer."""
        self.buf += b"\0\0\0\0"
        self._frame_start = len(self.buf)
        self._frame_attached = self.attached_bytes

    def end_frame(self) -> None:
        start = self._frame_start
        size = len(self.buf) - start + self.attached_bytes - self._frame_attached
        _INT32.pack_into(self.buf, start - 4, size)

    # Numbers

    def boolean(self, value: bool) -> None:
        self.buf.append(1 if value else 0)

    def int8(self, value: int) -> None:
        self.buf += _INT8.pack(value)

    def int16(self, value: int) -> None:
        self.buf += _INT16.pack(value)

    def uint16(self, value: int) -> None:
        self.buf += _UINT16.pack(value)

    def int32(self, value: int) -> None:
        self.buf += _INT32.pack(value)

    def uint32(self, value: int) -> None:
        self.buf += _UINT32.pack(value)

    def int64(self, value: int) -> None:
        self.buf += _INT64.pack(value)

    def float64(self, value: float) -> None:
        self.buf += _FLOAT64.pack(value)

    def uuid(self, value: Uuid) -> None:
        if len(value) != 16:
            raise ValueError(f"a UUID has 16 bytes, not {len(value)}")
        self.buf += value

    def unsigned_varint(self, value: int) -> None:
        if value < 128:
            self.buf.append(value)
        else:
            self.buf += _varint(value)

    # Strings and byte strings

    def string(self, value: str) -> None:
        text = value.encode()
        if len(text) > MAX_STRING_BYTES:
            raise ValueError(f"a string of {len(text)} bytes is too long for Kafka")
        self.buf += _INT16.pack(len(text))
        self.buf += text

    def nullable_string(self, value: str | None) -> None:
        if value is None:
            self.buf += b"\xff\xff"
        else:
            self.string(value)

    def compact_string(self, value: str) -> None:
        text = value.encode()
        length = len(text) + 1
        if length < 128:
            self.buf.append(length)
        elif length <= MAX_STRING_BYTES + 1:
            self.buf += _varint(length)
        else:
            raise ValueError(f"a string of {len(text)} bytes is too long for Kafka")
        self.buf += text

    def compact_nullable_string(self, value: str | None) -> None:
        if value is None:
            self.buf.append(0)
        else:
            self.compact_string(value)

    def blob(self, value: Buffer) -> None:
        self.buf += _INT32.pack(len(value))
        self.attach(value)

    def nullable_blob(self, value: Buffer | None) -> None:
        if value is None:
            self.buf += b"\xff\xff\xff\xff"
        else:
            self.blob(value)

    def compact_blob(self, value: Buffer) -> None:
        self.unsigned_varint(len(value) + 1)
        self.attach(value)

    def compact_nullable_blob(self, value: Buffer | None) -> None:
        if value is None:
            self.buf.append(0)
        else:
            self.compact_blob(value)

    def nullable_records(self, value: Buffer | Region | None) -> None:
        if value is None:
            self.buf += b"\xff\xff\xff\xff"
        else:
            self.buf += _INT32.pack(len(value) if isinstance(value, Buffer) else value.size)
            self.attach(value)

    def compact_nullable_records(self, value: Buffer | Region | None) -> None:
        if value is None:
            self.buf.append(0)
        else:
            self.unsigned_varint((len(value) if isinstance(value, Buffer) else value.size) + 1)
            self.attach(value)

    def attach(self, value: Buffer | Region) -> None:
        """The bytes of `value`: copied when few, else a piece of their own, which must not change until sent."""
        if isinstance(value, Buffer):
            size = len(value)
            if size < OWN_PIECE_BYTES:
                self.buf += value
                return
        else:
            size = value.size
            if size == 0:
                return
        self.attachments.append((len(self.buf), value))
        self.attached_bytes += size

    # Arrays

    def count(self, count: int) -> None:
        self.buf += _INT32.pack(count)

    def null_count(self) -> None:
        self.buf += b"\xff\xff\xff\xff"

    def compact_count(self, count: int) -> None:
        if count < 127:
            self.buf.append(count + 1)
        else:
            self.buf += _varint(count + 1)

    def compact_null_count(self) -> None:
        self.buf.append(0)

    def int8s(self, values: Sequence[int]) -> None:
        self.buf += struct.pack(f">{len(values)}b", *values)

    def int16s(self, values: Sequence[int]) -> None:
        self.buf += struct.pack(f">{len(values)}h", *values)

    def int32s(self, values: Sequence[int]) -> None:
        self.buf += struct.pack(f">{len(values)}i", *values)

    def int64s(self, values: Sequence[int]) -> None:
        self.buf += struct.pack(f">{len(values)}q", *values)

    # Tagged fields

    def no_tags(self) -> None:
        self.buf.append(0)

    def begin_tags(self) -> int:
        """Starts a struct's tagged fields. No definition has more than 127 of them: their count takes one byte."""
        self.buf.append(0)
        return len(self.buf) - 1

    def begin_tag(self, tags: int, tag: int) -> int:
        """Starts one tagged field; `tags` is what begin_tags returned."""
        self.buf[tags] += 1
        self.unsigned_varint(tag)
        return len(self.buf)

    def end_tag(self, begin: int) -> None:
        """Puts the size in front of the field that begin_tag started."""
        size = len(self.buf) - begin
        if self.attachments and self.attachments[-1][0] >= begin:
            # A large byte string inside: the positions of such attachments move with the size in front of them.
            inside = [i for i, (position, _) in enumerate(self.attachments) if position >= begin]
            size += sum(len(a) if isinstance(a := self.attachments[i][1], Buffer) else a.size for i in inside)
            shift = len(_varint(size))
            for i in inside:
                position, attachment = self.attachments[i]
                self.attachments[i] = (position + shift, attachment)
        self.buf[begin:begin] = _varint(size)


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 127:
        encoded.append((value & 127) | 128)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
