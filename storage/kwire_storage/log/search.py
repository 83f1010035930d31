"""Finding records by time, and the aborted transactions of a stretch of the log.

A segment is skipped by its largest timestamp, the sparse time index leads near the batch, batch headers (which have
their largest timestamp) to the batch, and only that one is decoded.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, NamedTuple

from kwire_protocol.records import BatchHeader, first_record_at_or_after, max_timestamp_record

from kwire_storage.log import damage
from kwire_storage.log.slices import LogSlice
from kwire_storage.producers.txn_index import AbortedTxn, overlapping

if TYPE_CHECKING:
    from kwire_storage.log.log import Log
    from kwire_storage.log.segment import Segment


class TimestampOffset(NamedTuple):
    """A record found by time: its own timestamp (ms), its offset, and the leader epoch it was written in."""

    timestamp: int
    offset: int
    leader_epoch: int


def offset_for_timestamp(log: Log, timestamp_ms: int, max_offset: int) -> TimestampOffset | None:
    start_offset = log.log_start_offset
    first = log.bases[_first_that_reaches(log, timestamp_ms)]
    for segment, end_offset in log.segments_from(max(start_offset, first)):
        if segment.base_offset >= max_offset:
            return None
        if segment.largest_timestamp < timestamp_ms:
            continue
        near = segment.base_offset + segment.time_index.offset_before(timestamp_ms)
        for at, header in damage.headers(log, segment, max(near, start_offset)):
            if header.base_offset >= min(max_offset, end_offset):
                break
            if header.max_timestamp < timestamp_ms or header.last_offset < start_offset:
                continue
            batch = damage.read_batch(log, segment, at, header)
            if batch is None:
                continue
            found = first_record_at_or_after(batch, 0, header, timestamp_ms, min_offset=start_offset)
            if found is not None:
                offset, timestamp = found
                if offset >= max_offset:
                    return None
                return TimestampOffset(timestamp, offset, header.partition_leader_epoch)
    return None


def _first_that_reaches(log: Log, timestamp_ms: int) -> int:
    """The first segment that has the time or a later one, as an index; the active one's if no sealed one has.

    Timestamps need not rise from segment to segment, but the largest so far do: they are remembered, as far as they
    have been asked for, and halved.
    """
    newest = log.newest_so_far
    sealed = len(log.segments) - 1
    while len(newest) < sealed and (not newest or newest[-1] < timestamp_ms):
        largest = log.segments[len(newest)].largest_timestamp
        newest.append(max(largest, newest[-1]) if newest else largest)
    return bisect_left(newest, timestamp_ms)


def max_timestamp_offset(log: Log, max_offset: int) -> TimestampOffset | None:
    best: tuple[Segment, int, BatchHeader] | None = None
    for segment, _ in log.segments_from(log.log_start_offset):
        if segment.base_offset >= max_offset:
            break
        if best is not None and segment.largest_timestamp <= best[2].max_timestamp:
            continue
        newest = _newest_batch(log, segment, max_offset)
        if newest is not None and (best is None or newest[1].max_timestamp > best[2].max_timestamp):
            best = segment, *newest
    if best is None:
        return None
    segment, position, header = best
    batch = damage.read_batch(log, segment, position, header)
    found = None if batch is None else max_timestamp_record(batch, 0, header)
    if found is None:
        return None
    return TimestampOffset(found[1], found[0], header.partition_leader_epoch)


def _newest_batch(log: Log, segment: Segment, max_offset: int) -> tuple[int, BatchHeader] | None:
    """The first batch with the largest timestamp between the log's start and `max_offset`."""
    start_offset = log.log_start_offset
    largest = segment.largest_timestamp
    if largest < 0:
        return None
    newest: tuple[int, BatchHeader] | None = None
    # The segment's newest batch is mostly in range; a walk over all of them is for the rest.
    for at, header in damage.headers(log, segment, segment.offset_of_max_timestamp):
        in_range = header.base_offset >= start_offset and header.last_offset < max_offset
        # A batch that compaction emptied has kept its timestamp.
        if in_range and header.max_timestamp == largest and header.records_count:
            return at, header
        break
    for at, header in damage.headers(log, segment, start_offset):
        if header.base_offset >= max_offset:
            break
        if header.records_count and (newest is None or header.max_timestamp > newest[1].max_timestamp):
            newest = at, header
    return newest if newest is not None and newest[1].max_timestamp >= 0 else None


def aborted_transactions(log: Log, start_offset: int, piece: LogSlice) -> list[AbortedTxn]:
    """See `Log.aborted_transactions`."""
    if not piece.size:
        return []
    found: list[AbortedTxn] = []
    segments = log.segments_from(piece.base_offset)
    upper_bound = segments[0][0].upper_bound_of(piece.position + piece.size) or segments[0][1]
    for segment, _ in segments:
        entries, complete = overlapping(segment.aborted, start_offset, upper_bound)
        found += entries
        if complete:
            break
    return found
