"""One segment: a `.log` file of record batches, its sparse indexes, and cached positions.

Only the records are authoritative. Everything else is computed from the batch headers by `note`, which appending,
recovery and opening share. `segment_files.py` handles its files, and keeps few of them open.

Finding a position costs the same for any amount of data. The positions of the newest batches are cached, and so are the
ends of the last reads. For all other positions the index leads to within one index interval, and the rest is a walk
over headers. So a consumer at the end of the log, or one that continues where it stopped, costs no disk read at all.
"""

from __future__ import annotations

import logging
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import chain

from kwire_protocol.records import BatchHeader

from kwire_storage import names
from kwire_storage.disk.files import Disk
from kwire_storage.errors import CorruptLogError, is_passing
from kwire_storage.log.damage import CorruptRange, Findings, Ranges, good_stretches, holding
from kwire_storage.log.index import OffsetIndex, TimeIndex
from kwire_storage.log.scan import scan_headers, scan_positions
from kwire_storage.log.segment_files import SegmentFiles
from kwire_storage.log.slices import LogSlice
from kwire_storage.log.walk import MAX_RELATIVE_OFFSET, Batch

logger = logging.getLogger(__name__)

# The number of the newest batches, and of the ends of reads, that are cached: enough for each consumer at the end.
_RECENT_BATCHES = 256
_READ_ENDS = 64
# A response has room for few larger slices (fetch.max.bytes), and memory has room for many smaller ones.
_COPIED_BYTES = 256 << 10
_NO_TIMESTAMP = -1


class Segment(SegmentFiles):
    """See the module. Not thread-safe; its slices are."""

    __slots__ = (
        "_read_ends",
        "_recent_bases",
        "_recent_lasts",
        "_recent_positions",
        "base_offset",
        "bytes_since_index",
        "created_ms",
        "damage",
        "fits_until_ms",
        "fits_until_offset",
        "index_interval_bytes",
        "index_room",
        "is_examined",
        "max_timestamp",
        "offset_of_max_timestamp",
        "rolling_timestamp",
    )

    def __init__(self, disk: Disk, folder: str, base_offset: int, index_interval_bytes: int, created_ms: int) -> None:
        super().__init__(disk, f"{folder}/{names.offset_name(base_offset, '')}")
        self.base_offset = base_offset
        self.fits_until_offset = base_offset + MAX_RELATIVE_OFFSET
        self.index_interval_bytes = index_interval_bytes
        self.created_ms = created_ms
        self.damage: Ranges = ()
        """Its known corrupt ranges, in order; see `damage.py`."""
        self.is_examined = False
        """True if every batch has been checked since the segment was opened."""
        self.reset()

    def reset(self) -> None:
        """Drops all data computed from the batches."""
        self._index = self._time_index = None
        self.indexes_dirty = False
        self.forget_shown()
        self.max_timestamp = _NO_TIMESTAMP
        self.offset_of_max_timestamp = self.base_offset
        self.rolling_timestamp: int | None = None
        self.fits_until_ms = _NO_TIMESTAMP
        """The timestamp up to which a batch that fits by size and offsets needs no call of `RollPolicy.must_roll`."""
        self.index_room = 0
        """The number of entries that its indexes have room for before the next call of `must_roll`."""
        self.bytes_since_index = 0
        # Arrays, because lists of int objects would be the largest part of a partition's memory.
        self._recent_bases = array("q")
        self._recent_lasts = array("q")
        self._recent_positions = array("q")
        self._read_ends: dict[int, int] = {}

    def begin_rebuild(self) -> None:
        """Starts over: every batch has to be noted again, and every aborted transaction added."""
        self.reset()
        self._index, self._time_index, self._txn_index = OffsetIndex(), TimeIndex(), []
        self.indexes_dirty = True

    def rebuild(self, end_offset: int | None = None) -> None:
        """Rebuilds both sparse indexes from the batches. Checks each batch, and notes corrupt ranges.

        `end_offset`, if known, is the base offset of the next segment.
        """
        self.reset()
        self._index, self._time_index = OffsetIndex(), TimeIndex()
        self.indexes_dirty = True
        self.is_examined = end_offset is not None
        findings = self.findings(end_offset)
        for batch in findings.walk(end_offset):
            if isinstance(batch, Batch):
                self.note_header(batch.header, batch.position)
        self.forget_recent()
        self.note_damage(findings.take())

    def has_timestamps(self) -> bool:
        """See `SegmentFiles`. Also true if there are bytes that are no batch; a rebuild finds them."""
        try:
            return any(header.newest_record_ms != _NO_TIMESTAMP for _, header in self.headers(0))
        except CorruptLogError:
            return True

    def save_indexes(self, suffix: str = "") -> list[str]:
        """See `SegmentFiles`; the time index gets its last entry."""
        if self.indexes_dirty:
            self.time_index.maybe_append(self.max_timestamp, self.offset_of_max_timestamp - self.base_offset)
        return super().save_indexes(suffix)

    def activate(self) -> int:
        """Prepares the segment for appends: reads the headers after the last index entry. Returns the last offset.

        Raises CorruptLogError if it finds bytes that are no batch.
        """
        file = self.file
        index = self.index
        time_index = self.time_index
        if time_index.timestamps:
            self.max_timestamp = time_index.timestamps[-1]
            self.offset_of_max_timestamp = time_index.offsets[-1] + self.base_offset
        was_dirty, entries = self.indexes_dirty, len(index)
        self.bytes_since_index = 0
        self.forget_recent()
        for _, first in self.headers(0):
            self.rolling_timestamp = first.max_timestamp
            break
        last_offset = self.base_offset - 1
        for position, header in self.headers(index.positions[-1] if index.positions else 0):
            last_offset = header.last_offset
            self.note_header(header, position)
        if self.damage:
            # Between two of them there may be a corrupt range, which is found by its offsets.
            self.forget_recent()
        self.indexes_dirty = was_dirty or len(index) != entries or not file.size
        return last_offset

    def load(self) -> None:
        """Opens and reads the files that `cut` needs, before anything is cut, since that may fail."""
        _ = self.file, self.index, self.time_index, self.aborted

    def seal(self) -> list[str]:
        """Ends appending. Returns the files written, which the caller has to sync."""
        written = self.save_indexes()
        self.forget_recent()
        return written

    def last_offset_in_file(self) -> int:
        """The last offset of the last batch, read from the last index entry on; base offset - 1 if empty."""
        last = self.base_offset - 1
        index = self.index
        for batch in self._positions(index.positions[-1] if index.positions else 0, self.size):
            last = batch[2]
        return last

    # -- the fold

    def note(self, base_offset: int, last_offset: int, position: int, size: int, max_timestamp: int) -> bool:
        """Notes a batch that was written at `position`, which is the end of all batches noted so far.

        Returns whether `show_indexes` is due.
        """
        if position == 0:
            self.rolling_timestamp = max_timestamp
            self.fits_until_ms = _NO_TIMESTAMP
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.offset_of_max_timestamp = last_offset
        self.indexes_dirty = True
        recent = self._recent_bases
        recent.append(base_offset)
        self._recent_lasts.append(last_offset)
        self._recent_positions.append(position)
        if len(recent) > _RECENT_BATCHES:
            half = _RECENT_BATCHES // 2
            del recent[:half], self._recent_lasts[:half], self._recent_positions[:half]
        if self.bytes_since_index <= self.index_interval_bytes or not self._has_indexes:
            self.bytes_since_index += size
            return False
        index = self.index
        index.append(last_offset - self.base_offset, position)
        self.time_index.maybe_append(self.max_timestamp, self.offset_of_max_timestamp - self.base_offset)
        self.bytes_since_index = size
        self.index_room -= 1
        if not self.index_room:
            self.fits_until_ms = _NO_TIMESTAMP
        return len(index) >= self.show_at_entries

    @property
    def _has_indexes(self) -> bool:
        """Returns True if the indexes are in memory, or can be read; if not, a later batch gets the entry."""
        if self._index is None:
            try:
                self._load_indexes()
            except OSError as error:
                if not is_passing(error):
                    raise
                return False
        return True

    def note_header(self, header: BatchHeader, position: int) -> None:
        self.note(header.base_offset, header.last_offset, position, header.size_in_bytes, header.newest_record_ms)

    def forget_recent(self) -> None:
        """Drops the cached positions of the newest batches to free memory. Old positions are found in the file."""
        del self._recent_bases[:], self._recent_lasts[:], self._recent_positions[:]
        self._read_ends.clear()

    def cut(self, size: int) -> None:
        """Keeps the first `size` bytes, which end with a whole batch, and recomputes the rest where needed.

        Synced at once: if the cut bytes came back after the recovery point, they would be taken for records.
        """
        file = self.file
        file.truncate(size)
        file.sync()
        self.damage = tuple(it for it in self.damage if it.position < size)
        self.indexes_dirty = True
        index, time_index = self.index, self.time_index
        index.truncate(size)
        last_indexed = index.offsets[-1] if index.offsets else -1
        # Entries of the time index may refer to cut batches, but not those up to the last index entry.
        time_index.truncate(last_indexed + 1)
        self.forget_shown()
        self.max_timestamp = _NO_TIMESTAMP
        self.offset_of_max_timestamp = self.base_offset
        self.rolling_timestamp = None
        self.fits_until_ms = _NO_TIMESTAMP
        self.activate()
        self.indexes_dirty = True

    # -- finding positions

    def headers(self, position: int) -> Iterator[tuple[int, BatchHeader]]:
        """Does the same as `scan_headers`, from a batch's beginning to the end, without the known corrupt ranges."""
        if not self.damage:
            return scan_headers(self.file, position, self.size)
        stretches = good_stretches(self.damage, position, self.size)
        return chain.from_iterable(scan_headers(self.file, start, end) for start, end in stretches)

    def _positions(self, position: int, end: int) -> Iterator[tuple[int, int, int, int]]:
        """Does the same as `headers`, with `scan_positions`."""
        if not self.damage:
            return scan_positions(self.file, position, end)
        stretches = good_stretches(self.damage, position, end)
        return chain.from_iterable(scan_positions(self.file, start, end) for start, end in stretches)

    def locate(self, offset: int) -> tuple[int, int] | None:
        """Position and base offset of the first batch that does not end below the offset; None if all do.

        Raises CorruptRangeError if the offset is in a known corrupt range, CorruptLogError if it finds a new one.
        """
        bases = self._recent_bases
        if bases and offset >= bases[0]:
            number = bisect_left(self._recent_lasts, offset)
            if number == len(bases):
                return None
            return self._recent_positions[number], bases[number]
        position = self._read_ends.get(offset)
        if position is not None:
            return position, offset
        if self.damage and (corrupt := holding(self.damage, offset)) is not None:
            # It was found by a rebuild without the segment's end offset, so it is checked again.
            raise corrupt.error() if self.is_examined else CorruptLogError(str(corrupt))
        start = self.position_before(offset)
        batches = self._positions(start, self.size)
        for position, base, last, _ in batches:
            if last >= offset:
                if position == start and start:
                    raise CorruptLogError(f"{self.path}: at {start} is another batch than the index has")
                if not self.is_examined:
                    # This batch claims to have the offset. The next one confirms it.
                    next(batches, None)
                if base == offset:
                    self._remember(base, position)
                return position, base
        return None

    def position_before(self, offset: int) -> int:
        """The position to search the offset from. Raises CorruptLogError if the index points outside the file."""
        start = self.index.position_before(offset - self.base_offset)
        if start and start >= self.size:
            # A search from there would find nothing, as if the segment ended below the offset.
            raise CorruptLogError(f"{self.path}: the index has {start}, which is not in the file")
        return start

    def _remember(self, base_offset: int, position: int) -> None:
        if len(self._read_ends) >= _READ_ENDS:
            self._read_ends.clear()
        self._read_ends[base_offset] = position

    def read(self, offset: int, max_bytes: int, bound: int | None, *, min_one_batch: bool) -> LogSlice | None:
        """Reads from the batch that has `offset`. Returns None if every batch ends below it.

        `bound` is an offset that the batches must stay below; None if the whole segment may be read.
        """
        found = self.locate(offset)
        if found is None:
            return None
        start, base = found
        file = self.file
        end = file.size
        if self.damage:
            _, end = next(good_stretches(self.damage, start, end))
            if bound is not None and holding(self.damage, bound) is not None:
                bound = None  # which is behind this range, or at its end
        if bound is not None and (limit := self.locate(bound)) is not None:
            end = min(end, limit[0])
        size = end - start
        if size > max_bytes:
            size = self._boundary(start, start + max_bytes, end, min_one_batch) - start
        if size <= 0:
            return LogSlice.empty(offset)
        piece = LogSlice(file, start, size, base)
        # When few files may stay open, a copy frees this one: a thousand unsent responses would hold too many.
        return piece.copied() if self._disk.open_files.is_full and size <= _COPIED_BYTES else piece

    def _boundary(self, start: int, limit: int, end: int, min_one_batch: bool) -> int:
        """The last batch boundary in `start..limit`, or the first batch's end if one must be read; limit < end."""
        positions = self._recent_positions
        if positions and limit >= positions[0]:
            number = bisect_right(positions, limit) - 1
            best = positions[number]
            if best > start or not min_one_batch:
                return best if best > start else start
            if best == start:
                return positions[number + 1] if number + 1 < len(positions) else end
        best = max(start, self.index.boundary_before(limit))
        best_base = -1
        first_size = 0
        for position, base, _, size in scan_positions(self.file, best, end):
            if position > limit:
                break
            best, best_base, first_size = position, base, size
        if best > start:
            self._remember(best_base, best)
            return best
        return start + first_size if min_one_batch else start

    def upper_bound_of(self, end_position: int) -> int | None:
        """An upper bound of the offsets before the position, from the index. None means the segment's end."""
        relative = self.index.offset_at_or_after(end_position)
        return None if relative is None else relative + self.base_offset

    # -- missing and corrupt records

    def findings(self, end_offset: int | None) -> Findings:
        """Collects the findings of a walk over all batches. `end_offset`, if known, is the end of the offsets."""
        return Findings(self.file, self.path + names.LOG, self.size, self.base_offset, end_offset)

    def note_damage(self, ranges: Ranges) -> None:
        """Stores corrupt ranges, and reports the new ones to the operator."""
        known = {it.position: it for it in self.damage}
        for it in ranges:
            if it.position not in known:
                logger.error(
                    "%s. What is there is kept; reads of these offsets are answered CORRUPT_MESSAGE, and consumers "
                    "have to seek past them. With the broker stopped, `kwire log check` shows more, `kwire log repair` "
                    "mends it",
                    it,
                )
            known[it.position] = it
        self.damage = tuple(known[position] for position in sorted(known))

    def note_missing(self, first_offset: int, end_offset: int, reason: str = "nothing is there") -> CorruptRange | None:
        """Notes that the records `first_offset..end_offset`, which belong to its end, are missing."""
        if first_offset >= end_offset:
            return None
        found = CorruptRange(self.path + names.LOG, self.size, self.size, first_offset, end_offset, reason)
        self.note_damage((found,))
        return found

    def refuse_damage(self, offset: int) -> None:
        """Raises CorruptRangeError if there is a corrupt range that ends above the offset."""
        for it in self.damage:
            if it.end_offset > offset:
                raise it.error()

    def has_holes(self, offset: int) -> bool:
        """Returns True if records from the offset on are missing between batches, outside the known corrupt ranges."""
        expected = self.base_offset
        for _, header in self.headers(0):
            if header.next_offset > offset and (
                header.base_offset > max(expected, offset) or header.records_count <= header.last_offset_delta
            ):
                return holding(self.damage, expected) is None
            expected = header.next_offset
        return False

    # -- times

    @property
    def largest_timestamp(self) -> int:
        """The largest timestamp (ms) of the segment's records; -1 if they have none."""
        if self.max_timestamp == _NO_TIMESTAMP:
            timestamps = self.time_index.timestamps
            if timestamps:
                self.max_timestamp = timestamps[-1]
                self.offset_of_max_timestamp = self.time_index.offsets[-1] + self.base_offset
        return self.max_timestamp

    @property
    def first_timestamp_ms(self) -> int:
        """The timestamp of the first batch; -1 if there is none. Reads the file once, and leaves it closed."""
        if self.rolling_timestamp is None and self.size:
            file = self.open_file_or_none or self._disk.open_read(self.records_path)
            for start, end in good_stretches(self.damage, 0, self.size):
                self.rolling_timestamp = next(scan_headers(file, start, end))[1].max_timestamp
                break
        return -1 if self.rolling_timestamp is None else self.rolling_timestamp
