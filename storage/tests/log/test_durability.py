"""Flushes, and the state of the medium after them."""

from __future__ import annotations

import errno

import pytest
from kwire_storage.directory.log_dir import LogDir
from kwire_storage.disk.faulty_disk import FaultyDisk
from kwire_storage.disk.memory_disk import MemoryDisk
from kwire_storage.errors import OwnershipError, StorageError, SyncFailedError
from kwire_storage.log.log import LogConfig

from testkit.storage.logs import append, bases, open_log, read_all

CONFIG = LogConfig(segment_bytes=500, index_interval_bytes=100)


def test_what_was_flushed_survives_a_power_cut() -> None:
    disk = FaultyDisk()
    log = open_log(disk, CONFIG)
    assert log.recovery_point == 0
    for _ in range(6):
        append(log, 2, leader_epoch=3)
    log.flush()
    assert log.recovery_point == 12
    append(log, 2)
    after = open_log(disk.crash(), CONFIG, clean=False, recovery_point=12)
    assert bases(read_all(after)) == [0, 2, 4, 6, 8, 10]
    assert after.leader_epochs.entries == [(3, 0)]


def test_a_flush_without_news_touches_nothing() -> None:
    disk = MemoryDisk()
    log = open_log(disk, CONFIG)
    append(log, 2)
    log.flush()
    operations: list[str] = []
    disk.before_operation = lambda operation, path: operations.append(f"{operation} {path}")
    log.flush()
    assert operations == []
    append(log, 2)
    operations.clear()
    log.flush()
    assert operations == ["sync orders-0/00000000000000000000.log"]


def test_appends_and_rolls_during_a_flush_are_not_taken_for_durable() -> None:
    disk = FaultyDisk()
    log = open_log(disk, CONFIG)
    append(log, 2)
    flush = log.begin_flush()
    for _ in range(6):
        append(log, 2, leader_epoch=1)
    flush.run()
    log.finish_flush(flush)
    assert log.recovery_point == 2
    log.flush()
    assert log.recovery_point == 14
    after = open_log(disk.crash(), CONFIG, clean=False, recovery_point=14)
    assert bases(read_all(after)) == list(range(0, 14, 2))
    assert after.leader_epochs.entries == [(0, 0), (1, 2)]


def test_a_truncation_during_a_flush_undoes_its_promise() -> None:
    disk = MemoryDisk()
    log = open_log(disk, CONFIG)
    append(log, 2)
    append(log, 2)
    flush = log.begin_flush()
    log.truncate_to(2)
    append(log, 2)
    flush.run()
    log.finish_flush(flush)
    assert log.recovery_point == 0
    log.flush()
    assert log.recovery_point == 4


def test_a_snapshot_above_a_cut_does_not_come_back_for_other_records() -> None:
    disk = FaultyDisk()
    log = open_log(disk, CONFIG)
    append(log, 2, producer_id=1, sequence=0)
    append(log, 2, producer_id=1, sequence=2)
    log.close()
    log = open_log(disk, CONFIG)
    log.truncate_to(2)
    append(log, 2, producer_id=2, sequence=0)
    log.active.file.sync()
    log = open_log(disk.crash(), CONFIG, clean=False, recovery_point=2)
    log.close()
    producers = open_log(log.disk, CONFIG).producers.entries
    assert {it.producer_id: it.last_sequence for it in producers.values()} == {1: 1, 2: 1}


def test_segments_deleted_during_a_flush_do_not_come_back() -> None:
    disk = MemoryDisk()
    log = open_log(disk, CONFIG)
    for _ in range(12):
        append(log, 2)
    flush = log.begin_flush()
    log.advance_log_start(log.log_end_offset)
    for path in log.environment.take_deleted(10**9):
        disk.remove(path)
    flush.run()
    log.finish_flush(flush)
    assert not any("0000000000." in name for name in disk.listdir("orders-0"))


@pytest.mark.parametrize("failing", ["sync", "sync_dir"])
def test_after_a_failed_sync_the_log_takes_nothing_more(failing: str) -> None:
    disk = MemoryDisk()
    log = open_log(disk, CONFIG)
    append(log, 2)

    def fail(operation: str, _path: str) -> None:
        if operation == failing:
            raise OSError(errno.EIO, "the medium is gone")

    disk.before_operation = fail
    with pytest.raises(SyncFailedError) as failed:
        log.flush()
    assert failed.value.errno == errno.EIO
    disk.before_operation = None
    assert log.recovery_point == 0
    with pytest.raises(StorageError) as refused:
        append(log, 1)
    assert refused.value.errno == errno.EIO
    assert read_all(log) == [(0, 1)]
    log.close()
    assert disk.exists("orders-0/00000000000000000002.snapshot") is False


def test_no_room_for_the_epochs_is_not_the_end() -> None:
    disk = MemoryDisk()
    log = open_log(disk, CONFIG)
    append(log, 2)

    def fail(operation: str, path: str) -> None:
        if "epoch" in path:
            raise OSError(errno.ENOSPC, f"no room to {operation}")

    disk.before_operation = fail
    with pytest.raises(OSError, match="no room"):
        log.flush()
    disk.before_operation = None
    append(log, 2)
    log.flush()
    assert log.recovery_point == 4
    assert disk.exists("orders-0/leader-epoch-checkpoint")


def test_indexes_of_sealed_segments_are_durable_before_the_recovery_point_passes_them() -> None:
    disk = FaultyDisk()
    log = open_log(disk, CONFIG)
    for _ in range(12):
        append(log, 2)
    log.flush()
    after = disk.crash()
    assert len(log.segments.bases) == 3
    for base in log.segments.bases[:-1]:
        for suffix in ("index", "timeindex"):
            path = f"orders-0/{base:020d}.{suffix}"
            assert after.read_bytes(path) == disk.read_bytes(path) != b""


def test_indexes_are_durable_before_the_name_of_a_segment_that_begins_at_the_recovery_point() -> None:
    # Because of that name, recovery trusts the segment before.
    disk = FaultyDisk()
    log = open_log(disk, CONFIG)
    for _ in range(3):
        append(log, 2)
    log.flush()
    seen: list[str] = []
    disk.before_operation = lambda operation, path: seen.append(f"{operation} {path.rpartition('/')[2]}")
    log.roll(now_ms=0)
    name = seen.index("create 00000000000000000006.log")
    for suffix in ("index", "timeindex"):
        assert seen.index(f"sync 00000000000000000000.{suffix}") < name
    assert seen.index("sync_dir orders-0") < name


def test_a_flush_that_a_roll_overtook_does_not_move_the_recovery_point_to_the_end_of_the_sealed_segment() -> None:
    log = open_log(FaultyDisk(), CONFIG)
    for _ in range(3):
        append(log, 2)
    flush = log.begin_flush()
    log.roll(now_ms=0)
    flush.run()
    log.finish_flush(flush)
    assert log.recovery_point == 0
    log.flush()
    assert log.recovery_point == 6


def test_a_second_flush_beside_the_one_under_way_is_refused() -> None:
    log = open_log(MemoryDisk(), CONFIG)
    append(log, 2)
    flush = log.begin_flush()
    for begin in (log.begin_flush, log.flush, log.begin_close):
        with pytest.raises(OwnershipError, match="orders-0: a flush is under way"):
            begin()
    log.finish_flush(flush)
    with pytest.raises(OwnershipError, match="not the one that is under way"):
        log.finish_flush(flush)
    given_up = log.begin_flush()
    log.give_up_flush(given_up)
    log.flush()
    assert log.recovery_point == 2


def test_a_roll_of_what_is_flushed_already_only_syncs_so_that_it_may_come_while_a_flush_is_under_way() -> None:
    disk = FaultyDisk()
    log = open_log(disk, CONFIG)
    append(log, 2, leader_epoch=3)
    log.flush()
    append(log, 2, leader_epoch=4)
    log.flush()
    flush = log.begin_flush()
    log.roll(0)
    flush.run()
    log.finish_flush(flush)
    assert log.recovery_point == 4
    after = open_log(disk.crash(), CONFIG, clean=False, recovery_point=4)
    assert after.log_end_offset == 4
    assert after.leader_epochs.entries == [(3, 0), (4, 2)]


def test_temporary_files_that_a_kill_left_are_gone_after_the_next_opening() -> None:
    disk = MemoryDisk()
    folder = open_folder(disk)
    folder.create_log("orders", 0, bytes(16), CONFIG, now_ms=0)
    folder.abandon()
    for path in ("recovery-point-offset-checkpoint.7.tmp", "orders-0/leader-epoch-checkpoint.8.tmp"):
        disk.write_bytes(path, b"half of")
    again = open_folder(disk)
    again.open_log("orders", 0, CONFIG, now_ms=0)
    assert not [name for folder in ("", "orders-0") for name in disk.listdir(folder) if name.endswith(".tmp")]
    again.abandon()


def open_folder(disk: MemoryDisk) -> LogDir:
    return LogDir.open(disk, cluster_id="c", node_id=1, directory_id=bytes(16))
