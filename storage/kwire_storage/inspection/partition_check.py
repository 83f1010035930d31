"""Checks one partition's folder: walks over every batch, and compares all derived files with the batches.

Its strictness with derived files depends on the broker's last stop. After a clean stop all of them must be correct.
After a crash a broker rebuilds those of the segments from the recovery point on, so errors there are only notes. While
a broker runs, the end of the log may be incomplete.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator

import attrs

from kwire_storage import names
from kwire_storage.callbacks import ignore
from kwire_storage.checkpoints import decode_epochs, decode_partition_metadata
from kwire_storage.disk.files import Disk
from kwire_storage.errors import CorruptLogError
from kwire_storage.inspection.content_check import check_content
from kwire_storage.inspection.findings import Finding, Kind, Severity
from kwire_storage.inspection.layout import Layout, read_layout, read_small
from kwire_storage.inspection.producers_check import ProducerFold, check_aborted, check_snapshot
from kwire_storage.inspection.sparse_indexes import OffsetIndexCheck, TimeIndexCheck
from kwire_storage.log.epochs import EpochCache
from kwire_storage.log.recovery import first_to_scan
from kwire_storage.log.walk import MAX_RELATIVE_OFFSET, Batch, Damage, walk

Findings = Generator[Finding, None, None]
Progress = Callable[[int], None]

_LEAST_EPOCH = -1


@attrs.frozen
class TopicFacts:
    """The metadata of a topic. `topic_id` is 16 bytes; `compacts` is None if it is not known."""

    topic_id: bytes
    compacts: bool | None = None
    index_interval_bytes: int = 4096


@attrs.frozen
class PartitionContext:
    """The log dir's data about a partition; the defaults are for a folder without a log dir."""

    in_use: bool = False
    """A broker is at work on it."""
    clean: bool = True
    recovery_point: int = 0
    log_start: int = 0
    topic: TopicFacts | None = None
    check_records: bool = True

    def first_unsure(self, bases: list[int]) -> int:
        """The number of the first segment that a recovery would rebuild, together with all later ones."""
        if self.clean and not self.in_use:
            return len(bases)
        return first_to_scan(bases, self.recovery_point)


@attrs.define
class PartitionSummary:
    """The results of the walk. `end_offset` is that of the last good batch, plus one."""

    start_offset: int = 0
    end_offset: int = 0
    batches: int = 0
    bytes_read: int = 0
    segments: int = 0


def check_partition(
    disk: Disk, path: str, context: PartitionContext, summary: PartitionSummary, progress: Progress = ignore
) -> Findings:
    """Yields all findings of one folder, in the order of the log, and fills `summary`. Raises OSError for the folder.

    While a broker runs, files change between two reads: a finding counts only if a second check repeats it.
    """
    if not context.in_use:
        yield from _check(disk, path, context, summary, progress)
        return
    first = list(_check(disk, path, context, summary, progress))
    again = None
    if any(finding.severity is not Severity.NOTE for finding in first):
        again = {(found.kind, found.path) for found in _check(disk, path, context, PartitionSummary(), ignore)}
    yield from (found if again is None or (found.kind, found.path) in again else found.as_note() for found in first)


def _check(disk: Disk, path: str, context: PartitionContext, summary: PartitionSummary, progress: Progress) -> Findings:
    layout = read_layout(disk, path)
    for finding in _check_names(layout):
        # A running broker has files that it is about to rename.
        yield finding.as_note() if context.in_use else finding
    yield from check_partition_metadata(disk, layout, context)
    check = _PartitionCheck(disk, layout, context, summary, progress)
    yield from check.segments()
    if layout.bases:
        yield from check.epochs()
        yield from check.later_snapshots()


def _check_names(layout: Layout) -> Findings:
    for kind, listed in (
        (Kind.LEFTOVER, layout.leftovers),
        (Kind.ORPHAN, layout.orphans),
        (Kind.MISNAMED, layout.misnamed),
    ):
        for name in listed:
            yield Finding(kind, f"{layout.path}/{name}", "it belongs to no segment")
    for base in layout.swaps:
        path = layout.of(base, names.LOG + names.SWAP)
        yield Finding(Kind.UNFINISHED_SWAP, path, "compaction was interrupted before this took its place", offset=base)


def check_partition_metadata(disk: Disk, layout: Layout, context: PartitionContext) -> Findings:
    path = f"{layout.path}/{names.PARTITION_METADATA}"
    if names.PARTITION_METADATA not in layout.files:
        yield Finding(Kind.METADATA_MISSING, path, "it is not there: it is unclear which topic of that name this is")
        return
    try:
        topic_id = decode_partition_metadata(read_small(disk, path))
    except CorruptLogError as error:
        yield Finding(Kind.METADATA_UNREADABLE, path, str(error))
        return
    if context.topic is not None and context.topic.topic_id != topic_id:
        yield Finding(
            Kind.TOPIC_ID, path, f"it has topic id {topic_id.hex()}, the topic has {context.topic.topic_id.hex()}"
        )


class _PartitionCheck:
    def __init__(
        self, disk: Disk, layout: Layout, context: PartitionContext, summary: PartitionSummary, progress: Progress
    ) -> None:
        self.disk = disk
        self.layout = layout
        self.context = context
        self.summary = summary
        self.progress = progress
        self.producers = ProducerFold(disk, layout)
        self.epoch_cache = EpochCache()
        self.whole = True
        """True if every offset from the first segment's base on was seen."""
        self.after_damage = False
        self.due = layout.bases[0] if layout.bases else 0
        self.latest_epoch = _LEAST_EPOCH
        self.snapshots = [offset for offset in layout.snapshots if offset >= self.due]
        self.first_unsure = context.first_unsure(layout.bases)
        self.unsure_from = (
            layout.bases[self.first_unsure] if self.first_unsure < len(layout.bases) else MAX_RELATIVE_OFFSET << 32
        )
        summary.start_offset = max(self.due, context.log_start)
        summary.end_offset = self.due
        summary.segments = len(layout.bases)

    # -- segments

    def segments(self) -> Findings:
        for number, base in enumerate(self.layout.bases):
            path = self.layout.of(base, names.LOG)
            try:
                yield from self._between(base, path)
                yield from self._segment(number, base, path)
            except FileNotFoundError:
                yield Finding(Kind.VANISHED, path, "it went away during the check")
                self._lose_track()
            except OSError as error:
                yield Finding(Kind.UNREADABLE, path, error.strerror or str(error))
                self._lose_track()

    def _lose_track(self) -> None:
        """Notes that batches are missing, so the folds are incomplete from now on."""
        self.producers.exact = False
        self.whole = False

    def _between(self, base: int, path: str) -> Findings:
        if base < self.due:
            yield Finding(
                Kind.SEGMENT_OVERLAP,
                path,
                f"it begins at {base}, the one before it goes up to {self.due - 1}",
                offset=base,
            )
            self._lose_track()
        elif base > self.due and not self.after_damage:
            yield from self._hole(path, 0, base)
        self.after_damage = False

    def _hole(self, path: str, position: int, offset: int) -> Findings:
        self._lose_track()
        topic = self.context.topic
        if topic is None or not topic.compacts:
            what = f"nothing of offsets {self.due} to {offset - 1}"
            if topic is not None and topic.compacts is False:
                what += ", though the topic is not compacted"
            yield Finding(Kind.HOLE, path, what, position=position, offset=self.due)

    def _segment(self, number: int, base: int, path: str) -> Findings:
        file = self.disk.open_read(path)
        try:
            size = file.size
            feeds = _Feeds(self, number, base)
            yield from feeds.missing
            self.due = base
            is_last = number == len(self.layout.bases) - 1
            for piece in walk(file, size, base, self.layout.next_base(base)):
                if isinstance(piece, Damage):
                    feeds.damage(piece)
                    yield self._damage(path, piece, is_tail=is_last and piece.end == size)
                else:
                    yield from self._batch(path, piece, feeds)
                end = piece.end if isinstance(piece, Damage) else piece.position + piece.header.size_in_bytes
                self.progress(end - piece.position)
            self.summary.bytes_read += size
            yield from feeds.finish()
        finally:
            file.close()

    def _damage(self, path: str, damage: Damage, *, is_tail: bool) -> Finding:
        self._lose_track()
        self.after_damage = True
        kind = Kind.OFFSET_ORDER if damage.misplaced else Kind.CORRUPT_RANGE
        if is_tail:
            kind = Kind.BEING_WRITTEN if self.context.in_use else Kind.TORN_TAIL
        size = damage.end - damage.position
        return Finding(kind, path, f"{damage.what} ({size} bytes)", damage.position, damage.end, self.due)

    def _batch(self, path: str, batch: Batch, feeds: _Feeds) -> Findings:
        position, header, _ = batch
        offset = header.base_offset
        if offset > self.due and not self.after_damage:
            yield from self._hole(path, position, offset)
        self.after_damage = False
        while self.snapshots and self.snapshots[0] <= header.last_offset:
            yield from self._snapshot(self.snapshots.pop(0))
        end = position + header.size_in_bytes
        if header.partition_leader_epoch < max(self.latest_epoch, _LEAST_EPOCH):
            what = f"leader epoch {header.partition_leader_epoch} comes after {self.latest_epoch}"
            yield Finding(Kind.EPOCH_ORDER, path, what, position, end, offset)
        else:
            self.latest_epoch = header.partition_leader_epoch
            # The log start may be in a hole that compaction left: then the epoch there is that of a removed batch.
            if header.next_offset > self.summary.start_offset:
                self.epoch_cache.assign(header.partition_leader_epoch, offset)
        if self.context.check_records:
            for kind, what in check_content(batch):
                yield Finding(kind, path, what, position, end, offset)
        unreadable_marker = self.producers.fold(batch)
        if unreadable_marker is not None:
            yield Finding(Kind.MALFORMED_RECORDS, path, unreadable_marker, position, end, offset)
        feeds.batch(position, batch)
        self.due = header.next_offset
        self.summary.end_offset = self.due
        self.summary.batches += 1

    # -- other files

    def _snapshot(self, offset: int) -> Findings:
        path = self.layout.of(offset, names.SNAPSHOT)
        try:
            for finding in check_snapshot(self.disk, path, offset, self.producers):
                yield finding.as_note() if offset > self.unsure_from else finding
        except FileNotFoundError:
            yield Finding(Kind.VANISHED, path, "it went away during the check")

    def later_snapshots(self) -> Findings:
        """Yields the snapshots at the log's end or beyond it."""
        end = self.summary.end_offset
        for offset in self.snapshots:
            path = self.layout.of(offset, names.SNAPSHOT)
            if offset <= end or offset in self.layout.bases:
                yield from self._snapshot(offset)
            else:
                beyond = Finding(Kind.SNAPSHOT_BEYOND_END, path, f"the log ends at {end}", offset=offset)
                yield beyond if self.context.clean and not self.context.in_use else beyond.as_note()
        newest = self.layout.snapshots[-1] if self.layout.snapshots else -1
        promised = newest > self.layout.bases[-1]
        if self.context.clean and not self.context.in_use and promised and newest < end:
            path = self.layout.of(end, names.SNAPSHOT)
            yield Finding(
                Kind.SNAPSHOT_NOT_AT_END, path, f"the newest is of {newest}, the log ends at {end}", offset=end
            )

    def epochs(self) -> Findings:
        for finding in self._epochs():
            # Epochs that a recovery reads again from the batches may be missing from the file, but it must be a
            # checkpoint.
            unsure = self.first_unsure == 0 and finding.kind is not Kind.EPOCHS_UNREADABLE
            yield finding.as_note() if unsure else finding

    def _epochs(self) -> Findings:
        path = f"{self.layout.path}/{names.LEADER_EPOCH_CHECKPOINT}"
        if names.LEADER_EPOCH_CHECKPOINT not in self.layout.files:
            if self.epoch_cache.entries:
                yield Finding(Kind.EPOCHS_MISSING, path, f"the batches have epochs up to {self.epoch_cache.latest}")
            return
        try:
            rows = decode_epochs(read_small(self.disk, path))
        except CorruptLogError as error:
            yield Finding(Kind.EPOCHS_UNREADABLE, path, str(error))
            return
        except FileNotFoundError:
            yield Finding(Kind.VANISHED, path, "it went away during the check")
            return
        stored = EpochCache(rows)
        if stored.entries != rows:
            yield Finding(Kind.EPOCHS_ENTRY, path, f"its rows do not ascend: {rows[:20]}")
            return
        start, end = self.summary.start_offset, min(self.summary.end_offset, self.unsure_from)
        for cache in (stored, self.epoch_cache):
            cache.truncate_from_start(start)
        beyond = [entry for entry in stored.entries if entry[1] > self.summary.end_offset]
        if beyond and self.unsure_from > self.summary.end_offset:
            yield Finding(
                Kind.EPOCHS_ENTRY,
                path,
                f"epoch {beyond[0][0]} begins at {beyond[0][1]}, beyond the log's end",
                offset=end,
            )
            return
        for cache in (stored, self.epoch_cache):
            cache.truncate_from_end(end)
        if stored.entries == self.epoch_cache.entries:
            return
        stored_epochs = dict(stored.entries)
        wrong = [
            (epoch, first) for epoch, first in self.epoch_cache.entries if stored_epochs.get(epoch, first + 1) > first
        ]
        extra = [entry for entry in stored.entries if entry not in self.epoch_cache.entries]
        if wrong or (self.whole and extra):
            epoch, first = wrong[0] if wrong else extra[0]
            problem = f"epoch {epoch} begins at {first} by the batches" if wrong else f"no batch has epoch {epoch}"
            yield Finding(Kind.EPOCHS_ENTRY, path, f"{problem}, the file says {stored.entries[:20]}", offset=first)


class _Feeds:
    """The checks that receive the batches of one segment."""

    def __init__(self, check: _PartitionCheck, number: int, base: int) -> None:
        self._check = check
        self._base = base
        self._unsure = number >= check.first_unsure
        self._index: OffsetIndexCheck | None = None
        self._time_index: TimeIndexCheck | None = None
        self.missing: list[Finding] = []
        check.producers.aborted.clear()
        disk, layout = check.disk, check.layout
        try:
            self._index = OffsetIndexCheck(disk, layout, base)
        except FileNotFoundError:
            self._miss(names.INDEX)
        try:
            self._time_index = TimeIndexCheck(disk, layout, base)
        except FileNotFoundError:
            self._miss(names.TIME_INDEX)

    def _miss(self, suffix: str) -> None:
        layout = self._check.layout
        if self._check.disk.size(layout.of(self._base, names.LOG)):
            found = Finding(Kind.INDEX_MISSING, layout.of(self._base, suffix), "it is not there")
            self.missing.append(found.as_note() if self._unsure else found)

    def batch(self, position: int, batch: Batch) -> None:
        if self._index is not None:
            self._index.batch(position, batch.header)
        if self._time_index is not None:
            self._time_index.batch(batch.header)

    def damage(self, damage: Damage) -> None:
        if self._index is not None:
            self._index.damage(damage.position, damage.end)
        if self._time_index is not None:
            self._time_index.damage()

    def finish(self) -> Iterator[Finding]:
        check = self._check
        findings = [
            *(self._index.finish() if self._index else ()),
            *(self._time_index.finish() if self._time_index else ()),
        ]
        findings += check_aborted(
            check.disk,
            check.layout,
            self._base,
            check.due,
            check.producers.aborted,
            exact=check.producers.exact,
        )
        for finding in findings:
            yield finding.as_note() if self._unsure else finding
