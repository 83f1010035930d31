"""Putting cleaned segments into the place of those they were made of, so that a crash at any point does no harm.

    write     (worker)  *.log.cleaned, its indexes, all *.cleaned, and *.txnindex.swap are written, synced, names too
    commit    (worker)  *.log.cleaned -> *.log.swap; synced: now the swap will happen, by us or by the next opening
    replace   (log)     the old files -> *.deleted; the indexes get their names; readers get the new segment
    sync      (worker)
    finish    (log)     *.log.swap -> *.log
    sync      (worker)
    sweep     (log)     *.txnindex.swap is removed

What needs room on the disk is written before anything changes: the rest are renames.

`complete` does at an opening what remained of that. `*.log.swap` and `*.txnindex.swap` together decide; everything else
is either still as it was before, or can be done again. A power cut before the first sync may leave some segments of a
cleaning to be swapped and others not: each holds the latest record of every key that it had before or says less, and
what an old one has beyond that is there to be cleaned again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from kwire_storage import names, retention
from kwire_storage.scan import scan_places

if TYPE_CHECKING:
    from kwire_storage.compaction import Compaction, Group
    from kwire_storage.files import Disk
    from kwire_storage.log import Log


_CLEANED = tuple(suffix + names.CLEANED for suffix in names.SEGMENT_SUFFIXES)


def discard(compaction: Compaction) -> None:
    """Removes what was written, when it is not wanted any more or could not be finished."""
    for source in compaction.sources:
        path = source.segment.path
        # The .log.swap first: without it the others mean nothing.
        for suffix in (names.LOG + names.SWAP, *_CLEANED, names.TXN_INDEX + names.SWAP):
            with suppress(OSError):  # gone with its folder; or else the next opening does it
                compaction.disk.remove(path + suffix)


def commit(compaction: Compaction) -> None:
    """Blocks; for a worker thread. Raises OSError; `discard` undoes it as long as `replace` has not begun."""
    for group in compaction.groups:
        path = group.path + names.LOG
        compaction.disk.rename(path + names.CLEANED, path + names.SWAP)
    compaction.disk.sync_dir(compaction.path)


def replace(log: Log, compaction: Compaction, now_ms: int) -> Iterator[None]:
    """Group by group, of which readers see the new segment from then on.

    Groups of which the log has lost a segment meanwhile are left out.
    """
    for group in list(compaction.groups):
        segments = [source.segment for source in group.sources]
        if log.truncations != compaction.truncations or not all(segment in log.segments for segment in segments):
            # One that is gone as a whole has left nothing that could be dirty.
            compaction.is_whole &= not any(segment in log.segments for segment in segments)
            compaction.groups.remove(group)
            _discard_group(log.disk, group)
            continue
        cleaned = group.cleaned
        assert cleaned is not None, "it was written"
        first = log.segments.index(segments[0])
        for segment in segments:
            retention.delete_files(log, segment, now_ms, with_snapshot=segment is not segments[0])
        for suffix in names.SEGMENT_SUFFIXES[1:]:
            with suppress(FileNotFoundError):  # no .txnindex without aborted transactions
                log.disk.rename(group.path + suffix + names.CLEANED, group.path + suffix)
        cleaned.file_suffix = names.LOG + names.SWAP
        log.segments[first : first + len(segments)] = [cleaned]
        log.bases[first : first + len(segments)] = [cleaned.base_offset]
        log.newest_so_far.clear()
        log.name_changes += 1
        yield


def finish(log: Log, compaction: Compaction) -> Iterator[None]:
    """Group by group, too."""
    for group in compaction.groups:
        assert group.cleaned is not None, "it was written"
        if group.cleaned not in log.segments:  # retention, or a truncation, took it since
            _discard_group(log.disk, group)
            continue
        path = group.path + names.LOG
        log.disk.rename(path + names.SWAP, path)
        group.cleaned.file_suffix = names.LOG
        log.name_changes += 1
        yield


def sync(compaction: Compaction) -> None:
    """Blocks; for a worker thread. Raises OSError."""
    compaction.disk.sync_dir(compaction.path)


def sweep(log: Log, compaction: Compaction) -> None:
    """The log is clean up to where the cleaning came, unless something of it had to be left out."""
    for group in compaction.groups:
        compaction.disk.remove(group.path + names.TXN_INDEX + names.SWAP)
    if compaction.is_whole and log.truncations == compaction.truncations:
        log.cleaned_offset = compaction.end_offset


def _discard_group(disk: Disk, group: Group) -> None:
    for suffix in (names.LOG + names.SWAP, *_CLEANED, names.TXN_INDEX + names.SWAP):
        disk.remove(group.path + suffix)


def complete(disk: Disk, folder: str) -> None:
    """At an opening, before the segments are listed. Doing it again, after a crash in the middle of it, is fine."""
    listed = set(disk.listdir(folder))
    parsed = {name: names.parse_offset_name(name) for name in listed}
    bases = sorted(it[0] for it in parsed.values() if it is not None and it[1] == names.LOG)
    swapped: list[int] = []
    for base in sorted(it[0] for it in parsed.values() if it is not None and it[1] == names.LOG + names.SWAP):
        if names.offset_name(base, names.TXN_INDEX + names.SWAP) in listed:
            swapped.append(base)
        else:  # it was discarded
            disk.remove(f"{folder}/{names.offset_name(base, names.LOG + names.SWAP)}")
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
