"""Two nodes' metadata services over one shared log: each decides, both have the same image."""

from __future__ import annotations

from collections.abc import Mapping

from kwire_protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from kwire_protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kwire_protocol.messages.delete_topics import DeleteTopicsRequest
from kwire_storage.disk.memory_disk import MemoryDisk

from kwire.cluster.local.metadata_log import SharedMetadataLog
from kwire.config.server import ServerConfig
from kwire.metadata.bootstrap import register_alone
from kwire.metadata.controller.topics.partition_creation import create_partitions
from kwire.metadata.controller.topics.topic_creation import create_topics
from kwire.metadata.controller.topics.topic_deletion import delete_topics
from kwire.metadata.image import Changes
from kwire.metadata.producer_ids import ProducerIds
from kwire.metadata.service import MetadataService
from testkit.basics.futures import at_once
from testkit.cluster.comparing import EACH_CHANGE, comparable
from testkit.metadata.harness import CLUSTER_ID, NOW_MS, FakeClock


class Node:
    def __init__(self, disk: MemoryDisk, node_id: int, settings: Mapping[str, str] | None = None) -> None:
        self.log = SharedMetadataLog.open(disk, node_id, lambda: NOW_MS)
        config = ServerConfig.from_properties({"node.id": str(node_id), **(settings or {})})
        # Nodes draw different ids.
        clock = FakeClock(ids=node_id << 32)
        self.service = MetadataService.open(config, cluster_id=CLUSTER_ID, log=self.log, clock=clock)
        at_once(self.service.change(register_alone, [bytes([node_id]) * 16]))

    def create(self, *names: str) -> list[int]:
        request = CreateTopicsRequest([CreatableTopic(name, 2, 1) for name in names])
        return [it.error_code for it in at_once(self.service.change(create_topics, request)).topics]

    def delete(self, name: str) -> list[int]:
        request = DeleteTopicsRequest(topic_names=[name])
        return [it.error_code for it in at_once(self.service.change(delete_topics, request, version=5)).responses]

    def grow(self, name: str, count: int) -> list[int]:
        request = CreatePartitionsRequest([CreatePartitionsTopic(name, count, None)])
        return [it.error_code for it in at_once(self.service.change(create_partitions, request)).results]

    def refresh(self) -> None:
        at_once(self.log.refresh())

    @property
    def topics(self) -> list[str]:
        return sorted(self.service.image.topics)


def two() -> tuple[Node, Node]:
    disk = MemoryDisk()
    one, other = Node(disk, 1), Node(disk, 2)
    one.refresh()
    return one, other


def test_each_node_registers_itself_once() -> None:
    one, other = two()
    assert sorted(one.service.image.brokers) == sorted(other.service.image.brokers) == [1, 2]
    assert one.service.image.features == other.service.image.features
    end = one.log.end_offset
    disk = one.log.disk
    assert isinstance(disk, MemoryDisk)
    assert Node(disk, 1).log.end_offset == end


def test_what_one_node_decides_the_other_one_hears_of() -> None:
    one, other = two()
    assert one.create("t") == [0]
    assert other.topics == []
    other.refresh()
    assert other.topics == ["t"]
    assert comparable(other.service.image) == comparable(one.service.image)


def test_a_node_that_has_not_heard_yet_decides_on_what_is_there() -> None:
    one, other = two()
    assert one.create("t") == [0]
    assert other.create("t", "u") == [36, 0]  # TOPIC_ALREADY_EXISTS
    assert one.grow("t", 4) == [0]
    assert other.grow("t", 3) == [37]  # INVALID_PARTITIONS
    assert one.delete("u") == [0]
    assert other.delete("u") == [3]  # UNKNOWN_TOPIC_OR_PARTITION
    one.refresh()
    other.refresh()
    assert one.topics == other.topics == ["t"]
    assert comparable(other.service.image) == comparable(one.service.image)


def test_nodes_draw_different_producer_ids() -> None:
    one, other = two()
    ids_of_one, ids_of_other = ProducerIds(one.service), ProducerIds(other.service)
    drawn = [at_once(it.draw()) for it in (ids_of_one, ids_of_other) * 2 for _ in range(600)]
    assert len(set(drawn)) == len(drawn)


def test_leaders_are_spread_over_the_nodes() -> None:
    one, _ = two()
    one.create("t")
    assert {it.leader for it in one.service.image.topics["t"].partitions} == {1, 2}


def test_a_node_that_is_behind_a_snapshot_continues_from_there() -> None:
    disk = MemoryDisk()
    one, other = Node(disk, 1, EACH_CHANGE), Node(disk, 2)
    one.refresh()
    one.create("kept", "gone", "grown")
    other.refresh()
    one.service.writes_snapshots = True
    heard: list[Changes] = []
    other.service.watch(heard.append)
    one.delete("gone")
    one.grow("grown", 5)
    one.create("new")
    other.refresh()
    assert comparable(other.service.image) == comparable(one.service.image)
    [changes] = heard
    assert [it.name for it in changes.topics_created] == ["new"]
    assert [it.name for it in changes.topics_deleted] == ["gone"]
    assert [(it.name, index) for it, index in changes.partitions_added] == [("grown", 2), ("grown", 3), ("grown", 4)]
    assert other.create("later") == [0]
    one.refresh()
    assert one.topics == ["grown", "kept", "later", "new"]
