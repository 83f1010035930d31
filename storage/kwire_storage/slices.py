"""What a read gives: a range of a file, for sendfile."""

from __future__ import annotations

import attrs

from kwire_storage.files import File
from kwire_storage.memory_disk import MemoryDisk

_NO_FILE = MemoryDisk().open_append("empty")


@attrs.define(eq=False)
class LogSlice:
    """A range of whole batches in a segment's file; the file stays open as long as the slice lives.

    `base_offset` is the first batch's; a slice of size 0 has the offset that was asked for.
    """

    file: File
    position: int
    size: int
    base_offset: int

    def read(self) -> bytes:
        """The bytes, for those who cannot use sendfile."""
        return self.file.read(self.position, self.size)

    @classmethod
    def empty(cls, offset: int) -> LogSlice:
        return cls(_NO_FILE, 0, 0, offset)
