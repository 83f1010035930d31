"""After anything but a clean stop: walking over the segments from the recovery point on.

Everything below the recovery point was synced. Of the segment that holds it, and of the later ones, each batch is
checked (`walk.py`), and indexes, largest timestamps, leader epochs, producers and aborted transactions are made anew
from what was read.

Behind the recovery point the first bytes that are not a good batch end the log: a power cut loses unsynced sectors in
any order, and what was appended after a loss must not seem to follow what was appended before it. They are cut off with
all that follows, later segments included; `Recovery` says whether good batches were among that. A segment that ends
before the next one begins has lost its tail, too: the next one's name may reach the medium before this one's bytes.
Compaction is no excuse, since what is to be cleaned is flushed, and the recovery point in its file above it, before any
record goes (`compaction.py`). Apache Kafka does not wait for that: in what it leaves after an unclean stop compacted
segments may lie behind the recovery point. They are known by the cleaner's checkpoint, by a swap that was not finished,
or by records that are missing within them, too; and since they were synced before they got their names, what is not at
their end was not lost.

Below the recovery point nothing is ever cut: what is bad or missing there has rotted, or somebody's hand was in it. It
is noted (`damage.py`), and the log goes on behind it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

import attrs

from kwire_storage import names
from kwire_storage.errors import CorruptLogError, is_full
from kwire_storage.log import damage, durability, replay, rolling, truncation
from kwire_storage.log.walk import Batch, walk
from kwire_storage.producers.markers import apply_batch, decode_marker

if TYPE_CHECKING:
    from kwire_storage.log.log import Log
    from kwire_storage.log.segment import Segment


@attrs.frozen
class Recovery:
    """What was done, for the operator's eyes.

    `lost_batches` is how many good batches were among what was cut or deleted; they reached up to `lost_end_offset`.
    """

    scanned_bytes: int = 0
    cut_bytes: int = 0
    deleted_segments: int = 0
    reason: str = ""
    lost_batches: int = 0
    lost_bytes: int = 0
    lost_end_offset: int = 0


def first_to_scan(bases: list[int], recovery_point: int) -> int:
    """The number of the segment that recovery begins with: the one that has the recovery point, or begins there."""
    return max(bisect_right(bases, recovery_point) - 1, 0)


def recover(
    log: Log,
    recovery_point: int,
    now_ms: int,
    on_scanned: Callable[[int], None],
    swapped: Collection[int] = (),
) -> Recovery:
    """Brings a log whose segments are listed, and nothing else, to a state in which it can be used.

    `swapped` are the base offsets of those that a compaction was putting into their place.
    """
    first = first_to_scan(log.bases, recovery_point)
    log.log_end_offset = log.bases[first]
    log.producers_or_none = replay.load_producers(log)
    log.leader_epochs.truncate_from_end(log.log_end_offset)
    scanned = cut = 0
    reason = ""
    deleted = 0
    for number in range(first, len(log.segments)):
        segment = log.segments[number]
        if segment.base_offset < log.log_end_offset:
            reason = f"{segment.path} begins at an offset that its forerunner has"
            deleted = len(log.segments) - number
            break
        if number > first and segment.base_offset > log.log_end_offset and segment.base_offset > log.cleaned_offset:
            forerunner = log.segments[number - 1]
            if log.log_end_offset < recovery_point:
                if not damage.may_have_holes(log, forerunner):
                    damage.missing_end(forerunner, log.log_end_offset, segment.base_offset)
            elif forerunner.base_offset not in swapped and not damage.has_holes(forerunner, recovery_point):
                reason = f"{log.path} has nothing of offsets {log.log_end_offset} to {segment.base_offset - 1}"
                deleted = len(log.segments) - number
                break
        if segment.base_offset > log.log_end_offset:
            # Segments may have been deleted from here, and a swap that was cut short has brought back one before them.
            # What producers sent to them is in the snapshot alone.
            replay.load_snapshot(log, log.producers, segment.base_offset, above=log.log_end_offset)
        log.log_end_offset = segment.base_offset
        if number > first:
            _mend_snapshot(log)
        good, reason = _recover_segment(log, number, recovery_point, on_scanned)
        scanned += segment.size
        if good < segment.size:
            cut += segment.size - good
            deleted = len(log.segments) - number - 1
            break
    lost = _Lost()
    if cut or deleted:
        _cut(log, cut, deleted, lost)
    truncation.delete_newest(log, deleted, now_ms)
    log.leader_epochs.truncate_from_end(log.log_end_offset)
    durability.drop_snapshots_above(log, log.log_end_offset)
    _mend_snapshot(log)
    log.is_active = True
    if log.active.damage:
        # So that what comes now does not stand behind what is corrupt in the same file.
        rolling.roll(log, now_ms)
    return Recovery(scanned, cut, deleted, reason, lost.batches, lost.bytes, lost.end_offset)


def _mend_snapshot(log: Log) -> None:
    """Writes the snapshot of the place that the fold has come to again, if a crash left only part of it."""
    offset = log.log_end_offset
    if offset not in log.snapshot_offsets or replay.read_snapshot(log, offset) is not None:
        return
    try:
        log.reserve.spend(lambda: durability.write_snapshot(log))
    except OSError as error:
        if not is_full(error):
            raise


@attrs.define
class _Lost:
    """Good batches among what is cut."""

    batches: int = 0
    bytes: int = 0
    end_offset: int = 0


def _cut(log: Log, cut_bytes: int, deleted: int, lost: _Lost) -> None:
    """Counts what is lost with the last `deleted` segments and the last bytes of the one before, and cuts these."""
    kept = len(log.segments) - deleted
    segment = log.segments[kept - 1]
    start = segment.size - cut_bytes
    for doomed, position in [(segment, start), *((it, 0) for it in log.segments[kept:])]:
        for found in walk(doomed.file, doomed.size, doomed.base_offset, start=position):
            if isinstance(found, Batch) and found.header.base_offset >= log.log_end_offset:
                lost.batches += 1
                lost.bytes += found.header.size_in_bytes
                lost.end_offset = max(lost.end_offset, found.header.next_offset)
    if lost.batches and log.config.synced_one_by_one:
        raise CorruptLogError(
            f"{segment.path}{names.LOG} is corrupt at {start}: good batches up to offset {lost.end_offset - 1} follow, "
            "which cannot be what a crash left"
        )
    if cut_bytes:
        file = segment.file
        file.truncate(start)
        # Were the cut bytes to come back once the recovery point is past them, they would be taken for records.
        file.sync()


def _recover_segment(log: Log, number: int, recovery_point: int, on_scanned: Callable[[int], None]) -> tuple[int, str]:
    """Folds the good batches from the segment's start on; returns where they end and why."""
    segment = log.segments[number]
    next_base = log.bases[number + 1] if number + 1 < len(log.bases) else None
    # A name that is not known to have reached the medium in good order proves nothing.
    end_offset = next_base if next_base is not None and next_base <= recovery_point else None
    segment.begin_rebuild()
    segment.is_examined = True
    findings = damage.Findings(segment, max(recovery_point, segment.base_offset) if next_base is None else next_base)
    good, reason = segment.size, ""
    for found in findings.walk(end_offset):
        if isinstance(found, Batch):
            _fold(log, segment, found)
            on_scanned(found.header.size_in_bytes)
        elif log.log_end_offset >= recovery_point:
            good, reason = found.position, f"{segment.path} at {found.position}: {found.what}"
            findings.drop_last()
            break
    log.log_end_offset = max(findings.note(), log.log_end_offset)
    if segment.damage:
        segment.forget_recent()
    return good, reason


def _fold(log: Log, segment: Segment, batch: Batch) -> None:
    header = batch.header
    segment.note_header(header, batch.position)
    log.log_end_offset = header.next_offset
    log.leader_epochs.assign(header.partition_leader_epoch, header.base_offset)
    if header.producer_id >= 0:
        marker = decode_marker(batch.data, 0, header) if header.is_control and batch.data is not None else None
        apply_batch(log.producers, segment, header, header.base_offset, header.max_timestamp, marker)
