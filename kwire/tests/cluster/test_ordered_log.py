"""The ordered log under a cluster: the same tests for each form, and failures of the local one."""

from __future__ import annotations

import errno
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path

import pytest
from kwire_storage.disk.faulty_disk import FaultyDisk
from kwire_storage.disk.files import RealDisk
from kwire_storage.disk.memory_disk import MemoryDisk
from kwire_storage.errors import CorruptLogError

from kwire.cluster.local.metadata_log import FOLDER, SharedMetadataLog
from kwire.cluster.zookeeper.metadata_log import ZooKeeperLog
from kwire.cluster.zookeeper.session import Session
from kwire.metadata.log import AppendConflict, LogTruncated, MetadataLog
from kwire.runtime.clock import SystemClock
from kwire.runtime.loop import Loop
from testkit.basics.futures import at_once
from testkit.metadata.distant_log import DistantLog
from testkit.worlds.simulation.calendar import Calendar
from testkit.worlds.simulation.keeper import Keeper, SimMembership, SimMetadataLog
from testkit.worlds.simulation.network import Network

NOW_MS = 1_700_000_000_000
SEGMENT = f"{FOLDER}/00000000000000000000.log"

OpenLog = Callable[[], MetadataLog]


def shared(disk: MemoryDisk | RealDisk, node_id: int = 1) -> SharedMetadataLog:
    return SharedMetadataLog.open(disk, node_id, lambda: NOW_MS)


def _call(callback: Callable[[], object]) -> None:
    callback()


class NoTime(Calendar):
    """A calendar without timers: news do not travel by themselves."""

    def after(self, seconds: float, callback: Callable[[], object]) -> None:
        pass


@pytest.fixture(params=["in memory", "simulated", "local", "ZooKeeper"])
def open_log(request: pytest.FixtureRequest) -> Iterator[OpenLog]:
    """Opens the same log for one more writer."""
    if request.param == "in memory":
        log = DistantLog()
        yield lambda: log
    elif request.param == "simulated":
        calendar, node_ids = NoTime(), count(1)
        network = Network(calendar, random.Random(0), lambda _: None)
        keeper = Keeper(calendar, network, "c")

        def join_keeper() -> MetadataLog:
            node_id = next(node_ids)
            return SimMembership.join(keeper, node_id, network.host(f"n{node_id}"), Loop(), _call).log

        yield join_keeper
    elif request.param == "local":
        disk = MemoryDisk()
        yield lambda: shared(disk)
    else:
        clock = SystemClock()
        with ExitStack() as sessions:

            def open_in_zookeeper() -> ZooKeeperLog:
                session = Session.open(request.getfixturevalue("config"), clock.monotonic_ms)
                sessions.callback(session.close)
                return ZooKeeperLog.open(session, clock.now_ms, clock.uuid)

            yield open_in_zookeeper


def append(log: MetadataLog, *values: bytes) -> None:
    at_once(log.append(values, expected_end_offset=log.end_offset))


def receive_news(log: MetadataLog) -> None:
    """Delivers the news that another writer has appended."""
    if isinstance(log, SharedMetadataLog | ZooKeeperLog):
        at_once(log.refresh())
    elif isinstance(log, SimMetadataLog):
        log.ends_at(log.member.keeper.end_offset)


def values_of(log: MetadataLog, offset: int = 0) -> list[bytes]:
    found = []
    while (read := at_once(log.read(offset))).next_offset != offset:
        found += [value for _, value in read.records]
        offset = read.next_offset
    return found


# What every form promises


def test_what_one_writer_appends_all_writers_read(open_log: OpenLog) -> None:
    one, other = open_log(), open_log()
    append(one, b"a", b"b")
    append(one, b"c")
    assert values_of(one) == values_of(other) == [b"a", b"b", b"c"]
    assert values_of(open_log()) == [b"a", b"b", b"c"]


def test_a_writer_that_was_slower_is_refused_and_appends_behind_the_faster(open_log: OpenLog) -> None:
    one, other = open_log(), open_log()
    append(one, b"a")
    with pytest.raises(AppendConflict):
        at_once(other.append([b"b"], expected_end_offset=0))
    assert values_of(other) == [b"a"]
    append(other, b"b")
    with pytest.raises(AppendConflict):
        at_once(one.append([b"c"], expected_end_offset=at_once(one.read(0)).next_offset - 1))
    assert values_of(one) == [b"a", b"b"]


def test_writers_hear_of_each_other(open_log: OpenLog) -> None:
    one, other = open_log(), open_log()
    heard: list[int] = []
    other.watch(lambda: heard.append(other.end_offset))
    append(one, b"a")
    receive_news(other)
    end = other.end_offset
    assert heard == [end]
    assert end > 0
    receive_news(other)
    assert heard == [end], "nothing is new"


def test_a_snapshot_is_what_a_later_writer_begins_with(open_log: OpenLog) -> None:
    one = open_log()
    append(one, b"a", b"b")
    end = one.end_offset
    at_once(one.write_snapshot([b"both"], end_offset=end))
    append(one, b"c")
    later = open_log()
    snapshot = at_once(later.read_snapshot())
    assert snapshot is not None
    assert (snapshot.end_offset, list(snapshot.values)) == (end, [b"both"])
    assert values_of(later, snapshot.end_offset) == [b"c"]


# The local form


def test_a_writer_behind_a_snapshot_gets_the_later_start_of_the_log() -> None:
    disk = MemoryDisk()
    one, other = shared(disk), shared(disk)
    append(one, b"a")
    read_to = at_once(other.read(0)).next_offset
    append(one, b"b")
    at_once(one.write_snapshot([b"both"], end_offset=one.end_offset))
    with pytest.raises(LogTruncated):
        at_once(other.read(read_to))
    snapshot = at_once(other.read_snapshot())
    assert snapshot is not None
    assert values_of(other, snapshot.end_offset) == []
    append(one, b"c")
    assert values_of(other, snapshot.end_offset) == [b"c"]


def test_the_snapshot_of_a_writer_that_is_behind_changes_nothing() -> None:
    disk = MemoryDisk()
    one, other = shared(disk), shared(disk)
    append(one, b"a")
    behind = one.end_offset
    append(other_up_to_date(other), b"b")
    at_once(other.write_snapshot([b"both"], end_offset=other.end_offset))
    at_once(one.write_snapshot([b"only a"], end_offset=behind))
    snapshot = at_once(shared(disk).read_snapshot())
    assert snapshot is not None
    assert list(snapshot.values) == [b"both"]


def other_up_to_date(log: SharedMetadataLog) -> SharedMetadataLog:
    at_once(log.refresh())
    return log


def test_whatever_a_process_changes_it_changes_under_the_lock() -> None:
    disk = MemoryDisk()
    one = shared(disk)
    changed: list[str] = []

    def note(_operation: str, path: str) -> None:
        if path.startswith(FOLDER):
            assert disk.is_locked("cluster.lock"), path
            changed.append(path)

    disk.before_operation = note
    append(one, b"a")
    at_once(one.write_snapshot([b"a"], end_offset=one.end_offset))
    append(shared(disk, 2), b"b")
    assert changed
    assert not disk.is_locked("cluster.lock")


def test_half_an_append_of_a_process_that_died_is_cut_off_by_the_next_one() -> None:
    disk = MemoryDisk()
    one = shared(disk)
    append(one, b"a")
    whole = disk.size(SEGMENT)
    append(one, b"b")
    content = disk.read_bytes(SEGMENT)
    for cut in range(whole, len(content)):
        left = MemoryDisk()
        first = shared(left)
        append(first, b"a")
        left.open_append(SEGMENT).append(content[whole:cut])
        other = shared(left)
        assert values_of(other) == values_of(first) == [b"a"]
        append(other, b"c")
        assert values_of(first) == [b"a", b"c"]


def test_what_a_process_appended_and_did_not_sync_is_durable_before_another_one_sees_it() -> None:
    disk = FaultyDisk()
    one, other = shared(disk), shared(disk)
    append(one, b"a")
    before = disk.size(SEGMENT)
    append(one, b"b")
    batch = disk.read_bytes(SEGMENT)[before:]
    left = FaultyDisk()
    append(shared(left), b"a")
    left.open_append(SEGMENT).append(batch)  # and then its process was killed
    assert values_of(shared(left.crash())) == [b"a"]
    append(shared(left2 := FaultyDisk()), b"a")
    left2.open_append(SEGMENT).append(batch)
    assert values_of(shared(left2)) == [b"a", b"b"]
    assert values_of(shared(left2.crash())) == [b"a", b"b"]
    assert values_of(other) == [b"a", b"b"]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_no_process_finds_an_append_that_could_not_be_synced(number: int) -> None:
    disk = FaultyDisk()
    one, other = shared(disk), shared(disk)
    append(one, b"a")

    def refuse(operation: str, path: str) -> None:
        if operation == "sync" and path == SEGMENT:
            raise OSError(number, os.strerror(number))

    disk.before_operation = refuse
    with pytest.raises(OSError, match=os.strerror(number)):
        append(one, b"b")
    disk.before_operation = None
    assert values_of(other) == [b"a"]
    append(other, b"c")
    assert values_of(one) == [b"a", b"c"]
    assert values_of(shared(disk.crash())) == [b"a", b"c"]


@pytest.mark.parametrize("lost", ["a byte", "an append"])
def test_a_log_that_lost_what_was_durable_is_not_followed(lost: str) -> None:
    disk = MemoryDisk()
    one = shared(disk)
    append(one, b"a")
    before = disk.size(SEGMENT)
    append(one, b"b")
    disk.open_append(SEGMENT).truncate(before if lost == "an append" else disk.size(SEGMENT) - 1)
    with pytest.raises(CorruptLogError, match="is corrupt|and ended at 3 before"):
        at_once(one.read(0))


class Stop(BaseException):
    """The process is killed here."""


def everything(log: SharedMetadataLog) -> list[bytes]:
    """Returns the state of a node that starts now: the snapshot and the log after it."""
    snapshot = at_once(log.read_snapshot())
    if snapshot is None:
        return values_of(log)
    return [*snapshot.values, *values_of(log, snapshot.end_offset)]


def live_and_die(disk: FaultyDisk, operations: int) -> tuple[list[bytes], bytes | None, int]:
    """A process that appends and writes a snapshot, and is killed before the operation of that number.

    Returns the values that were acknowledged, the one that was not, and how many operations were left.
    """
    left = operations

    def count(_operation: str, _path: str) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise Stop

    acknowledged: list[bytes] = []
    under_way: bytes | None = None
    log = shared(disk, 2)
    disk.before_operation = count
    try:
        for value in (b"a", b"b", b"snapshot", b"c"):
            if value == b"snapshot":
                at_once(log.write_snapshot(everything(log), end_offset=log.end_offset))
                continue
            under_way = value
            append(log, value)
            acknowledged.append(value)
            under_way = None
    except Stop:
        pass
    finally:
        disk.before_operation = None
    return acknowledged, under_way, left


@pytest.mark.parametrize("loses_power", [False, True])
def test_a_process_may_be_killed_before_any_operation_on_the_disk(loses_power: bool) -> None:
    plenty = 10_000
    *_, left = live_and_die(FaultyDisk(), plenty)
    ends = set()
    for number in range(plenty - left):
        disk = FaultyDisk()
        witness = shared(disk)
        append(witness, b"first")
        acknowledged, under_way, _ = live_and_die(disk, number)
        possible = [[b"first", *acknowledged]]
        if under_way is not None:
            possible.append([b"first", *acknowledged, under_way])
        medium = disk.crash() if loses_power else disk
        survivor = shared(medium) if loses_power else witness
        found = everything(survivor)
        assert found in possible, number
        ends.add(len(found))
        at_once(survivor.refresh())
        append(survivor, b"last")
        assert everything(shared(medium.crash())) == [*found, b"last"], number
    assert ends == {1, 2, 3, 4}


def test_processes_append_one_after_the_other_though_some_are_killed(tmp_path: Path) -> None:
    killed_after = 10
    acknowledged: list[str] = []
    writers = [start(tmp_path, node_id, 60) for node_id in (1, 2, 3)]
    victim = writers[0]
    assert victim.stdout is not None
    for line in victim.stdout:
        acknowledged.append(line.strip())
        if len(acknowledged) == killed_after:
            victim.kill()
    for writer in (*writers[1:], start(tmp_path, 4, 30)):
        output, _ = writer.communicate(timeout=60)
        assert writer.returncode == 0
        acknowledged += output.split()
    victim.wait()
    victim.stdout.close()
    values = [it.decode() for it in values_of(shared(RealDisk(str(tmp_path))))]
    assert len(values) == len(set(values))
    assert set(acknowledged) <= set(values)
    assert len(values) <= len(acknowledged) + 1, "the victim's last one may be there"
    for node_id in "1234":
        numbers = [int(it.split(":")[1]) for it in values if it.startswith(f"{node_id}:")]
        assert numbers == list(range(len(numbers)))


def start(folder: Path, node_id: int, count: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "testkit.cluster.appending", str(folder), str(node_id), str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
