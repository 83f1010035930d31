"""What a power cut, a killed process and a failing disk leave in memory."""

from __future__ import annotations

import errno

import pytest
from kwire_storage.memory_disk import MemoryDisk, TornAppendError


def durable_file(content: bytes) -> MemoryDisk:
    disk = MemoryDisk()
    disk.write_atomic("a", content)
    return disk


def test_a_power_cut_takes_what_was_not_synced() -> None:
    disk = durable_file(b"synced")
    disk.open_append("a").append(b", lost")
    disk.write_bytes("b", b"name never synced")
    after = disk.crash()
    assert after.listdir("") == ["a"]
    assert after.read_bytes("a") == b"synced"


def test_a_power_cut_may_spare_some_of_it() -> None:
    disk = durable_file(b"synced")
    disk.open_append("a").append(b"123456")
    assert disk.crash(lambda path, unsynced: unsynced // 2 if path == "a" else 0).read_bytes("a") == b"synced123"


def test_a_power_cut_brings_back_what_was_removed_renamed_or_cut_without_a_sync() -> None:
    disk = durable_file(b"content")
    disk.open_append("a").truncate(3)
    disk.rename("a", "b")
    assert disk.read_bytes("b") == b"con"
    assert disk.crash().read_bytes("a") == b"content"
    disk.sync_dir("")
    assert disk.crash().read_bytes("b") == b"content"
    file = disk.open_append("b")
    file.append(b"sider")
    file.sync()
    assert disk.crash().read_bytes("b") == b"consider"


def test_a_folder_needs_its_parents_sync_too() -> None:
    disk = MemoryDisk()
    disk.mkdir("f")
    disk.write_atomic("f/a", b"content")
    assert disk.crash().listdir("") == []
    disk.sync_dir("")
    assert disk.crash().read_bytes("f/a") == b"content"


def test_a_killed_process_loses_nothing_but_its_locks() -> None:
    disk = MemoryDisk()
    disk.mkdir("f")
    disk.write_bytes("f/a", b"content")
    disk.lock(".lock")
    after = disk.kill()
    assert after.read_bytes("f/a") == b"content"
    after.lock(".lock")
    assert after.crash().listdir("") == []


def test_twins_go_their_own_ways() -> None:
    disk = durable_file(b"one")
    after = disk.kill()
    after.open_append("a").append(b"two")
    assert disk.read_bytes("a") == b"one"


def test_a_refused_operation_changes_nothing() -> None:
    disk = durable_file(b"one")

    def refuse(operation: str, path: str) -> None:
        raise OSError(errno.ENOSPC, f"{operation} {path}")

    disk.before_operation = refuse
    file = disk.open_append("a")
    with pytest.raises(OSError, match="append a"):
        file.append(b"two")
    with pytest.raises(OSError, match="create b"):
        disk.open_append("b")
    with pytest.raises(OSError, match="mkdir f"):
        disk.mkdir("f")
    disk.before_operation = None
    assert (disk.read_bytes("a"), disk.listdir("")) == (b"one", ["a"])


def test_a_torn_append_is_there_but_beyond_the_size_and_the_next_one_replaces_it() -> None:
    disk = durable_file(b"one")

    def tear(_operation: str, _path: str) -> None:
        raise TornAppendError(2)

    file = disk.open_append("a")
    disk.before_operation = tear
    with pytest.raises(TornAppendError):
        file.append(b"two")
    disk.before_operation = None
    assert file.size == 3
    assert disk.kill().read_bytes("a") == b"onetw"
    file.append(b"three")
    assert disk.read_bytes("a") == b"onethree"


def test_folders_and_files_are_not_confused() -> None:
    disk = durable_file(b"one")
    disk.mkdir("f")
    with pytest.raises(IsADirectoryError):
        disk.read_bytes("f")
    with pytest.raises(NotADirectoryError):
        disk.listdir("a")
    with pytest.raises(FileExistsError):
        disk.mkdir("a")
