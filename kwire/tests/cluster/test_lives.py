"""Liveness of nodes by the kernel's locks, and the news between processes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue

import pytest
import trio
from kwire_storage.disk.files import RealDisk
from kwire_storage.errors import StorageError
from trio.testing import wait_all_tasks_blocked

from kwire.cluster.local.lives import at_the_end_of, is_alive, live
from kwire.cluster.local.news import News
from kwire.cluster.local.node import LocalNode
from kwire.cluster.membership import NodeIdTakenError
from testkit.basics.futures import at_once

LIVE = (
    "import sys; from kwire_storage.disk.files import RealDisk; from kwire.cluster.local.lives import live;"
    "lock = live(RealDisk(sys.argv[1]), 2); print('alive', flush=True); sys.stdin.read()"
)


def start(folder: Path) -> subprocess.Popen[str]:
    """Starts a process that runs as node 2 until it is killed."""
    process = subprocess.Popen(
        [sys.executable, "-c", LIVE, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "alive\n"
    return process


def test_a_node_is_alive_until_its_process_ends_however_that_ends(tmp_path: Path) -> None:
    disk = RealDisk(str(tmp_path))
    ended: SimpleQueue[int] = SimpleQueue()
    with start(tmp_path) as process:
        assert is_alive(disk, 2)
        at_the_end_of(disk, 2, lambda: ended.put(2))
        assert ended.empty()
        process.kill()
    assert ended.get(timeout=30) == 2
    assert not is_alive(disk, 2)
    live(disk, 2).release()


def test_an_id_has_one_node(tmp_path: Path) -> None:
    disk = RealDisk(str(tmp_path))
    lock = live(disk, 1)
    with pytest.raises(NodeIdTakenError, match="node 1 of this cluster is running already"):
        live(RealDisk(str(tmp_path)), 1)
    live(disk, 2).release()
    lock.release()
    live(disk, 1).release()


def test_a_node_reports_the_end_of_a_node_that_it_watches_and_not_of_one_that_it_watched_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    end: dict[int, Callable[[], object]] = {}

    def at_the_end_of(_disk: object, node_id: int, call: Callable[[], object]) -> None:
        assert node_id not in end, "another thread waits for that node"
        end[node_id] = call

    monkeypatch.setattr("kwire.cluster.local.node.at_the_end_of", at_the_end_of)
    one = LocalNode.join(str(tmp_path / "cluster"), 1, lambda: 0, new_cluster_id="c")
    changes: list[int] = []

    async def main() -> None:
        has_changed = trio.Event()

        def on_change() -> None:
            changes.append(one.controller_id)
            has_changed.set()

        async def ends(node_id: int) -> None:
            end.pop(node_id)()
            await wait_all_tasks_blocked()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(one.run, on_change)
            await has_changed.wait()  # it is the controller now
            changes.clear()
            one.watch([1, 2, 3])
            one.watch([3])
            await ends(2)
            assert changes == []
            await ends(3)
            assert len(changes) == 1
            one.watch([2, 3])
            one.watch([3])
            one.watch([2, 3])
            await ends(2)
            assert len(changes) == 2
            nursery.cancel_scope.cancel()

    try:
        trio.run(main)
    finally:
        one.leave()


def test_a_node_that_was_never_there_has_ended(tmp_path: Path) -> None:
    disk = RealDisk(str(tmp_path))
    live(disk, 1).release()
    ended: SimpleQueue[int] = SimpleQueue()
    at_the_end_of(disk, 7, lambda: ended.put(7))
    assert ended.get(timeout=30) == 7


def test_news_reach_all_other_nodes_and_dead_ones_are_passed_over(tmp_path: Path) -> None:
    folder = str(tmp_path)
    with News(folder, 1) as one, News(folder, 2) as two:
        dead = News(folder, 3)
        dead.sock.close()
        (tmp_path / "4.sock").symlink_to("4.sock")  # which is no address at all
        for _ in range(10_000):  # more than a queue has room for
            one.notify()
        assert two.sock.recv(1) == b"!"
        two.take()
        for receiver in (one, two):
            with pytest.raises(BlockingIOError):
                receiver.sock.recv(1)
        with News(folder, 3) as again:
            two.notify()
            assert again.sock.recv(1) == one.sock.recv(1) == b"!"
    assert list(tmp_path.glob("[12].sock")) == []


def test_a_folder_whose_path_is_too_long_for_a_socket_is_refused(tmp_path: Path) -> None:
    long = tmp_path / ("f" * 110)
    long.mkdir()
    with pytest.raises(StorageError, match="choose a shorter kwire.cluster.dir"):
        News(str(long), 1)


def test_a_node_hears_what_another_one_appends(tmp_path: Path) -> None:
    folder = str(tmp_path / "cluster")
    one, two = (LocalNode.join(folder, node_id, lambda: 0, new_cluster_id="c") for node_id in (1, 2))
    at_once(one.log.append([b"a"], expected_end_offset=0))
    two.sock.settimeout(30)
    assert two.sock.recv(1) == b"!"
    at_once(two.log.refresh())
    assert [value for _, value in at_once(two.log.read(0)).records] == [b"a"]
    with pytest.raises(NodeIdTakenError):
        LocalNode.join(folder, 2, lambda: 0, new_cluster_id="c")
    two.leave()
    again = LocalNode.join(folder, 2, lambda: 0, new_cluster_id="c")
    assert again.log.end_offset == one.log.end_offset
    for node in (one, again):
        node.leave()
