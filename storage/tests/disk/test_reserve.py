"""Reserved room: who releases it, who takes it back, and who must do without meanwhile."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from kwire_storage.disk.files import RealDisk
from kwire_storage.disk.memory_disk import MemoryDisk
from kwire_storage.disk.reserve import NEW_FOLDER_BYTES, ROOM_BYTES, Reserve
from kwire_storage.errors import StorageError, SyncFailedError

from testkit.storage.small_disk import SmallDisk

FILE = ".kwire.reserve"
SIZE = 1000


def opened(disk: SmallDisk, size: int = SIZE) -> tuple[Reserve, list[bool]]:
    reserve = Reserve(disk, size)
    changes: list[bool] = []
    reserve.on_change = lambda: changes.append(reserve.is_full)
    reserve.open()
    return reserve, changes


def write(disk: SmallDisk, size: int) -> None:
    disk.write_bytes("a", bytes(size))


def test_the_room_is_taken_at_the_start_and_the_file_stays_for_the_next_one() -> None:
    disk = SmallDisk(10_000)
    opened(disk)
    assert disk.size(FILE) == SIZE
    reserve, changes = opened(disk)
    assert disk.size(FILE) == SIZE
    assert not reserve.is_out
    assert changes == []


def test_a_reserve_of_another_size_is_made_larger_or_smaller_and_one_of_none_goes() -> None:
    disk = SmallDisk(10_000)
    for size in (SIZE, 2 * SIZE, SIZE // 2):
        opened(disk, size)
        assert disk.size(FILE) == size
    opened(disk, 0)
    assert not disk.exists(FILE)


def test_a_disk_without_limits_has_no_reserve() -> None:
    disk = MemoryDisk()
    reserve = Reserve(disk, SIZE)
    reserve.open()
    assert not disk.exists(FILE)
    assert not reserve.is_out


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_write_that_meets_a_full_disk_is_done_again_in_the_room_of_the_reserve(code: int) -> None:
    disk = SmallDisk(10_000, code)
    reserve, changes = opened(disk)
    disk.fill()
    reserve.spend(lambda: write(disk, 100))
    assert disk.size("a") == 100
    assert not disk.exists(FILE)
    assert reserve.is_out
    assert changes == [True]


def test_a_write_that_is_too_large_for_the_reserve_fails() -> None:
    disk = SmallDisk(10_000)
    reserve, _ = opened(disk)
    disk.fill()
    with pytest.raises(OSError, match="No space left"):
        reserve.spend(lambda: write(disk, 5000))
    with pytest.raises(OSError, match="No space left"):
        reserve.spend(lambda: write(disk, 5000))
    assert reserve.is_out


def test_other_failures_leave_the_reserve_where_it_is() -> None:
    disk = SmallDisk(10_000)
    reserve, changes = opened(disk)

    def fail(error: OSError) -> None:
        raise error

    with pytest.raises(OSError, match="broken"):
        reserve.spend(lambda: fail(OSError(errno.EIO, "broken")))
    # A sync is not repeated, whatever it failed for: the second result may be wrong.
    with pytest.raises(SyncFailedError):
        reserve.spend(lambda: fail(SyncFailedError(errno.ENOSPC, "full")))
    assert disk.exists(FILE)
    assert changes == [True]


def test_of_two_writers_that_meet_a_full_disk_together_both_get_the_room() -> None:
    disk = SmallDisk(10_000)
    reserve, _ = opened(disk)
    disk.fill()
    attempts = 0

    def first() -> None:
        nonlocal attempts
        attempts += 1
        if attempts == 1:
            # Meanwhile another thread is refused as well, lets go of the reserve, and is done before this one.
            reserve.spend(lambda: write(disk, 100))
            raise disk.full("b")

    reserve.spend(first)
    assert attempts == 2


def test_while_the_reserve_is_out_appends_are_refused_until_all_of_it_is_to_be_had_again() -> None:
    disk = SmallDisk(10_000)
    reserve, changes = opened(disk)
    reserve.check()
    disk.fill()
    reserve.spend(lambda: write(disk, 100))
    with pytest.raises(StorageError) as refused:
        reserve.check()
    assert refused.value.errno == errno.ENOSPC
    disk.fill(SIZE - 1)
    with pytest.raises(StorageError):
        reserve.check()
    assert not disk.exists(FILE)
    disk.fill(2 * SIZE)
    reserve.check()
    assert disk.size(FILE) == SIZE
    assert changes == [True, False]


def test_a_disk_that_promises_more_than_it_has_leaves_no_piece_of_a_reserve() -> None:
    class Boasting(SmallDisk):
        def allocate(self, path: str, size: int) -> None:
            super().allocate(path, size // 2)
            raise self.full(path)

    disk = Boasting(10_000)
    reserve, changes = opened(disk)
    assert reserve.is_out
    assert not disk.exists(FILE)
    assert changes == [True]


def test_a_start_without_room_for_the_reserve_is_as_if_it_had_been_let_go() -> None:
    disk = SmallDisk(SIZE // 2)
    reserve, changes = opened(disk)
    assert changes == [True]
    with pytest.raises(StorageError):
        reserve.check()
    disk.capacity_bytes = 10_000
    reserve.reconcile()
    assert disk.exists(FILE)
    reserve.check()
    assert changes == [True, False]


def test_something_new_needs_room_for_its_folders() -> None:
    disk = SmallDisk(100_000)
    reserve, changes = opened(disk)
    reserve.check_new(3)
    disk.fill(3 * NEW_FOLDER_BYTES - 1)
    reserve.check_new(2)
    with pytest.raises(StorageError, match="3 new partitions"):
        reserve.check_new(3)
    disk.fill(NEW_FOLDER_BYTES - 1)
    with pytest.raises(StorageError):
        reserve.check_new(0)
    assert disk.exists(FILE)
    assert changes == [True]


def test_a_full_disk_is_reported_once_and_so_is_its_end() -> None:
    disk = SmallDisk(100_000)
    reserve, changes = opened(disk)
    disk.fill()
    for _ in range(3):
        reserve.note(disk.full("a"))
        reserve.reconcile()
    reserve.note(OSError(errno.EIO, "broken"))
    disk.fill(ROOM_BYTES - 1)
    reserve.reconcile()
    assert changes == [True]
    disk.fill(ROOM_BYTES)
    reserve.reconcile()
    reserve.reconcile()
    assert changes == [True, False]


def test_on_the_real_disk_the_room_is_really_taken(tmp_path: Path) -> None:
    disk = RealDisk(tmp_path)
    for size in (1 << 20, 1 << 16, 1 << 18):
        reserve = Reserve(disk, size)
        reserve.open()
        assert not reserve.is_out
        found = (tmp_path / FILE).stat()
        assert found.st_size == size
        assert found.st_blocks * 512 >= size


def test_on_a_system_that_cannot_allocate_zeros_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(fd: int, offset: int, size: int) -> None:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    RealDisk(tmp_path).allocate("a", (1 << 20) + 5)
    monkeypatch.delattr(os, "posix_fallocate")
    RealDisk(tmp_path).allocate("b", (1 << 20) + 5)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes() == bytes((1 << 20) + 5)
