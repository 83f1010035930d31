"""What of a log is corrupt: ranges of offsets that cannot be read, and how everybody gets around them.

Nobody looks for damage while there is none: a read costs what it did. It shows when a walk over batch headers meets
something that is no batch, or when a recovery checks batches. Then the whole segment is checked once (`examine`), its
indexes are made from the good batches, and the bad ranges between them are remembered with the segment. From then on

* a read inside a range raises CorruptRangeError, one in front of it ends where it begins, one behind it works,
* walks for other purposes (times, producers) leave the range out,
* nothing is ever cut, and appends go on behind it.

Each range is logged once, as an error. A batch whose bytes changed under an intact header is found by a recovery or by
its reader, who checks the CRC too, since a read sends bytes without looking at them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

import attrs
from kwire_protocol.records import BatchHeader, InvalidBatch, check_batch

from kwire_storage import names
from kwire_storage.errors import CorruptLogError, CorruptRangeError
from kwire_storage.log.walk import MAX_RELATIVE_OFFSET, Batch, Damage, walk

if TYPE_CHECKING:
    from kwire_storage.log.log import Log
    from kwire_storage.log.segment import Segment

logger = logging.getLogger(__name__)

_LOOKED_INTO_BYTES = 1 << 20
"""Larger batches are read in pieces: of whole ones only markers are needed."""


@attrs.frozen
class CorruptRange:
    """Bytes `position..end_position` of a file, where offsets `first_offset..end_offset` (without the last) were.

    Without bytes, the two positions being equal, the records are missing altogether.
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
    """The range that the offset is in."""
    return next((it for it in ranges if it.first_offset <= offset < it.end_offset), None)


def good_stretches(ranges: Ranges, position: int, end: int) -> Iterator[tuple[int, int]]:
    """What is left of `position..end` without the ranges, in order."""
    for it in ranges:
        if it.position >= end:
            break
        if position < it.position:
            yield position, it.position
        position = max(position, it.end_position)
    if position < end:
        yield position, end


def note(segment: Segment, ranges: Ranges) -> None:
    """Remembers ranges of a segment that are news, and tells the operator."""
    known = {it.position: it for it in segment.damage}
    for it in ranges:
        if it.position not in known:
            logger.error(
                "%s. What is there is kept; reads of these offsets are answered CORRUPT_MESSAGE, and consumers have "
                "to seek past them. With the broker stopped, `kwire log check` shows more, `kwire log repair` mends it",
                it,
            )
        known[it.position] = it
    segment.damage = tuple(known[position] for position in sorted(known))


class Findings:
    """What is corrupt in a segment, as its batches are walked over.

    end_offset: where the segment's offsets end, for a range at its end; None where that is not known.
    """

    def __init__(self, segment: Segment, end_offset: int | None) -> None:
        self._segment = segment
        self._end_offset = segment.base_offset + MAX_RELATIVE_OFFSET if end_offset is None else end_offset
        self._expected = segment.base_offset
        self._bad: Damage | None = None
        self._found: list[CorruptRange] = []

    def walk(self, next_base: int | None) -> Iterator[Batch | Damage]:
        """As `walk.walk`, of the whole segment."""
        segment = self._segment
        for it in walk(segment.file, segment.size, segment.base_offset, next_base, most_batch_bytes=_LOOKED_INTO_BYTES):
            if isinstance(it, Damage):
                self._bad = it if self._bad is None else self._bad._replace(end=it.end)
            else:
                self._end_range(it.header.base_offset)
                self._expected = it.header.next_offset
            yield it

    def drop_last(self) -> None:
        """The bad bytes that the walk came to are going to be cut."""
        self._bad = None

    def note(self) -> int:
        """Remembers with the segment what was found; returns where its offsets end, what is corrupt included."""
        self._end_range(self._end_offset)
        note(self._segment, tuple(self._found))
        return self._expected

    def _end_range(self, end_offset: int) -> None:
        bad, self._bad = self._bad, None
        if bad is not None:
            path = self._segment.path + names.LOG
            end_offset = max(end_offset, self._expected)
            self._found.append(CorruptRange(path, bad.position, bad.end, self._expected, end_offset, bad.what))
            self._expected = end_offset


def examine(log: Log, segment: Segment) -> bool:
    """Checks a segment in which something was no batch. False: it was checked before, and this is all there is to it.

    Reads the whole segment.
    """
    if segment.is_examined or segment not in log.segments:
        return False
    ends = [*log.bases[1:], log.log_end_offset]
    segment.rebuild(ends[log.segments.index(segment)])
    return True


def examine_hole(log: Log, segment: Segment) -> bool:
    """As `examine`, when a batch was not where it was looked for, and compaction is not the reason."""
    return not (log.config.compacts or log.may_be_compacted) and examine(log, segment)


def refuse(segment: Segment, offset: int) -> None:
    """Raises CorruptRangeError when the segment has a corrupt range that does not end at or below the offset."""
    for it in segment.damage:
        if it.end_offset > offset:
            raise it.error()


def check_end(log: Log, segment: Segment, end_offset: int) -> None:
    """Raises CorruptRangeError when the segment's last records are missing: compaction did not take them."""
    if segment.damage:
        examine(log, segment)  # found when its indexes were made anew, without knowing where it ends
    known = holding(segment.damage, end_offset - 1)
    if known is None and (segment is log.active or not may_have_holes(log, segment)):
        known = missing_end(segment, segment.last_offset_in_file() + 1, end_offset)
    if known is not None:
        raise known.error()


def may_have_holes(log: Log, segment: Segment) -> bool:
    """Whether compaction may have taken records: by the topic's policy, now or once, or to judge by the segment."""
    return log.config.compacts or log.may_be_compacted or has_holes(segment, 0)


def has_holes(segment: Segment, offset: int) -> bool:
    """Whether records are missing within the segment, at the offset or above, that are not known to be damaged."""
    expected = segment.base_offset
    for _, header in segment.headers(0):
        if header.next_offset > offset and (
            header.base_offset > max(expected, offset) or header.records_count <= header.last_offset_delta
        ):
            return holding(segment.damage, expected) is None
        expected = header.next_offset
    return False


def missing_end(
    segment: Segment, first_offset: int, end_offset: int, reason: str = "nothing is there"
) -> CorruptRange | None:
    """Notes that records from `first_offset` on are not in the segment, which was to have them."""
    if first_offset >= end_offset:
        return None
    found = CorruptRange(segment.path + names.LOG, segment.size, segment.size, first_offset, end_offset, reason)
    note(segment, (found,))
    return found


def headers(log: Log, segment: Segment, offset: int) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of each batch that does not end below the offset, corrupt ranges left out.

    Raises CorruptLogError when even the rest cannot be read.
    """
    position = -1
    last = -1
    while True:
        try:
            if position < 0:
                position = segment.position_before(offset) if offset > segment.base_offset else 0
            for at, header in segment.headers(position):
                if at > last and header.last_offset >= offset:
                    last = at
                    yield at, header
            return
        except CorruptLogError:
            if not examine(log, segment):
                raise
            # Whatever led here may have been wrong.
            position = 0


def read_batch(log: Log, segment: Segment, position: int, header: BatchHeader) -> bytes | None:
    """A whole batch; None when its CRC is wrong."""
    data = segment.file.read(position, header.size_in_bytes)
    try:
        check_batch(data, header)
    except InvalidBatch:
        examine(log, segment)
        return None
    return data
