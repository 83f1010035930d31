"""The start of a new segment, and what is left behind with the old one."""

from __future__ import annotations

import attrs
import pytest
from kwire_protocol.records import build_batch
from kwire_storage.disk.memory_disk import MemoryDisk, MemoryFile
from kwire_storage.log.log import LogConfig

from testkit.storage.logs import SMALL, append, append_bytes, open_log, read_all, records

BIG = LogConfig(index_interval_bytes=200)


def test_a_segment_never_grows_beyond_its_size() -> None:
    log = open_log(MemoryDisk())
    for _ in range(50):
        append(log, 2, size=100)
    assert len(log.segments) > 3
    assert all(segment.size <= SMALL.segment_bytes for segment in log.segments)
    assert log.segments.bases == [segment.base_offset for segment in log.segments]
    assert log.size_in_bytes == sum(log.disk.size(f"orders-0/{base:020d}.log") for base in log.segments.bases)


@pytest.mark.parametrize("start", [0, 10_000])
def test_a_segment_rolls_when_its_records_span_the_time(start: int) -> None:
    log = open_log(MemoryDisk(), attrs.evolve(BIG, segment_ms=1000))
    append(log, 1, timestamp_ms=start, now_ms=0)
    append(log, 1, timestamp_ms=start + 1000, now_ms=5000)
    assert log.segments.bases == [0]
    append(log, 1, timestamp_ms=start + 1001, now_ms=5000)
    assert log.segments.bases == [0, 2]


def test_records_without_timestamps_age_by_the_brokers_clock() -> None:
    log = open_log(MemoryDisk(), attrs.evolve(BIG, segment_ms=1000))
    append(log, 1, timestamp_ms=-1, now_ms=50_000)
    append(log, 1, timestamp_ms=-1, now_ms=51_000)
    assert log.segments.bases == [0]
    append(log, 1, timestamp_ms=-1, now_ms=51_001)
    assert log.segments.bases == [0, 2]


def test_an_idle_segment_rolls_in_maintenance_if_it_is_old_enough() -> None:
    log = open_log(MemoryDisk(), attrs.evolve(BIG, segment_ms=1000))
    assert not log.maybe_roll(10**9)
    append(log, 1, timestamp_ms=5000, now_ms=5000)
    assert not log.maybe_roll(6000)
    assert log.maybe_roll(6001)
    assert not log.maybe_roll(10**9)
    assert log.segments.bases == [0, 1]
    log.close()
    log = open_log(log.disk, log.config)
    append(log, 1, timestamp_ms=7000, now_ms=7000)
    log.close()
    assert open_log(log.disk, log.config).maybe_roll(9000)


def test_a_full_index_begins_a_new_segment() -> None:
    log = open_log(MemoryDisk(), attrs.evolve(BIG, segment_index_bytes=24, index_interval_bytes=0))
    for number in range(8):
        append(log, 1, timestamp_ms=-1 if number < 5 else number)
    # Three entries in the offset index, or one in the time index, whose last place is kept for the end.
    assert log.segments.bases == [0, 4, 6]


def test_offsets_in_a_segment_fit_into_31_bits() -> None:
    log = open_log(MemoryDisk(), BIG)
    log.append_as_is(build_batch(records(1), base_offset=0))
    log.append_as_is(build_batch(records(1), base_offset=2**31 - 1))
    assert log.segments.bases == [0]
    log.append_as_is(build_batch(records(1), base_offset=2**31))
    assert log.segments.bases == [0, 2**31]
    assert [base for base, _ in read_all(log)] == [0, 2**31 - 1, 2**31]


def test_a_sealed_segment_has_its_indexes_and_the_new_one_a_snapshot() -> None:
    disk = MemoryDisk()
    log = open_log(disk, BIG)
    for number in range(10):
        append(log, 1, size=100, producer_id=1, sequence=number)
    log.roll(0)
    assert sorted(disk.listdir("orders-0")) == [
        "00000000000000000000.index",
        "00000000000000000000.log",
        "00000000000000000000.timeindex",
        "00000000000000000010.index",
        "00000000000000000010.log",
        "00000000000000000010.snapshot",
        "00000000000000000010.timeindex",
    ]
    assert disk.size("orders-0/00000000000000000000.index") == 8 * len(log.segments[0].index) > 0
    log.roll(0)
    assert log.segments.bases == [0, 10]


def test_new_settings_hold_from_the_next_append_on() -> None:
    log = open_log(MemoryDisk(), BIG)
    append(log, 1, size=100)
    log.config = attrs.evolve(BIG, segment_bytes=200, message_timestamp_type="LogAppendTime")
    assert append(log, 1, size=100, now_ms=77).log_append_time_ms == 77
    assert log.segments.bases == [0, 1]


def test_an_append_of_another_epoch_is_remembered() -> None:
    log = open_log(MemoryDisk())
    for epoch in (0, 0, 3, 3, 4):
        append_bytes(log, build_batch(records(2)), leader_epoch=epoch)
    log.leader_epochs.assign(9, log.log_end_offset)
    assert log.leader_epochs.entries == [(0, 0), (3, 4), (4, 8), (9, 10)]
    assert log.end_offset_for_epoch(0) == (0, 4)
    assert log.end_offset_for_epoch(9) == (9, 10)


def test_rolling_reads_nothing_back(monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log(MemoryDisk())
    append(log, 1)
    reads: list[tuple[int, int]] = []
    monkeypatch.setattr(MemoryFile, "read", lambda _file, position, size: reads.append((position, size)))
    while len(log.segments) == 1:
        append(log, 2)
    assert reads == []
