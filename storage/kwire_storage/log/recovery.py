"""Recovery after an unclean stop: walks over the segments from the recovery point on.

Everything below the recovery point was synced. Of the segment that holds it, and of the later ones, each batch is
checked (`walk.py`), and indexes, largest timestamps, leader epochs, producers and aborted transactions are rebuilt from
the batches.

Behind the recovery point the first bytes that are not a good batch end the log: a power cut loses unsynced sectors in
any order, and records appended after a loss must not seem to follow those before it. They are cut off with all that
follows, later segments included; `Recovery` counts the good batches among that. A segment that ends before the next one
begins has lost its tail, too: the next one's name may reach the medium before this one's bytes. Compaction cannot cause
such a gap in kwire: before any record is removed, the part to be cleaned is flushed, and the recovery point in its file
is above it (`compaction/planning.py`). Apache Kafka does not wait for that: after its unclean stop, compacted segments
may lie after the recovery point. They are recognized by the cleaner's checkpoint, by an unfinished swap, or by records
that are also missing inside them. They were synced before they got their names, so records missing at their end were
not lost.

Below the recovery point nothing is ever truncated: bad or missing data there means bit rot or a manual change. It is
noted (`damage.py`), and the log continues after it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection

import attrs

from kwire_storage import names
from kwire_storage.config import LogConfig
from kwire_storage.disk.files import Disk
from kwire_storage.disk.reserve import Reserve
from kwire_storage.errors import CorruptLogError, is_full
from kwire_storage.log.durability import Durability
from kwire_storage.log.epochs import EpochCache, load_epochs
from kwire_storage.log.log_segments import LogSegments
from kwire_storage.log.segment import Segment
from kwire_storage.log.walk import Batch, walk
from kwire_storage.producers.markers import apply_batch, decode_marker
from kwire_storage.producers.state_manager import ProducerStateManager
from kwire_storage.producers.states import ProducerStates


@attrs.frozen
class Recovery:
    """The result of a recovery, for the operator.

    `lost_batches` is the number of good batches that were cut or deleted; they reached up to `lost_end_offset`.
    """

    scanned_bytes: int = 0
    cut_bytes: int = 0
    deleted_segments: int = 0
    reason: str = ""
    lost_batches: int = 0
    lost_bytes: int = 0
    lost_end_offset: int = 0


def first_to_scan(bases: list[int], recovery_point: int) -> int:
    """The index of the first segment to recover: the one that has the recovery point, or begins there."""
    return max(bisect_right(bases, recovery_point) - 1, 0)


@attrs.define
class _Lost:
    """The good batches among those that are cut."""

    batches: int = 0
    bytes: int = 0
    end_offset: int = 0


@attrs.define(eq=False)
class LogRecovery:
    """Recovers the parts of a log of which only the segments are listed.

    `swapped` are the base offsets of segments that a compaction was swapping in.
    """

    disk: Disk
    path: str
    config: LogConfig
    reserve: Reserve
    segments: LogSegments
    producer_state: ProducerStateManager
    durability: Durability
    log_start_offset: int
    recovery_point: int
    cleaned_offset: int
    swapped: Collection[int]
    now_ms: int
    on_scanned: Callable[[int], None]
    _producers: ProducerStates = attrs.field(init=False)
    _leader_epochs: EpochCache = attrs.field(init=False)

    def run(self) -> tuple[Recovery, EpochCache]:
        """Returns the result, and the leader epochs of the remaining batches. Raises OSError, CorruptLogError."""
        segments, recovery_point = self.segments, self.recovery_point
        first = first_to_scan(segments.bases, recovery_point)
        segments.end_offset = segments.bases[first]
        self._producers = self.producer_state.load()
        self._leader_epochs = load_epochs(
            self.disk,
            self.path,
            self.log_start_offset,
            lambda: (header for _, header, _ in segments.headers_from(segments.bases[0])),
        )
        self._leader_epochs.truncate_from_end(segments.end_offset)
        scanned = cut = 0
        reason = ""
        deleted = 0
        for number in range(first, len(segments)):
            segment = segments[number]
            if segment.base_offset < segments.end_offset:
                reason = f"{segment.path} begins at an offset that its forerunner has"
                deleted = len(segments) - number
                break
            if number > first and segments.end_offset < segment.base_offset > self.cleaned_offset:
                forerunner = segments[number - 1]
                if segments.end_offset < recovery_point:
                    if not segments.may_have_holes(forerunner):
                        forerunner.note_missing(segments.end_offset, segment.base_offset)
                elif forerunner.base_offset not in self.swapped and not forerunner.has_holes(recovery_point):
                    reason = f"{self.path} has nothing of offsets {segments.end_offset} to {segment.base_offset - 1}"
                    deleted = len(segments) - number
                    break
            if segment.base_offset > segments.end_offset:
                # Segments may have been deleted from here, and an interrupted swap has brought back one before
                # them. Only the snapshot has the producers' states from the deleted ones.
                self.producer_state.load_later_snapshot(segment.base_offset)
            segments.end_offset = segment.base_offset
            if number > first:
                self._mend_snapshot()
            good, reason = self._recover_segment(number)
            scanned += segment.size
            if good < segment.size:
                cut += segment.size - good
                deleted = len(segments) - number - 1
                break
        lost = _Lost()
        if cut or deleted:
            self._cut(cut, deleted, lost)
        self.producer_state.drop_snapshots_above(segments.end_offset)
        segments.delete_newest(deleted, self.now_ms)
        self._leader_epochs.truncate_from_end(segments.end_offset)
        self._mend_snapshot()
        done = Recovery(scanned, cut, deleted, reason, lost.batches, lost.bytes, lost.end_offset)
        return done, self._leader_epochs

    def _mend_snapshot(self) -> None:
        """Rewrites the snapshot at the fold's current offset, if a crash left only part of it."""
        if not self.producer_state.drop_bad_snapshot():
            return
        try:
            self.durability.note_written(self.reserve.spend(self.producer_state.take_snapshot))
        except OSError as error:
            if not is_full(error):
                raise

    def _cut(self, cut_bytes: int, deleted: int, lost: _Lost) -> None:
        """Cuts the last bytes of the last remaining segment. Counts the loss, including that of `deleted` segments."""
        segments = list(self.segments)
        remaining = len(segments) - deleted
        segment = segments[remaining - 1]
        start = segment.size - cut_bytes
        for doomed, position in [(segment, start), *((it, 0) for it in segments[remaining:])]:
            for found in walk(doomed.file, doomed.size, doomed.base_offset, start=position):
                if isinstance(found, Batch) and found.header.base_offset >= self.segments.end_offset:
                    lost.batches += 1
                    lost.bytes += found.header.size_in_bytes
                    lost.end_offset = max(lost.end_offset, found.header.next_offset)
        if lost.batches and self.config.synced_one_by_one:
            raise CorruptLogError(
                f"{segment.path}{names.LOG} is corrupt at {start}: good batches up to offset {lost.end_offset - 1} "
                "follow, which cannot be what a crash left"
            )
        if cut_bytes:
            file = segment.file
            file.truncate(start)
            # If the cut bytes came back once the recovery point is past them, they would be taken for records.
            file.sync()

    def _recover_segment(self, number: int) -> tuple[int, str]:
        """Folds the good batches from the segment's start on. Returns the position of their end, and the reason."""
        segments = self.segments
        segment = segments[number]
        next_base = segments.bases[number + 1] if number + 1 < len(segments) else None
        # A name that may have reached the medium out of order proves nothing.
        end_offset = next_base if next_base is not None and next_base <= self.recovery_point else None
        segment.begin_rebuild()
        segment.is_examined = True
        findings = segment.findings(max(self.recovery_point, segment.base_offset) if next_base is None else next_base)
        good, reason = segment.size, ""
        for found in findings.walk(end_offset):
            if isinstance(found, Batch):
                self._fold(segment, found)
                self.on_scanned(found.header.size_in_bytes)
            elif segments.end_offset >= self.recovery_point:
                good, reason = found.position, f"{segment.path} at {found.position}: {found.what}"
                findings.drop_last()
                break
        segment.note_damage(findings.take())
        segments.end_offset = max(findings.expected_offset, segments.end_offset)
        if segment.damage:
            segment.forget_recent()
        return good, reason

    def _fold(self, segment: Segment, batch: Batch) -> None:
        header = batch.header
        segment.note_header(header, batch.position)
        self.segments.end_offset = header.next_offset
        self._leader_epochs.assign(header.partition_leader_epoch, header.base_offset)
        if header.producer_id >= 0:
            marker = decode_marker(batch.data, 0, header) if header.is_control and batch.data is not None else None
            apply_batch(self._producers, segment, header, header.base_offset, header.max_timestamp, marker)
