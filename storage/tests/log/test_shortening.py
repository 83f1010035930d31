"""Truncation from the end, deletion from the start."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest
from kwire_protocol.records import build_batch
from kwire_storage.disk.files import Disk
from kwire_storage.disk.memory_disk import MemoryDisk
from kwire_storage.errors import OffsetOutOfRange
from kwire_storage.log.log import Log, LogConfig

from testkit.storage.disks import both_disks, make_disk
from testkit.storage.logs import append, append_bytes, bases, end_transaction, open_log, read_all, records

CONFIG = LogConfig(segment_bytes=500, index_interval_bytes=100, retention_ms=-1, file_delete_delay_ms=1000)


def filled(disk: Disk, config: LogConfig = CONFIG) -> Log:
    """Makes twenty batches of two records in segments of four batches, a second apart."""
    log = open_log(disk, config)
    for number in range(20):
        append(
            log, 2, timestamp_ms=number * 1000, producer_id=1, sequence=number * 2, leader_epoch=number // 5, now_ms=0
        )
    assert log.segments.bases == [0, 8, 16, 24, 32]
    return log


@both_disks
@pytest.mark.parametrize("reopen", ["no", "clean", "crash"])
@pytest.mark.parametrize("offset", [0, 2, 8, 14, 16, 34, 38])
def test_truncating_takes_the_end_away_for_good(kind: str, reopen: str, offset: int, tmp_path: Path) -> None:
    log = filled(make_disk(kind, tmp_path))
    log.flush()
    log.truncate_to(offset)
    assert log.recovery_point <= offset
    if reopen != "no":
        log.close(clean=reopen == "clean")
        log = open_log(log.disk, CONFIG, clean=reopen == "clean", recovery_point=log.recovery_point)
    assert log.log_end_offset == offset
    assert bases(read_all(log)) == list(range(0, offset, 2))
    assert log.leader_epochs.entries == [(epoch, epoch * 10) for epoch in range(4) if epoch * 10 < offset]
    entry = log.producers.entries.get(1)
    assert (entry.last_sequence if entry else -1) == offset - 1
    newest = log.max_timestamp_offset(max_offset=offset)
    assert newest == ((offset // 2 - 1) * 1000 + 1, offset - 1, (offset // 2 - 1) // 5) if offset else newest is None
    assert append(log, 2, timestamp_ms=99_000, producer_id=1, sequence=offset, leader_epoch=9) == (
        offset,
        offset + 1,
        -1,
    )
    assert log.offset_for_timestamp(90_000, max_offset=99) == (99_000, offset, 9)
    assert bases(read_all(log)) == list(range(0, offset + 2, 2))


def test_truncating_inside_a_batch_takes_the_whole_batch() -> None:
    log = filled(MemoryDisk())
    log.truncate_to(15)
    assert log.log_end_offset == 14
    assert bases(read_all(log)) == list(range(0, 14, 2))


def test_truncating_beyond_the_end_does_nothing() -> None:
    log = filled(MemoryDisk())
    log.truncate_to(40)
    log.truncate_to(50)
    assert log.log_end_offset == 40
    with pytest.raises(ValueError, match="negative"):
        log.truncate_to(-1)


def test_truncating_below_the_start_empties_the_log() -> None:
    log = filled(MemoryDisk())
    log.advance_log_start(20)
    assert log.segments.bases == [16, 24, 32]
    log.truncate_to(18)
    assert (log.log_start_offset, log.log_end_offset, read_all(log)) == (18, 18, [])
    log.truncate_to(3)
    assert (log.log_start_offset, log.log_end_offset) == (3, 3)
    assert append(log, 1).base_offset == 3


@pytest.mark.parametrize("clean", [True, False])
def test_a_log_that_was_emptied_remembers_where_it_continues(clean: bool) -> None:
    log = filled(MemoryDisk())
    log.truncate_fully_and_start_at(100)
    assert (log.log_start_offset, log.log_end_offset, log.leader_epochs.entries) == (100, 100, [])
    log.close(clean=clean)
    log = open_log(log.disk, CONFIG, clean=clean)
    assert (log.log_start_offset, log.log_end_offset, log.segments.bases) == (100, 100, [100])
    assert log.producers.entries == {}
    assert append(log, 1).base_offset == 100


def test_a_transaction_whose_marker_is_truncated_is_open_again() -> None:
    log = open_log(MemoryDisk(), CONFIG)
    append(log, 2, producer_id=1, sequence=0, transactional=True)
    end_transaction(log, 1, commit=False)
    assert len(log.active.aborted) == 1
    log.truncate_to(2)
    assert log.active.aborted == []
    assert log.producers.first_undecided_offset == 0
    end_transaction(log, 1, commit=False)
    assert [aborted.first_offset for aborted in log.active.aborted] == [0]


@both_disks
def test_deleting_records_moves_the_start_and_deletes_whole_segments(kind: str, tmp_path: Path) -> None:
    log = filled(make_disk(kind, tmp_path))
    assert log.advance_log_start(19, now_ms=5000)
    assert not log.advance_log_start(19)
    assert not log.advance_log_start(3)
    assert (log.log_start_offset, log.segments.bases) == (19, [16, 24, 32])
    assert log.leader_epochs.entries == [(1, 19), (2, 20), (3, 30)]
    with pytest.raises(OffsetOutOfRange):
        log.read(18, max_bytes=10, max_offset=40)
    assert log.read(19, max_bytes=10, max_offset=40).base_offset == 18
    assert log.offset_for_timestamp(0, max_offset=40) == (9001, 19, 1)
    listed = log.disk.listdir("orders-0")
    assert "00000000000000000008.log.deleted" in listed
    assert "00000000000000000008.log" not in listed
    assert "00000000000000000008.snapshot.deleted" in listed
    assert log.environment.take_deleted(5999) == []
    assert sorted(log.environment.take_deleted(6000)) == sorted(
        f"orders-0/{name}" for name in listed if name.endswith(".deleted")
    )
    assert log.environment.take_deleted(10**9) == []
    with pytest.raises(ValueError, match="beyond"):
        log.advance_log_start(41)
    log.advance_log_start(40)
    assert (log.log_start_offset, log.segments.bases, read_all(log)) == (40, [32], [])
    log.close()
    log = open_log(log.disk, CONFIG, log_start_offset=40)
    assert (log.log_start_offset, log.log_end_offset) == (40, 40)
    assert log.producers.entries[1].last_sequence == 39


def test_old_segments_go_by_their_newest_record() -> None:
    log = filled(MemoryDisk(), attrs.evolve(CONFIG, retention_ms=10_000))
    # The newest records are of 3.001, 7.001, 11.001, 15.001 and 19.001 seconds.
    assert log.apply_retention(13_001, 40) == 0
    assert log.apply_retention(13_002, 40) == 1
    assert log.log_start_offset == 8
    assert log.apply_retention(21_002, 40) == 2
    assert log.segments.bases == [24, 32]


def test_when_all_is_old_an_empty_segment_is_left() -> None:
    log = filled(MemoryDisk(), attrs.evolve(CONFIG, retention_ms=10_000))
    assert log.apply_retention(10**6, 40) == 5
    assert (log.log_start_offset, log.log_end_offset, log.segments.bases) == (40, 40, [40])
    assert log.apply_retention(10**6, 40) == 0
    for clean in (True, False):
        log.close(clean=clean)
        log = open_log(log.disk, log.config, clean=clean)
        assert (log.log_start_offset, log.log_end_offset) == (40, 40)
        assert log.producers.entries[1].last_sequence == 39
    assert append(log, 1).base_offset == 40


def test_records_without_timestamps_are_as_old_as_their_segment_is_known() -> None:
    log = open_log(MemoryDisk(), attrs.evolve(CONFIG, retention_ms=10_000), now_ms=500)
    append_bytes(log, build_batch(records(1, timestamp_ms=-1)), now_ms=500)
    assert log.apply_retention(10_500, 1) == 0
    assert log.apply_retention(10_501, 1) == 1


def test_the_oldest_segments_go_while_the_rest_is_large_enough() -> None:
    log = filled(MemoryDisk())
    size = log.segments[0].size
    log.config = attrs.evolve(CONFIG, retention_bytes=3 * size)
    assert log.apply_retention(0, 40) == 2
    assert log.segments.bases == [16, 24, 32]
    log.config = attrs.evolve(CONFIG, retention_bytes=0)
    assert log.apply_retention(0, 40) == 3
    assert log.segments.bases == [40]


def test_nothing_at_or_above_the_high_watermark_goes() -> None:
    log = filled(MemoryDisk(), attrs.evolve(CONFIG, retention_bytes=0, retention_ms=0))
    assert log.apply_retention(10**9, 0) == 0
    assert log.apply_retention(10**9, 17) == 2
    assert log.segments.bases == [16, 24, 32]


def test_a_compacted_topic_keeps_what_is_old_but_not_what_is_below_the_start() -> None:
    log = filled(MemoryDisk(), attrs.evolve(CONFIG, retention_bytes=0, retention_ms=0, cleanup_policy="compact"))
    assert log.apply_retention(10**9, 40) == 0
    log.log_start_offset = 9
    assert log.apply_retention(10**9, 40) == 1


def test_a_read_in_a_segment_that_is_gone_does_not_bring_it_back(tmp_path: Path) -> None:
    log = filled(make_disk("real", tmp_path))
    log.close()
    log = open_log(log.disk, CONFIG)
    log.advance_log_start(20)
    log.apply_retention(10**6, 40)
    assert sorted(name for name in log.disk.listdir("orders-0") if name.endswith(".log")) == [
        f"{base:020d}.log" for base in (16, 24, 32)
    ]


def test_an_abort_that_comes_first_after_a_cut_gets_into_the_index() -> None:
    leader, follower = (open_log(MemoryDisk(), CONFIG) for _ in range(2))
    for log in (leader, follower):
        append(log, 2, producer_id=1, sequence=0, transactional=True)
    append(follower, 2)
    end_transaction(leader, 1, commit=False)
    follower.truncate_to(2)
    follower.append_as_is(leader.read(2, max_bytes=1000, max_offset=3).read())
    assert follower.segments.active.aborted == leader.segments.active.aborted != []
    assert follower.producers.first_undecided_offset is None
