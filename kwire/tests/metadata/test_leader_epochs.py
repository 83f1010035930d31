"""The leader epochs after a start, also of a log with later ones than the metadata: it came from another cluster."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from kwire_protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kwire_protocol.records import Record, build_batch, read_header
from kwire_storage import names
from kwire_storage.checkpoints import encode_epochs
from kwire_storage.disk.faulty_disk import FaultyDisk
from kwire_storage.disk.memory_disk import MemoryDisk

from kwire.config.server import load_config
from kwire.metadata.controller.topics.topic_creation import create_topics
from kwire.metadata.log import FileMetadataLog
from kwire.node.broker import Broker
from kwire.runtime.clock import SystemClock
from kwire.runtime.futures import at_once
from testkit.storage.small_disk import SmallDisk


def opened(disk: MemoryDisk, *settings: str) -> Broker:
    return Broker.open(load_config(settings=["kwire.log.reserve.bytes=0", *settings]), disk, SystemClock())


def epochs(broker: Broker) -> list[int]:
    """Returns them as the metadata and as the partitions have them, which must be the same."""
    registered = [it.leader_epoch for it in broker.metadata.image.topics["t"].partitions]
    assert registered == [broker.partitions.find("t", index).leader().leader_epoch for index in range(len(registered))]
    return registered


def append(broker: Broker) -> None:
    batch = memoryview(bytearray(build_batch([Record(timestamp=0, value=b"x")])))
    broker.partitions.find("t", 1).append(batch, read_header(batch), acks=1, now_ms=0)


def carried_here(disk: MemoryDisk) -> None:
    """Leaves partition 1 of topic t with a log whose latest epoch is 4."""
    broker = opened(disk)
    at_once(broker.metadata.change(create_topics, CreateTopicsRequest([CreatableTopic("t", 2, 1)], 1000)))
    append(broker)
    append(broker)
    broker.close()
    disk.write_atomic("t-1/leader-epoch-checkpoint", encode_epochs([(2, 0), (4, 1)]))


def test_the_epoch_after_the_logs_latest_begins_at_the_start() -> None:
    disk = MemoryDisk()
    carried_here(disk)
    broker = opened(disk)
    assert epochs(broker) == [1, 5]
    append(broker)
    # What is known of the earlier epochs is kept.
    assert broker.partitions.find("t", 1).log.leader_epochs.entries == [(2, 0), (4, 1), (5, 2)]
    broker.close()


@pytest.mark.parametrize("stop", [Broker.close, Broker.abandon])
def test_each_start_begins_the_next_epoch_of_each_partition(stop: Callable[[Broker], None]) -> None:
    disk = MemoryDisk()
    carried_here(disk)
    for begun in range(1, 4):
        broker = opened(disk)
        assert epochs(broker) == [begun, begun + 4]
        append(broker)
        stop(broker)
    broker = opened(disk)
    assert broker.partitions.find("t", 1).log.leader_epochs.entries[-3:] == [(5, 2), (6, 3), (7, 4)]
    broker.close()


def test_a_start_on_a_full_disk_continues_in_the_last_epochs(caplog: pytest.LogCaptureFixture) -> None:
    disk = SmallDisk(1 << 20)
    carried_here(disk)
    opened(disk).close()
    disk.capacity_bytes = disk.used_bytes
    broker = opened(disk)
    assert epochs(broker) == [1, 5]
    assert "the leader epochs stay as they were" in caplog.text
    broker.abandon()
    disk.capacity_bytes = 1 << 20
    broker = opened(disk)
    assert epochs(broker) == [2, 6]
    broker.close()


SHORT_LOG = "metadata.log.max.record.bytes.between.snapshots=1"


def test_starts_that_follow_one_another_do_not_make_the_log_longer() -> None:
    disk = MemoryDisk()
    carried_here(disk)
    for _ in range(3):
        opened(disk, SHORT_LOG).close()
    broker = opened(disk, SHORT_LOG)
    log = broker.metadata.log
    assert isinstance(log, FileMetadataLog)
    assert log.log.log_start_offset == log.end_offset
    assert [parsed for it in disk.listdir(log.log.path) if (parsed := names.parse_metadata_snapshot(it))] == [
        (log.end_offset, 1)
    ]
    assert epochs(broker) == [4, 8]
    broker.close()


class Stop(BaseException):
    pass


def test_after_a_power_cut_at_any_moment_of_a_start_all_partitions_have_the_same_next_epoch() -> None:
    number, is_over = 0, False
    while not is_over:
        disk = FaultyDisk()
        carried_here(disk)
        opened(disk).close()
        left = number

        def stop(operation: str, path: str) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise Stop

        disk.before_operation = stop
        try:
            opened(disk, SHORT_LOG).abandon()
            is_over = True
        except Stop:
            pass
        disk.before_operation = None
        for after in (disk.crash(), disk.kill()):
            broker = opened(after, SHORT_LOG)
            assert epochs(broker) in ([2, 6], [3, 7]), number
            append(broker)
            assert broker.partitions.find("t", 1).log.log_end_offset == 3, number
            broker.close()
        number += 1
    assert number > 20
