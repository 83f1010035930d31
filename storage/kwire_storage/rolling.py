"""From one segment to the next."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from kwire_storage import durability, names
from kwire_storage.errors import StorageError
from kwire_storage.segment import Segment

if TYPE_CHECKING:
    from kwire_storage.log import Log


def activate(log: Log, now_ms: int) -> None:
    """Opens the last segment, creating its file if need be, and folds what its indexes do not tell."""
    if log.failed is not None:
        raise StorageError.of(log.failed, log.path)
    segment = log.active
    if not segment.size:
        log.name_changes += 1
        segment.created_ms = now_ms
    segment.activate(log.log_end_offset)
    # Loaded now, every append keeps them up to date; loaded when a segment is full, they would be read from all of it.
    _ = log.leader_epochs, log.producers
    log.is_active = True


def maybe_roll(log: Log, now_ms: int) -> bool:
    """See `Log.maybe_roll`."""
    if not log.active.size:
        return False
    if not log.is_active:
        activate(log, now_ms)
    if log.active.age_ms(now_ms, now_ms) <= log.config.segment_ms:
        return False
    roll(log, now_ms)
    return True


def roll(log: Log, now_ms: int) -> None:
    """See `Log.roll`. An empty segment is not rolled: its successor would have its name."""
    if not log.is_active:
        activate(log, now_ms)
    sealed = log.active
    end = log.log_end_offset
    if not sealed.size and sealed.base_offset == end:
        return
    segment = Segment(log.disk, log.path, end, log.config.index_interval_bytes, now_ms)
    try:
        durability.write_snapshot(log)
        segment.activate(end)
        log.unsynced_files.update(sealed.seal())
    except OSError as error:
        # Later appends go on in the old segment, so a new one must not be found at the next opening.
        with suppress(OSError):
            log.disk.remove(segment.path + names.LOG)
        raise StorageError.of(error, segment.path) from error
    log.name_changes += 1
    log.segments.append(segment)
    log.bases.append(end)
    log.on_roll()
