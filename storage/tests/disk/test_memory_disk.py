"""A disk in memory refuses, tears and forgets as a real one would."""

from __future__ import annotations

import errno

import pytest
from kwire_storage.disk.faulty_disk import FaultyDisk
from kwire_storage.disk.memory_disk import MemoryDisk, TornAppendError

either = pytest.mark.parametrize("kind", [MemoryDisk, FaultyDisk])


def with_file(disk: MemoryDisk) -> MemoryDisk:
    disk.write_atomic("a", b"one")
    return disk


@either
def test_a_refused_operation_changes_nothing(kind: type[MemoryDisk]) -> None:
    disk = with_file(kind())

    def refuse(operation: str, path: str) -> None:
        raise OSError(errno.ENOSPC, f"{operation} {path}")

    disk.before_operation = refuse
    file = disk.open_append("a")
    with pytest.raises(OSError, match="append a"):
        file.append(b"two")
    with pytest.raises(OSError, match="truncate a"):
        file.truncate(0)
    with pytest.raises(OSError, match="create b"):
        disk.open_append("b")
    with pytest.raises(OSError, match="mkdir f"):
        disk.mkdir("f")
    with pytest.raises(OSError, match="rename a"):
        disk.rename("a", "b")
    with pytest.raises(OSError, match="remove a"):
        disk.remove("a")
    disk.before_operation = None
    assert (disk.read_bytes("a"), disk.listdir("")) == (b"one", ["a"])


@either
def test_a_torn_append_is_there_but_beyond_the_size_and_the_next_one_goes_over_it(kind: type[MemoryDisk]) -> None:
    disk = with_file(kind())

    def tear(_operation: str, _path: str) -> None:
        raise TornAppendError(4)

    file = disk.open_append("a")
    disk.before_operation = tear
    with pytest.raises(TornAppendError):
        file.append(b"twotwo")
    disk.before_operation = None
    assert (file.size, disk.read_bytes("a")) == (3, b"onetwot")
    file.append(b"33")
    assert (file.size, disk.read_bytes("a")) == (5, b"one33ot")
    file.truncate(5)
    file.append(b"four")
    assert disk.read_bytes("a") == b"one33four"


@either
def test_a_folder_goes_with_all_that_is_in_it_step_by_step(kind: type[MemoryDisk]) -> None:
    disk = kind()
    disk.mkdir("f/g")
    disk.write_bytes("f/a", b"one")
    disk.write_bytes("f/g/b", b"two")
    operations: list[str] = []
    disk.before_operation = lambda operation, path: operations.append(f"{operation} {path}")
    disk.remove_tree("f")
    disk.remove_tree("f")
    assert sorted(operations[:-1]) == ["remove f/a", "remove f/g", "remove f/g/b"]
    assert (operations[-1], disk.listdir("")) == ("remove f", [])


@either
def test_folders_and_files_are_not_confused(kind: type[MemoryDisk]) -> None:
    disk = with_file(kind())
    disk.mkdir("f")
    with pytest.raises(IsADirectoryError):
        disk.read_bytes("f")
    with pytest.raises(NotADirectoryError):
        disk.listdir("a")
    with pytest.raises(FileExistsError):
        disk.mkdir("a")
