"""Putting cleaned segments into the place of those they were made of, so that a crash at any point does no harm.

The names, and their order, are Kafka's, so that either can finish what the other began:

    write     (process) *.cleaned, the records and their indexes, are written and synced, names included
    begin     (log)     what of it the log has lost meanwhile is left out; until `conclude` it loses nothing more
    commit    (worker)  *.cleaned -> *.swap; synced: now the swap will happen, by us or by the next opening
    replace   (log)     the old files -> *.deleted; the indexes get their names; readers get the new segment
    sync      (worker)
    finish    (log)     *.log.swap -> *.log
    sync      (worker)
    conclude  (log)

What needs room on the disk is written before anything changes: the rest are renames.

Were segments deleted in between, a kill would bring back cleaned ones, with a hole behind them. So retention and
DeleteRecords wait: a log start may advance, and its segments go at the end.

`complete` does at an opening what remained of that. A `*.log.swap` decides, unless there is a `*.cleaned` at or below
its offset: then the commit was never synced, and all old files are there. So what a power cut makes of a commit is the
beginning of it, as if it had ended there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from kwire_storage import names
from kwire_storage.log import retention
from kwire_storage.log.scan import scan_places

if TYPE_CHECKING:
    from kwire_storage.compaction.planning import Compaction, Group
    from kwire_storage.disk.files import Disk
    from kwire_storage.log.log import Log


def discard(log: Log, compaction: Compaction) -> None:
    """Removes what was written, when it is not wanted any more or could not be finished."""
    log.is_exchanging = False
    for segment in compaction.segments:
        with suppress(OSError):  # gone with its folder; or else the next opening does it
            _remove(compaction.disk, segment.path)


def begin(log: Log, compaction: Compaction) -> None:
    """Leaves out the groups of which the log has lost a segment meanwhile; it loses no more until `conclude`.

    `discard` ends that, too.
    """
    for group in list(compaction.groups):
        if _is_lost(log, compaction, group):
            _leave_out(log, compaction, group)
    log.is_exchanging = True


def _is_lost(log: Log, compaction: Compaction, group: Group) -> bool:
    return log.truncations != compaction.truncations or not all(it in log.segments for it in group.segments)


def _leave_out(log: Log, compaction: Compaction, group: Group) -> None:
    # One that is gone as a whole has left nothing that could be dirty.
    compaction.is_whole &= not any(segment in log.segments for segment in group.segments)
    compaction.groups.remove(group)
    _remove(log.disk, group.path)


def commit(compaction: Compaction) -> None:
    """Blocks; for a worker thread. Raises OSError; `discard` undoes it as long as `replace` has not begun."""
    for group in compaction.groups:
        for suffix in names.SEGMENT_SUFFIXES:
            _rename(compaction.disk, group.path + suffix + names.CLEANED, group.path + suffix + names.SWAP)
    compaction.disk.sync_dir(compaction.plan.folder)


def replace(log: Log, compaction: Compaction, now_ms: int) -> Iterator[None]:
    """Group by group, of which readers see the new segment from then on. A truncation leaves the rest as it is."""
    for group in list(compaction.groups):
        if _is_lost(log, compaction, group):
            _leave_out(log, compaction, group)
            continue
        segments, cleaned = group.segments, group.cleaned
        first = log.segments.index(segments[0])
        for segment in segments:
            retention.delete_files(log, segment, now_ms, with_snapshot=segment is not segments[0])
        for suffix in names.SEGMENT_SUFFIXES[1:]:
            _rename(log.disk, group.path + suffix + names.SWAP, group.path + suffix)
        cleaned.file_suffix = names.LOG + names.SWAP
        log.segments[first : first + len(segments)] = [cleaned]
        log.bases[first : first + len(segments)] = [cleaned.base_offset]
        log.newest_so_far.clear()
        log.name_changes += 1
        yield


def finish(log: Log, compaction: Compaction) -> Iterator[None]:
    """Group by group, too."""
    for group in compaction.groups:
        if group.cleaned not in log.segments:  # a truncation took it, by the name that it had
            continue
        path = group.path + names.LOG
        log.disk.rename(path + names.SWAP, path)
        group.cleaned.file_suffix = names.LOG
        log.name_changes += 1
        yield


def sync(compaction: Compaction) -> None:
    """Blocks; for a worker thread. Raises OSError."""
    compaction.disk.sync_dir(compaction.plan.folder)


def conclude(log: Log, compaction: Compaction, now_ms: int) -> None:
    """The log is clean up to where the cleaning came, unless something of it had to be left out."""
    if compaction.is_whole and log.truncations == compaction.truncations:
        log.cleaned_offset = compaction.end_offset
    log.is_exchanging = False
    retention.delete_below_start(log, now_ms)


def _rename(disk: Disk, old: str, new: str) -> None:
    with suppress(FileNotFoundError):  # there is no .txnindex without aborted transactions
        disk.rename(old, new)


def _remove(disk: Disk, path: str) -> None:
    """What a cleaning wrote for the segment, records first."""
    for suffix in names.SEGMENT_SUFFIXES:
        disk.remove(path + suffix + names.SWAP)
        disk.remove(path + suffix + names.CLEANED)


def complete(disk: Disk, folder: str) -> list[int]:
    """At an opening, before the segments are listed. Doing it again, after a crash in the middle of it, is fine.

    Returns the base offsets of the compacted segments that it gave their names.
    """
    found = [it for name in disk.listdir(folder) if (it := names.parse_offset_name(name)) is not None]
    bases = sorted(offset for offset, suffix in found if suffix == names.LOG)
    end_of_commit = min((offset for offset, suffix in found if suffix.endswith(names.CLEANED)), default=None)
    swapped: list[int] = []
    for base in sorted(offset for offset, suffix in found if suffix == names.LOG + names.SWAP):
        if end_of_commit is None or base < end_of_commit:
            swapped.append(base)
        else:
            _remove(disk, f"{folder}/{names.offset_name(base, '')}")
    for base in swapped:
        path = f"{folder}/{names.offset_name(base, '')}"
        end_offset = max(_end_offset(disk, path + names.LOG + names.SWAP), base + 1)
        for old in [it for it in bases if base < it < end_offset]:
            for suffix in (*names.SEGMENT_SUFFIXES, names.SNAPSHOT):
                disk.remove(f"{folder}/{names.offset_name(old, suffix)}")
        # Made anew when they are needed; which of them is whose cannot be told.
        for suffix in (names.INDEX, names.TIME_INDEX):
            disk.remove(path + suffix)
            disk.remove(path + suffix + names.SWAP)
        disk.remove(path + names.TXN_INDEX)
        _rename(disk, path + names.TXN_INDEX + names.SWAP, path + names.TXN_INDEX)
        disk.sync_dir(folder)
        disk.rename(path + names.LOG + names.SWAP, path + names.LOG)
    if swapped:
        disk.sync_dir(folder)
    for offset, suffix in found:
        if suffix.endswith(names.SWAP) and suffix != names.LOG + names.SWAP:
            disk.remove(f"{folder}/{names.offset_name(offset, suffix)}")
    return swapped


def _end_offset(disk: Disk, path: str) -> int:
    file = disk.open_read(path)
    try:
        end_offset = 0
        for _, _, last_offset, _ in scan_places(file, 0, file.size):
            end_offset = last_offset + 1
    finally:
        file.close()
    return end_offset
