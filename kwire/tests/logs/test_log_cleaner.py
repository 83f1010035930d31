"""The cleaner of a broker: when a log is dirty enough, what it does to it, and what it leaves alone."""

from __future__ import annotations

import errno
import logging
import os
import threading
import time
from collections.abc import Awaitable, Callable

import attrs
import pytest
import trio
import trio.testing
from kwire_protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kwire_protocol.messages.delete_topics import DeleteTopicsRequest
from kwire_protocol.records import Record, build_batch, iter_records, read_header
from kwire_storage.disk.faulty_disk import FaultyDisk

from kwire.config.server import load_config
from kwire.logs.cleaner import LogCleaner
from kwire.metadata.controller.configs.config_changes import ConfigChange, Operation, Outcome, alter_configs
from kwire.metadata.controller.topics.topic_creation import create_topics
from kwire.metadata.controller.topics.topic_deletion import delete_topics
from kwire.metadata.image import ConfigResourceType
from kwire.node.broker import Broker
from kwire.replicas.partition import Partition
from kwire.runtime.clock import SystemClock
from kwire.runtime.futures import at_once
from testkit.scenes.partition_files import at_hand, log_files

TOPIC = "table"


@attrs.define(eq=False)
class Scene:
    """A broker with one compacted topic, and a clock that stands still."""

    disk: FaultyDisk
    broker: Broker
    cleaner: LogCleaner
    now_ms: int = 1_000_000
    token: trio.lowlevel.TrioToken = attrs.field(factory=trio.lowlevel.current_trio_token)

    def in_loop(self, work: Callable[[], object]) -> None:
        """Calls `work` in the loop's thread, for a worker that waits for it."""
        trio.from_thread.run_sync(work, trio_token=self.token)

    @property
    def partition(self) -> Partition:
        return self.broker.partitions.find(TOPIC, 0)

    @property
    def cleaned(self) -> int:
        return log_files(self.partition).cleaned_offset

    def put(self, *keys: str) -> None:
        """Appends a batch with these keys, and begins a new segment after it."""
        batch = memoryview(
            bytearray(build_batch([Record(0, self.now_ms, key.encode(), os.urandom(20)) for key in keys]))
        )
        self.partition.append(batch, read_header(batch), acks=1, now_ms=self.now_ms)
        log_files(self.partition).roll(self.now_ms)

    def offsets(self) -> list[int]:
        return [record.offset for _, piece in self.partition.log.batches() for record in iter_records(piece.read())]


@attrs.define
class StandingClock(SystemClock):
    """A clock that stands at `at_ms` until a test sets it."""

    at_ms: int = 1_000_000

    def now_ms(self) -> int:
        return self.at_ms


def with_broker(scenario: Callable[[Scene], Awaitable[None]], **settings: str) -> None:
    disk = FaultyDisk()
    broker = Broker.open(load_config(), disk, StandingClock())
    configs = {"cleanup.policy": "compact", **{name.replace("_", "."): value for name, value in settings.items()}}
    at_once(
        broker.metadata.change(
            create_topics,
            CreateTopicsRequest(
                [CreatableTopic(TOPIC, 1, 1, configs=[CreatableTopicConfig(*it) for it in configs.items()])], 1000
            ),
        )
    )

    async def main() -> None:
        await scenario(Scene(disk, broker, broker.cleaner))

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    broker.close()


def test_a_log_is_cleaned_once_its_dirty_part_is_large_enough() -> None:
    async def scenario(scene: Scene) -> None:
        scene.put("a", "b")
        assert await scene.cleaner.clean_all() == 1
        assert scene.cleaned == 2
        scene.put("a")
        assert await scene.cleaner.clean_all() == 0, "a third of it is dirty, and half is required"
        scene.put("a")
        scene.put("a")
        assert await scene.cleaner.clean_all() == 1
        assert scene.offsets() == [1, 4]
        assert scene.cleaned == 5

    with_broker(scenario)


def test_a_cleaning_waits_for_the_flush_that_is_under_way_and_does_not_flush_beside_it() -> None:
    async def scenario(scene: Scene) -> None:
        scene.put("a")
        scene.put("a")
        flush_begun, may_end = threading.Event(), threading.Event()

        def hold(operation: str, path: str) -> None:
            if path.startswith("table-0/leader-epoch-checkpoint") and operation == "rename":
                scene.disk.before_operation = None
                flush_begun.set()
                assert may_end.wait(20)

        scene.disk.before_operation = hold
        async with trio.open_nursery() as nursery:
            nursery.start_soon(scene.broker.flusher.run)
            await trio.to_thread.run_sync(flush_begun.wait, 20)
            cleaned: list[int] = []

            async def clean() -> None:
                cleaned.append(await scene.cleaner.clean_all())
                nursery.cancel_scope.cancel()

            nursery.start_soon(clean)
            await trio.testing.wait_all_tasks_blocked()
            may_end.set()
        assert cleaned == [1]
        assert scene.partition.log.failed is None

    with_broker(scenario)


def test_what_is_dirty_for_too_long_is_cleaned_however_little_it_is() -> None:
    async def scenario(scene: Scene) -> None:
        scene.put("a", "b", "c", "d", "e", "f")
        await scene.cleaner.clean_all()
        scene.put("a")
        clock = scene.broker.clock
        assert isinstance(clock, StandingClock)
        clock.at_ms += 5_000
        assert await scene.cleaner.clean_all() == 0
        clock.at_ms += 1
        assert await scene.cleaner.clean_all() == 1
        assert scene.offsets() == [1, 2, 3, 4, 5, 6]

    with_broker(scenario, max_compaction_lag_ms="5000", segment_ms="1000")


def test_a_topic_that_is_not_compacted_is_left_alone() -> None:
    async def scenario(scene: Scene) -> None:
        scene.put("a")
        scene.put("a")
        assert await scene.cleaner.clean_all() == 0
        assert scene.offsets() == [0, 1]

    with_broker(scenario, cleanup_policy="delete")


def test_where_it_came_to_outlives_a_restart() -> None:
    async def scenario(scene: Scene) -> None:
        scene.put("a", "b")
        await scene.cleaner.clean_all()
        for folder, checkpoints in scene.broker.housekeeping.take_checkpoints():
            folder.write(checkpoints)
        again = Broker.open(load_config(), scene.disk.kill(), StandingClock())
        assert log_files(again.partitions.find(TOPIC, 0)).cleaned_offset == 2
        assert await again.cleaner.clean_all() == 0
        again.close()

    with_broker(scenario)


def test_what_a_cleaning_took_is_no_loss_after_a_kill_and_a_change_of_the_policy() -> None:
    async def scenario(scene: Scene) -> None:
        for _ in range(4):
            scene.put("a")
        assert await scene.cleaner.clean_all() == 1
        no_more = ConfigChange(ConfigResourceType.TOPIC, TOPIC, [("cleanup.policy", Operation.SET, "delete")])
        assert at_once(scene.broker.metadata.change(alter_configs, [no_more], validate_only=False)) == [Outcome()]
        again = Broker.open(load_config(), scene.disk.kill(), StandingClock())
        partition = again.partitions.find(TOPIC, 0)
        assert log_files(partition).segments[0].size == 0, "there is a segment of which nothing is left"
        read = partition.read(0, max_bytes=1000, max_offset=partition.high_watermark, min_one_batch=True)
        assert at_hand(read).base_offset == 3
        assert log_files(partition).damage == []
        again.log_dirs.abandon()

    with_broker(scenario, index_interval_bytes="0", segment_index_bytes="24")


def test_a_damaged_log_is_named_once_and_then_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(scene: Scene) -> None:
        scene.put("a")
        scene.put("a")
        path = log_files(scene.partition).segments[0].path + ".log"
        content = bytearray(scene.disk.read_bytes(path))
        content[-1] ^= 1
        scene.disk.write_bytes(path, bytes(content))
        await scene.cleaner.clean_all()
        await scene.cleaner.clean_all()
        assert [record.levelno for record in caplog.records].count(logging.ERROR) == 1
        assert (
            "table-0 is not compacted any more, since it is damaged: table-0/00000000000000000000.log at 0:"
            in caplog.text
        )
        assert scene.cleaned == 0
        scene.put("a")
        assert len(log_files(scene.partition).segments) == 4

    with_broker(scenario)


def test_a_full_disk_leaves_the_log_as_it_was_and_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(scene: Scene) -> None:
        scene.put("a")
        scene.put("a")
        before = scene.offsets()

        def refuse(operation: str, path: str) -> None:
            if operation == "append" and path.endswith(".cleaned"):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

        scene.disk.before_operation = refuse
        for _ in range(3):
            assert await scene.cleaner.clean_all() == 0
        assert caplog.text.count("table-0 could not be compacted, which is tried again: [Errno 28] No space left") == 1
        scene.disk.before_operation = None
        assert scene.offsets() == before
        assert not [it for it in scene.disk.listdir("table-0") if it.endswith((".cleaned", ".swap"))]
        assert await scene.cleaner.clean_all() == 1
        assert scene.offsets() == [1]

    with_broker(scenario)


def test_a_sync_that_fails_while_files_are_exchanged_takes_no_more_appends_and_loses_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(scene: Scene) -> None:
        scene.put("a", "b")
        scene.put("a")
        syncs = 0

        def refuse(operation: str, path: str) -> None:
            nonlocal syncs
            syncs += operation == "sync_dir" and path == "table-0"
            if (
                syncs == 5
            ):  # a flush, what was there, what was written, what is about to happen, and now what has happened
                raise OSError(errno.EIO, os.strerror(errno.EIO), path)

        partition = scene.partition
        scene.disk.before_operation = refuse
        assert await scene.cleaner.clean_all() == 0
        assert "is out of service" in caplog.text
        scene.disk.before_operation = None
        assert partition.log.failed is not None
        again = Broker.open(load_config(), scene.disk.kill(), StandingClock())
        log = again.partitions.find(TOPIC, 0).log
        assert [record.offset for _, piece in log.batches() for record in iter_records(piece.read())] == [1, 2]
        again.log_dirs.abandon()

    with_broker(scenario)


def test_a_topic_that_is_deleted_meanwhile_stays_deleted() -> None:
    async def scenario(scene: Scene) -> None:
        scene.put("a")
        scene.put("a")

        def delete(operation: str, path: str) -> None:
            if operation == "append" and path.endswith(".cleaned"):
                scene.disk.before_operation = None
                request = DeleteTopicsRequest(topic_names=[TOPIC])
                scene.in_loop(lambda: at_once(scene.broker.metadata.change(delete_topics, request, version=5)))

        scene.disk.before_operation = delete
        await scene.cleaner.clean_all()
        assert TOPIC not in scene.broker.partitions.by_name
        await scene.broker.housekeeping.remove_deleted()
        assert not [name for name in scene.disk.listdir("") if name.startswith("table")]

    with_broker(scenario)


@pytest.mark.parametrize(
    ("moment", "is_of"),
    [("append", ".cleaned"), ("sync", ".cleaned"), ("sync_dir", "table-0"), ("second sync_dir", "table-0")],
    ids=["the first file is begun", "it is whole", "all are whole", "the files are about to be exchanged"],
)
def test_a_topic_that_is_made_again_under_the_same_name_meanwhile_keeps_what_it_has(moment: str, is_of: str) -> None:
    async def scenario(scene: Scene) -> None:
        for _ in range(4):
            scene.put("a")

        def make_again() -> None:
            metadata = scene.broker.metadata
            at_once(metadata.change(delete_topics, DeleteTopicsRequest(topic_names=[TOPIC]), version=5))
            compacted = CreatableTopic(TOPIC, 1, 1, configs=[CreatableTopicConfig("cleanup.policy", "compact")])
            at_once(metadata.change(create_topics, CreateTopicsRequest([compacted], 1000)))
            for _ in range(3):
                scene.put("b")

        seen: list[str] = []

        def hook(operation: str, path: str) -> None:
            if path.endswith(".cleaned") or seen:
                seen.append(operation)
            is_second = moment.startswith("second") and seen.count("sync_dir") == 2
            if seen and path.endswith(is_of) and (operation == moment or is_second):
                scene.disk.before_operation = None
                scene.in_loop(make_again)
                seen.append("made again")

        scene.disk.before_operation = hook
        await scene.cleaner.clean_all()
        assert "made again" in seen
        again = Broker.open(load_config(), scene.disk.kill(), StandingClock())
        log = again.partitions.find(TOPIC, 0).log
        kept = [record for _, piece in log.batches() for record in iter_records(piece.read())]
        assert [(record.key, record.offset) for record in kept][-1] == (b"b", 2)
        assert {record.key for record in kept} == {b"b"}
        again.log_dirs.abandon()

    with_broker(scenario)


def test_a_stop_ends_a_cleaning_and_leaves_nothing_of_it() -> None:
    async def scenario(scene: Scene) -> None:
        for _ in range(20):
            scene.put("a")
        before = scene.offsets()
        with trio.CancelScope() as scope:

            def stop(operation: str, path: str) -> None:
                if path.endswith(".cleaned"):
                    scene.disk.before_operation = None
                    scene.in_loop(scope.cancel)

            scene.disk.before_operation = stop
            await scene.cleaner.clean_all()
        assert scope.cancelled_caught
        assert scene.offsets() == before
        assert not [it for it in scene.disk.listdir("table-0") if it.endswith((".cleaned", ".swap"))]

    with_broker(scenario)


def test_one_that_the_disk_has_no_room_for_does_not_keep_the_others_from_being_cleaned() -> None:
    async def scenario(scene: Scene) -> None:
        create = CreateTopicsRequest(
            [CreatableTopic("other", 1, 1, configs=[CreatableTopicConfig("cleanup.policy", "compact")])], 1000
        )
        at_once(scene.broker.metadata.change(create_topics, create))
        scene.put("a")
        scene.put("a")
        other = scene.broker.partitions.find("other", 0)
        for key in (b"a", b"b", b"a"):
            batch = memoryview(bytearray(build_batch([Record(0, scene.now_ms, key, b"1")])))
            other.append(batch, read_header(batch), acks=1, now_ms=scene.now_ms)
            log_files(other).roll(scene.now_ms)

        def refuse(operation: str, path: str) -> None:
            if operation == "append" and path.startswith("table") and path.endswith(".cleaned"):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

        scene.disk.before_operation = refuse
        assert await scene.cleaner.clean_all() == 1
        assert (scene.cleaned, log_files(other).cleaned_offset) == (0, 3)
        scene.disk.before_operation = None

    with_broker(scenario)


def test_new_settings_are_acted_on_at_once() -> None:
    async def scenario(scene: Scene) -> None:
        scene.put("a")
        scene.put("a")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(scene.cleaner.run)
            await trio.sleep(1)
            assert scene.cleaned == 0
            set_backoff = ConfigChange(
                ConfigResourceType.BROKER, "", [("log.cleaner.backoff.ms", Operation.SET, "3600000")]
            )
            assert at_once(scene.broker.metadata.change(alter_configs, [set_backoff], validate_only=False)) == [
                Outcome()
            ]
            with trio.fail_after(3000):
                while scene.cleaned == 0:
                    await trio.sleep(0.1)
            nursery.cancel_scope.cancel()

    with_broker(scenario)


def test_a_cleaning_that_is_held_back_ends_at_once_when_it_is_to() -> None:
    async def scenario(scene: Scene) -> None:
        for _ in range(3):
            scene.put("a")
        slow = ConfigChange(
            ConfigResourceType.BROKER, "", [("log.cleaner.io.max.bytes.per.second", Operation.SET, "1")]
        )
        assert at_once(scene.broker.metadata.change(alter_configs, [slow], validate_only=False)) == [Outcome()]
        with trio.move_on_after(1) as scope:
            await scene.cleaner.clean_all()
        assert scope.cancelled_caught
        assert scene.offsets() == [0, 1, 2]

    began = time.monotonic()
    with_broker(scenario)
    assert time.monotonic() - began < 60, "at a byte a second a batch alone takes longer"
