"""From one segment to the next."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from kwire_storage import names
from kwire_storage.config import NEVER
from kwire_storage.errors import CorruptLogError, StorageError, is_full
from kwire_storage.log import damage, durability
from kwire_storage.log.index import OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES
from kwire_storage.log.segment import Segment

if TYPE_CHECKING:
    from kwire_storage.log.log import Log


def activate(log: Log, now_ms: int) -> None:
    """Opens the last segment, creating its file if need be, and folds what its indexes do not tell.

    Where it is corrupt, or ends before the log does, the log goes on in a new segment: the old one is not touched.
    """
    if log.failed is not None:
        raise StorageError.of(log.failed, log.path)
    segment = log.active
    try:
        if log.make_folder is not None:
            durability.make_folder(log)
        if not segment.size:
            log.name_changes += 1
            segment.created_ms = now_ms
        end_offset = _end_of(log, segment)
        log.roll_jitter_ms = _draw_jitter(log)
        # Loaded now, every append keeps them up to date; loaded when a segment is full, they would be read from all.
        _ = log.leader_epochs, log.producers
    except OSError as error:
        log.reserve.note(error)
        raise StorageError.of(error, segment.path) from error
    log.is_active = True
    if end_offset < log.log_end_offset or segment.damage:
        _leave(log, segment, end_offset, now_ms)


def _end_of(log: Log, segment: Segment) -> int:
    """Where the last segment's records end; it is ready for appending then. Raises CorruptLogError."""
    try:
        end_offset = segment.activate() + 1
    except CorruptLogError:
        if not damage.examine(log, segment):
            raise
        end_offset = segment.activate() + 1
    if end_offset > log.log_end_offset:
        raise CorruptLogError(f"{segment.path}: records up to {end_offset - 1}, the end was to be {log.log_end_offset}")
    return end_offset


def _leave(log: Log, segment: Segment, end_offset: int, now_ms: int) -> None:
    if segment.size and segment.base_offset == log.log_end_offset:
        log.is_active = False
        raise CorruptLogError(f"{segment.path}: bytes that are no batch, where the log's next record has its place")
    if not any(it.end_offset >= log.log_end_offset for it in segment.damage):
        damage.missing_end(segment, end_offset, log.log_end_offset)
    try:
        roll(log, now_ms)
    except OSError:
        log.is_active = False
        raise


def _draw_jitter(log: Log) -> int:
    """How much earlier than by `segment.ms` a segment is full: logs that were begun together roll one by one."""
    bound = min(log.config.segment_jitter_ms, log.config.segment_ms)
    return log.surroundings.draw(bound) if bound else 0


def _full_after_ms(log: Log) -> int:
    return log.config.max_segment_ms - log.roll_jitter_ms


def must_roll(log: Log, last_offset: int, size: int, timestamp_ms: int, now_ms: int) -> bool:
    """Whether such a batch, ending at that offset, goes to a new segment (LogSegment.shouldRoll).

    That time and index allow more is remembered for the batches to come, in `fits_until_ms`.
    """
    segment, config = log.active, log.config
    file_size = segment.file.size
    if file_size > 0 and (
        file_size + size > config.segment_bytes or _age_ms(segment, now_ms, timestamp_ms) > _full_after_ms(log)
    ):
        return True
    room = min(
        config.segment_index_bytes // OFFSET_ENTRY_BYTES - len(segment.index.offsets),
        config.segment_index_bytes // TIME_ENTRY_BYTES - 1 - len(segment.time_index.offsets),
    )
    if room <= 0 or last_offset > segment.fits_until_offset:
        return True
    if segment.rolling_timestamp is not None and segment.rolling_timestamp >= 0:
        segment.index_room = room
        segment.fits_until_ms = segment.rolling_timestamp + _full_after_ms(log)
    return False


def _age_ms(segment: Segment, now_ms: int, timestamp_ms: int) -> int:
    """How long the segment has been filled: by its records' clock if they have one, else by ours."""
    filled_since = segment.first_timestamp_ms
    if filled_since >= 0 and timestamp_ms >= 0:
        return timestamp_ms - filled_since
    return now_ms - segment.created_ms


def maybe_roll(log: Log, now_ms: int) -> bool:
    """See `Log.maybe_roll`."""
    if not log.active.size or _age_ms(log.active, now_ms, now_ms) <= _full_after_ms(log):
        return False
    try:
        roll(log, now_ms)
    except StorageError as error:
        if not is_full(error):
            raise
        return False
    return True


def rolls_at_ms(log: Log, now_ms: int) -> int:
    """From when on `maybe_roll` would, if nothing is appended until then."""
    if not log.active.size:
        return NEVER
    return now_ms + max(_full_after_ms(log) - _age_ms(log.active, now_ms, now_ms) + 1, 0)


def roll(log: Log, now_ms: int) -> None:
    """See `Log.roll`. An empty segment is not rolled: its successor would have its name."""
    if not log.is_active:
        activate(log, now_ms)
    sealed = log.active
    end = log.log_end_offset
    if not sealed.size and sealed.base_offset == end:
        return
    if len(log.segments) == 1:
        # Were only the later name to reach the medium, nothing would tell that the log did not begin there. (A later
        # segment that is missing leaves a gap, which recovery sees.)
        durability.settle_names(log)
    segment = Segment(log.disk, log.path, end, log.config.index_interval_bytes, now_ms)
    try:
        durability.write_snapshot(log)
        durability.note_written(log, sealed.seal())
        if end == log.recovery_point and log.unsynced_files:
            # Recovery trusts the indexes of a segment that ends at the recovery point: no later flush would pass it.
            durability.settle_files(log)
        segment.activate()
    except OSError as error:
        # Later appends go on in the old segment, so a new one must not be found at the next opening.
        with suppress(OSError):
            log.disk.remove(segment.path + names.LOG)
        log.reserve.note(error)
        raise StorageError.of(error, segment.path) from error
    log.name_changes += 1
    log.quiet_until_ms = -1
    log.roll_jitter_ms = _draw_jitter(log)
    log.segments.append(segment)
    log.bases.append(end)
    log.on_roll()
