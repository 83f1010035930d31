"""The partitions of a node: those with a log here, and folders that are as a crash left them."""

from __future__ import annotations

import pytest
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kwire_storage.disk.memory_disk import MemoryDisk

from kwire.config.server import load_config
from kwire.metadata.controller.topics.topic_creation import create_topics
from kwire.metadata.image import Changes, PartitionRegistration, TopicImage
from kwire.node.broker import Broker
from kwire.replicas.roles import Follower, Leader, NotLeaderError
from kwire.replicas.table import TopicRef
from kwire.runtime.clock import SystemClock
from kwire.runtime.futures import at_once
from testkit.scenes.folder_scene import append


@pytest.mark.parametrize("left", [None, b"", bytes(53)], ids=["missing", "empty", "zeros"])
def test_a_broker_that_died_while_it_created_a_partition_starts_and_finishes_it(left: bytes | None) -> None:
    """The folder is there, and the file with its topic's id is not, or has nothing in it yet."""
    disk = MemoryDisk()
    broker = Broker.open(load_config(), disk, SystemClock())
    at_once(broker.metadata.change(create_topics, CreateTopicsRequest([CreatableTopic("t", 1, 1)], 1000)))
    topic_id = broker.metadata.image.topics["t"].topic_id
    broker.log_dirs.metadata.abandon()
    if left is None:
        disk.remove("t-0/partition.metadata")
    else:
        disk.write_bytes("t-0/partition.metadata", left)
    again = Broker.open(load_config(), disk, SystemClock())
    assert again.log_dirs.metadata.topic_id("t", 0) == topic_id
    assert again.partitions.find("t", 0).topic_id == topic_id
    again.close()


TOPIC_ID = bytes(15) + b"t"


def registered(leader: int, *replicas: int, epoch: int = 0) -> PartitionRegistration:
    return PartitionRegistration(leader, epoch, replicas, replicas, 0)


def test_a_log_is_there_exactly_where_this_node_holds_a_replica() -> None:
    disk = MemoryDisk()
    broker = Broker.open(load_config(), disk, SystemClock())
    topic = TopicImage("t", TOPIC_ID, [registered(1, 1, 2), registered(2, 2, 1), registered(3, 2, 3, epoch=7)])
    at_once(broker.partitions.apply(Changes(topics_created=[topic])))
    assert [(type(it.role), it.index) for it in broker.partitions] == [(Leader, 0), (Follower, 1)]
    assert (disk.exists("t-0"), disk.exists("t-1"), disk.exists("t-2")) == (True, True, False)
    with pytest.raises(NotLeaderError) as raised:
        broker.partitions.find("t", 2)
    assert (raised.value.code, raised.value.leader_id, raised.value.leader_epoch) == (
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        3,
        7,
    )

    topic.partitions = [registered(2, 2, 1, epoch=1), registered(3, 2, 3, epoch=1), registered(1, 2, 1, epoch=8)]
    before = broker.partitions.find("t", 0)
    at_once(broker.partitions.apply(Changes(partitions_changed=[(topic, index) for index in range(3)])))
    assert [(type(it.role), it.index) for it in broker.partitions] == [(Follower, 0), (Leader, 2)]
    assert broker.partitions.find("t", 0) is before
    assert (disk.exists("t-0"), disk.exists("t-1"), disk.exists("t-2")) == (True, False, True)
    assert append(broker.partitions.find("t", 2)) == 0
    broker.close()


def test_the_high_watermark_of_the_last_checkpoint_is_read_back() -> None:
    disk = MemoryDisk()
    broker = Broker.open(load_config(), disk, SystemClock())
    at_once(broker.metadata.change(create_topics, CreateTopicsRequest([CreatableTopic("t", 1, 1)], 1000)))
    partition = broker.partitions.find("t", 0)
    image = broker.metadata.image.topics["t"]
    shared = TopicImage("t", image.topic_id, [registered(1, 1, 2, epoch=1)])
    at_once(broker.partitions.apply(Changes(partitions_changed=[(shared, 0)])))
    for _ in range(3):
        append(partition)
    partition.note_fetch(2, 2)
    broker.close()
    again = Broker.open(load_config(), disk, SystemClock())
    at_once(again.partitions.apply(Changes(topics_created=[shared])))
    partition = again.partitions.find("t", 0)
    assert (partition.high_watermark, partition.log_end_offset) == (2, 3)
    partition.note_fetch(2, 3)
    assert partition.high_watermark == 3
    again.close()


def test_the_error_for_an_unknown_partition_depends_on_how_it_was_named() -> None:
    broker = Broker.open(load_config(), MemoryDisk(), SystemClock())
    at_once(broker.metadata.change(create_topics, CreateTopicsRequest([CreatableTopic("t", 1, 1)], 1000)))
    topic_id = broker.metadata.image.topics["t"].topic_id
    cases: list[tuple[TopicRef, int, ErrorCode]] = [
        ("t", 1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("t", -1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (topic_id, 1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("u", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC_ID, 0, ErrorCode.UNKNOWN_TOPIC_ID),
    ]
    for ref, index, code in cases:
        with pytest.raises(KafkaError) as raised:
            broker.partitions.find(ref, index)
        assert raised.value.code == code
    broker.close()
