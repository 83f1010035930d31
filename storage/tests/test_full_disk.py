"""A full disk: what is refused, what goes on, what is there afterwards, and after a kill at that moment."""

from __future__ import annotations

import errno

import pytest
from kwire_storage.config import LogConfig
from kwire_storage.data_folder import DataFolder
from kwire_storage.errors import StorageError, SyncFailedError, is_full
from kwire_storage.log import Log
from kwire_storage.memory_disk import MemoryDisk

from storage.tests.logs import SMALL, append, open_log, read_all
from storage.tests.small_disk import ENTRY_BYTES, SmallDisk

TOPIC_ID = bytes(range(16))
RESERVE = 8192


def open_folder(disk: MemoryDisk, *, reserve_bytes: int = 0) -> DataFolder:
    return DataFolder.open(disk, cluster_id="c", node_id=1, directory_id=TOPIC_ID, reserve_bytes=reserve_bytes)


def create(folder: DataFolder, partition: int = 0, config: LogConfig = SMALL) -> Log:
    return folder.create_log("orders", partition, TOPIC_ID, config, now_ms=0)


def fill_up(log: Log, *, leader_epoch: int = 0) -> int:
    """Appends until the disk is full; how many batches it took."""
    count = 0
    while True:
        try:
            append(log, leader_epoch=leader_epoch)
        except StorageError as error:
            if not is_full(error):
                raise
            return count
        count += 1


# Appending


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_an_append_that_finds_no_room_changes_nothing_and_the_next_goes_on_when_there_is_some(code: int) -> None:
    disk = SmallDisk(20_000, code)
    log = open_log(disk, LogConfig())
    append(log, producer_id=7, sequence=0)
    disk.fill(50)  # a part of a batch
    size = log.size_in_bytes
    for _ in range(3):
        with pytest.raises(StorageError):
            append(log, producer_id=7, sequence=1)
    assert log.size_in_bytes == disk.size("orders-0/00000000000000000000.log") == size
    assert log.log_end_offset == 1
    assert log.producers.entries[7].last_sequence == 0
    assert log.reserve.is_full
    disk.capacity_bytes = 20_000
    append(log, producer_id=7, sequence=1)
    assert read_all(log) == [(0, 0), (1, 1)]
    assert log.producers.entries[7].last_sequence == 1


def test_half_a_batch_is_not_there_even_after_a_kill_before_it_is_cut_off() -> None:
    disk = SmallDisk(20_000)
    log = open_log(disk, LogConfig())
    append(log)
    disk.fill(50)
    killed: list[SmallDisk] = []

    def look(operation: str, path: str) -> None:
        if operation == "truncate":
            killed.append(disk.kill())

    disk.before_operation = look
    with pytest.raises(StorageError):
        append(log)
    assert killed[0].size("orders-0/00000000000000000000.log") == log.size_in_bytes + 50
    again = open_log(killed[0], LogConfig(), clean=False)
    assert read_all(again) == [(0, 0)]
    assert again.recovery is not None
    assert again.recovery.cut_bytes == 50
    killed[0].capacity_bytes = 20_000
    assert append(again).base_offset == 1


def test_a_first_append_without_room_for_the_file_is_refused_as_any_other() -> None:
    disk = SmallDisk(20_000)
    log = open_log(disk)
    disk.fill(ENTRY_BYTES - 1)
    with pytest.raises(StorageError) as refused:
        append(log)
    assert refused.value.errno == errno.ENOSPC
    disk.fill(1000)
    append(log)
    assert read_all(log) == [(0, 0)]


# Rolling


@pytest.mark.parametrize("room_bytes", range(0, 900, 10))
def test_a_roll_without_room_for_all_its_files_changes_nothing(room_bytes: int) -> None:
    disk = SmallDisk(100_000)
    log = open_log(disk)
    sequence = 0
    while log.size_in_bytes + 200 <= SMALL.segment_bytes:
        append(log, producer_id=7, sequence=sequence)
        sequence += 1
    before = read_all(log)
    disk.fill(room_bytes)
    refused = False
    try:
        log.roll(0)
    except StorageError as error:
        if not is_full(error) or len(log.segments) > 1:
            raise
        refused = True
    assert sum(name.endswith(".log") for name in disk.listdir("orders-0")) == (1 if refused else 2)
    assert read_all(log) == before
    killed = open_log(disk.kill(), clean=False)
    assert read_all(killed) == before
    disk.capacity_bytes = 100_000
    log.roll(0)
    append(log, producer_id=7, sequence=sequence)
    log.close()
    again = open_log(disk)
    assert read_all(again)[:-1] == before
    assert again.producers.entries[7].last_sequence == sequence


def test_what_a_file_said_stands_when_its_successor_has_no_room() -> None:
    disk = SmallDisk(100_000)
    disk.write_bytes("a", b"old")
    disk.write_atomic("b", b"old")
    disk.fill(100)
    for write in (disk.write_bytes, disk.write_atomic):
        for path in ("a", "b", "c"):
            with pytest.raises(OSError, match="No space left"):
                write(path, bytes(1000))
    assert disk.read_bytes("a") == disk.read_bytes("b") == b"old"
    assert sorted(disk.listdir("")) == ["a", "b"]


def test_the_index_of_a_sealed_segment_survives_that_there_is_no_room_for_a_new_one() -> None:
    disk = SmallDisk(100_000)
    log = open_log(disk)
    for _ in range(30):
        append(log)
    log.close()
    index = disk.read_bytes("orders-0/00000000000000000000.index")
    log = open_log(disk)
    log.segments[0].rebuild()
    disk.fill(10)
    with pytest.raises(OSError, match="No space left"):
        log.close()
    assert disk.read_bytes("orders-0/00000000000000000000.index") == index


def test_rolling_by_age_is_put_off() -> None:
    disk = SmallDisk(100_000)
    log = open_log(disk, LogConfig(segment_ms=10))
    append(log, timestamp_ms=0)
    disk.fill()
    assert not log.maybe_roll(1000)
    disk.capacity_bytes = 100_000
    assert log.maybe_roll(1000)


# Reading and deleting


def test_reading_goes_on_and_an_index_that_is_missing_is_made_in_memory() -> None:
    disk = SmallDisk(100_000)
    log = open_log(disk)
    count = 0
    while len(log.segments) < 3:
        append(log)
        count += 1
    before = read_all(log)
    log.close()
    disk.remove("orders-0/00000000000000000000.index")
    disk.fill()
    log = open_log(disk)
    assert read_all(log) == before
    assert log.offset_for_timestamp(1000, max_offset=count) is not None


def test_retention_makes_room_on_a_full_disk_even_where_all_is_old() -> None:
    disk = SmallDisk(100_000)
    folder = open_folder(disk, reserve_bytes=RESERVE)
    log = create(folder, config=LogConfig(segment_bytes=2000, retention_ms=10, file_delete_delay_ms=0))
    disk.fill(10_000)
    fill_up(log)
    end = log.log_end_offset
    assert log.apply_retention(10_000, end) > 1
    assert log.log_start_offset == end
    deleted = folder.take_deleted(10_000)
    assert deleted is not None
    folder.remove(deleted)
    assert disk.room_bytes > 5000
    folder.reserve.look()
    append(log)
    assert read_all(log) == [(end, end)]


def test_without_a_reserve_retention_deletes_all_but_the_segment_that_cannot_be_rolled() -> None:
    disk = SmallDisk(8_000)
    log = open_log(disk, LogConfig(segment_bytes=2000, retention_ms=10, file_delete_delay_ms=0))
    fill_up(log)
    disk.fill()
    assert log.apply_retention(10_000, log.log_end_offset) > 0
    assert len(log.segments) == 1
    for path in log.surroundings.take_deleted(10_000):
        disk.remove(path)
    log.apply_retention(10_000, log.log_end_offset)
    assert log.log_start_offset == log.log_end_offset, "what was deleted made room for a new segment"


def test_where_a_longer_name_has_no_room_deleting_removes_the_files_at_once() -> None:
    class NoLongerNames(SmallDisk):
        def rename(self, old: str, new: str) -> None:
            if len(new) > len(old) and self.room_bytes < ENTRY_BYTES:
                raise self.full(new)
            super().rename(old, new)

    disk = NoLongerNames(50_000)
    folder = open_folder(disk)
    log, other = create(folder, 0), create(folder, 1)
    append(other)
    disk.fill(8_000)
    fill_up(log)
    disk.fill()
    segments = len(log.segments)
    folder.delete_log("orders", 1, bytes(16))
    assert "orders-1" not in disk.listdir("")
    disk.fill()
    log.advance_log_start(log.bases[-1])
    assert sum(name.endswith(".log") for name in disk.listdir("orders-0")) == 1 < segments
    assert read_all(log)[0][0] == log.log_start_offset


# Folders


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
    assert log.make_folder is None
    assert folder.topic_id("orders", 0) == TOPIC_ID
    assert folder.reserve.is_out


def test_checkpoints_are_written_in_the_room_of_the_reserve_and_said_again_without() -> None:
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


@pytest.mark.parametrize("partitions", [1, 5])
def test_a_stop_on_a_full_disk_is_a_clean_one(partitions: int) -> None:
    disk = SmallDisk(100_000)
    folder = open_folder(disk, reserve_bytes=RESERVE)
    logs = [create(folder, number) for number in range(partitions)]
    disk.fill(20_000)
    for log in logs:
        append(log, leader_epoch=3, producer_id=7, sequence=0)
    for log in logs:
        fill_up(log, leader_epoch=3)
    disk.fill()
    contents = [read_all(log) for log in logs]
    folder.close()
    again = open_folder(disk, reserve_bytes=RESERVE)
    assert again.clean_shutdown
    assert again.reserve.is_out
    again.open_all(lambda _: SMALL, now_ms=0)
    assert [read_all(again.logs["orders", number]) for number in range(partitions)] == contents
    assert all(log.recovery is None for log in again.logs.values())
    assert all(log.producers.entries[7].last_sequence == 0 for log in again.logs.values())
    assert again.logs["orders", 0].leader_epochs.latest == 3


def test_a_stop_without_room_or_reserve_says_so_and_loses_nothing() -> None:
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


def test_a_flush_writes_epochs_in_the_room_of_the_reserve() -> None:
    disk = SmallDisk(100_000)
    folder = open_folder(disk, reserve_bytes=RESERVE)
    log = create(folder)
    append(log, leader_epoch=5)
    disk.fill()
    log.flush()
    assert folder.reserve.is_out
    assert disk.read_bytes("orders-0/leader-epoch-checkpoint") == b"0\n1\n5 0\n"
