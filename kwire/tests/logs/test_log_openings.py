"""Recovery of logs after an unclean stop: side by side, with reports of its progress."""

from __future__ import annotations

import errno
import logging
import threading
from collections.abc import Callable

import pytest
from kwire_protocol.records import Record, build_batch, read_header
from kwire_storage.config import LogConfig
from kwire_storage.directory.log_dir import LogDir
from kwire_storage.directory.openings import LogOpening, OpeningProgress
from kwire_storage.disk.faulty_disk import FaultyDisk
from kwire_storage.disk.files import Disk
from kwire_storage.errors import CorruptLogError
from kwire_storage.log.log import Log

from kwire.config.server import load_config
from kwire.node.broker import Broker
from kwire.node.running import StartError, _with_progress, open_broker
from kwire.runtime.clock import SystemClock
from testkit.scenes.folder_scene import append, create, killed, new_disks, replicas, values
from testkit.scenes.folder_scene import open_broker as open_in_turn
from testkit.scenes.partition_files import log_files


def test_only_what_was_not_synced_is_looked_through_the_largest_first() -> None:
    disks = new_disks()
    broker = open_in_turn(disks)
    partitions = create(broker, "t", 4)
    for index, partition in enumerate(partitions):
        for _ in range(index + 1):
            append(partition, b"x" * 1000)
    log_files(partitions[3]).roll(0)
    append(partitions[3], b"in the second segment")
    log_files(partitions[3]).flush()
    sizes = [it.log.size_in_bytes for it in partitions]
    for folder, checkpoints in broker.housekeeping.take_checkpoints():
        folder.write(checkpoints)
    given: list[int] = []
    lines: list[str] = []

    def run(tasks: list[Callable[[], None]], progress: Callable[[], str], _: int) -> None:
        given.append(len(tasks))
        for task in tasks:
            lines.append(progress())
            task()
        lines.append(progress())

    config = load_config(data_dirs=list(disks))
    again = Broker.open(config, dict(killed(disks)), SystemClock(), run_all=run)
    assert given == [4]
    assert [line.partition(": ")[2].split(", ")[0] for line in lines] == [f"{n} of 4 logs" for n in range(5)]
    assert lines[-1].endswith("1 of 1 MiB checked")
    assert [len(values(it)) for it in replicas(again, "t")] == [1, 2, 3, 5]
    assert sizes == [it.log.size_in_bytes for it in replicas(again, "t")]
    again.close()
    Broker.open(config, disks_of(again), SystemClock(), run_all=run).close()
    assert given == [4, 0], "after a clean stop there is nothing to look through"


def disks_of(broker: Broker) -> dict[str, Disk]:
    return {folder.path: folder.disk for folder in broker.log_dirs.dirs}


def test_bytes_and_logs_are_counted_while_they_are_read() -> None:
    assert str(OpeningProgress(1000, 3, 900 << 20, (120 << 20) - 1)) == "3 of 1,000 logs, 120 of 900 MiB checked"


def test_tasks_run_side_by_side_and_what_takes_long_logs_its_progress(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("kwire.node.running.PROGRESS_INTERVAL_S", 0.01)
    caplog.set_level(logging.INFO)
    is_called = threading.Event()
    meeting = threading.Barrier(2, timeout=20)

    def wait_for_the_line() -> None:
        meeting.wait()
        assert is_called.wait(20)

    def progress() -> str:
        is_called.set()
        return "half of it"

    _with_progress([wait_for_the_line, wait_for_the_line], progress, 2)
    assert "half of it" in caplog.messages


def test_what_is_quick_logs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    _with_progress([lambda: None, lambda: None], lambda: "all of it", 2)
    assert caplog.messages == []


def test_a_start_that_needs_more_files_than_it_may_open_fails_and_takes_no_folder_for_broken() -> None:
    disks = new_disks()
    broker = open_in_turn(disks)
    append(create(broker, "t", 2)[1])
    crashed = killed(disks)

    def refuse(name: str, path: str) -> None:
        raise OSError(errno.EMFILE, "Too many open files", path)

    path = "t-1/00000000000000000000.log"
    crashed["/b"].write_bytes(path, crashed["/b"].read_bytes(path) + b"torn")
    crashed["/b"].before_operation = lambda name, path: refuse(name, path) if path.startswith("t-1") else None
    with pytest.raises(StartError, match="Too many open files"):
        open_broker(load_config(data_dirs=["/a", "/b"]), dict(crashed), SystemClock())


def test_a_log_whose_files_contradict_each_other_is_a_refusal_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    disks = new_disks()
    append(create(open_in_turn(disks), "t")[0])

    def contradict(*arguments: object, **named: object) -> None:
        raise CorruptLogError("t-0: nonsense")

    monkeypatch.setattr("kwire_storage.directory.log_dir.LogDir.open_log", contradict)
    with pytest.raises(StartError, match="nonsense"):
        open_broker(load_config(data_dirs=["/a", "/b"]), dict(killed(disks)), SystemClock())


@pytest.mark.parametrize(("flush_messages", "left"), [(1, 2), (2, 2), (3, 0)])
def test_what_a_dead_process_left_unflushed_is_flushed_where_the_topic_requires_it(
    flush_messages: int, left: int
) -> None:
    """Else a retry of what was never acknowledged would be acknowledged, and a power cut could take it."""
    disk = FaultyDisk()
    folder = LogDir.open(disk, cluster_id="c", node_id=1, directory_id=bytes(16))
    log = folder.create_log("t", 0, bytes(16), LogConfig(), now_ms=0)
    log.flush()
    batch = memoryview(bytearray(build_batch([Record(0, 0, None, b"1"), Record(1, 0, None, b"2")])))
    log.append(batch, read_header(batch), leader_epoch=0, now_ms=0)
    folder.abandon()
    restarted = LogDir.open(disk, cluster_id="c", node_id=1, directory_id=bytes(16))
    opening = LogOpening(restarted, "t", 0, LogConfig(flush_messages=flush_messages), 0)
    opening.run()
    assert opening.error is None
    assert restarted.logs["t", 0].log_end_offset == 2
    after = Log.open(disk.crash(), "t-0", LogConfig(), now_ms=0, clean_shutdown=False)
    assert after.log_end_offset == left
