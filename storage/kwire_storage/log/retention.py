"""Deleting what is old, what is too much, and what is below the log start.

Segments go from the oldest on, so that what is left is always an unbroken log. Their files are renamed to `*.deleted`
at once, the records first (indexes without records are swept at the next opening), and may be removed
`file.delete.delay.ms` later (`surroundings.py`). Slices that are being sent stay readable in either case.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from kwire_storage import names
from kwire_storage.config import NEVER
from kwire_storage.errors import StorageError, is_full
from kwire_storage.log import durability, rolling
from kwire_storage.log.surroundings import DeletedFiles

if TYPE_CHECKING:
    from kwire_storage.log.log import Log
    from kwire_storage.log.segment import Segment


def tend(log: Log, now_ms: int, high_watermark: int) -> int:
    """See `Log.tend`. When something can be due is remembered: of a thousand logs hardly any has anything."""
    if now_ms < log.quiet_until_ms and log.log_end_offset == log.quiet_as_of:
        return 0
    rolling.maybe_roll(log, now_ms)
    # One at a time, since each asks for a sync of names: a thousand of them would hold up everybody else.
    count = apply(log, now_ms, high_watermark, most=1)
    # What is not replicated is not deleted, and nobody tells when it is.
    if not count and high_watermark >= log.log_end_offset and not log.is_exchanging:
        log.quiet_as_of = log.log_end_offset
        log.quiet_until_ms = min(rolling.rolls_at_ms(log, now_ms), _expires_at_ms(log))
    return count


def _expires_at_ms(log: Log) -> int:
    oldest = log.segments[0]
    if not log.config.deletes or log.config.retention_ms < 0 or (oldest is log.active and not oldest.size):
        return NEVER
    return _newest_ms(oldest) + log.config.retention_ms + 1


def apply(log: Log, now_ms: int, high_watermark: int, most: int = NEVER) -> int:
    """Deletes what the settings ask for, up to `most` segments; returns how many."""
    if log.is_exchanging:
        return 0
    count = _deletable(log, now_ms, high_watermark)
    if count == len(log.segments):
        try:
            log.reserve.spend(lambda: log.roll(now_ms))
        except StorageError as error:
            if not is_full(error):
                raise
            # The others make the room that the next attempt needs.
            count -= 1
    count = min(count, most)
    delete_oldest(log, count, now_ms)
    return count


def _deletable(log: Log, now_ms: int, high_watermark: int) -> int:
    config = log.config
    too_much = -1
    if config.deletes and config.retention_bytes >= 0:
        too_much = log.size_in_bytes - config.retention_bytes
    count = 0
    for segment, end_offset in log.segments_from(log.bases[0]):
        is_active = segment is log.active
        if end_offset > high_watermark or (is_active and not segment.size):
            break
        below_start = not is_active and end_offset <= log.log_start_offset
        expired = config.deletes and 0 <= config.retention_ms < now_ms - _newest_ms(segment)
        if not (below_start or expired or too_much >= segment.size):
            break
        too_much -= segment.size
        count += 1
    return count


def _newest_ms(segment: Segment) -> int:
    newest = segment.largest_timestamp
    return newest if newest >= 0 else segment.created_ms


def advance_log_start(log: Log, offset: int, now_ms: int) -> bool:
    """See `Log.advance_log_start`."""
    if offset <= log.log_start_offset:
        return False
    if offset > log.log_end_offset:
        raise ValueError(f"log start {offset} beyond the log end {log.log_end_offset}")
    log.log_start_offset = offset
    log.leader_epochs.truncate_from_start(offset)
    delete_below_start(log, now_ms)
    return True


def delete_below_start(log: Log, now_ms: int) -> None:
    """Deletes the segments that end at the log start or below."""
    if not log.is_exchanging:
        delete_oldest(log, sum(base <= log.log_start_offset for base in log.bases[1:]), now_ms)


def delete_oldest(log: Log, count: int, now_ms: int) -> None:
    """Takes the first `count` segments out of the log; not the active one."""
    if not count:
        return
    assert count < len(log.segments), "the active segment stays"
    for _ in range(count):
        # Were the name of this one to go and its forerunner's to stay, or its successor's not to be there yet, the log
        # would come back with a hole.
        durability.settle_names(log)
        delete_files(log, log.segments[0], now_ms)
        log.name_changes += 1
        del log.segments[0], log.bases[0]
        log.log_start_offset = max(log.log_start_offset, log.bases[0])
    log.leader_epochs.truncate_from_start(log.log_start_offset)
    log.recovery_point = max(log.recovery_point, log.bases[0])


def delete_files(log: Log, segment: Segment, now_ms: int, *, with_snapshot: bool = True) -> None:
    """Renames a segment's files, and its snapshot, for removal later."""
    log.newest_so_far.clear()
    log.quiet_until_ms = -1
    segment.release()
    due_ms = now_ms + log.config.file_delete_delay_ms
    paths = [segment.records_path, *(segment.path + suffix for suffix in names.SEGMENT_SUFFIXES[1:])]
    if with_snapshot and segment.base_offset in log.snapshot_offsets and segment.base_offset != log.log_end_offset:
        log.snapshot_offsets.remove(segment.base_offset)
        paths.append(segment.path + names.SNAPSHOT)
    renamed = []
    for path in paths:
        with suppress(FileNotFoundError):
            try:
                log.disk.rename(path, path + names.DELETED)
                renamed.append(path + names.DELETED)
            except OSError as error:
                if not is_full(error):
                    raise
                # A longer name may need another block of the folder. To remove a file needs none.
                log.disk.remove(path)
    log.surroundings.deleted.append(DeletedFiles(due_ms, renamed))
    log.unsynced_files.difference_update(paths)
