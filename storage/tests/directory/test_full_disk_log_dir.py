"""A log dir on a full disk: new partitions, checkpoints, flushes, and the stop."""

from __future__ import annotations

import errno

import pytest
from kwire_storage.disk.faulty_disk import FaultyDisk
from kwire_storage.errors import StorageError, SyncFailedError

from testkit.storage.logs import SMALL, append, open_log, open_logs, read_all
from testkit.storage.small_disk import ENTRY_BYTES, RESERVE, TOPIC_ID, SmallDisk, create, fill_up, open_folder


def test_a_partition_that_has_no_room_for_its_folder_gets_it_with_its_first_record() -> None:
    disk = SmallDisk(50_000)
    folder = open_folder(disk)
    for room_bytes in (0, ENTRY_BYTES, 2 * ENTRY_BYTES):
        disk.fill(room_bytes)
        log = create(folder)
        assert log.read(0, max_bytes=100, max_offset=0).size == 0
        with pytest.raises(StorageError):
            append(log)
        assert not log.maybe_roll(10**15)
        assert log.apply_retention(10**15, 0) == 0
        log.flush()
        folder.delete_log("orders", 0, bytes(16))
        assert folder.take_deleted(0) is None
        assert "orders-0" not in disk.listdir("")
    log = create(folder)
    disk.capacity_bytes = 50_000
    append(log)
    folder.close()
    again = open_folder(disk)
    assert again.topic_id("orders", 0) == TOPIC_ID
    assert read_all(again.open_log("orders", 0, SMALL, now_ms=0)) == [(0, 0)]


def test_a_partition_is_created_in_the_room_of_the_reserve() -> None:
    disk = SmallDisk(50_000)
    folder = open_folder(disk, reserve_bytes=RESERVE)
    disk.fill()
    log = create(folder)
    assert log.has_folder
    assert folder.topic_id("orders", 0) == TOPIC_ID
    assert folder.reserve.is_out


def test_checkpoints_are_written_in_the_room_of_the_reserve_and_stay_due_without() -> None:
    for reserve_bytes in (RESERVE, 0):
        disk = SmallDisk(50_000)
        folder = open_folder(disk, reserve_bytes=reserve_bytes)
        log = create(folder)
        append(log)
        log.flush()
        append(log)
        log.advance_log_start(1)
        disk.fill()
        checkpoints = folder.take_checkpoints()
        assert checkpoints
        if reserve_bytes:
            folder.write(checkpoints)
            assert folder.take_checkpoints() == {}
        else:
            with pytest.raises(OSError, match="No space left"):
                folder.write(checkpoints)
            assert folder.take_checkpoints() == checkpoints


@pytest.mark.parametrize(("partitions", "room_bytes"), [(1, room) for room in range(0, 480, 20)] + [(5, 0), (5, 500)])
def test_a_stop_on_a_full_disk_is_a_clean_one(partitions: int, room_bytes: int) -> None:
    disk = SmallDisk(100_000)
    folder = open_folder(disk, reserve_bytes=RESERVE)
    logs = [create(folder, number) for number in range(partitions)]
    disk.fill(20_000)
    for log in logs:
        append(log, leader_epoch=3, producer_id=7, sequence=0)
    for log in logs:
        fill_up(log, leader_epoch=3)
    disk.fill(room_bytes)
    contents = [read_all(log) for log in logs]
    folder.close()
    again = open_folder(disk, reserve_bytes=RESERVE)
    assert again.clean_shutdown
    assert again.reserve.is_out
    open_logs(again)
    assert [read_all(again.logs["orders", number]) for number in range(partitions)] == contents
    assert all(log.recovery is None for log in again.logs.values())
    assert all(log.producers.entries[7].last_sequence == 0 for log in again.logs.values())
    assert again.logs["orders", 0].leader_epochs.latest == 3


def test_a_stop_without_room_or_reserve_reports_it_and_loses_nothing() -> None:
    disk = SmallDisk(100_000)
    folder = open_folder(disk)
    log = create(folder)
    disk.fill(5_000)
    fill_up(log)
    disk.fill()
    content = read_all(log)
    with pytest.raises(OSError, match="No space left"):
        folder.close()
    again = open_folder(disk)
    assert not again.clean_shutdown
    assert read_all(again.open_log("orders", 0, SMALL, now_ms=0)) == content


def test_a_kill_on_a_full_disk_and_a_start_while_it_is_still_full_lose_nothing() -> None:
    disk = SmallDisk(100_000)
    folder = open_folder(disk, reserve_bytes=RESERVE)
    log = create(folder)
    disk.fill(8_000)
    fill_up(log)
    disk.fill()
    content = read_all(log)
    for reserve_is_out in (False, True):
        assert folder.reserve.is_out is reserve_is_out
        killed = disk.kill()
        again = open_folder(killed, reserve_bytes=RESERVE)
        assert not again.clean_shutdown
        assert again.reserve.is_out is reserve_is_out
        assert read_all(again.open_log("orders", 0, SMALL, now_ms=0)) == content
        again.close()
        assert open_folder(killed, reserve_bytes=RESERVE).clean_shutdown
        folder.reserve.spend(lambda: disk.write_bytes("needed", bytes(10)))


def test_a_sync_that_fails_for_want_of_room_is_a_sync_that_failed() -> None:
    disk = SmallDisk(100_000)
    folder = open_folder(disk, reserve_bytes=RESERVE)
    log = create(folder)
    append(log)
    disk.syncs_fail_with = errno.ENOSPC
    with pytest.raises(SyncFailedError):
        log.flush()
    disk.syncs_fail_with = 0
    with pytest.raises(StorageError):
        append(log)
    folder.close()
    assert not open_folder(disk).clean_shutdown


def test_a_flush_writes_the_indexes_of_sealed_segments_in_the_room_of_the_reserve() -> None:
    disk = SmallDisk(100_000)
    folder = open_folder(disk, reserve_bytes=RESERVE)
    log = create(folder)
    while len(log.segments) < 2:
        append(log)
    index = "orders-0/00000000000000000000.index"
    content = disk.read_bytes(index)
    disk.remove(index)
    log.segments[0].rebuild()
    disk.fill()
    log.flush()
    assert folder.reserve.is_out
    assert disk.read_bytes(index) == content


def test_an_index_that_is_written_again_has_its_name_after_a_power_cut() -> None:
    disk = FaultyDisk()
    log = open_log(disk)
    while len(log.segments) < 2:
        append(log)
    log.close()
    index = "orders-0/00000000000000000000.index"
    content = disk.read_bytes(index)
    disk.write_bytes(index, b"torn")
    disk.open_read(index).sync()
    disk.sync_dir("orders-0")
    log = open_log(disk)
    assert read_all(log)
    log.close()
    assert disk.crash().read_bytes(index) == content


def test_a_flush_writes_epochs_in_the_room_of_the_reserve() -> None:
    disk = SmallDisk(100_000)
    folder = open_folder(disk, reserve_bytes=RESERVE)
    log = create(folder)
    append(log, leader_epoch=5)
    disk.fill()
    log.flush()
    assert folder.reserve.is_out
    assert disk.read_bytes("orders-0/leader-epoch-checkpoint") == b"0\n1\n5 0\n"
