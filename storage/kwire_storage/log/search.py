"""Finds records by time, and the aborted transactions of a range of the log.

A segment is skipped by its largest timestamp, the sparse time index leads near the batch, batch headers (which have
their largest timestamp) to the batch, and only that one is decoded.
"""

from __future__ import annotations

from typing import NamedTuple

from kwire_protocol.records import BatchHeader, first_record_at_or_after, max_timestamp_record

from kwire_storage.log.log_segments import LogSegments
from kwire_storage.log.segment import Segment
from kwire_storage.log.slices import LogSlice
from kwire_storage.producers.txn_index import AbortedTxn, overlapping


class TimestampOffset(NamedTuple):
    """A record found by time: its own timestamp (ms), its offset, and the leader epoch it was written in."""

    timestamp: int
    offset: int
    leader_epoch: int


def offset_for_timestamp(
    segments: LogSegments, timestamp_ms: int, log_start_offset: int, max_offset: int
) -> TimestampOffset | None:
    """See `Log.offset_for_timestamp`."""
    first = segments.first_that_reaches(timestamp_ms)
    for segment, end_offset in segments.from_offset(max(log_start_offset, first)):
        if segment.base_offset >= max_offset:
            return None
        if segment.largest_timestamp < timestamp_ms:
            continue
        near = segment.base_offset + segment.time_index.offset_before(timestamp_ms)
        for at, header in segments.headers(segment, max(near, log_start_offset)):
            if header.base_offset >= min(max_offset, end_offset):
                break
            if header.max_timestamp < timestamp_ms or header.last_offset < log_start_offset:
                continue
            batch = segments.read_batch(segment, at, header)
            if batch is None:
                continue
            found = first_record_at_or_after(batch, 0, header, timestamp_ms, min_offset=log_start_offset)
            if found is not None:
                offset, timestamp = found
                if offset >= max_offset:
                    return None
                return TimestampOffset(timestamp, offset, header.partition_leader_epoch)
    return None


def max_timestamp_offset(segments: LogSegments, log_start_offset: int, max_offset: int) -> TimestampOffset | None:
    """See `Log.max_timestamp_offset`."""
    best: tuple[Segment, int, BatchHeader] | None = None
    for segment, _ in segments.from_offset(log_start_offset):
        if segment.base_offset >= max_offset:
            break
        if best is not None and segment.largest_timestamp <= best[2].max_timestamp:
            continue
        newest = _newest_batch(segments, segment, log_start_offset, max_offset)
        if newest is not None and (best is None or newest[1].max_timestamp > best[2].max_timestamp):
            best = segment, *newest
    if best is None:
        return None
    segment, position, header = best
    batch = segments.read_batch(segment, position, header)
    found = None if batch is None else max_timestamp_record(batch, 0, header)
    if found is None:
        return None
    return TimestampOffset(found[1], found[0], header.partition_leader_epoch)


def _newest_batch(
    segments: LogSegments, segment: Segment, log_start_offset: int, max_offset: int
) -> tuple[int, BatchHeader] | None:
    """The first batch with the largest timestamp between the log's start and `max_offset`."""
    largest = segment.largest_timestamp
    if largest < 0:
        return None
    newest: tuple[int, BatchHeader] | None = None
    # The segment's newest batch is mostly in range; otherwise all of them are walked over.
    for at, header in segments.headers(segment, segment.offset_of_max_timestamp):
        in_range = header.base_offset >= log_start_offset and header.last_offset < max_offset
        # A batch that compaction emptied still has its timestamp.
        if in_range and header.max_timestamp == largest and header.records_count:
            return at, header
        break
    for at, header in segments.headers(segment, log_start_offset):
        if header.base_offset >= max_offset:
            break
        if header.records_count and (newest is None or header.max_timestamp > newest[1].max_timestamp):
            newest = at, header
    return newest if newest is not None and newest[1].max_timestamp >= 0 else None


def aborted_transactions(segments: LogSegments, start_offset: int, piece: LogSlice) -> list[AbortedTxn]:
    """See `Log.aborted_transactions`."""
    if not piece.size:
        return []
    found: list[AbortedTxn] = []
    later = segments.from_offset(piece.base_offset)
    upper_bound = later[0][0].upper_bound_of(piece.position + piece.size) or later[0][1]
    for segment, _ in later:
        entries, complete = overlapping(segment.aborted, start_offset, upper_bound)
        found += entries
        if complete:
            break
    return found
