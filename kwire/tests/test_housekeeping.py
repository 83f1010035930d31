"""Chores: what the disk refuses is tried again, and nothing is written that need not be."""

from __future__ import annotations

import errno
import os

import pytest
import trio
import trio.testing
from kwire_protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kwire_protocol.records import Record, build_batch, read_header
from kwire_storage.memory_disk import MemoryDisk

from kwire.broker import Broker
from kwire.clock import SystemClock
from kwire.config import load_config
from kwire.housekeeping import _checkpoints, _every


def test_a_chore_that_the_disk_refuses_is_tried_again_and_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
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
    broker.metadata.create_topics(CreateTopicsRequest([CreatableTopic("t", 1, 1)], 1000))
    trio.run(_checkpoints, broker)
    operations: list[tuple[str, str]] = []
    disk.before_operation = lambda operation, path: operations.append((operation, path))

    partition = broker.partitions.find("t", 0)
    batch = memoryview(bytearray(build_batch([Record(timestamp=0, value=b"x")])))
    partition.append(batch, read_header(batch), acks=1, now_ms=0)
    trio.run(_checkpoints, broker)
    assert [path for _, path in operations if "checkpoint" in path] == []

    broker.close()
    assert broker.folder.high_watermarks["t", 0] == 1
