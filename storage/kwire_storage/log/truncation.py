"""Taking the end of a log away, as a follower does that learns of another history.

Files go from the newest on, so that a crash in between leaves a longer log and never a broken one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kwire_storage.errors import CorruptLogError
from kwire_storage.log import damage, durability, retention
from kwire_storage.log.segment import Segment

if TYPE_CHECKING:
    from kwire_storage.log.log import Log


def truncate_to(log: Log, offset: int, now_ms: int) -> None:
    """See `Log.truncate_to`."""
    if offset < 0:
        raise ValueError(f"negative offset {offset}")
    if offset >= log.log_end_offset:
        return
    if offset < log.bases[0]:
        truncate_fully(log, offset, now_ms)
        return
    delete_newest(log, sum(base > offset for base in log.bases), now_ms)
    active = log.active
    end_offset = offset
    found = _locate(log, active, offset)
    if found is not None:
        position, base_offset = found
        end_offset = min(offset, max(base_offset, active.base_offset))
        active.cut(position)
        active.forget_aborted(end_offset)
    _end_at(log, end_offset)
    log.log_start_offset = min(log.log_start_offset, end_offset)
    log.is_active = True


def _locate(log: Log, segment: Segment, offset: int) -> tuple[int, int] | None:
    """As `Segment.locate`; what is corrupt begins where it begins, and goes as a whole."""
    try:
        return segment.locate(offset)
    except CorruptLogError:
        damage.examine(log, segment)
    corrupt = damage.holding(segment.damage, offset)
    return segment.locate(offset) if corrupt is None else (corrupt.position, corrupt.first_offset)


def truncate_fully(log: Log, offset: int, now_ms: int) -> None:
    """See `Log.truncate_fully_and_start_at`."""
    delete_newest(log, len(log.segments), now_ms)
    for snapshot in list(log.snapshot_offsets):
        durability.remove_snapshot(log, snapshot)
    segment = Segment(log.disk, log.path, offset, log.config.index_interval_bytes, now_ms)
    # The file's name is what remembers the offset, so it is created now.
    segment.activate()
    log.segments, log.bases = [segment], [offset]
    log.log_start_offset = offset
    _end_at(log, offset)
    log.leader_epochs.clear()
    log.is_active = True
    durability.settle_names(log)


def delete_newest(log: Log, count: int, now_ms: int) -> None:
    """Takes the last `count` segments out of the log."""
    for _ in range(count):
        retention.delete_files(log, log.segments[-1], now_ms)
        del log.segments[-1], log.bases[-1]
    if count:
        # Should they come back behind other records, they would be taken for what followed those.
        log.disk.sync_dir(log.path)


def _end_at(log: Log, end_offset: int) -> None:
    log.log_end_offset = end_offset
    log.recovery_point = min(log.recovery_point, end_offset)
    log.cleaned_offset = min(log.cleaned_offset, end_offset)
    log.truncations += 1
    log.name_changes += 1
    log.producers_or_none = None
    durability.drop_snapshots_above(log, end_offset)
    log.leader_epochs.truncate_from_end(end_offset)
