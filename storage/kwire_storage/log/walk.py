"""Finds every good batch of a `.log` file, and the bad ranges between them.

A good batch is complete, has the right CRC-32C and an ascending offset, as in recovery. If there is none, the next one
is searched: after the bad one by its own length, if the offsets there continue its own, or else at each position that
could begin one (magic, length and offset fit, and the CRC is right). So one bad sector costs only the batch it is in.
The search gives up after checking several times as many bytes as the file has; only bytes that were crafted for it
reach that limit.

A batch with a wrong, too large offset looks like one after a hole; only the next batches distinguish them. If the next
batch is at or below its last offset, but not below the expected offset, the first of the two is wrong. So is a batch
after a hole that reaches into the next segment.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from crc32c import crc32c
from kwire_protocol.records import (
    BATCH_HEADER_SIZE,
    LENGTH_OVERHEAD,
    BatchHeader,
    InvalidBatch,
    check_batch,
    read_header,
)

from kwire_storage.disk.files import File

MOST_BATCH_BYTES = 128 << 20
"""Larger batches are checked by their CRC in pieces, and not decoded."""
MAX_RELATIVE_OFFSET = 2**31 - 1

_CHUNK_BYTES = 128 << 10
"""Small enough to stay in a core's cache from the read to the CRC: with 1 MiB, recovery takes twice the CPU."""
_MAGIC_POSITION = 16
_CRC_START = 21
_MOST_CHECKS = 4
_LEAST_LENGTH = BATCH_HEADER_SIZE - LENGTH_OVERHEAD


class Batch(NamedTuple):
    """A good batch; `data` is all its bytes, or None if it is larger than `most_batch_bytes`."""

    position: int
    header: BatchHeader
    data: memoryview | None


class Damage(NamedTuple):
    """Bytes `position..end` that are no good batch; `header` is their header if they can be read as one.

    `misplaced`: the batch is whole, only its offset is wrong.
    """

    position: int
    end: int
    what: str
    header: BatchHeader | None
    misplaced: bool


class _Bad(Exception):
    def __init__(self, what: str, header: BatchHeader | None = None, *, misplaced: bool = False) -> None:
        super().__init__(what)
        self.what = what
        self.header = header
        self.misplaced = misplaced


def walk(
    file: File,
    size: int,
    base_offset: int,
    next_base: int | None = None,
    start: int = 0,
    *,
    most_batch_bytes: int = MOST_BATCH_BYTES,
) -> Iterator[Batch | Damage]:
    """Yields all of `start..size`, in order and without gaps; `start` must be the beginning of a batch.

    `base_offset` is the segment's, or the least that the batch at `start` may have; `next_base` that of the segment
    behind it. Raises OSError.
    """
    walker = _Walker(file, size, base_offset + MAX_RELATIVE_OFFSET, next_base, most_batch_bytes)
    position, due = start, base_offset
    while position < size:
        try:
            batch = walker.batch_at(position, due)
            walker.doubt(batch, due)
        except _Bad as bad:
            end = walker.end_of_damage(position, bad, due)
            yield Damage(position, end, bad.what, bad.header, bad.misplaced)
            position = end
        else:
            yield batch
            position += batch.header.size_in_bytes
            due = batch.header.next_offset


class _Walker:
    def __init__(self, file: File, end: int, limit: int, next_base: int | None, most_batch_bytes: int) -> None:
        self._file = file
        self._end = end
        self._limit = limit
        self._next_base = limit + 1 if next_base is None else next_base
        self._most_batch_bytes = most_batch_bytes
        self._data = b""
        self._origin = 0

    def _view(self, position: int, size: int) -> memoryview:
        """Returns up to `size` bytes of the file, read ahead."""
        size = min(size, self._end - position)
        at = position - self._origin
        if at < 0 or at + size > len(self._data):
            self._data = self._file.read(position, min(max(size, _CHUNK_BYTES), self._end - position))
            self._origin, at = position, 0
        return memoryview(self._data)[at : at + size]

    def batch_at(self, position: int, due: int) -> Batch:
        head = self._view(position, BATCH_HEADER_SIZE)
        try:
            header = read_header(head)
        except InvalidBatch as error:
            raise _Bad(error.message) from None
        size = header.size_in_bytes
        if position + size > self._end:
            raise _Bad(f"a batch of {size} bytes by its length, where {self._end - position} are left", header)
        data = self._view(position, size) if size <= self._most_batch_bytes else None
        if data is None:
            self._check_large(position, header)
        else:
            try:
                check_batch(data, header)
            except InvalidBatch as error:
                raise _Bad(error.message, header) from None
        if header.base_offset < due:
            raise _Bad(f"the batch begins at offset {header.base_offset}, where {due} was due", header, misplaced=True)
        if header.last_offset > self._limit:
            raise _Bad(
                f"the batch ends at offset {header.last_offset}, the segment at {self._limit}", header, misplaced=True
            )
        return Batch(position, header, data)

    def _check_large(self, position: int, header: BatchHeader) -> None:
        crc = 0
        at, end = position + _CRC_START, position + header.size_in_bytes
        while at < end:
            piece = self._file.read(at, min(_CHUNK_BYTES, end - at))
            if not piece:
                raise _Bad("the file ends within the batch", header)
            crc = crc32c(piece, crc)
            at += len(piece)
        if crc != header.crc:
            raise _Bad(f"the stored CRC is {header.crc}, the bytes' is {crc}", header)
        if header.last_offset_delta < 0 or header.records_count < 0:
            raise _Bad(
                f"negative records count {header.records_count} or last offset delta {header.last_offset_delta}", header
            )

    def doubt(self, batch: Batch, due: int) -> None:
        """Raises for a batch behind a hole if the next batch, or the next segment, proves its offset wrong."""
        header = batch.header
        following = batch.position + header.size_in_bytes
        if header.base_offset == due:
            # If the next segment begins below its end, the next segment is wrong.
            return
        if header.last_offset >= self._next_base:
            raise _Bad(
                f"the batch ends at offset {header.last_offset}, the next segment begins at {self._next_base}",
                header,
                misplaced=True,
            )
        if following + BATCH_HEADER_SIZE > self._end:
            return
        try:
            after = read_header(self._view(following, BATCH_HEADER_SIZE))
        except InvalidBatch:
            return
        if due <= after.base_offset <= header.last_offset:
            raise _Bad(
                f"the batch begins at offset {header.base_offset}, where {due} was due, and the next one at "
                f"{after.base_offset}",
                header,
                misplaced=True,
            )

    def end_of_damage(self, position: int, bad: _Bad, due: int) -> int:
        if bad.header is not None:
            following = position + bad.header.size_in_bytes
            if following == self._end and bad.misplaced:
                return following
            after = self._good_at(following, due) if following < self._end else None
            # A wrong length may end at a later batch, and good ones would be in between.
            if after is not None and (bad.misplaced or after.header.base_offset == bad.header.next_offset):
                return following
        return self._next_good(position + 1, due)

    def _good_at(self, position: int, due: int) -> Batch | None:
        try:
            return self.batch_at(position, due)
        except _Bad:
            return None

    def _next_good(self, position: int, due: int) -> int:
        """The position of the next good batch; the file's end if there is none."""
        checks_left = _MOST_CHECKS * (self._end - position)
        while position + BATCH_HEADER_SIZE <= self._end and checks_left >= 0:
            piece = bytes(self._view(position, _CHUNK_BYTES))
            magic_at = piece.find(b"\x02", _MAGIC_POSITION)
            while 0 <= magic_at <= len(piece) - (BATCH_HEADER_SIZE - _MAGIC_POSITION):
                at = magic_at - _MAGIC_POSITION
                if self._may_be(piece, at, position, due):
                    if self._good_at(position + at, due) is not None:
                        return position + at
                    checks_left -= int.from_bytes(piece[at + 8 : at + LENGTH_OVERHEAD], "big")
                    if checks_left < 0:
                        break
                magic_at = piece.find(b"\x02", magic_at + 1)
            if len(piece) < BATCH_HEADER_SIZE:
                break
            position += len(piece) - BATCH_HEADER_SIZE + 1
        return self._end

    def _may_be(self, piece: bytes, at: int, position: int, due: int) -> bool:
        base = int.from_bytes(piece[at : at + 8], "big", signed=True)
        if not due <= base <= self._limit:
            return False
        length = int.from_bytes(piece[at + 8 : at + LENGTH_OVERHEAD], "big", signed=True)
        return _LEAST_LENGTH <= length <= self._end - position - at - LENGTH_OVERHEAD
