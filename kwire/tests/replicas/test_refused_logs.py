"""Partitions that cannot be created or deleted for want of descriptors: others work, and it is retried."""

from __future__ import annotations

import errno

import pytest
import trio
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from kwire_protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kwire_protocol.messages.delete_topics import DeleteTopicsRequest
from kwire_protocol.records import Record, build_batch, read_header
from kwire_storage.disk.memory_disk import MemoryDisk

from kwire.config.server import load_config
from kwire.metadata.controller.topics.partition_creation import create_partitions
from kwire.metadata.controller.topics.topic_creation import create_topics
from kwire.metadata.controller.topics.topic_deletion import delete_topics
from kwire.node.broker import Broker
from kwire.runtime.clock import SystemClock
from kwire.runtime.futures import at_once

TOPIC = "t"


def refusing(broker: Broker, disk: MemoryDisk, *partitions: int) -> None:
    """Refuses descriptors to these partitions of the topic from now on."""
    folders = tuple(f"{TOPIC}-{index}" for index in partitions)

    def refuse(_: str, path: str) -> None:
        if path.startswith(folders):
            raise OSError(errno.EMFILE, "Too many open files", path)

    disk.before_operation = refuse if partitions else None


def create(broker: Broker, count: int) -> None:
    at_once(broker.metadata.change(create_topics, CreateTopicsRequest([CreatableTopic(TOPIC, count, 1)], 1000)))


def states(broker: Broker) -> list[ErrorCode]:
    """Returns the error of each partition."""
    found = []
    for index in range(len(broker.metadata.image.topics[TOPIC].partitions)):
        try:
            batch = memoryview(bytearray(build_batch([Record(value=b"v")])))
            broker.partitions.find(TOPIC, index).append(batch, read_header(batch), acks=1, now_ms=0)
            found.append(ErrorCode.NONE)
        except KafkaError as error:
            found.append(error.code)
    return found


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


@pytest.fixture
def broker(disk: MemoryDisk) -> Broker:
    return Broker.open(load_config(), disk, SystemClock())


@pytest.mark.parametrize("is_new", [True, False])
def test_a_partition_without_a_descriptor_does_not_keep_the_others_from_being_made(
    broker: Broker, disk: MemoryDisk, is_new: bool
) -> None:
    if not is_new:
        create(broker, 1)
    refusing(broker, disk, 1, 2)
    if is_new:
        create(broker, 4)
    else:
        more = CreatePartitionsRequest([CreatePartitionsTopic(TOPIC, 4, None)], 1000)
        at_once(broker.metadata.change(create_partitions, more))
    refused = ErrorCode.KAFKA_STORAGE_ERROR
    assert states(broker) == [ErrorCode.NONE, refused, refused, ErrorCode.NONE]
    assert broker.log_dirs.online
    refusing(broker, disk, 1)
    with pytest.raises(OSError, match="Too many open files"):
        broker.partitions.make_refused()
    assert states(broker) == [ErrorCode.NONE, refused, ErrorCode.NONE, ErrorCode.NONE]
    refusing(broker, disk)
    broker.partitions.make_refused()
    assert states(broker) == [ErrorCode.NONE] * 4
    broker.close()


def delete(broker: Broker) -> None:
    request = DeleteTopicsRequest(topic_names=[TOPIC])
    (answer,) = at_once(broker.metadata.change(delete_topics, request, version=5)).responses
    assert answer.error_code == ErrorCode.NONE


def test_a_deletion_that_is_refused_is_done_later(broker: Broker, disk: MemoryDisk) -> None:
    create(broker, 2)
    assert states(broker) == [ErrorCode.NONE] * 2
    refusing(broker, disk, 1)
    delete(broker)
    assert broker.log_dirs.online
    with pytest.raises(OSError, match="Too many open files"):
        trio.run(broker.housekeeping.remove_deleted)
    assert [name for name in disk.listdir("") if name.startswith(TOPIC)] == [f"{TOPIC}-1"], "the other one is removed"
    refusing(broker, disk)
    trio.run(broker.housekeeping.remove_deleted)
    assert not [name for name in disk.listdir("") if name.startswith(TOPIC)]
    assert broker.log_dirs.online
    broker.close()


def test_a_new_topic_has_nothing_of_one_whose_deletion_was_refused(broker: Broker, disk: MemoryDisk) -> None:
    create(broker, 2)
    assert states(broker) == [ErrorCode.NONE] * 2
    refusing(broker, disk, 1)
    delete(broker)
    create(broker, 2)
    assert states(broker) == [ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR]
    refusing(broker, disk)
    broker.partitions.make_refused()
    assert states(broker) == [ErrorCode.NONE] * 2
    assert [broker.partitions.find(TOPIC, index).log.log_end_offset for index in range(2)] == [2, 1]
    broker.close()


def test_a_partition_that_is_deleted_meanwhile_is_not_made(broker: Broker, disk: MemoryDisk) -> None:
    refusing(broker, disk, 0)
    create(broker, 1)
    at_once(broker.metadata.change(delete_topics, DeleteTopicsRequest(topic_names=[TOPIC]), version=5))
    refusing(broker, disk)
    broker.partitions.make_refused()
    assert not disk.exists(f"{TOPIC}-0")
    create(broker, 1)
    assert states(broker) == [ErrorCode.NONE]
    broker.close()
