"""The disk as a log sees it, and that nothing of it reaches a folder that is another log's by now."""

from __future__ import annotations

import errno
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest
from kwire_storage.disk.files import Disk, RealDisk
from kwire_storage.disk.lease import Lease
from kwire_storage.disk.memory_disk import MemoryDisk
from kwire_storage.errors import LeaseEndedError

OPERATIONS: dict[str, Callable[[Disk], object]] = {
    "open_append": lambda disk: disk.open_append("t-0/a"),
    "open_read": lambda disk: disk.open_read("t-0/a"),
    "listdir": lambda disk: disk.listdir("t-0"),
    "mkdir": lambda disk: disk.mkdir("t-0/b"),
    "rename": lambda disk: disk.rename("t-0/a", "t-0/c"),
    "remove": lambda disk: disk.remove("t-0/a"),
    "remove_tree": lambda disk: disk.remove_tree("t-0"),
    "size": lambda disk: disk.size("t-0/a"),
    "open_folder": lambda disk: disk.open_folder("t-0"),
    "sync_dir": lambda disk: disk.sync_dir("t-0"),
    "read_bytes": lambda disk: disk.read_bytes("t-0/a"),
    "write_bytes": lambda disk: disk.write_bytes("t-0/a", b"new"),
    "write_atomic": lambda disk: disk.write_atomic("t-0/a", b"new"),
    "allocate": lambda disk: disk.allocate("t-0/a", 10),
    "native_path": lambda disk: disk.native_path("t-0/a"),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_after_its_end_every_operation_finds_nothing_and_changes_nothing(name: str) -> None:
    disk = MemoryDisk()
    disk.mkdir("t-0")
    disk.write_bytes("t-0/a", b"old")
    lease = Lease(disk)
    assert lease.exists("t-0/a")
    lease.end()
    with pytest.raises(LeaseEndedError) as raised:
        OPERATIONS[name](lease)
    assert isinstance(raised.value, FileNotFoundError)
    assert raised.value.errno == errno.ENOENT
    assert not lease.exists("t-0/a")
    assert disk.listdir("t-0") == ["a"]
    assert disk.read_bytes("t-0/a") == b"old"


def test_every_operation_of_a_disk_on_a_path_is_among_those() -> None:
    public = {name for name in vars(Lease) | vars(Lease.__base__) if not name.startswith("_")}
    others = {"end", "lent", "is_lent", "exists", "space", "lock", "is_locked", "wait_for_lock"}
    assert public - others == set(OPERATIONS)


def test_a_file_that_is_being_replaced_when_the_lease_ends_is_not_replaced(tmp_path: Path) -> None:
    has_begun, may_continue = Event(), Event()

    class SlowDisk(RealDisk):
        def open_append(self, path: str):  # type: ignore[no-untyped-def]
            file = super().open_append(path)
            sync = file.sync

            class SlowFile:
                path, size, append, close = file.path, file.size, file.append, file.close

                def sync(self) -> None:
                    has_begun.set()
                    assert may_continue.wait(20)
                    sync()

            return SlowFile()

    disk = SlowDisk(tmp_path)
    disk.mkdir("t-0")
    lease = Lease(disk)
    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(lease.write_atomic, "t-0/leader-epoch-checkpoint", b"of the topic that was deleted")
        assert has_begun.wait(20)
        lease.end()
        disk.rename("t-0", "t-0.deleted")
        disk.mkdir("t-0")
        may_continue.set()
        with pytest.raises(LeaseEndedError):
            writing.result()
    assert disk.listdir("t-0") == []
