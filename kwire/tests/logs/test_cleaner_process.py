"""The process that writes segments: its work, its end, and what becomes of it when the broker dies."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import attrs
import pytest
import trio
from kwire_protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kwire_protocol.messages.delete_topics import DeleteTopicsRequest
from kwire_protocol.records import Record, build_batch, iter_records, read_header
from kwire_storage import names
from kwire_storage.directory.log_dir import LogDir
from kwire_storage.disk.files import RealDisk

from kwire.config.server import load_config
from kwire.logs import cleaner as log_cleaner
from kwire.logs.cleaner import LogCleaner
from kwire.metadata.controller.configs.config_changes import ConfigChange, Operation, Outcome, alter_configs
from kwire.metadata.controller.topics.topic_creation import create_topics
from kwire.metadata.controller.topics.topic_deletion import delete_topics
from kwire.metadata.image import ConfigResourceType
from kwire.node.broker import Broker
from kwire.replicas.partition import Partition
from kwire.runtime.clock import SystemClock
from kwire.runtime.futures import at_once
from testkit.scenes.partition_files import log_files

TOPIC = "table"
VALUE = b"v" * 5000


@attrs.define(eq=False)
class Scene:
    """A broker on real files, with one compacted topic."""

    folder: Path
    broker: Broker
    cleaner: LogCleaner

    @property
    def partition(self) -> Partition:
        return self.broker.partitions.find(TOPIC, 0)

    def pid(self) -> int | None:
        process = self.cleaner._process._process
        return None if process is None else process.pid

    def create_topic(self) -> None:
        topic = CreatableTopic(TOPIC, 1, 1, configs=[CreatableTopicConfig("cleanup.policy", "compact")])
        at_once(self.broker.metadata.change(create_topics, CreateTopicsRequest([topic], 1000)))

    def put(self, *keys: str) -> None:
        """Appends a batch with these keys, and begins a new segment after it."""
        batch = memoryview(bytearray(build_batch([Record(0, 1000, key.encode(), VALUE) for key in keys])))
        self.partition.append(batch, read_header(batch), acks=1, now_ms=1000)
        log_files(self.partition).roll(1000)

    def offsets(self) -> list[int]:
        return [record.offset for _, piece in self.partition.log.batches() for record in iter_records(piece.read())]

    def set_rate(self, bytes_per_s: str) -> None:
        change = ("log.cleaner.io.max.bytes.per.second", Operation.SET, bytes_per_s)
        assert at_once(
            self.broker.metadata.change(
                alter_configs, [ConfigChange(ConfigResourceType.BROKER, "", [change])], validate_only=False
            )
        ) == [Outcome()]

    def leftovers(self) -> list[str]:
        return [it.name for it in self.folder.rglob("*") if it.name.endswith((names.CLEANED, names.SWAP))]

    async def until_it_works(self) -> None:
        with trio.fail_after(30):
            while not RealDisk(self.folder).is_locked(names.CLEANER_LOCK):
                await trio.sleep(0.01)

    async def until_it_writes(self) -> None:
        """Waits until it writes, at a limit that makes it write for a while."""
        with trio.fail_after(30):
            while not self.leftovers():
                await trio.sleep(0.01)


def with_broker(folder: Path, scenario: Callable[[Scene], Awaitable[None]]) -> None:
    broker = Broker.open(load_config(), RealDisk(folder), SystemClock())

    async def main() -> None:
        scene = Scene(folder, broker, broker.cleaner)
        scene.create_topic()
        try:
            await scenario(scene)
        finally:
            await scene.cleaner.end_process()

    trio.run(main)
    broker.close()


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_segments_are_written_by_one_process_cleaning_after_cleaning(tmp_path: Path) -> None:
    async def scenario(scene: Scene) -> None:
        scene.put("a", "b")
        scene.put("a")
        assert scene.pid() is None
        assert await scene.cleaner.clean_all() == 1
        assert scene.offsets() == [1, 2]
        pid = scene.pid()
        assert pid is not None
        assert is_alive(pid)
        for _ in range(3):
            scene.put("a")
        assert await scene.cleaner.clean_all() == 1
        assert scene.offsets() == [1, 5]
        assert scene.pid() == pid
        assert scene.leftovers() == []
        await scene.cleaner.end_process()
        assert not is_alive(pid)

    with_broker(tmp_path, scenario)


def test_a_process_that_is_killed_is_logged_and_the_next_cleaning_has_a_new_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(scene: Scene) -> None:
        for _ in range(4):
            scene.put("a")
        scene.set_rate("10000")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(scene.cleaner.clean_all)
            await scene.until_it_writes()
            pid = scene.pid()
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
        assert "table-0 could not be compacted, which is tried again: the process that writes segments failed: " in (
            caplog.text
        )
        assert "it was killed by signal 9" in caplog.text
        assert scene.leftovers() == []
        assert scene.offsets() == [0, 1, 2, 3]
        scene.set_rate("1e9")
        assert await scene.cleaner.clean_all() == 1
        assert scene.offsets() == [3]

    with_broker(tmp_path, scenario)


def test_a_process_that_fails_logs_the_reason(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [])

    async def scenario(scene: Scene) -> None:
        for _ in range(2):
            scene.put("a")
        assert await scene.cleaner.clean_all() == 0
        assert "it ended with exit code 1: " in caplog.text
        assert "No module named" in caplog.text
        assert await scene.cleaner.clean_all() == 0
        assert [record.levelno for record in caplog.records].count(logging.ERROR) == 1

    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    monkeypatch.setattr(sys, "executable", "/usr/bin/python3" if Path("/usr/bin/python3").exists() else sys.executable)
    with_broker(tmp_path / "data", scenario)


def test_a_damaged_log_is_named_as_where_a_thread_cleans_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(scene: Scene) -> None:
        scene.put("a")
        scene.put("a")
        path = tmp_path / (log_files(scene.partition).segments[0].path + ".log")
        content = bytearray(path.read_bytes())
        content[-1] ^= 1
        path.write_bytes(content)
        assert await scene.cleaner.clean_all() == 0
        assert "is damaged: table-0/00000000000000000000.log at 0: CORRUPT_MESSAGE: the stored CRC" in caplog.text
        assert scene.pid() is not None, "it is well"

    with_broker(tmp_path, scenario)


def test_a_new_limit_is_followed_in_the_middle_of_a_cleaning(tmp_path: Path) -> None:
    async def scenario(scene: Scene) -> None:
        for _ in range(10):
            scene.put("a")
        scene.broker.metadata.watch(scene.cleaner._follow)
        scene.set_rate("100")
        with trio.fail_after(60):  # at the old limit it takes a quarter of an hour
            async with trio.open_nursery() as nursery:
                nursery.start_soon(scene.cleaner.clean_all)
                await scene.until_it_works()
                scene.set_rate("1e9")
        assert scene.offsets() == [9]

    with_broker(tmp_path, scenario)


def test_a_stop_ends_the_process_and_leaves_nothing_of_it(tmp_path: Path) -> None:
    async def scenario(scene: Scene) -> None:
        for _ in range(4):
            scene.put("a")
        scene.set_rate("10000")
        pid = None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(scene.cleaner.clean_all)
            await scene.until_it_writes()
            pid = scene.pid()
            nursery.cancel_scope.cancel()
        assert pid is not None
        assert not is_alive(pid)
        assert scene.leftovers() == []
        assert scene.offsets() == [0, 1, 2, 3]

    with_broker(tmp_path, scenario)


def test_a_topic_of_the_same_name_gets_nothing_of_the_one_that_is_being_cleaned(tmp_path: Path) -> None:
    async def scenario(scene: Scene) -> None:
        for _ in range(6):
            scene.put("a")
        scene.set_rate("15000")
        scene.broker.metadata.watch(scene.cleaner._follow)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(scene.cleaner.clean_all)
            await scene.until_it_writes()
            at_once(scene.broker.metadata.change(delete_topics, DeleteTopicsRequest(topic_names=[TOPIC]), version=5))
            scene.create_topic()
            scene.put("b")
            scene.set_rate("1e9")
        assert scene.offsets() == [0]
        assert not [it for it in scene.leftovers() if (tmp_path / f"{TOPIC}-0" / it).exists()]

    with_broker(tmp_path, scenario)


def test_a_deletion_ends_the_cleaning_and_its_folder_is_removed_after_that(tmp_path: Path) -> None:
    """Removal would find it filling up again, and take that for another process's doing."""

    def doomed() -> list[str]:
        return [it.name for it in tmp_path.iterdir() if names.is_deleted_folder(it.name)]

    async def scenario(scene: Scene) -> None:
        for _ in range(6):
            scene.put("a")
        scene.set_rate("15000")
        scene.broker.metadata.watch(scene.cleaner._follow)
        with trio.fail_after(20):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(scene.cleaner.clean_all)
                await scene.until_it_writes()
                scene.set_rate("1")
                at_once(
                    scene.broker.metadata.change(delete_topics, DeleteTopicsRequest(topic_names=[TOPIC]), version=5)
                )
                await scene.broker.housekeeping.remove_deleted()
                assert len(doomed()) == 1
                assert scene.leftovers() != []
        await scene.broker.housekeeping.remove_deleted()
        assert doomed() == []

    with_broker(tmp_path, scenario)


def test_a_process_without_work_ends_and_work_starts_it_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_cleaner, "IDLE_S", 0.05)

    async def scenario(scene: Scene) -> None:
        change = ("log.cleaner.backoff.ms", Operation.SET, "300")
        at_once(
            scene.broker.metadata.change(
                alter_configs, [ConfigChange(ConfigResourceType.BROKER, "", [change])], validate_only=False
            )
        )
        async with trio.open_nursery() as nursery:
            nursery.start_soon(scene.cleaner.run)
            seen = []
            for number in range(2):
                scene.put("a")
                scene.put("a")
                with trio.fail_after(30):
                    while (pid := scene.pid()) is None:
                        await trio.sleep(0.01)
                    seen.append(pid)
                    while scene.pid() is not None:
                        await trio.sleep(0.01)
                assert scene.offsets() == [2 * number + 1]
            nursery.cancel_scope.cancel()
        assert seen[0] != seen[1]
        assert not any(map(is_alive, seen))

    with_broker(tmp_path, scenario)


BROKER = """
import sys, trio
from pathlib import Path
from kwire.tests.logs.test_cleaner_process import Scene, with_broker

async def scenario(scene):
    for _ in range(20):
        scene.put("a")
    scene.set_rate("1000")  # It takes minutes.
    async with trio.open_nursery() as nursery:
        nursery.start_soon(scene.cleaner.clean_all)
        await scene.until_it_works()
        print(scene.pid(), flush=True)

with_broker(Path(sys.argv[1]), scenario)
"""


def killed_while_it_cleans(folder: Path) -> tuple[int, subprocess.Popen[str]]:
    """Returns the pid of a broker's cleaner process, and the broker, which can be killed."""
    broker = subprocess.Popen([sys.executable, "-c", BROKER, str(folder)], stdout=subprocess.PIPE, text=True)
    assert broker.stdout is not None
    return int(broker.stdout.readline()), broker


def kill(broker: subprocess.Popen[str]) -> None:
    broker.kill()
    broker.communicate()


def wait_for_end(pid: int) -> None:
    until = time.monotonic() + 30
    while is_alive(pid):
        assert time.monotonic() < until
        time.sleep(0.01)


def test_the_process_ends_when_its_broker_is_killed_and_the_next_one_cleans(tmp_path: Path) -> None:
    pid, broker = killed_while_it_cleans(tmp_path)
    assert RealDisk(tmp_path).is_locked(names.CLEANER_LOCK)
    kill(broker)
    wait_for_end(pid)

    async def scenario(scene: Scene) -> None:
        assert scene.leftovers() == []
        scene.set_rate("1e9")
        assert await scene.cleaner.clean_all() == 1
        assert scene.offsets() == [19]

    with_broker(tmp_path, scenario)


def test_a_broker_waits_for_the_process_of_the_one_that_was_killed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    disk = RealDisk(tmp_path)
    lock = disk.lock(names.CLEANER_LOCK)  # as the process does while it works
    opened = threading.Event()

    def open_folder() -> None:
        folder = LogDir.open(disk, cluster_id="c", node_id=1, directory_id=bytes(16))
        opened.set()
        folder.abandon()

    opening = threading.Thread(target=open_folder)
    opening.start()
    try:
        assert not opened.wait(0.3)
        assert "waiting until the cleaner of the broker that was killed has ended" in caplog.text
    finally:
        lock.release()
    opening.join(30)
    assert opened.is_set()
