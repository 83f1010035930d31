"""Flushes in worker threads: their order, shared fsyncs, and the effect of a disk that fails."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Awaitable, Callable

import pytest
import trio
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.records import Record, build_batch, read_header
from kwire_storage.config import LogConfig
from kwire_storage.log.log import Log
from trio.testing import MockClock, wait_all_tasks_blocked

from kwire.replicas.flusher import FLUSH_THREADS, RETRY_MS, Flusher
from kwire.replicas.partition import Partition
from kwire.replicas.roles import role_of
from kwire.replicas.validation import TopicRules
from kwire.runtime.futures import Future
from testkit.basics.futures import acknowledgement, value_of
from testkit.scenes.partition_files import log_files
from testkit.storage.slow_disk import DEADLINE_S, SlowDisk

EACH = LogConfig(flush_messages=1)


class Scene:
    def __init__(self) -> None:
        self.disk = SlowDisk()
        self.failed: list[OSError] = []
        self.flusher = Flusher()

    def partition(self, index: int = 0, config: LogConfig = EACH) -> Partition:
        log = Log.open(self.disk, f"t-{index}", config, now_ms=0, clean_shutdown=True)
        log.durability.on_failed = self.failed.append
        partition = Partition("t", bytes(16), index, log, TopicRules(), self.flusher)
        partition.take_role(role_of(1, leader_id=1, leader_epoch=0, replicas=[1], isr=[1]))
        return partition


def append(partition: Partition) -> Future[KafkaError | None]:
    batch = memoryview(bytearray(build_batch([Record(0, 0, None, b"x")])))
    result = partition.append(batch, read_header(batch), acks=1, now_ms=0)
    return acknowledgement(partition, result.last_offset)


async def value_when_set(future: Future[KafkaError | None]) -> KafkaError | None:
    """Waits until the future is set, and returns its value."""
    if not future.is_set:
        event = trio.Event()
        future.when_set(event.set)
        await event.wait()
    return value_of(future)


def run(scenario: Callable[[Scene], Awaitable[None]], *, clock: MockClock | None = None) -> None:
    async def main() -> None:
        scene = Scene()
        with trio.fail_after(DEADLINE_S * 1000 if clock else DEADLINE_S):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(scene.flusher.run)
                await scenario(scene)
                nursery.cancel_scope.cancel()

    trio.run(main, clock=clock)


def test_all_that_is_appended_during_one_fsync_shares_the_next() -> None:
    async def scenario(scene: Scene) -> None:
        partition = scene.partition()
        first = append(partition)
        await trio.to_thread.run_sync(scene.disk.wait_for_sync)
        others = [append(partition) for _ in range(50)]
        assert not first.is_set
        scene.disk.let_sync_end()
        assert await value_when_set(first) is None
        await trio.to_thread.run_sync(scene.disk.wait_for_sync)
        assert not any(future.is_set for future in others)
        scene.disk.let_sync_end()
        assert [await value_when_set(future) for future in others] == [None] * 50
        assert len(scene.disk.syncs) == 2
        assert partition.high_watermark == 51

    run(scenario)


def test_the_loop_continues_and_other_logs_are_flushed_while_one_fsync_takes_its_time() -> None:
    async def scenario(scene: Scene) -> None:
        futures = [append(scene.partition(index)) for index in range(3)]
        for _ in futures:
            await trio.to_thread.run_sync(scene.disk.wait_for_sync)
        assert not any(future.is_set for future in futures)
        for _ in futures:
            scene.disk.let_sync_end()
        assert [await value_when_set(future) for future in futures] == [None] * 3

    run(scenario)


def test_a_flush_that_waits_for_its_turn_has_not_begun_and_so_holds_no_files() -> None:
    async def scenario(scene: Scene) -> None:
        partitions = [scene.partition(index) for index in range(FLUSH_THREADS + 5)]
        for partition in partitions:
            append(partition)
        for _ in range(FLUSH_THREADS):
            await trio.to_thread.run_sync(scene.disk.wait_for_sync)
        await wait_all_tasks_blocked()
        # What comes while a flush waits for its turn is part of it.
        begun = {path.partition("/")[0] for path in scene.disk.syncs}
        futures = [append(partition) for partition in partitions if partition.log.path not in begun]
        scene.disk.holds = False
        for _ in range(FLUSH_THREADS):
            scene.disk.let_sync_end()
        assert [await value_when_set(future) for future in futures] == [None] * 5
        assert len(scene.disk.syncs) == len(partitions)

    run(scenario)


def test_a_log_has_one_flush_at_a_time() -> None:
    async def scenario(scene: Scene) -> None:
        busy, other = scene.partition(0), scene.partition(1)
        append(busy)
        await trio.to_thread.run_sync(scene.disk.wait_for_sync)
        append(busy)
        append(other)
        await trio.to_thread.run_sync(scene.disk.wait_for_sync)
        assert [path[:3] for path in scene.disk.syncs] == ["t-0", "t-1"]
        await wait_all_tasks_blocked()
        assert len(scene.disk.syncs) == 2
        for _ in range(3):
            scene.disk.let_sync_end()

    run(scenario)


def test_a_failed_fsync_is_reported_to_all_who_waited_and_is_never_tried_again() -> None:
    async def scenario(scene: Scene) -> None:
        partition = scene.partition()
        scene.disk.errors["sync"] = [errno.EIO]
        first = append(partition)
        await trio.to_thread.run_sync(scene.disk.wait_for_sync)
        second = append(partition)
        scene.disk.let_sync_end()
        for future in (first, second):
            error = await value_when_set(future)
            assert error is not None
            assert error.code == ErrorCode.KAFKA_STORAGE_ERROR
            assert "Input/output error" in str(error.message)
        assert [error.errno for error in scene.failed] == [errno.EIO]
        assert partition.high_watermark == 0
        scene.disk.holds = False
        scene.flusher.flush_soon(partition.flush_gate)
        await wait_all_tasks_blocked()
        assert len(scene.disk.syncs) == 1
        with pytest.raises(KafkaError) as refused:
            append(partition)
        assert refused.value.code == ErrorCode.KAFKA_STORAGE_ERROR

    run(scenario)


def test_flush_ms_flushes_what_nobody_waits_for() -> None:
    async def scenario(scene: Scene) -> None:
        scene.disk.holds = False
        partition = scene.partition(config=LogConfig(flush_ms=5000))
        assert await value_when_set(append(partition)) is None
        await trio.sleep(4.9)
        assert scene.disk.syncs == []
        await trio.sleep(0.2)
        await _until(lambda: partition.log.recovery_point == 1)
        await trio.sleep(3600)
        assert len(scene.disk.syncs) == 1

    run(scenario, clock=MockClock(autojump_threshold=0.01))


def test_a_clock_that_finds_everything_flushed_does_not_restart() -> None:
    async def scenario(scene: Scene) -> None:
        scene.disk.holds = False
        partition = scene.partition(config=LogConfig(flush_messages=2, flush_ms=5000))
        assert await value_when_set(append(partition)) is None
        assert await value_when_set(append(partition)) is None
        assert len(scene.disk.syncs) == 1
        await trio.sleep(3600)
        assert len(scene.disk.syncs) == 1
        assert scene.flusher._later == []

    run(scenario, clock=MockClock(autojump_threshold=0.01))


def test_what_fails_before_the_fsync_is_tried_again_until_it_succeeds(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(scene: Scene) -> None:
        scene.disk.holds = False
        partition = scene.partition()
        full = [errno.ENOSPC] * 3
        before = scene.disk.before_operation
        assert before is not None

        def no_room(operation: str, path: str) -> None:
            if "leader-epoch-checkpoint" in path and full:
                raise OSError(full.pop(), os.strerror(errno.ENOSPC), path)
            before(operation, path)

        scene.disk.before_operation = no_room
        error = await value_when_set(append(partition))
        assert error is not None
        assert error.code == ErrorCode.KAFKA_STORAGE_ERROR
        assert partition.high_watermark == 0
        while full:
            left = len(full)
            await trio.sleep(RETRY_MS / 1000 + 0.1)
            await _until(lambda: len(full) < left or partition.high_watermark == 1)  # noqa: B023
        await trio.sleep(RETRY_MS / 1000 + 0.1)
        await _until(lambda: partition.high_watermark == 1)
        assert scene.failed == []
        assert await value_when_set(append(partition)) is None

    run(scenario, clock=MockClock(autojump_threshold=0.01))
    messages = [record.message for record in caplog.records if "cannot flush" in record.message]
    assert len(messages) == 1, "once, however often it is tried"
    assert "t-0: [Errno 28] No space left on device" in messages[0]
    assert "trying again every 1000 ms" in messages[0]


def test_a_topic_may_be_deleted_while_it_is_flushed() -> None:
    async def scenario(scene: Scene) -> None:
        partition = scene.partition()
        future = append(partition)
        await trio.to_thread.run_sync(scene.disk.wait_for_sync)
        partition.close()
        log_files(partition).close(clean=False)
        scene.disk.rename("t-0", "t-0.gone-delete")
        scene.disk.let_sync_end()
        error = await value_when_set(future)
        assert error is not None
        assert error.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        await wait_all_tasks_blocked()
        scene.flusher.flush_soon(partition.flush_gate)
        await wait_all_tasks_blocked()
        assert scene.failed == []
        assert scene.disk.listdir("") == ["t-0.gone-delete"]

    run(scenario)


def test_timers_of_a_busy_partition_do_not_pile_up() -> None:
    async def scenario(scene: Scene) -> None:
        scene.disk.holds = False
        partition = scene.partition(config=LogConfig(flush_messages=2, flush_ms=3_600_000))
        for _ in range(100):
            assert await value_when_set(append(partition)) is None
        await wait_all_tasks_blocked()
        assert len(scene.flusher._later) == 1

    run(scenario)


async def _until(condition: Callable[[], bool]) -> None:
    """Waits in real time: a flush is in a worker thread, and the mock clock does not measure its end."""
    while not condition():
        await trio.to_thread.run_sync(threading.Event().wait, 0.001)


def test_a_flush_that_somebody_waits_for_begins_when_the_one_under_way_has_ended() -> None:
    async def scenario(scene: Scene) -> None:
        partition = scene.partition()
        append(partition)
        await trio.to_thread.run_sync(scene.disk.wait_for_sync)
        last = append(partition)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(scene.flusher.flush, partition.flush_gate)
            await wait_all_tasks_blocked()
            assert len(scene.disk.syncs) == 1
            scene.disk.holds = False
            scene.disk.let_sync_end()
        assert partition.log.recovery_point == 2
        assert await value_when_set(last) is None

    run(scenario)


def test_a_flush_that_is_requested_while_somebody_waits_for_another_runs_after_it() -> None:
    async def scenario(scene: Scene) -> None:
        partition = scene.partition()
        append(partition)
        scene.disk.holds = False
        await scene.flusher.flush(partition.flush_gate)
        scene.disk.holds = True
        async with trio.open_nursery() as nursery:
            append(partition)
            nursery.start_soon(scene.flusher.flush, partition.flush_gate)
            await trio.to_thread.run_sync(scene.disk.wait_for_sync)
            later = append(partition)
            scene.disk.holds = False
            scene.disk.let_sync_end()
        assert await value_when_set(later) is None

    run(scenario)
