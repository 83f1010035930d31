"""Opening a log: from the names in its folder to a `Log` that can be used.

One listing is all that a cleanly closed log costs. Its end is the offset in the name of the newest producer snapshot,
which a clean stop writes; only where that is missing the last segment is looked into. Producers and leader epochs are
read when first asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kwire_storage import names
from kwire_storage.errors import CorruptLogError, is_full
from kwire_storage.log import durability, recovery, swap
from kwire_storage.log.segment import Segment

if TYPE_CHECKING:
    from kwire_storage.log.log import Log

_LEFTOVERS = (names.DELETED, names.CLEANED, names.TEMPORARY)


def load(
    log: Log, *, now_ms: int, clean_shutdown: bool, recovery_point: int, on_scanned: Callable[[int], None]
) -> None:
    """Finds the segments and the end of the log; recovers unless the last stop was clean."""
    bases, log.snapshot_offsets, swapped = _list_folder(log)
    log.bases = bases or [log.log_start_offset]
    interval = log.config.index_interval_bytes
    log.segments = [Segment(log.disk, log.path, base, interval, now_ms) for base in log.bases]
    log.log_start_offset = max(log.log_start_offset, log.bases[0])
    if not (clean_shutdown or bases):
        # The power failed when the names of the snapshots were on the medium, and those of the segments were not yet.
        durability.drop_snapshots_above(log, -1)
    if clean_shutdown or not bases:
        log.log_end_offset = log.recovery_point = _promised_end(log, recovery_point)
    else:
        log.recovery = recovery.recover(log, recovery_point, now_ms, on_scanned, swapped)
        log.recovery_point = min(recovery_point, log.log_end_offset)
    if not clean_shutdown:
        # What the process that died had not synced is not known to this one: the first flush covers it all.
        log.folder_unsynced = True
        log.name_changes += 1
    if log.log_end_offset < log.log_start_offset:
        # What the log start promised to be readable is lost; nothing below it may be seen again.
        log.reserve.spend(lambda: log.truncate_fully_and_start_at(log.log_start_offset, now_ms=now_ms))
    log.cleaned_offset = min(log.cleaned_offset, log.log_end_offset)
    _drop_stray_snapshots(log)


def _list_folder(log: Log) -> tuple[list[int], list[int], list[int]]:
    """The base offsets and the snapshots' offsets, ascending; and of which segments a compaction's swap was finished.

    Leftovers of deletions are removed.
    """
    disk, path = log.disk, log.path
    try:
        listed = disk.listdir(path)
    except FileNotFoundError:
        _make_folder(log)
        return [], [], []
    log.make_folder = None
    swapped: list[int] = []
    if any(name.endswith(names.SWAP) for name in listed):
        swapped = swap.complete(disk, path)
        listed = disk.listdir(path)
    bases: set[int] = set()
    snapshots: list[int] = []
    indexes: list[tuple[int, str]] = []
    for name in listed:
        parsed = names.parse_offset_name(name)
        if name.endswith(_LEFTOVERS):
            disk.remove(f"{path}/{name}")
        elif parsed is not None:
            offset, suffix = parsed
            if suffix == names.LOG:
                bases.add(offset)
            elif suffix == names.SNAPSHOT:
                snapshots.append(offset)
            elif suffix in names.SEGMENT_SUFFIXES:
                indexes.append((offset, name))
    for offset, name in indexes:
        if offset not in bases:
            disk.remove(f"{path}/{name}")
    return sorted(bases), sorted(snapshots), swapped


def _make_folder(log: Log) -> None:
    try:
        log.reserve.spend(lambda: durability.make_folder(log))
    except OSError as error:
        if not is_full(error):
            raise


def _promised_end(log: Log, recovery_point: int) -> int:
    active = log.active
    if log.snapshot_offsets and log.snapshot_offsets[-1] > active.base_offset:
        return log.snapshot_offsets[-1]
    if not active.size:
        return active.base_offset
    try:
        return active.last_offset_in_file() + 1
    except CorruptLogError:
        active.rebuild()
        # Offsets that were given out once are not given out again.
        return max(active.last_offset_in_file() + 1, recovery_point)


def _drop_stray_snapshots(log: Log) -> None:
    """Keeps the snapshots at the beginning of a segment, and the newest."""
    kept = {*log.bases, *log.snapshot_offsets[-1:]}
    if len(kept.intersection(log.snapshot_offsets)) == len(log.snapshot_offsets):
        return
    for offset in log.snapshot_offsets:
        if offset not in kept:
            log.disk.remove(durability.snapshot_path(log, offset))
    log.snapshot_offsets = [offset for offset in log.snapshot_offsets if offset in kept]
