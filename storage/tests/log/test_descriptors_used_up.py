"""A process without a descriptor left: half of the segments' files are closed, and the opening succeeds."""

from __future__ import annotations

import errno
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from threading import Barrier

import pytest
from kwire_storage.config import LogConfig
from kwire_storage.disk.files import Disk, RealDisk
from kwire_storage.disk.open_files import OpenFiles
from kwire_storage.log.log import Log

from testkit.storage.descriptors import descriptors_left, descriptors_of
from testkit.storage.logs import append, bases, open_log, read_all

LOGS = 8
OPENINGS: dict[str, Callable[[Disk], object]] = {
    "open_append": lambda disk: disk.open_append("t-0/a"),
    "open_read": lambda disk: disk.open_read("t-0/a"),
    "listdir": lambda disk: disk.listdir("t-0"),
    "remove_tree": lambda disk: disk.remove_tree("doomed"),
    "open_folder": lambda disk: disk.open_folder("t-0").close(),
    "sync_dir": lambda disk: disk.sync_dir("t-0"),
    "read_bytes": lambda disk: disk.read_bytes("t-0/a"),
    "write_bytes": lambda disk: disk.write_bytes("t-0/a", b"new"),
    "write_atomic": lambda disk: disk.write_atomic("t-0/a", b"new"),
    "allocate": lambda disk: disk.allocate("t-0/a", 10),
    "lock": lambda disk: disk.lock("t-0/b").release(),
    "is_locked": lambda disk: disk.is_locked("t-0/a"),
    "wait_for_lock": lambda disk: disk.wait_for_lock("t-0/b"),
}


def logs_with_open_files(disk: RealDisk) -> list[Log]:
    config = LogConfig(segment_bytes=500, index_interval_bytes=100)
    logs = [open_log(disk, config, path=f"t-{number}") for number in range(LOGS)]
    for log in logs:
        append(log, 1)
    return logs


@pytest.mark.parametrize("through_a_lease", [False, True])
@pytest.mark.parametrize("name", OPENINGS)
def test_an_opening_closes_half_of_the_files(name: str, through_a_lease: bool, tmp_path: Path) -> None:
    disk = RealDisk(tmp_path)
    logs = logs_with_open_files(disk)
    disk.write_bytes("t-0/a", b"old")
    disk.mkdir("doomed")
    with descriptors_left(0):
        # The lease of one of those logs, whose own file may have to go.
        opened = OPENINGS[name](logs[0].disk if through_a_lease else disk)
    del opened
    assert descriptors_of(tmp_path) == LOGS // 2
    for log in logs:
        append(log, 1)
        assert bases(read_all(log)) == [0, 1]


def test_an_append_to_a_segment_that_is_not_open_closes_half_of_the_files(tmp_path: Path) -> None:
    disk = RealDisk(tmp_path)
    *_, last = logs = logs_with_open_files(disk)
    last.active.release()
    with descriptors_left(0):
        append(last, 1)
    assert descriptors_of(tmp_path) == (LOGS - 1) // 2 + 1
    assert [bases(read_all(log)) for log in logs] == [[0]] * (LOGS - 1) + [[0, 1]]


def test_files_that_were_closed_for_something_else_leave_room(tmp_path: Path) -> None:
    disk = RealDisk(tmp_path, OpenFiles(LOGS))
    logs_with_open_files(disk)
    assert disk.open_files.is_full
    with descriptors_left(0):
        disk.listdir("t-0")
    assert not disk.open_files.is_full


def test_an_opening_is_refused_where_nothing_can_be_closed(tmp_path: Path) -> None:
    disk = RealDisk(tmp_path)
    disk.write_bytes("a", b"")
    with descriptors_left(0), pytest.raises(OSError, match="Too many open files") as refused:
        disk.open_read("a")
    assert refused.value.errno == errno.EMFILE


def test_logs_that_open_everything_side_by_side_lose_nothing_and_never_wait_for_each_other(tmp_path: Path) -> None:
    disk = RealDisk(tmp_path)
    logs = logs_with_open_files(disk)
    together = Barrier(LOGS)

    def opens(log: Log, number: int) -> None:
        append(log, 1)
        log.disk.write_bytes(f"{log.path}/note", b"%d" % number)
        log.disk.listdir(log.path)

    def work(log: Log) -> list[int | None]:
        refused: list[int | None] = []
        together.wait()
        for number in range(1, 200):
            while log.log_end_offset == number:
                try:
                    opens(log, number)
                except OSError as error:
                    refused.append(error.errno)
        return refused

    with descriptors_left(2), ThreadPoolExecutor(LOGS) as pool:
        refused = list(chain.from_iterable(pool.map(work, logs)))
    for log in logs:
        assert bases(read_all(log)) == list(range(log.log_end_offset))
        assert log.log_end_offset == 200
    assert {*refused} <= {errno.EMFILE}
    assert len(refused) < LOGS * 200
