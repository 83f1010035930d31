"""A log against the plainest model, a list of batches, under every operation in any order.

The model has what was appended and what a flush made durable. After a crash it takes over where the log ends, and
insists that it is not before the last flush. It runs on the disk in memory, where the power can be cut, and a smaller
round on the real disk, where the process dies.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import attrs
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from kwire_protocol.records import Record, build_batch, iter_headers
from kwire_storage.disk.faulty_disk import FaultyDisk
from kwire_storage.disk.files import Disk, RealDisk
from kwire_storage.disk.medium import persisted_part
from kwire_storage.disk.open_files import OpenFiles
from kwire_storage.log.log import Log, LogConfig

from devtools.suite.tiers import examples
from testkit.storage.logs import append_bytes

CONFIG = LogConfig(segment_bytes=900, index_interval_bytes=150, segment_ms=50_000, retention_ms=-1)


@attrs.define
class Batch:
    base: int
    timestamps: list[int]
    producer_id: int
    sequence: int
    data: bytes

    @property
    def end(self) -> int:
        return self.base + len(self.timestamps)


class LogMachine(RuleBasedStateMachine):
    disk: Disk

    def make_disk(self) -> Disk:
        return FaultyDisk()

    @initialize()
    def begin(self) -> None:
        self.disk = self.make_disk()
        self.batches: list[Batch] = []
        self.start = self.end = 0
        # As of the last checkpoint, which is written with each flush.
        self.recovery_point = self.start_checkpoint = 0
        self.now_ms = 1000
        self.sequences = {1: 0, 2: 0}
        self.log = self.open(clean=True)

    def open(self, *, clean: bool) -> Log:
        return Log.open(
            self.disk,
            "t-0",
            CONFIG,
            now_ms=self.now_ms,
            clean_shutdown=clean,
            recovery_point=self.recovery_point,
            log_start_offset=self.start_checkpoint,
        )

    def live(self) -> list[Batch]:
        return [batch for batch in self.batches if batch.end > self.start]

    # -- changes

    @rule(
        offsets=st.lists(st.integers(-200, 200), min_size=1, max_size=5),
        size=st.integers(0, 120),
        codec=st.sampled_from([0, 0, 1, 4]),
        producer_id=st.sampled_from([-1, 1, 2]),
        leap=st.sampled_from([0, 100, 100, 60_000]),
    )
    def append(self, offsets: list[int], size: int, codec: int, producer_id: int, leap: int) -> None:
        self.now_ms += leap
        timestamps = [self.now_ms + offset for offset in offsets]
        content = [Record(number, timestamp, b"k", bytes(size)) for number, timestamp in enumerate(timestamps)]
        sequence = self.sequences.get(producer_id, -1)
        epoch = 0 if producer_id >= 0 else -1
        batch = build_batch(
            content, compression=codec, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence
        )
        result = append_bytes(self.log, batch, leader_epoch=len(self.batches) // 4, now_ms=self.now_ms)
        assert result == (self.end, self.end + len(offsets) - 1, -1)
        stored = self.log.read(self.end, max_bytes=1, max_offset=self.log.log_end_offset).read()
        self.batches.append(Batch(self.end, timestamps, producer_id, sequence, stored))
        self.end += len(offsets)
        if producer_id >= 0:
            self.sequences[producer_id] += len(offsets)

    @rule()
    def roll(self) -> None:
        self.log.roll(self.now_ms)

    @rule()
    def flush(self) -> None:
        self.log.flush()
        self.recovery_point = self.log.recovery_point
        self.start_checkpoint = self.log.log_start_offset
        assert self.recovery_point == self.end

    @rule()
    def close_and_open(self) -> None:
        self.log.close()
        self.recovery_point, self.start_checkpoint = self.end, self.start
        self.log = self.open(clean=True)

    @rule()
    def die_and_open(self) -> None:
        self.log.close(clean=False)
        if isinstance(self.disk, FaultyDisk):
            self.disk = self.disk.kill()
        self.log = self.open(clean=False)
        self.reopened_after_crash(least_end=self.end)

    @precondition(lambda self: isinstance(self.disk, FaultyDisk))
    @rule(share=st.sampled_from([0.0, 0.3, 0.7, 1.0]))
    def lose_power_and_open(self, share: float) -> None:
        assert isinstance(self.disk, FaultyDisk)
        self.disk = self.disk.crash(persisted_part(share))
        self.log = self.open(clean=False)
        self.reopened_after_crash(least_end=self.recovery_point)

    def reopened_after_crash(self, *, least_end: int) -> None:
        end = self.log.log_end_offset
        assert max(least_end, self.start_checkpoint) <= end <= max(self.end, self.start_checkpoint)
        # Segments that were deleted since the checkpoint may be back, or not.
        assert self.start_checkpoint <= self.log.log_start_offset <= max(self.start, end)
        self.start = self.log.log_start_offset
        self.end = end
        self.batches = [batch for batch in self.batches if batch.end <= end]
        for producer_id in self.sequences:
            entry = self.log.producers.entries.get(producer_id)
            self.sequences[producer_id] = entry.last_sequence + 1 if entry is not None else 0

    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(0, self.end + 1), label="offset")
        self.log.truncate_to(offset)
        if offset < self.end:
            first_base = self.log.segments.bases[0]
            cut = [batch for batch in self.batches if batch.end > offset]
            self.batches = [batch for batch in self.batches if batch.end <= offset and batch.base >= first_base]
            self.end = min(offset, cut[0].base) if cut and self.log.log_start_offset != offset else offset
            self.start = min(self.start, self.end)
            self.end = self.log.log_end_offset
            assert self.end <= offset
            for producer_id in self.sequences:
                entry = self.log.producers.entries.get(producer_id)
                self.sequences[producer_id] = entry.last_sequence + 1 if entry is not None else 0
        self.flush()

    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(0, self.end), label="offset")
        self.log.advance_log_start(offset, now_ms=self.now_ms)
        self.start = max(self.start, offset)
        self.log.apply_retention(self.now_ms + 100_000, self.end)

    # -- questions

    @rule(data=st.data(), max_bytes=st.sampled_from([0, 100, 400, 1000, 10**6]))
    def read(self, data: st.DataObject, max_bytes: int) -> None:
        offset = data.draw(st.integers(self.start, self.end), label="offset")
        bound = data.draw(st.integers(offset, self.end), label="bound")
        piece = self.log.read(offset, max_bytes=max_bytes, max_offset=bound)
        found = piece.read()
        readable = [batch.data for batch in self.batches if batch.end > offset and batch.end <= bound]
        assert b"".join(readable).startswith(found)
        assert len(found) <= max(max_bytes, len(readable[0]) if readable else 0)
        assert bool(found) == bool(readable)

    @rule(data=st.data(), at=st.floats(0, 1))
    def search(self, data: st.DataObject, at: float) -> None:
        timestamp = 800 + int((self.now_ms - 600) * at)
        bound = data.draw(st.integers(self.start, self.end), label="bound")
        records = [
            (batch.timestamps[number], batch.base + number)
            for batch in self.live()
            for number in range(len(batch.timestamps))
            if self.start <= batch.base + number < bound
        ]
        expected = next((record for record in records if record[0] >= timestamp), None)
        found = self.log.offset_for_timestamp(timestamp, max_offset=bound)
        assert (found[:2] if found else None) == expected

    @invariant()
    def ends_agree(self) -> None:
        log = self.log
        assert (log.log_start_offset, log.log_end_offset) == (self.start, self.end)
        assert log.segments.bases[0] <= log.log_start_offset <= log.log_end_offset
        assert log.recovery_point <= log.log_end_offset
        assert (
            log.segments.bases == [segment.base_offset for segment in log.segments] == sorted(set(log.segments.bases))
        )

    @invariant()
    def content_agrees(self) -> None:
        offset, found = self.start, []
        while offset < self.end:
            piece = self.log.read(offset, max_bytes=500, max_offset=self.end)
            data = piece.read()
            found.append(data)
            for _, header in iter_headers(data):
                offset = header.next_offset
        assert b"".join(found) == b"".join(batch.data for batch in self.live())

    @invariant()
    def producers_agree(self) -> None:
        for producer_id in self.sequences:
            mine = [batch for batch in self.live() if batch.producer_id == producer_id]
            if mine:
                entry = self.log.producers.entries[producer_id]
                assert entry.last_sequence == mine[-1].sequence + len(mine[-1].timestamps) - 1


class RealDiskMachine(LogMachine):
    def make_disk(self) -> Disk:
        self.folder = Path(tempfile.mkdtemp())
        return RealDisk(self.folder)

    def teardown(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


class FewFilesMachine(LogMachine):
    """A machine with one file, and hardly an index, at a time."""

    def open(self, *, clean: bool) -> Log:
        self.disk.open_files = OpenFiles(1, max_index_bytes=50)
        return super().open(clean=clean)


TestLogInMemory = LogMachine.TestCase
TestLogInMemory.settings = settings(
    max_examples=examples(40), stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
TestLogOnFewFiles = FewFilesMachine.TestCase
TestLogOnFewFiles.settings = settings(
    max_examples=examples(15), stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
TestLogOnDisk = RealDiskMachine.TestCase
TestLogOnDisk.settings = settings(
    max_examples=examples(10), stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
