"""The corrupt parts of a log: ranges of offsets that cannot be read, and how reads and appends avoid them.

A sound log pays nothing for this: reads do not search for damage. Damage is found when a walk over batch headers meets
something that is not a batch, or when a recovery checks batches. Then the whole segment is checked once
(`LogSegments.examine`), its indexes are rebuilt from the good batches, and the segment remembers the bad ranges between
them (`Segment.damage`). From then on

* a read inside a range raises CorruptRangeError, one before it ends at its start, one after it works,
* walks for other purposes (times, producers) skip the range,
* nothing is ever truncated, and appends continue after it.

Each range is logged once, as an error. A batch whose bytes changed under an intact header is found by a recovery or by
its reader, which checks the CRC too, since a read sends bytes without decoding them.
"""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from kwire_storage.disk.files import File
from kwire_storage.errors import CorruptRangeError
from kwire_storage.log.walk import MAX_RELATIVE_OFFSET, Batch, Damage, walk

_MAX_WHOLE_BATCH_BYTES = 1 << 20
"""Larger batches are read in pieces: only markers are needed as a whole."""


@attrs.frozen
class CorruptRange:
    """Bytes `position..end_position` of a file, in place of the offsets `first_offset..end_offset` (without the last).

    If the positions are equal, the records are missing altogether.
    """

    path: str
    position: int
    end_position: int
    first_offset: int
    end_offset: int
    reason: str

    def __str__(self) -> str:
        offsets = f"offsets {self.first_offset} to {self.end_offset - 1}"
        if self.position == self.end_position:
            return f"{self.path} ends at {self.position} without {offsets}, which are missing ({self.reason})"
        return f"{self.path} is corrupt from {self.position} to {self.end_position}: {offsets} ({self.reason})"

    def error(self) -> CorruptRangeError:
        return CorruptRangeError(str(self), self.first_offset, self.end_offset)


Ranges = tuple[CorruptRange, ...]


def holding(ranges: Ranges, offset: int) -> CorruptRange | None:
    """The range that has the offset; None if none has."""
    return next((it for it in ranges if it.first_offset <= offset < it.end_offset), None)


def good_stretches(ranges: Ranges, position: int, end: int) -> Iterator[tuple[int, int]]:
    """Yields the parts of `position..end` outside the ranges, in order."""
    for it in ranges:
        if it.position >= end:
            break
        if position < it.position:
            yield position, it.position
        position = max(position, it.end_position)
    if position < end:
        yield position, end


class Findings:
    """The corrupt ranges of a segment's file of records, collected while its batches are walked over.

    `path` is the file's, for messages; `size` is in bytes. `end_offset` is the end of the segment's offsets, for a
    range at its end; None if it is not known.
    """

    def __init__(self, file: File, path: str, size: int, base_offset: int, end_offset: int | None) -> None:
        self._file = file
        self._path = path
        self._size = size
        self._base_offset = base_offset
        self._end_offset = base_offset + MAX_RELATIVE_OFFSET if end_offset is None else end_offset
        self.expected_offset = base_offset
        """The end of the offsets found so far, including corrupt ranges once `take` was called."""
        self._bad: Damage | None = None
        self._found: list[CorruptRange] = []

    def walk(self, next_base: int | None) -> Iterator[Batch | Damage]:
        """Does the same as `walk.walk`, for the whole segment."""
        for it in walk(self._file, self._size, self._base_offset, next_base, most_batch_bytes=_MAX_WHOLE_BATCH_BYTES):
            if isinstance(it, Damage):
                self._bad = it if self._bad is None else self._bad._replace(end=it.end)
            else:
                self._end_range(it.header.base_offset)
                self.expected_offset = it.header.next_offset
            yield it

    def drop_last(self) -> None:
        """Drops the bad bytes that the walk ended with, because they are about to be cut."""
        self._bad = None

    def take(self) -> Ranges:
        """Returns the corrupt ranges, in order, when the walk is over."""
        self._end_range(self._end_offset)
        return tuple(self._found)

    def _end_range(self, end_offset: int) -> None:
        bad, self._bad = self._bad, None
        if bad is not None:
            end_offset = max(end_offset, self.expected_offset)
            found = CorruptRange(self._path, bad.position, bad.end, self.expected_offset, end_offset, bad.what)
            self._found.append(found)
            self.expected_offset = end_offset
