"""The result of a read: a range of a file, for sendfile."""

from __future__ import annotations

from typing import Protocol

import attrs


class Readable(Protocol):
    """The methods of a file that a slice needs."""

    def read(self, position: int, size: int) -> bytes: ...

    def fileno(self) -> int | None: ...


class CopiedBytes:
    """Bytes read from a file, with positions as in that file, but without a descriptor."""

    __slots__ = ("_data", "_origin")

    def __init__(self, data: bytes, origin: int) -> None:
        self._data = data
        self._origin = origin

    def read(self, position: int, size: int) -> bytes:
        at = position - self._origin
        return self._data[at : at + size]

    def fileno(self) -> int | None:
        return None


_NO_FILE = CopiedBytes(b"", 0)


@attrs.define(eq=False)
class LogSlice:
    """A range of whole batches in a segment's file; the file stays open as long as the slice lives.

    `base_offset` is the first batch's; a slice of size 0 has the requested offset.
    """

    file: Readable
    position: int
    size: int
    base_offset: int

    def read(self) -> bytes:
        """Returns the bytes, for a caller that cannot use sendfile."""
        return self.file.read(self.position, self.size)

    def copied(self) -> LogSlice:
        """Returns the same slice in memory, without the file."""
        return LogSlice.of(self.read(), self.position, self.base_offset)

    @classmethod
    def of(cls, data: bytes, position: int, base_offset: int) -> LogSlice:
        """Returns a slice of batches that were read already from that position of their file."""
        return cls(CopiedBytes(data, position), position, len(data), base_offset)

    @classmethod
    def empty(cls, offset: int) -> LogSlice:
        return cls(_NO_FILE, 0, 0, offset)
