"""Chores: what the disk refuses is tried again, and nothing is written that need not be."""

from __future__ import annotations

import errno
import os
import threading
from contextlib import suppress

import attrs
import pytest
import trio
import trio.testing
from kwire_protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kwire_protocol.messages.delete_topics import DeleteTopicsRequest
from kwire_protocol.records import Record, build_batch, read_header
from kwire_storage.disk.memory_disk import MemoryDisk

from kwire.config.server import load_config
from kwire.metadata.controller.topics.topic_creation import create_topics
from kwire.metadata.controller.topics.topic_deletion import delete_topics
from kwire.node.broker import Broker
from kwire.node.housekeeping import _every
from kwire.runtime.clock import SystemClock
from kwire.runtime.futures import at_once
from kwire.runtime.tasks import TURN_S
from testkit.scenes.folder_scene import failing
from testkit.scenes.partition_files import log_files


def test_a_chore_that_the_disk_refuses_is_tried_again_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    times: list[float] = []

    async def main() -> None:
        with trio.CancelScope() as scope:

            async def chore() -> None:
                times.append(trio.current_time())
                if len(times) == 3:
                    scope.cancel()
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "some-checkpoint")

            await _every(60_000, chore)

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    assert times == [60, 120, 180]
    assert [record.message for record in caplog.records] == [
        "[Errno 28] No space left on device: 'some-checkpoint'; trying again every 60 s"
    ]


def test_the_high_watermark_of_a_lone_replica_is_not_worth_a_sync() -> None:
    disk = MemoryDisk()
    broker = Broker.open(load_config(), disk, SystemClock())
    at_once(broker.metadata.change(create_topics, CreateTopicsRequest([CreatableTopic("t", 1, 1)], 1000)))
    trio.run(broker.housekeeping.write_checkpoints)
    operations: list[tuple[str, str]] = []
    disk.before_operation = lambda operation, path: operations.append((operation, path))

    partition = broker.partitions.find("t", 0)
    batch = memoryview(bytearray(build_batch([Record(timestamp=0, value=b"x")])))
    partition.append(batch, read_header(batch), acks=1, now_ms=0)
    trio.run(broker.housekeeping.write_checkpoints)
    assert [path for _, path in operations if "checkpoint" in path] == []

    broker.close()
    assert broker.log_dirs.metadata.high_watermarks["t", 0] == 1


@attrs.define
class MovingClock(SystemClock):
    at_ms: int = 1_000_000

    def now_ms(self) -> int:
        return self.at_ms


def broker_with(partitions: int, disk: MemoryDisk) -> Broker:
    """Opens a broker whose partitions each have a record in a full segment."""
    broker = Broker.open(load_config(), disk, MovingClock())
    at_once(broker.metadata.change(create_topics, CreateTopicsRequest([CreatableTopic("t", partitions, 1)], 1000)))
    for partition in broker.partitions:
        batch = memoryview(bytearray(build_batch([Record(timestamp=1_000_000, value=b"x")])))
        partition.append(batch, read_header(batch), acks=1, now_ms=1_000_000)
        log_files(partition).roll(1_000_000)
    return broker


def later(broker: Broker, ms: int) -> None:
    assert isinstance(broker.clock, MovingClock)
    broker.clock.at_ms += ms


def test_a_round_of_retention_lets_others_have_their_turn() -> None:
    broker = broker_with(100, MemoryDisk())
    turns = 0

    async def main() -> None:
        async def other() -> None:
            nonlocal turns
            while True:
                await trio.lowlevel.checkpoint()
                turns += 1

        async with trio.open_nursery() as nursery:
            nursery.start_soon(other)
            await trio.lowlevel.checkpoint()
            before = turns
            await broker.housekeeping.apply_retention()
            assert turns - before >= 100 // 16 - 1
            nursery.cancel_scope.cancel()

    class Hurrying(trio.abc.Clock):
        """A clock by which every turn is over."""

        now = 0.0

        def start_clock(self) -> None: ...

        def current_time(self) -> float:
            self.now += TURN_S
            return self.now

        def deadline_to_sleep_time(self, deadline: float) -> float:
            return 0

    trio.run(main, clock=Hurrying())
    broker.close()


def test_others_have_their_turn_between_two_segments_that_are_deleted() -> None:
    # Each needs a sync, and one log may have a thousand.
    broker = broker_with(1, MemoryDisk())
    (partition,) = broker.partitions
    for _ in range(9):
        batch = memoryview(bytearray(build_batch([Record(timestamp=1_000_000, value=b"x")])))
        partition.append(batch, read_header(batch), acks=1, now_ms=1_000_000)
        log_files(partition).roll(1_000_000)
    left: list[int] = []

    async def main() -> None:
        async def other() -> None:
            while True:
                left.append(len(log_files(partition).segments))
                await trio.lowlevel.checkpoint()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(other)
            await trio.lowlevel.checkpoint()
            later(broker, 10**10)
            assert await broker.housekeeping.apply_retention() == 10
            nursery.cancel_scope.cancel()

    trio.run(main)
    # Who is first of two that have a turn is chance: at worst every other state is seen.
    assert len(set(left)) >= 5
    broker.close()


def test_a_topic_that_goes_during_a_round_is_passed_over() -> None:
    broker = broker_with(40, MemoryDisk())

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(broker.housekeeping.apply_retention)
            request = DeleteTopicsRequest(topic_names=["t"])
            await trio.lowlevel.checkpoint()
            at_once(broker.metadata.change(delete_topics, request, version=5))

    later(broker, 10**10)
    trio.run(main)
    broker.close()


def test_files_of_deleted_segments_are_removed_when_their_time_has_come_and_not_on_the_loop() -> None:
    disk = MemoryDisk()
    broker = broker_with(1, disk)
    threads: list[threading.Thread] = []

    def note(operation: str, _path: str) -> None:
        if operation == "remove":
            threads.append(threading.current_thread())

    later(broker, 8 * 24 * 3_600_000)
    assert trio.run(broker.housekeeping.apply_retention) == 1
    disk.before_operation = note
    trio.run(broker.housekeeping.remove_deleted)
    assert threads == []
    later(broker, 60_000)
    trio.run(broker.housekeeping.remove_deleted)
    assert threads
    assert threading.main_thread() not in threads
    assert not [name for name in disk.listdir("t-0") if name.endswith(".deleted")]
    broker.close()


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.ENOTEMPTY])
def test_what_could_not_be_removed_is_removed_the_next_time(code: int) -> None:
    disk = MemoryDisk()
    broker = Broker.open(load_config(), disk, SystemClock())
    at_once(broker.metadata.change(create_topics, CreateTopicsRequest([CreatableTopic("t", 1, 1)], 1000)))
    at_once(broker.metadata.change(delete_topics, DeleteTopicsRequest(topic_names=["t"]), version=5))
    disk.before_operation = failing("remove", "t-0", code)
    with suppress(OSError):
        trio.run(broker.housekeeping.remove_deleted)
    disk.before_operation = None
    assert any(name.endswith("-delete") for name in disk.listdir(""))
    trio.run(broker.housekeeping.remove_deleted)
    assert not any(name.endswith("-delete") for name in disk.listdir(""))
    broker.close()


def test_deleted_files_are_removed_as_soon_as_log_segment_delete_delay_ms_has_passed() -> None:
    disk = MemoryDisk()
    broker = Broker.open(load_config(settings=["log.segment.delete.delay.ms=20"]), disk, SystemClock())
    at_once(broker.metadata.change(create_topics, CreateTopicsRequest([CreatableTopic("t", 1, 1)], 1000)))
    at_once(broker.metadata.change(delete_topics, DeleteTopicsRequest(topic_names=["t"]), version=5))
    assert any(name.endswith("-delete") for name in disk.listdir(""))

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(broker.housekeeping.run)
            with trio.fail_after(10):
                while any(name.endswith("-delete") for name in disk.listdir("")):
                    await trio.sleep(0.005)
            nursery.cancel_scope.cancel()

    trio.run(main)
    broker.close()
