"""Finding records by time."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kwire_protocol.records import Record, build_batch
from kwire_storage.disk.memory_disk import MemoryDisk
from kwire_storage.log.log import Log, LogConfig

from testkit.storage.disks import both_disks, make_disk
from testkit.storage.logs import SMALL, append, append_bytes, open_log

GZIP = 1


def fill(log: Log, batches: list[list[int]], *, compression: int = 0) -> list[int]:
    """Appends batches of records with these timestamps. Returns the timestamps by offset."""
    for timestamps in batches:
        content = [Record(number, timestamp, b"k", bytes(60)) for number, timestamp in enumerate(timestamps)]
        append_bytes(log, build_batch(content, compression=compression))
    return [timestamp for timestamps in batches for timestamp in timestamps]


def expected(timestamps: list[int], wanted: int, start: int, end: int) -> tuple[int, int, int] | None:
    found = (offset for offset in range(start, end) if timestamps[offset] >= wanted)
    offset = next(found, None)
    return None if offset is None else (timestamps[offset], offset, 0)


@given(
    st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=4), min_size=1, max_size=30),
    st.data(),
)
def test_the_first_record_that_is_late_enough_is_found_whatever_the_order(
    batches: list[list[int]], data: st.DataObject
) -> None:
    log = open_log(MemoryDisk(), LogConfig(segment_bytes=1200, index_interval_bytes=150))
    timestamps = fill(log, batches)
    end = len(timestamps)
    looked_up_before = data.draw(st.integers(0, 31), label="looked up before")
    assert log.offset_for_timestamp(looked_up_before, max_offset=end) == expected(timestamps, looked_up_before, 0, end)
    start = data.draw(st.integers(0, end), label="log start")
    log.advance_log_start(start)
    bound = data.draw(st.integers(start, end), label="bound")
    kind = data.draw(st.sampled_from(["as it is", "clean", "recovered"]))
    if kind != "as it is":
        log.close(clean=kind == "clean")
        log = open_log(log.disk, log.config, clean=kind == "clean", log_start_offset=start)
    for wanted in range(32):
        assert log.offset_for_timestamp(wanted, max_offset=bound) == expected(timestamps, wanted, start, bound)


@both_disks
@pytest.mark.parametrize("compression", [0, GZIP])
def test_compressed_batches_are_looked_into(kind: str, compression: int, tmp_path: Path) -> None:
    log = open_log(make_disk(kind, tmp_path), SMALL)
    timestamps = fill(log, [[100, 300, 200], [250, 400]], compression=compression)
    for wanted in (100, 101, 300, 301, 400, 401):
        assert log.offset_for_timestamp(wanted, max_offset=5) == expected(timestamps, wanted, 0, 5)


def test_the_newest_record_is_the_first_of_equals() -> None:
    log = open_log(MemoryDisk(), SMALL)
    assert log.max_timestamp_offset(max_offset=0) is None
    fill(log, [[5, 9, 7]] + [[number] for number in range(8)] * 9 + [[9, 3]])
    assert len(log.segments) > 2
    assert log.max_timestamp_offset(max_offset=log.log_end_offset) == (9, 1, 0)
    log.advance_log_start(3)
    assert log.max_timestamp_offset(max_offset=log.log_end_offset) == (9, log.log_end_offset - 2, 0)
    assert log.max_timestamp_offset(max_offset=log.log_end_offset - 2) == (7, 10, 0)
    assert log.max_timestamp_offset(max_offset=3) is None


def test_records_without_timestamps_are_never_the_newest() -> None:
    log = open_log(MemoryDisk(), SMALL)
    append_bytes(log, build_batch([Record(0, -1, None, b"x")]))
    assert log.max_timestamp_offset(max_offset=1) is None
    assert log.offset_for_timestamp(0, max_offset=1) is None
    append(log, 1, timestamp_ms=3)
    assert log.max_timestamp_offset(max_offset=2) == (3, 1, 0)


def test_segments_that_are_too_old_are_not_opened() -> None:
    log = open_log(MemoryDisk(), LogConfig(segment_bytes=500))
    fill(log, [[number] for number in range(40)])
    log.close()
    log = open_log(log.disk, log.config)
    assert log.offset_for_timestamp(39, max_offset=40) == (39, 39, 0)
    assert [segment.is_open for segment in log.segments] == [False] * (len(log.segments) - 1) + [True]
