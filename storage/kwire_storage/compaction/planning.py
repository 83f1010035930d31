"""Compaction: rewrites segments with the latest record of each key, as Kafka's log cleaner does.

    flush, measure, begin (log's thread) -> the recovery point into its file -> write (`writing.py`)
    -> take, and the steps of `swap.py` (log's thread, syncs in a worker)

The writer gets a value, the `Plan`, and returns one, `Written`; it touches no state of the log's thread. Nothing
changes for readers and appenders before the swap.

The active segment, records younger than `min.compaction.lag.ms` and records above the last stable offset are not
compacted. Neither are records that are not yet durable, nor a transaction whose marker is not yet durable
(`cleanable_end`): an older record must not be removed because of a newer one that a power cut may still lose. Before
the swap the checkpoints must show that a cleaning has begun, and have a recovery point at or above the end of the
cleaned part (`LogDir.take_before_cleaning`). Otherwise recovery would consider the removed records lost.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import NamedTuple

import attrs

from kwire_storage import names
from kwire_storage.compaction.cleaning import LastRecord
from kwire_storage.compaction.writing import Plan, Source, Written, write
from kwire_storage.disk.lease import Lease
from kwire_storage.log.log import Log
from kwire_storage.log.segment import Segment
from kwire_storage.producers.txn_index import AbortedTxn


class Dirt(NamedTuple):
    """The work for a cleaning: offsets `first_dirty..end` were never compared with earlier records."""

    first_dirty_offset: int
    end_offset: int
    clean_bytes: int
    dirty_bytes: int
    dirty_since_ms: int | None
    """The time at which the oldest dirty segment was begun, by the records' timestamps; None if they have none."""

    @property
    def ratio(self) -> float:
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0


def cleanable_end(log: Log, high_watermark: int) -> int:
    """The offset below which every record is flushed, and every transaction decided by a flushed marker."""
    flushed = min(high_watermark, log.recovery_point)
    unstable = log.producers.first_unstable_offset(flushed)
    return flushed if unstable is None else min(flushed, unstable)


def is_clean(log: Log) -> bool:
    """True if all sealed segments are clean. Cheap; `measure` reads timestamps."""
    return log.cleaned_offset == log.active.base_offset


def measure(log: Log, cleanable_end: int, now_ms: int) -> Dirt:
    """Measures the dirty range that may be cleaned (Kafka's `LogCleanerManager.cleanableOffsets`).

    Given the high watermark as `cleanable_end`, it is a measurement only, without reads of transactions or a flush. A
    cleaning needs what `cleanable_end` returns.
    """
    log_start, cleaned = log.segments.bases[0], log.cleaned_offset
    first_dirty = cleaned if log_start <= cleaned <= log.active.base_offset else log_start
    end = min(log.active.base_offset, cleanable_end)
    clean = dirty = 0
    since: int | None = None
    for segment, segment_end in log.segments.from_offset(log_start):
        if segment is log.active or segment_end > end:
            break
        if segment_end <= first_dirty:
            clean += segment.size
            continue
        written_ms = segment.largest_timestamp if segment.largest_timestamp >= 0 else segment.created_ms
        if log.config.min_compaction_lag_ms > 0 and written_ms > now_ms - log.config.min_compaction_lag_ms:
            end = segment.base_offset
            break
        dirty += segment.size
        begun_ms = segment.first_timestamp_ms
        if begun_ms > 0 and (since is None or begun_ms < since):
            since = begun_ms
    return Dirt(first_dirty, max(_boundary(log, end), first_dirty), clean, dirty, since)


def _boundary(log: Log, offset: int) -> int:
    """The base offset of the last segment that begins at or below the offset: whole segments are cleaned."""
    return max((base for base in log.segments.bases if base <= offset), default=log.segments.bases[0])


@attrs.frozen(eq=False)
class Group:
    """Adjacent segments that become one new segment."""

    segments: list[Segment]
    cleaned: Segment

    @property
    def path(self) -> str:
        """The path of the new segment, without the suffix."""
        return self.cleaned.path


@attrs.define(eq=False)
class Compaction:
    """One cleaning of one log, for use in the log's thread. The writer gets its `plan`, and nothing else."""

    disk: Lease
    plan: Plan
    segments: list[Segment]
    """Those of the plan's sources."""
    truncations: int
    end_offset: int
    """The offset up to which the log will be clean; known when everything is written."""
    groups: list[Group] = attrs.field(factory=list)
    """Known when everything is written."""
    is_whole: bool = True
    """True if all groups were swapped in, or have nothing left in the log."""

    @classmethod
    def begin(cls, log: Log, dirt: Dirt, *, now_ms: int, map_bytes: int) -> Compaction:
        """Begins a cleaning. Reads nothing."""
        assert dirt.end_offset <= log.recovery_point, "what is cleaned is flushed first"
        config = log.config
        found = [
            (segment, end_offset)
            for segment, end_offset in log.segments.from_offset(log.segments.bases[0])
            if end_offset <= dirt.end_offset and segment is not log.active
        ]
        plan = Plan(
            folder=log.path,
            sources=tuple(
                Source(segment.base_offset, end_offset, segment.size, segment.created_ms)
                for segment, end_offset in found
            ),
            # A transaction stands where its marker does, which may be beyond what is cleaned.
            aborted=tuple(it for segment in log.segments for it in _aborted_or_file(segment)),
            first_dirty_offset=dirt.first_dirty_offset,
            end_offset=dirt.end_offset,
            last_records={entry.producer_id: LastRecord.of(entry) for entry in log.producers.entries.values()},
            now_ms=now_ms,
            delete_retention_ms=config.delete_retention_ms,
            map_bytes=map_bytes,
            segment_bytes=config.segment_bytes,
            segment_index_bytes=config.segment_index_bytes,
            index_interval_bytes=config.index_interval_bytes,
        )
        return cls(log.disk, plan, [segment for segment, _ in found], log.durability.truncations, dirt.end_offset)

    def take(self, written: Written) -> None:
        """Makes the segments that will replace the old ones, when everything is written."""
        self.end_offset = written.end_offset
        first = 0
        for size in written.group_sizes:
            segments = self.segments[first : first + size]
            first += size
            cleaned = Segment(
                self.disk,
                self.plan.folder,
                segments[0].base_offset,
                self.plan.index_interval_bytes,
                segments[-1].created_ms,
            )
            self.groups.append(Group(segments, cleaned))

    def write(self) -> Generator[int, None, None]:
        """Writes in the calling thread, and makes the segments."""
        self.take((yield from write(self.disk, self.plan)))


def _aborted_or_file(segment: Segment) -> Iterable[AbortedTxn | str]:
    known = segment.aborted_in_memory
    return [names.offset_name(segment.base_offset, names.TXN_INDEX)] if known is None else known
