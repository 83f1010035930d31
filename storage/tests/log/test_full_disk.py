"""A full disk: operations refused and served, the data afterwards, and after a kill at that moment."""

from __future__ import annotations

import errno

import pytest
from kwire_storage.config import LogConfig
from kwire_storage.errors import StorageError, is_full

from testkit.storage.logs import SMALL, append, open_log, read_all
from testkit.storage.small_disk import ENTRY_BYTES, RESERVE, SmallDisk, create, fill_up, open_folder

# Appending


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_an_append_that_finds_no_room_changes_nothing_and_the_next_succeeds_when_there_is_some(code: int) -> None:
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


def test_a_file_keeps_its_content_when_its_successor_has_no_room() -> None:
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


def test_reads_succeed_and_an_index_that_is_missing_is_made_in_memory() -> None:
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
    folder.reserve.reconcile()
    append(log)
    assert read_all(log) == [(end, end)]


def test_without_a_reserve_retention_deletes_all_but_the_segment_that_cannot_be_rolled() -> None:
    disk = SmallDisk(8_000)
    log = open_log(disk, LogConfig(segment_bytes=2000, retention_ms=10, file_delete_delay_ms=0))
    fill_up(log)
    disk.fill()
    assert log.apply_retention(10_000, log.log_end_offset) > 0
    assert len(log.segments) == 1
    for path in log.environment.take_deleted(10_000):
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
    log.advance_log_start(log.segments.bases[-1])
    assert sum(name.endswith(".log") for name in disk.listdir("orders-0")) == 1 < segments
    assert read_all(log)[0][0] == log.log_start_offset
