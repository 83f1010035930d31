"""Partitions whose folders are as a crash left them."""

from __future__ import annotations

import pytest
from kwire_protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kwire_storage.disk.memory_disk import MemoryDisk

from kwire.broker import Broker
from kwire.clock import SystemClock
from kwire.config.server import load_config


@pytest.mark.parametrize("left", [None, b"", bytes(53)], ids=["missing", "empty", "zeros"])
def test_a_broker_that_died_while_it_created_a_partition_starts_and_finishes_it(left: bytes | None) -> None:
    """The folder is there, and what should tell its topic's id is not, or has nothing in it yet."""
    disk = MemoryDisk()
    broker = Broker.open(load_config(), disk, SystemClock())
    broker.metadata.create_topics(CreateTopicsRequest([CreatableTopic("t", 1, 1)], 1000))
    topic_id = broker.metadata.image.topics["t"].topic_id
    broker.folders.metadata.abandon()
    if left is None:
        disk.remove("t-0/partition.metadata")
    else:
        disk.write_bytes("t-0/partition.metadata", left)
    again = Broker.open(load_config(), disk, SystemClock())
    assert again.folders.metadata.topic_id("t", 0) == topic_id
    assert again.partitions.find("t", 0).topic_id == topic_id
    again.close()
