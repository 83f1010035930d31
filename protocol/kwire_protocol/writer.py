"""Writes the primitives; see wire.py."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from struct import Struct

from kwire_protocol.wire_types import MAX_STRING_BYTES, Buffer, Region, Uuid

OWN_PIECE_BYTES = 4096  # from this size on, a copy costs more than one more entry of a sendmsg

_INT8 = Struct(">b")
_INT16 = Struct(">h")
_UINT16 = Struct(">H")
_INT32 = Struct(">i")
_UINT32 = Struct(">I")
_INT64 = Struct(">q")
_FLOAT64 = Struct(">d")

_BUFFERS = (bytes, bytearray, memoryview)  # Buffer, but faster to check


class Writer:
    """Collects the bytes to send: `buf`, and attachments between its bytes that are not copied."""

    __slots__ = ("_frame_attached", "_frame_start", "attached_bytes", "attachments", "buf")

    buf: bytearray
    attachments: list[tuple[int, Buffer | Region]]  # the position of each in `buf`, in order
    attached_bytes: int

    def __init__(self) -> None:
        self.buf = bytearray()
        self.attachments = []
        self.attached_bytes = 0
        self._frame_start = 0
        self._frame_attached = 0

    @property
    def size(self) -> int:
        """The number of bytes written so far, including attachments."""
        return len(self.buf) + self.attached_bytes

    def pieces(self) -> list[Buffer | Region]:
        """Returns all bytes in order. Do not write to the Writer afterwards, because these are slices of `buf`."""
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

    def buffers(self) -> list[Buffer]:
        """Returns the same as `pieces`, all in memory. Raises TypeError for a Region, whose bytes are elsewhere."""
        pieces = self.pieces()
        buffers = [piece for piece in pieces if isinstance(piece, Buffer)]
        if len(buffers) < len(pieces):
            raise TypeError("a region's bytes are elsewhere: use pieces()")
        return buffers

    def getvalue(self) -> bytes:
        """Returns the same as `buffers`, in one byte string."""
        return b"".join(self.buffers())

    def begin_frame(self, head: bytes = bytes(4)) -> None:
        """Begins a frame with `head`. Its first four bytes are for the frame's size, which `end_frame` writes.

        One Writer may hold several frames.
        """
        buf = self.buf
        self._frame_start = len(buf) + 4
        self._frame_attached = self.attached_bytes
        buf += head

    def end_frame(self) -> None:
        buf = self.buf
        start = self._frame_start
        _INT32.pack_into(buf, start - 4, len(buf) - start + self.attached_bytes - self._frame_attached)

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
        buf = self.buf
        text = value.encode()
        length = len(text) + 1
        if length < 128:
            buf.append(length)
        elif length <= MAX_STRING_BYTES + 1:
            buf += _varint(length)
        else:
            raise ValueError(f"a string of {len(text)} bytes is too long for Kafka")
        buf += text

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

    def records(self, value: Buffer | Region) -> None:
        self.buf += _INT32.pack(len(value) if isinstance(value, _BUFFERS) else value.size)
        self.attach(value)

    def nullable_records(self, value: Buffer | Region | None) -> None:
        if value is None:
            self.buf += b"\xff\xff\xff\xff"
        else:
            self.records(value)

    def compact_records(self, value: Buffer | Region) -> None:
        buf = self.buf
        copied: Buffer = b""
        if isinstance(value, _BUFFERS):
            size = len(value)
            if size < OWN_PIECE_BYTES:
                copied = value
        else:
            size = value.size
        length = size + 1
        while length > 127:
            buf.append(length & 127 | 128)
            length >>= 7
        buf.append(length)
        if copied:
            buf += copied
        elif size:
            self.attachments.append((len(buf), value))
            self.attached_bytes += size

    def attach(self, value: Buffer | Region) -> None:
        """Writes the bytes of `value`. Few bytes are copied; a larger value must not change until it is sent."""
        if isinstance(value, _BUFFERS):
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

    def int8s(self, values: Sequence[int]) -> None:
        self.buf += struct.pack(f">{len(values)}b", *values)

    def int16s(self, values: Sequence[int]) -> None:
        self.buf += struct.pack(f">{len(values)}h", *values)

    def int32s(self, values: Sequence[int]) -> None:
        if len(values) == 1:
            self.buf += _INT32.pack(values[0])  # the replicas of a partition in a cluster of one broker
        elif values:
            self.buf += struct.pack(f">{len(values)}i", *values)

    def int64s(self, values: Sequence[int]) -> None:
        self.buf += struct.pack(f">{len(values)}q", *values)

    # Tagged fields

    def no_tags(self) -> None:
        self.buf.append(0)

    def begin_tag(self, tags: int, tag: int) -> int:
        """Begins a tagged field. `tags` is the position of their count: one byte, since there are at most 127."""
        self.buf[tags] += 1
        self.unsigned_varint(tag)
        return len(self.buf)

    def end_tag(self, begin: int) -> None:
        """Inserts the size in front of the field that begin_tag began."""
        size = len(self.buf) - begin
        if self.attachments and self.attachments[-1][0] >= begin:
            # The field has attachments: the size in front of them shifts their positions.
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
