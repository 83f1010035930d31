"""Opening a log after the process died during a compaction's swap: finishes or undoes the swap.

`compaction/swap.py` has the steps and the order of renames; Kafka does the same in `LogLoader.completeSwapOperations`.
A `*.log.swap` decides, unless there is a `*.cleaned` at or below its offset: then the commit was never synced, and all
old files are there. So after a power cut a commit looks as if it had stopped early.
"""

from __future__ import annotations

from contextlib import suppress

from kwire_storage import names
from kwire_storage.disk.files import Disk
from kwire_storage.log.scan import scan_positions


def rename_if_there(disk: Disk, old: str, new: str) -> None:
    with suppress(FileNotFoundError):  # there is no .txnindex without aborted transactions
        disk.rename(old, new)


def remove_written(disk: Disk, path: str) -> None:
    """Removes the files that a cleaning wrote for the segment of that path, records first."""
    for suffix in names.SEGMENT_SUFFIXES:
        disk.remove(path + suffix + names.SWAP)
        disk.remove(path + suffix + names.CLEANED)


def complete_swap(disk: Disk, folder: str) -> list[int]:
    """Completes or undoes a swap at an opening, before the segments are listed. May run again after a crash.

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
            remove_written(disk, f"{folder}/{names.offset_name(base, '')}")
    for base in swapped:
        path = f"{folder}/{names.offset_name(base, '')}"
        end_offset = max(_end_offset(disk, path + names.LOG + names.SWAP), base + 1)
        for old in [it for it in bases if base < it < end_offset]:
            for suffix in (*names.SEGMENT_SUFFIXES, names.SNAPSHOT):
                disk.remove(f"{folder}/{names.offset_name(old, suffix)}")
        # They are rebuilt when they are needed; it is unknown which segment they belong to.
        for suffix in (names.INDEX, names.TIME_INDEX):
            disk.remove(path + suffix)
            disk.remove(path + suffix + names.SWAP)
        disk.remove(path + names.TXN_INDEX)
        rename_if_there(disk, path + names.TXN_INDEX + names.SWAP, path + names.TXN_INDEX)
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
        for _, _, last_offset, _ in scan_positions(file, 0, file.size):
            end_offset = last_offset + 1
    finally:
        file.close()
    return end_offset
