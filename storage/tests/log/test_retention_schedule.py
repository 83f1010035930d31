"""The schedule of retention, and that it costs nothing until something is due."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from kwire_storage.config import LogConfig
from kwire_storage.disk.files import Disk
from kwire_storage.disk.memory_disk import MemoryDisk
from kwire_storage.log.environment import LogEnvironment
from kwire_storage.log.log import Log

from testkit.storage.compacting import compact, put
from testkit.storage.logs import append

CONFIG = LogConfig(segment_bytes=300, index_interval_bytes=100, segment_ms=10_000, retention_ms=50_000)


def open_log(config: LogConfig = CONFIG, environment: LogEnvironment | None = None, disk: Disk | None = None) -> Log:
    return Log.open(disk or MemoryDisk(), "orders-0", config, now_ms=0, clean_shutdown=True, environment=environment)


def maintain(log: Log, now_ms: int) -> int:
    return log.maintain(now_ms, log.log_end_offset)


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Records the times at which retention was applied."""
    found: list[int] = []
    apply = Log.apply_retention

    def noting(log: Log, now_ms: int, high_watermark: int, *, most: int) -> int:
        found.append(now_ms)
        return apply(log, now_ms, high_watermark, most=most)

    monkeypatch.setattr(Log, "apply_retention", noting)
    return found


def test_an_empty_log_is_looked_at_once(looks: list[int]) -> None:
    log = open_log()
    for now_ms in (0, 10**6, 10**12):
        maintain(log, now_ms)
    assert looks == [0]


def test_a_log_is_looked_at_when_its_segment_is_to_roll_and_when_its_oldest_expires(looks: list[int]) -> None:
    log = open_log()
    append(log, 1, timestamp_ms=1000)
    for now_ms in range(0, 60_000, 10):
        maintain(log, now_ms)
    # 11,001: older than segment.ms; 51,001: older than retention.ms. The times between were not looked at. Where a
    # segment went, there may be another.
    assert looks == [0, 11_010, 51_010, 51_020]
    assert log.log_start_offset == log.log_end_offset == 1


def test_an_append_is_a_reason_to_look_again(looks: list[int]) -> None:
    log = open_log(attrs.evolve(CONFIG, retention_bytes=400, retention_ms=-1))
    expected = []
    for number in range(12):
        append(log, 1, timestamp_ms=number)
        expected += [number] * (1 + maintain(log, number))
        assert maintain(log, number) == 0
    assert looks == expected
    assert log.log_start_offset > 0


def test_segments_go_one_at_a_time_so_that_others_have_their_turn_between_them() -> None:
    log = open_log(attrs.evolve(CONFIG, retention_ms=-1))
    for number in range(12):
        append(log, 1, timestamp_ms=number)
    assert len(log.segments) > 3
    log.config = attrs.evolve(log.config, retention_bytes=0)
    left = []
    while maintain(log, 100):
        left.append(len(log.segments))
    assert left == list(range(len(left), 0, -1))
    assert log.log_start_offset == log.log_end_offset


def test_new_settings_are_a_reason_to_look_again() -> None:
    log = open_log()
    append(log, 1, timestamp_ms=1000)
    maintain(log, 2000)
    log.config = attrs.evolve(CONFIG, retention_ms=10)
    assert maintain(log, 2000) == 1


def test_compaction_is_a_reason_to_look_again() -> None:
    log = open_log(attrs.evolve(CONFIG, cleanup_policy="compact,delete", segment_ms=10**9))
    put(log, ("a", "1"), timestamp_ms=40_000)
    put(log, ("b", "1"), timestamp_ms=1000)
    log.roll(0)
    put(log, ("a", "2" * 150), timestamp_ms=41_000)
    log.roll(0)
    assert maintain(log, 60_000) == 0
    compact(log)
    assert maintain(log, 60_000) == 1, "of the oldest segment only an old record is left"


def test_what_is_not_replicated_is_looked_at_until_it_is(looks: list[int]) -> None:
    log = open_log()
    append(log, 1, timestamp_ms=1000)
    log.maintain(70_000, 0)
    assert log.log_start_offset == 0
    assert log.maintain(70_000, 1) == 1


def test_what_is_too_much_goes_once_it_is_replicated() -> None:
    log = open_log(attrs.evolve(CONFIG, retention_bytes=0, retention_ms=-1))
    append(log, 1, timestamp_ms=1000)
    assert log.maintain(2000, 0) == 0
    assert log.maintain(2000, 1) == 1


def test_a_log_that_was_opened_is_not_opened_for_writing_by_a_look(looks: list[int]) -> None:
    log = open_log()
    append(log, 1, timestamp_ms=1000)
    log.close()
    again = open_log(disk=log.disk)
    maintain(again, 2000)
    assert not any(segment.is_open for segment in again.segments)
    maintain(again, 11_000)
    assert looks == [2000]
    maintain(again, 11_001)
    assert looks == [2000, 11_001]


def drawing(*numbers: int) -> tuple[LogEnvironment, list[int]]:
    """Makes random draws return these numbers, and records the requested bounds."""
    bounds: list[int] = []
    left = list(numbers)

    def draw(bound: int) -> int:
        bounds.append(bound)
        return left.pop(0)

    return LogEnvironment(draw), bounds


def test_each_segment_rolls_earlier_by_a_jitter_of_its_own() -> None:
    environment, bounds = drawing(3000, 0, 500, 0)
    log = open_log(attrs.evolve(CONFIG, segment_jitter_ms=4000), environment)
    for timestamp_ms in (0, 7000, 7001, 17_001, 17_002, 26_502, 26_503):
        append(log, 1, timestamp_ms=timestamp_ms)
    assert log.segments.bases == [0, 2, 4, 6]
    assert bounds == [4000] * 4


def test_a_jitter_is_less_than_the_time_that_it_is_taken_from() -> None:
    environment, bounds = drawing(9_999)
    log = open_log(attrs.evolve(CONFIG, segment_jitter_ms=10**9), environment)
    append(log, 1, timestamp_ms=0)
    assert bounds == [10_000]
    assert not log.maybe_roll(1)
    assert log.roll_policy.due_at_ms(log.active, 1) == 2


def test_without_jitter_nothing_is_left_to_chance() -> None:
    environment, bounds = drawing()
    log = open_log(CONFIG, environment)
    append(log, 1, timestamp_ms=0)
    log.roll(0)
    assert bounds == []


@pytest.mark.parametrize(("policy", "full_after_ms"), [("compact", 2000), ("delete", 10_000)])
def test_a_segment_of_a_compacted_log_rolls_in_time_for_its_compaction(policy: str, full_after_ms: int) -> None:
    log = open_log(attrs.evolve(CONFIG, cleanup_policy=policy, max_compaction_lag_ms=2000))
    put(log, ("a", "1"), timestamp_ms=0)
    assert not log.maybe_roll(full_after_ms)
    assert log.maybe_roll(full_after_ms + 1)


def test_deleted_files_are_handed_out_when_their_time_has_come() -> None:
    environment = LogEnvironment()
    log = open_log(attrs.evolve(CONFIG, file_delete_delay_ms=1000), environment)
    append(log, 1, timestamp_ms=0)
    maintain(log, 60_000)
    assert environment.take_deleted(60_999) == []
    gone: list[Any] = environment.take_deleted(61_000)
    assert "orders-0/00000000000000000000.log.deleted" in gone
    assert environment.deleted == []
