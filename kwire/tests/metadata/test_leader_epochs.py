"""A log that knows of later leader epochs than the metadata: it came from another cluster."""

from __future__ import annotations

from kwire_protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kwire_protocol.records import Record, build_batch, read_header
from kwire_storage.checkpoints import encode_epochs
from kwire_storage.disk.memory_disk import MemoryDisk

from kwire.broker import Broker
from kwire.clock import SystemClock
from kwire.config.server import load_config
from kwire.waits import at_once


def opened(disk: MemoryDisk) -> Broker:
    return Broker.open(load_config(), disk, SystemClock())


def epochs(broker: Broker) -> list[int]:
    """As the metadata and as the partitions have them, which must be the same."""
    registered = [it.leader_epoch for it in broker.metadata.image.topics["t"].partitions]
    assert registered == [broker.partitions.find("t", index).leader().leader_epoch for index in range(len(registered))]
    return registered


def append(broker: Broker) -> None:
    batch = memoryview(bytearray(build_batch([Record(timestamp=0, value=b"x")])))
    broker.partitions.find("t", 1).append(batch, read_header(batch), acks=1, now_ms=0)


def carried_here(disk: MemoryDisk) -> None:
    """Leaves partition 1 of topic t with a log whose latest epoch is 4."""
    broker = opened(disk)
    at_once(broker.metadata.create_topics(CreateTopicsRequest([CreatableTopic("t", 2, 1)], 1000)))
    append(broker)
    append(broker)
    broker.close()
    disk.write_atomic("t-1/leader-epoch-checkpoint", encode_epochs([(2, 0), (4, 1)]))


def test_the_epoch_after_the_logs_latest_begins_at_the_start() -> None:
    disk = MemoryDisk()
    carried_here(disk)
    broker = opened(disk)
    assert epochs(broker) == [0, 5]
    append(broker)
    # What is known of the earlier epochs is kept.
    assert broker.partitions.find("t", 1).log.leader_epochs.entries == [(2, 0), (4, 1), (5, 2)]
    broker.close()


def test_later_starts_begin_no_further_epoch() -> None:
    disk = MemoryDisk()
    carried_here(disk)
    for _ in range(2):
        broker = opened(disk)
        assert epochs(broker) == [0, 5]
        before = broker.metadata.log.end_offset
        broker.close()
    broker = opened(disk)
    assert broker.metadata.log.end_offset == before
    broker.close()
