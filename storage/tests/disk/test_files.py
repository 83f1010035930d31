"""The promises of both disks."""

from __future__ import annotations

import errno
import resource
import shutil
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from kwire_storage.disk.files import RealDisk
from kwire_storage.disk.memory_disk import MemoryDisk
from kwire_storage.errors import FolderLockedError

from testkit.storage.descriptors import open_below
from testkit.storage.disks import both_disks, make_disk


@both_disks
def test_what_is_appended_is_read_by_position(kind: str, tmp_path: Path) -> None:
    file = make_disk(kind, tmp_path).open_append("a")
    for data in (b"one", memoryview(b"two"), bytearray(b"three")):
        file.append(data)
    assert file.size == 11
    assert file.read(0, 100) == b"onetwothree"
    assert file.read(3, 3) == b"two"
    assert file.read(11, 1) == b""


@both_disks
def test_a_file_opened_again_continues_at_its_end(kind: str, tmp_path: Path) -> None:
    disk = make_disk(kind, tmp_path)
    disk.open_append("a").append(b"one")
    file = disk.open_append("a")
    assert file.size == 3
    file.append(b"two")
    assert disk.open_read("a").read(0, 9) == b"onetwo"
    assert disk.size("a") == 6


@both_disks
def test_truncating_cuts_the_end(kind: str, tmp_path: Path) -> None:
    disk = make_disk(kind, tmp_path)
    file = disk.open_append("a")
    file.append(b"onetwo")
    file.truncate(3)
    file.append(b"!")
    assert disk.read_bytes("a") == b"one!"


@both_disks
def test_a_missing_file_is_an_error_where_it_must_exist(kind: str, tmp_path: Path) -> None:
    disk = make_disk(kind, tmp_path)
    for action in (disk.open_read, disk.read_bytes, disk.size, disk.listdir):
        with pytest.raises(FileNotFoundError):
            action("a")
    with pytest.raises(FileNotFoundError):
        disk.rename("a", "b")
    disk.remove("a")
    disk.remove_tree("a")
    assert not disk.exists("a")
    assert not disk.exists("a/b")


@both_disks
def test_folders_are_made_listed_renamed_and_removed(kind: str, tmp_path: Path) -> None:
    disk = make_disk(kind, tmp_path)
    disk.mkdir("a/b")
    disk.mkdir("a/b")
    disk.write_bytes("a/b/c", b"content")
    assert disk.listdir("") == ["a"]
    assert disk.listdir("a/b") == ["c"]
    disk.rename("a", "d")
    assert disk.read_bytes("d/b/c") == b"content"
    disk.sync_dir("d")
    disk.remove_tree("d")
    assert disk.listdir("") == []


@both_disks
def test_an_atomic_write_replaces_the_content_and_leaves_nothing_else(kind: str, tmp_path: Path) -> None:
    disk = make_disk(kind, tmp_path)
    disk.write_atomic("a", b"long content")
    disk.write_atomic("a", b"short")
    disk.write_bytes("b", b"long content")
    disk.write_bytes("b", b"x")
    assert disk.read_bytes("a") == b"short"
    assert disk.read_bytes("b") == b"x"
    assert sorted(disk.listdir("")) == ["a", "b"]


def test_a_real_disk_returns_its_size_and_what_is_left_of_it(tmp_path: Path) -> None:
    space = RealDisk(tmp_path).space()
    found = shutil.disk_usage(tmp_path)
    assert space.total_bytes == found.total
    assert 0 < space.usable_bytes <= found.total
    assert MemoryDisk().space() is None


@both_disks
def test_a_check_of_a_lock_does_not_take_it(kind: str, tmp_path: Path) -> None:
    disk = make_disk(kind, tmp_path)
    assert not disk.is_locked(".lock")
    assert not disk.exists(".lock")
    lock = disk.lock(".lock")
    assert disk.is_locked(".lock")
    lock.release()
    assert not disk.is_locked(".lock")
    disk.lock(".lock").release()


@both_disks
def test_a_lock_is_held_by_one(kind: str, tmp_path: Path) -> None:
    disk = make_disk(kind, tmp_path)
    lock = disk.lock(".lock")
    with pytest.raises(FolderLockedError) as refused:
        disk.lock(".lock")
    assert refused.value.errno == errno.EAGAIN
    lock.release()
    lock.release()
    disk.lock(".lock").release()


@both_disks
def test_an_open_file_outlives_its_name(kind: str, tmp_path: Path) -> None:
    disk = make_disk(kind, tmp_path)
    file = disk.open_append("a")
    file.append(b"content")
    file.sync()
    disk.remove("a")
    assert file.read(0, 7) == b"content"
    file.close()


HOLDS_A_POSIX_LOCK = """
import fcntl, sys
with open(sys.argv[1], "w") as file:
    fcntl.lockf(file, fcntl.LOCK_EX)
    print("locked", flush=True)
    sys.stdin.read()
"""


def test_the_lock_that_apache_kafka_takes_is_seen(tmp_path: Path) -> None:
    # Java's locks are POSIX locks, which belong to a process, so it takes another process to hold one.
    disk = RealDisk(tmp_path)
    command = [sys.executable, "-c", HOLDS_A_POSIX_LOCK, str(tmp_path / ".lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "locked\n"
        with pytest.raises(FolderLockedError):
            disk.lock(".lock")
        assert disk.is_locked(".lock")
        other.communicate()
    assert not disk.is_locked(".lock")
    disk.lock(".lock").release()


def test_an_append_that_the_system_takes_in_part_leaves_nothing(tmp_path: Path) -> None:
    file = RealDisk(tmp_path).open_append("a")
    file.append(b"x" * 1000)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1500, limits[1]))
    try:
        with pytest.raises(OSError, match="large") as refused:
            file.append(b"y" * 1000)
        assert refused.value.errno == errno.EFBIG
        assert file.size == 1000
        assert (tmp_path / "a").stat().st_size == 1000
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    file.append(b"z")
    assert file.read(999, 9) == b"xz"


def test_a_file_that_the_system_takes_in_part_leaves_the_old_one_and_no_piece(tmp_path: Path) -> None:
    disk = RealDisk(tmp_path)
    disk.write_bytes("a", b"old")
    disk.write_atomic("b", b"old")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1500, limits[1]))
    try:
        for write in (disk.write_bytes, disk.write_atomic):
            for path in ("a", "b", "c"):
                with pytest.raises(OSError, match="large"):
                    write(path, b"new" * 1000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"a": b"old", "b": b"old"}


def test_descriptors_are_closed_with_the_last_reference(tmp_path: Path) -> None:
    file = RealDisk(tmp_path).open_append("a")
    assert open_below(tmp_path) == [tmp_path / "a"]
    del file
    assert open_below(tmp_path) == []


def test_two_threads_that_replace_the_same_file_at_once_leave_one_whole_content(
    tmp_path: Path,
) -> None:
    both_have_written = threading.Barrier(2)

    class MeetingDisk(RealDisk):
        def rename(self, old: str, new: str) -> None:
            both_have_written.wait(timeout=20)
            super().rename(old, new)

    disk = MeetingDisk(tmp_path)
    contents = [b"1" * 1000, b"2" * 1000]
    with ThreadPoolExecutor(2) as pool:
        for written in [pool.submit(disk.write_atomic, "a", content) for content in contents]:
            written.result()
    assert disk.listdir("") == ["a"]
    assert disk.read_bytes("a") in contents
