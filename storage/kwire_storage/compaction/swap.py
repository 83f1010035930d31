"""Replaces segments with their cleaned versions, so that a crash at any point does no harm.

The names, and their order, are Kafka's, so kwire and Kafka can each finish what the other began:

    write     (process) *.cleaned, the records and their indexes, are written and synced, names included
    begin     (log)     groups that the log has deleted meanwhile are left out; until `conclude` it deletes no more
    commit    (worker)  *.cleaned -> *.swap; synced: now the swap will happen, by us or by the next opening
    replace   (log)     the old files -> *.deleted; the indexes get their names; readers get the new segment
    sync      (worker)
    finish    (log)     *.log.swap -> *.log
    sync      (worker)
    conclude  (log)

Everything that needs disk space is written before anything changes: the rest are renames.

If segments were deleted in between, a kill would bring back cleaned ones, with a hole behind them. So retention and
DeleteRecords wait: the log start may advance, and its segments are removed at the end.

Opening the log finishes an interrupted swap, or undoes it (`swap_files.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from kwire_storage import names
from kwire_storage.compaction.planning import Compaction, Group
from kwire_storage.log.log import Log
from kwire_storage.log.swap_files import remove_written, rename_if_there


def discard(log: Log, compaction: Compaction) -> None:
    """Removes the written files if they are no longer needed or could not be finished."""
    log.is_exchanging = False
    for segment in compaction.segments:
        with suppress(OSError):  # deleted with its folder, or else by the next opening
            remove_written(compaction.disk, segment.path)


def begin(log: Log, compaction: Compaction) -> None:
    """Leaves out groups of which the log has deleted a segment meanwhile. It deletes no more until `conclude`.

    `discard` ends that too.
    """
    for group in list(compaction.groups):
        if _is_lost(log, compaction, group):
            _leave_out(log, compaction, group)
    log.is_exchanging = True


def _is_lost(log: Log, compaction: Compaction, group: Group) -> bool:
    return log.durability.truncations != compaction.truncations or not all(it in log.segments for it in group.segments)


def _leave_out(log: Log, compaction: Compaction, group: Group) -> None:
    # One that is deleted as a whole has left nothing that could be dirty.
    compaction.is_whole &= not any(segment in log.segments for segment in group.segments)
    compaction.groups.remove(group)
    remove_written(log.disk, group.path)


def commit(compaction: Compaction) -> None:
    """Commits the swap; blocks, so use a worker thread. `discard` undoes it until `replace` begins. Raises OSError."""
    for group in compaction.groups:
        for suffix in names.SEGMENT_SUFFIXES:
            rename_if_there(compaction.disk, group.path + suffix + names.CLEANED, group.path + suffix + names.SWAP)
    compaction.disk.sync_dir(compaction.plan.folder)


def replace(log: Log, compaction: Compaction, now_ms: int) -> Iterator[None]:
    """Swaps group by group; readers use a group's new segment from then on. Groups hit by a truncation are left out."""
    for group in list(compaction.groups):
        if _is_lost(log, compaction, group):
            _leave_out(log, compaction, group)
            continue
        group.cleaned.file_suffix = names.LOG + names.SWAP
        log.replace_segments(group.segments, group.cleaned, now_ms)
        for suffix in names.SEGMENT_SUFFIXES[1:]:
            rename_if_there(log.disk, group.path + suffix + names.SWAP, group.path + suffix)
        yield


def finish(log: Log, compaction: Compaction) -> Iterator[None]:
    """Gives the new segments their final names, group by group."""
    for group in compaction.groups:
        if group.cleaned not in log.segments:  # a truncation removed it, under its former name
            continue
        path = group.path + names.LOG
        log.disk.rename(path + names.SWAP, path)
        group.cleaned.file_suffix = names.LOG
        log.durability.name_changes += 1
        yield


def sync(compaction: Compaction) -> None:
    """Syncs the renames; blocks, so use a worker thread. Raises OSError."""
    compaction.disk.sync_dir(compaction.plan.folder)


def conclude(log: Log, compaction: Compaction, now_ms: int) -> None:
    """Moves the cleaned offset to the end of this cleaning, unless a group had to be left out."""
    if compaction.is_whole and log.durability.truncations == compaction.truncations:
        log.cleaned_offset = compaction.end_offset
    log.is_exchanging = False
    log.delete_below_start(now_ms)
