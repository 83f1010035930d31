"""Putting cleaned segments into the place of those they were made of, so that a crash at any point does no harm.

    write     (worker)  *.log.cleaned and *.txnindex.swap are written and synced, names included
    commit    (log)     *.log.cleaned -> *.log.swap
    sync      (worker)  from here on the swap will happen, by us or by the next opening
    replace   (log)     the old files -> *.deleted; the new indexes are written; readers get the new segment
    sync      (worker)
    finish    (log)     *.log.swap -> *.log
    sync      (worker)
    sweep     (log)     *.txnindex.swap is removed

`complete` does at an opening what remained of that. The presence of `*.log.swap` decides; everything else is either
still as it was before, or can be done again.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from kwire_storage import names, retention
from kwire_storage.scan import scan_places

if TYPE_CHECKING:
    from kwire_storage.compaction import Compaction, Group
    from kwire_storage.files import Disk
    from kwire_storage.log import Log


def discard(compaction: Compaction) -> None:
    """Removes what was written, when it is not wanted any more or could not be finished."""
    for source in compaction.sources:
        path = source.segment.path
        # The .log.swap first: without it the others mean nothing.
        for suffix in (names.LOG + names.SWAP, names.LOG + names.CLEANED, names.TXN_INDEX + names.SWAP):
            with suppress(FileNotFoundError):  # with its folder, when the partition was deleted
                compaction.disk.remove(path + suffix)


def commit(compaction: Compaction) -> None:
    for group in compaction.groups:
        path = group.sources[0].segment.path + names.LOG
        compaction.disk.rename(path + names.CLEANED, path + names.SWAP)


def replace(log: Log, compaction: Compaction, now_ms: int) -> None:
    """Readers see the new segments from here on. Groups of which the log has lost a segment meanwhile are left out."""
    kept = []
    for group in compaction.groups:
        segments = [source.segment for source in group.sources]
        if log.truncations != compaction.truncations or not all(segment in log.segments for segment in segments):
            _discard_group(log.disk, group)
            continue
        cleaned = group.cleaned
        assert cleaned is not None, "it was written"
        first = log.segments.index(segments[0])
        for segment in segments:
            retention.delete_files(log, segment, now_ms, with_snapshot=segment is not segments[0])
        group.unsynced_files = cleaned.save_indexes()
        log.segments[first : first + len(segments)] = [cleaned]
        log.bases[first : first + len(segments)] = [cleaned.base_offset]
        kept.append(group)
    compaction.groups = kept
    log.newest_so_far.clear()
    log.name_changes += 1


def finish(log: Log, compaction: Compaction) -> None:
    for group in compaction.groups:
        assert group.cleaned is not None, "it was written"
        path = group.cleaned.path + names.LOG
        log.disk.rename(path + names.SWAP, path)
    log.name_changes += 1


def sync(compaction: Compaction) -> None:
    """Blocks; for a worker thread. Raises OSError."""
    disk = compaction.disk
    for group in compaction.groups:
        unsynced, group.unsynced_files = group.unsynced_files, []
        for path in unsynced:
            with suppress(FileNotFoundError):  # retention was quicker
                sync_file(disk, path)
    disk.sync_dir(compaction.path)


def sweep(compaction: Compaction) -> None:
    for group in compaction.groups:
        compaction.disk.remove(_txn_swap(group))


def _discard_group(disk: Disk, group: Group) -> None:
    path = group.sources[0].segment.path
    disk.remove(path + names.LOG + names.SWAP)
    disk.remove(_txn_swap(group))


def _txn_swap(group: Group) -> str:
    return group.sources[0].segment.path + names.TXN_INDEX + names.SWAP


def complete(disk: Disk, folder: str) -> None:
    """At an opening, before the segments are listed. Doing it again, after a crash in the middle of it, is fine."""
    listed = set(disk.listdir(folder))
    parsed = {name: names.parse_offset_name(name) for name in listed}
    bases = sorted(it[0] for it in parsed.values() if it is not None and it[1] == names.LOG)
    swapped = sorted(it[0] for it in parsed.values() if it is not None and it[1] == names.LOG + names.SWAP)
    for base in swapped:
        path = f"{folder}/{names.offset_name(base, '')}"
        end_offset = max(_end_offset(disk, path + names.LOG + names.SWAP), base + 1)
        for old in [it for it in bases if base <= it < end_offset]:
            for suffix in names.SEGMENT_SUFFIXES:
                disk.remove(f"{folder}/{names.offset_name(old, suffix)}")
            if old != base:
                disk.remove(f"{folder}/{names.offset_name(old, names.SNAPSHOT)}")
        for suffix in (names.INDEX, names.TIME_INDEX):
            disk.remove(path + suffix)
        aborted = disk.read_bytes(path + names.TXN_INDEX + names.SWAP)
        if aborted:
            disk.write_bytes(path + names.TXN_INDEX, aborted)
            sync_file(disk, path + names.TXN_INDEX)
        else:
            disk.remove(path + names.TXN_INDEX)
        disk.sync_dir(folder)
        disk.rename(path + names.LOG + names.SWAP, path + names.LOG)
    if swapped:
        disk.sync_dir(folder)
    for name, it in parsed.items():
        if it is not None and it[1] == names.TXN_INDEX + names.SWAP:
            disk.remove(f"{folder}/{name}")


def sync_file(disk: Disk, path: str) -> None:
    file = disk.open_read(path)
    try:
        file.sync()
    finally:
        file.close()


def _end_offset(disk: Disk, path: str) -> int:
    file = disk.open_read(path)
    try:
        end_offset = 0
        for _, _, last_offset, _ in scan_places(file, 0, file.size):
            end_offset = last_offset + 1
    finally:
        file.close()
    return end_offset
