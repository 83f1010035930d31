"""Turns findings into steps, and carries them out.

Records come first, then the files derived from them, then the log dir's checkpoints. The caller checks again
afterwards, and repeats until a check finds nothing more to repair: a truncated log needs other snapshots, epochs and
checkpoints, and the check determines which. An interrupted repair starts over: each step leaves a folder that a broker,
and the next repair, can read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable

import attrs

from kwire_storage import names
from kwire_storage.callbacks import ignore
from kwire_storage.checkpoints import TopicPartition, decode_offsets, encode_offsets
from kwire_storage.disk.files import Disk
from kwire_storage.errors import CorruptLogError
from kwire_storage.inspection.copies import Copies
from kwire_storage.inspection.findings import Finding, Kind, Remedy
from kwire_storage.inspection.layout import read_layout
from kwire_storage.inspection.log_dir_check import FolderState
from kwire_storage.inspection.partition_check import PartitionSummary, Progress
from kwire_storage.inspection.rebuild import rebuild
from kwire_storage.log.walk import Damage, walk

MOST_ROUNDS = 6
"""Cutting, rebuilding and lowering are three rounds; more would be a bug in the repair."""


@attrs.frozen(order=True)
class Step:
    """One change of one file; `start..end` is its range for CUT and DROP."""

    path: str
    remedy: Remedy = attrs.field(order=lambda remedy: list(Remedy).index(remedy))
    start: int = -1
    end: int = -1

    @property
    def partition(self) -> str:
        """The partition's folder; empty for a file of the log dir."""
        return self.path.rpartition("/")[0]


def plan(findings: Iterable[Finding], state: FolderState, *, drop_corrupt_ranges: bool) -> list[Step]:
    """Returns the steps of a repair for these findings, without repetitions."""
    steps = set()
    for finding in findings:
        remedy = finding.kind.remedy
        if remedy is Remedy.NOTHING or (remedy is Remedy.DROP and not drop_corrupt_ranges):
            continue
        if finding.kind in (Kind.METADATA_MISSING, Kind.METADATA_UNREADABLE):
            key = names.parse_partition_folder(finding.path.rpartition("/")[0])
            if key is None or key[0] not in state.topics:
                continue
        if remedy in (Remedy.CUT, Remedy.DROP):
            assert finding.position is not None, "a range has a beginning"
            assert finding.end_position is not None, "a range has an end"
            steps.add(Step(finding.path, remedy, finding.position, finding.end_position))
        else:
            steps.add(Step(finding.path, remedy))
    return sorted(steps)


@attrs.frozen
class Checkup:
    """The results of one check."""

    state: FolderState
    findings: list[Finding]
    summaries: dict[TopicPartition, PartitionSummary]


def repair(
    disk: Disk,
    checkup: Checkup,
    check_again: Callable[[], Checkup],
    copies: Copies,
    *,
    drop_corrupt_ranges: bool,
    progress: Progress = ignore,
) -> Checkup:
    """Runs the steps of `plan`, until none is left; returns the last checkup. The caller holds the lock.

    Raises OSError, with everything that was done until then complete.
    """
    done: list[Step] = []
    for _ in range(MOST_ROUNDS):
        steps = plan(checkup.findings, checkup.state, drop_corrupt_ranges=drop_corrupt_ranges)
        if not steps or steps == done:
            break
        _Repairer(disk, checkup.state, copies, checkup.summaries, progress).run(steps)
        done, checkup = steps, check_again()
    return checkup


@attrs.define
class _Repairer:
    disk: Disk
    state: FolderState
    copies: Copies
    summaries: dict[TopicPartition, PartitionSummary]
    progress: Progress

    def run(self, steps: Iterable[Step]) -> None:
        by_partition: dict[str, list[Step]] = defaultdict(list)
        for step in steps:
            by_partition[step.partition].append(step)
        for partition, of_partition in sorted(by_partition.items(), key=lambda item: item[0] == ""):
            by_remedy: dict[Remedy, list[Step]] = defaultdict(list)
            for step in of_partition:
                by_remedy[step.remedy].append(step)
            # A stale swap before the .cleaned that shows it to be stale.
            for step in sorted(by_remedy[Remedy.SET_ASIDE], key=lambda step: not step.path.endswith(names.SWAP)):
                self.copies.set_aside(step.path)
            for step in by_remedy[Remedy.SWAP]:
                self._swap(partition, step.path)
            self._change_records(by_remedy[Remedy.CUT] + by_remedy[Remedy.DROP])
            wanted = [step.path for step in by_remedy[Remedy.REBUILD]]
            if wanted:
                rebuild(self.disk, partition, wanted, self.state.context(partition), self.copies, self.progress)
            for path in sorted({step.path for step in by_remedy[Remedy.LOWER]}):
                self._lower(path)

    def _change_records(self, steps: list[Step]) -> None:
        by_path: dict[str, list[Step]] = defaultdict(list)
        for step in steps:
            by_path[step.path].append(step)
        for path, of_file in by_path.items():
            size = self.disk.size(path)
            ranges: list[tuple[int, int]] = []
            for step in sorted(of_file, key=lambda step: step.start):
                if ranges and step.start <= ranges[-1][1]:
                    ranges[-1] = ranges[-1][0], max(ranges[-1][1], step.end)
                else:
                    ranges.append((step.start, step.end))
            if ranges[-1][1] >= size:
                self.copies.cut(path, ranges.pop()[0])
            if ranges:
                self.copies.take_out(path, ranges)

    def _swap(self, partition: str, path: str) -> None:
        """Replaces all segments that the cleaned one was made from, as Kafka's LogLoader does."""
        parsed = names.parse_offset_name(path.rpartition("/")[2])
        assert parsed is not None, "the check has read the name"
        base = parsed[0]
        end = self._end_of_swap(path, base)
        if end is None:
            return
        layout = read_layout(self.disk, partition)
        for old in [other for other in layout.bases if base < other < end]:
            # The .log last: while it exists, a later repair can determine which files to move.
            for suffix in (names.SNAPSHOT, names.INDEX, names.TIME_INDEX, names.TXN_INDEX, names.LOG):
                self.copies.set_aside(layout.of(old, suffix))
        for suffix in (names.INDEX, names.TIME_INDEX, names.TXN_INDEX):
            self.copies.set_aside(layout.of(base, suffix))
        for suffix in (names.INDEX, names.TIME_INDEX):
            self.copies.set_aside(layout.of(base, suffix + names.SWAP))
        aborted = layout.of(base, names.TXN_INDEX + names.SWAP)
        if self.disk.exists(aborted):
            if self.disk.size(aborted):
                self.disk.rename(aborted, layout.of(base, names.TXN_INDEX))
            else:
                self.copies.set_aside(aborted)
        self.copies.set_aside(layout.of(base, names.LOG))
        self.disk.rename(path, layout.of(base, names.LOG))
        self.disk.sync_dir(partition)

    def _end_of_swap(self, path: str, base: int) -> int | None:
        """The offset up to which the segment replaces others; None if it is corrupt and replaces none."""
        file = self.disk.open_read(path)
        try:
            end = base + 1
            for piece in walk(file, file.size, base):
                if isinstance(piece, Damage):
                    return None
                end = piece.header.next_offset
            return end
        finally:
            file.close()

    def _lower(self, path: str) -> None:
        """Lowers the rows of a checkpoint to the ends of the logs; an unreadable one is replaced by an empty one."""
        try:
            rows = decode_offsets(self.disk.read_bytes(path))
        except CorruptLogError:
            rows = {}
        ends = {key: summary.end_offset for key, summary in self.summaries.items()}
        self.copies.replace(path, encode_offsets({key: min(row, ends.get(key, row)) for key, row in rows.items()}))
