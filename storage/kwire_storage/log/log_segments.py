"""The segments of one log in order, the end of the last one, and the reads from them.

Segment n covers `bases[n]..bases[n + 1]`, the last one `bases[-1]..end_offset`. There is always at least one. The last
one is `active`: only it is appended to. This is Kafka's `LogSegments`, with the reads of its `LocalLog`.

Reads skip corrupt ranges (`damage.py`). If a read finds bytes that are no batch, the segment is examined once, and the
read starts again with the result. Missing records are a loss only if compaction cannot have removed them.

Segments are removed at either end, so that the rest is a log without holes. A compacted segment replaces adjacent ones.
The files are renamed at once and removed later (`environment.py`); slices that are being sent stay readable.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

from kwire_protocol.records import BatchHeader, InvalidBatch, check_batch

from kwire_storage import names
from kwire_storage.config import LogConfig
from kwire_storage.disk.files import Disk
from kwire_storage.errors import CorruptLogError, CorruptRangeError
from kwire_storage.log.damage import holding
from kwire_storage.log.environment import LogEnvironment
from kwire_storage.log.segment import Segment
from kwire_storage.log.slices import LogSlice
from kwire_storage.producers.markers import decode_marker
from kwire_storage.producers.states import EndTxnMarker


class LogSegments:
    """See the module. `bases` is ascending; other code must not change it, nor `active`."""

    def __init__(
        self,
        disk: Disk,
        path: str,
        config: LogConfig,
        environment: LogEnvironment,
        bases: Iterable[int],
        *,
        now_ms: int,
    ) -> None:
        self._disk = disk
        self._path = path
        self._environment = environment
        self._config = config
        self.bases = list(bases)
        self._segments = [self.new_segment(base, now_ms) for base in self.bases]
        self.active = self._segments[-1]
        self.end_offset = self.bases[0]
        """The log end offset: the offset of the next record."""
        self.may_be_compacted = False
        """True if a cleaning has ever begun here. Then missing records are not a loss."""
        self._newest_so_far: list[int] = []
        """The largest timestamp up to the end of each sealed segment, as far as they have been needed."""

    def configure(self, config: LogConfig) -> None:
        self._config = config
        for segment in self._segments:
            segment.index_interval_bytes = config.index_interval_bytes
            segment.fits_until_ms = -1

    # -- as a sequence

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    def __contains__(self, segment: object) -> bool:
        return segment in self._segments

    def __getitem__(self, number: int) -> Segment:
        return self._segments[number]

    def sealed(self) -> list[Segment]:
        """All segments except the active one."""
        return self._segments[:-1]

    def from_offset(self, offset: int) -> list[tuple[Segment, int]]:
        """The segments that may hold the offset or later ones, each with its end offset."""
        first = max(bisect_right(self.bases, offset) - 1, 0)
        ends = [*self.bases[1:], self.end_offset]
        return list(zip(self._segments[first:], ends[first:], strict=True))

    @property
    def size_in_bytes(self) -> int:
        return sum(segment.size for segment in self._segments)

    # -- adding and removing

    def new_segment(self, base_offset: int, now_ms: int) -> Segment:
        """Makes a new segment, which is not part of the log yet."""
        return Segment(self._disk, self._path, base_offset, self._config.index_interval_bytes, now_ms)

    def add(self, segment: Segment) -> None:
        """Adds a segment after the active one, which becomes the active one."""
        assert segment.base_offset == self.end_offset > self.bases[-1], "a segment begins where the log ends"
        self._segments.append(segment)
        self.bases.append(segment.base_offset)
        self.active = segment

    def delete_oldest(self, now_ms: int) -> list[str]:
        """Removes the first segment from the log, never the active one. Returns the former paths of its files."""
        assert len(self._segments) > 1, "the active segment stays"
        paths = self._delete_files(self._segments[0], now_ms)
        del self._segments[0], self.bases[0]
        return paths

    def delete_newest(self, count: int, now_ms: int) -> list[str]:
        """Removes the last `count` segments from the log, never the first. Returns the paths of their files.

        The newest files are removed first, so that a crash in between leaves a longer log but never one with a hole.
        """
        assert count < len(self._segments), "a log has a segment"
        paths = self._delete_newest(count, now_ms)
        self.active = self._segments[-1]
        return paths

    def delete_all(self, now_ms: int) -> list[str]:
        """Does the same as `delete_newest` for all segments. Until `begin_at` there is none."""
        return self._delete_newest(len(self._segments), now_ms)

    def begin_at(self, offset: int, now_ms: int) -> None:
        """Makes an emptied log continue at the offset. The new segment has no file yet."""
        assert not self._segments, "emptied"
        segment = self.new_segment(offset, now_ms)
        self._segments, self.bases = [segment], [offset]
        self.active = segment
        self.end_offset = offset

    def _delete_newest(self, count: int, now_ms: int) -> list[str]:
        paths: list[str] = []
        if count:
            with self._disk.open_folder(self._path) as folder:
                for _ in range(count):
                    paths += self._delete_files(self._segments[-1], now_ms)
                    del self._segments[-1], self.bases[-1]
                # If they came back after other records, they would seem to follow those.
                folder.sync()
        return paths

    def replace(self, old: Sequence[Segment], new: Segment, now_ms: int) -> list[str]:
        """Replaces adjacent sealed segments with one, and returns their paths (LocalLog.replaceSegments)."""
        first = self._segments.index(old[0])
        assert self._segments[first : first + len(old)] == list(old), "neighbours"
        paths = [path for segment in old for path in self._delete_files(segment, now_ms)]
        self._segments[first : first + len(old)] = [new]
        self.bases[first : first + len(old)] = [new.base_offset]
        self._newest_so_far.clear()
        return paths

    def _delete_files(self, segment: Segment, now_ms: int) -> list[str]:
        """Deletes the records first: the next opening removes indexes without records."""
        self._newest_so_far.clear()
        segment.release()
        paths = [segment.records_path, *(segment.path + suffix for suffix in names.SEGMENT_SUFFIXES[1:])]
        self._environment.delete_later(self._disk, paths, now_ms + self._config.file_delete_delay_ms)
        return paths

    # -- reading

    def read(self, offset: int, max_bytes: int, max_offset: int, min_one_batch: bool) -> LogSlice:
        """See `Log.read`. The offset must be in the log."""
        end_offset = self.end_offset
        bases = self.bases
        number = len(bases) - 1
        if offset < bases[number]:
            number = bisect_right(bases, offset) - 1
        while offset < max_offset and offset < end_offset:
            segment = self._segments[number]
            segment_end = bases[number + 1] if number + 1 < len(bases) else end_offset
            bound = max_offset if max_offset < segment_end else None
            try:
                found = segment.read(offset, max_bytes, bound, min_one_batch=min_one_batch)
                if found is not None:
                    if found.base_offset > offset and self._examine_hole(segment):
                        continue
                    return found
                # A hole at the segment's end: the records were compacted away, or they are lost.
                self._check_end(segment, segment_end)
            except CorruptRangeError:
                raise
            except CorruptLogError:
                if not self.examine(segment):
                    raise
                continue
            offset = segment_end
            number += 1
        return LogSlice.empty(offset)

    def batches(self, offset: int) -> Iterator[tuple[BatchHeader, LogSlice]]:
        """Yields every batch from the one that has the offset. Raises CorruptLogError if one is corrupt or missing."""
        for segment, end_offset in self.from_offset(offset):
            if segment.base_offset >= self.end_offset:
                break  # nothing was appended to it, so its file need not exist
            for position, header in self.headers(segment, offset):
                data = self.read_batch(segment, position, header)
                segment.refuse_damage(offset)
                if data is None:
                    raise CorruptLogError(f"{segment.path}{names.LOG}: the batch at {position} has a wrong CRC")
                yield header, LogSlice.of(data, position, header.base_offset)
            if segment.base_offset < end_offset:
                self._check_end(segment, end_offset)
            segment.refuse_damage(offset)

    def headers_from(self, offset: int) -> Iterator[tuple[Segment, BatchHeader, int]]:
        """Yields segment, header and position of every valid batch that does not end below the offset."""
        for segment, end_offset in self.from_offset(offset):
            if segment.base_offset >= self.end_offset:
                break
            if offset >= end_offset:
                continue
            with suppress(CorruptLogError):
                for position, header in self.headers(segment, offset):
                    if header.base_offset >= end_offset:
                        break
                    yield segment, header, position

    def producer_batches(self, offset: int) -> Iterator[tuple[BatchHeader, EndTxnMarker | None]]:
        """Yields the batches of producers with an id, and the markers of control batches (`ProducerStateManager`)."""
        for segment, header, position in self.headers_from(offset):
            if header.producer_id < 0:
                continue
            marker = None
            if header.is_control:
                data = self.read_batch(segment, position, header)
                if data is None:
                    continue
                marker = decode_marker(data, 0, header)
            yield header, marker

    def headers(self, segment: Segment, offset: int) -> Iterator[tuple[int, BatchHeader]]:
        """Yields position and header of each batch that does not end below the offset, without corrupt ranges.

        Raises CorruptLogError if even the rest cannot be read.
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
                if not self.examine(segment):
                    raise
                # The position itself may have been wrong.
                position = 0

    def read_batch(self, segment: Segment, position: int, header: BatchHeader) -> bytes | None:
        """Returns a whole batch; None if its CRC is wrong."""
        data = segment.file.read(position, header.size_in_bytes)
        try:
            check_batch(data, header)
        except InvalidBatch:
            self.examine(segment)
            return None
        return data

    def locate(self, segment: Segment, offset: int) -> tuple[int, int] | None:
        """Does the same as `Segment.locate`. A corrupt range counts as one batch, from its beginning."""
        try:
            return segment.locate(offset)
        except CorruptLogError:
            self.examine(segment)
        corrupt = holding(segment.damage, offset)
        return segment.locate(offset) if corrupt is None else (corrupt.position, corrupt.first_offset)

    def first_that_reaches(self, timestamp_ms: int) -> int:
        """The base offset of the first segment with this timestamp or a later one; that of the active one if no sealed
        one has it.

        Timestamps need not rise from segment to segment, but the largest so far do. These are computed as far as they
        are needed, cached, and searched by bisection.
        """
        newest = self._newest_so_far
        sealed = len(self._segments) - 1
        while len(newest) < sealed and (not newest or newest[-1] < timestamp_ms):
            largest = self._segments[len(newest)].largest_timestamp
            newest.append(max(largest, newest[-1]) if newest else largest)
        return self.bases[bisect_left(newest, timestamp_ms)]

    # -- corrupt and missing records

    def examine(self, segment: Segment) -> bool:
        """Checks a whole segment in which bytes were found that are no batch. Returns False if it was checked before.

        Reads the whole segment; a second check can find nothing more.
        """
        if segment.is_examined or segment not in self._segments:
            return False
        ends = [*self.bases[1:], self.end_offset]
        segment.rebuild(ends[self._segments.index(segment)])
        return True

    def _examine_hole(self, segment: Segment) -> bool:
        """Does the same as `examine`, for a missing batch that compaction did not remove."""
        return not (self._config.compacts or self.may_be_compacted) and self.examine(segment)

    def may_have_holes(self, segment: Segment) -> bool:
        """True if compaction may have removed records: by the policy, now or earlier, or as the segment shows."""
        return self._config.compacts or self.may_be_compacted or segment.has_holes(0)

    def _check_end(self, segment: Segment, end_offset: int) -> None:
        """Raises CorruptRangeError if the segment's last records are missing and compaction did not remove them."""
        if segment.damage:
            self.examine(segment)  # found when its indexes were rebuilt, without its end offset
        known = holding(segment.damage, end_offset - 1)
        if known is None and (segment is self.active or not self.may_have_holes(segment)):
            known = segment.note_missing(segment.last_offset_in_file() + 1, end_offset)
        if known is not None:
            raise known.error()
