"""The share coordinator on a broker in memory: its topic, its log, its starts and its ends."""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import attrs
import pytest
from kwire_protocol.errors import ErrorCode as E
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kwire_protocol.messages.find_coordinator import FindCoordinatorRequest
from kwire_protocol.messages.initialize_share_group_state import PartitionData as InitializeData
from kwire_protocol.messages.read_share_group_state import PartitionData as ReadData
from kwire_protocol.messages.write_share_group_state import PartitionData as WriteData
from kwire_protocol.messages.write_share_group_state import StateBatch
from kwire_protocol.wire import Uuid
from kwire_storage.disk.memory_disk import MemoryDisk

from kwire.config.server import load_config
from kwire.handlers.apis import APIS
from kwire.metadata.controller.topics.topic_deletion import delete_topics
from kwire.metadata.image import ConfigResourceType
from kwire.names.topic_names import SHARE_GROUP_STATE
from kwire.node.broker import Broker
from kwire.replicas.acknowledging import Acknowledgement
from kwire.replicas.partition import Partition
from kwire.runtime.futures import begun
from kwire.runtime.loop import Host
from kwire.share.coordinator.kinds import INITIALIZE, READ, WRITE, Kind
from kwire.share.coordinator.service import PARTITIONS_PER_SLICE
from kwire.share.coordinator.state import SharePartitionKey
from testkit.basics.futures import at_once
from testkit.cluster.connected_cluster import ConnectedCluster, handled
from testkit.cluster.scripted_cluster import create
from testkit.metadata.harness import FakeClock, context

INITIALIZE_KEY = 83
SETTINGS = (
    "share.coordinator.state.topic.num.partitions=1",
    "share.coordinator.snapshot.update.records.per.snapshot=3",
    "share.coordinator.cold.partition.snapshot.interval.ms=60000",
    "share.coordinator.state.topic.prune.interval.ms=30000",
)


@attrs.define(eq=False)
class Scene:
    """A broker with topic `t` of 3 partitions, which coordinates all share-partitions."""

    disk: MemoryDisk
    clock: FakeClock
    broker: Broker

    @property
    def topic_id(self) -> Uuid:
        return self.broker.metadata.image.topics["t"].topic_id

    @property
    def log(self) -> Partition:
        return self.broker.partitions.find(SHARE_GROUP_STATE, 0)

    def call(self, kind: Kind, *partitions: Any, group_id: str = "g") -> list[tuple[E, Any]]:
        response = at_once(
            self.broker.share_state.answer(kind, kind.request(group_id, {self.topic_id: list(partitions)}))
        )
        (topic,) = response.results
        return [(E(it.error_code), it) for it in topic.partitions]

    def error(self, kind: Kind, partition: Any) -> E:
        ((code, _),) = self.call(kind, partition)
        return code

    def initialize(self, partition: int = 0) -> None:
        assert self.error(INITIALIZE, InitializeData(partition, 0, 0)) is E.NONE

    def write(self, partition: int = 0, *, start_offset: int = 0) -> E:
        return self.error(WRITE, WriteData(partition, 0, 0, start_offset, 0, [StateBatch(5, 9, 2, 1)]))

    def read(self, partition: int = 0) -> tuple[E, int]:
        ((code, result),) = self.call(READ, ReadData(partition, -1))
        return code, result.start_offset

    def advance(self, by_ms: int) -> None:
        for _ in range(by_ms // 10_000):
            self.clock.time_ms += 10_000
            self.broker.share_state.runtime.settle()

    def restart(self, *, kill: bool = False) -> None:
        if kill:
            self.broker.abandon()
        else:
            self.broker.close()
        self.broker = Broker.open(load_config(settings=SETTINGS), self.disk, self.clock)


@pytest.fixture
def scene() -> Iterator[Scene]:
    disk, clock = MemoryDisk(), FakeClock()
    broker = Broker.open(load_config(settings=SETTINGS), disk, clock)
    create(broker, "t", 3)
    at_once(broker.share_state.runtime.topic.ensure())
    scene = Scene(disk, clock, broker)
    yield scene
    scene.broker.close()


def test_the_topic_is_made_as_kafka_makes_it(scene: Scene) -> None:
    config = scene.broker.metadata.image.configs[ConfigResourceType.TOPIC, SHARE_GROUP_STATE]
    assert config == {
        "cleanup.policy": "delete",
        "compression.type": "producer",
        "min.insync.replicas": "2",
        "retention.ms": "-1",
        "segment.bytes": "104857600",
    }
    assert scene.log.is_internal


def test_only_a_look_up_creates_the_topic() -> None:
    broker = Broker.open(load_config(settings=SETTINGS), MemoryDisk(), FakeClock())
    create(broker, "t", 1)
    identity = broker.metadata.image.topics["t"].topic_id
    request = INITIALIZE.request("g", {identity: [InitializeData(0, 0, 0)]})
    ((result,),) = (topic.partitions for topic in handled(broker, request).results)
    assert result.error_code == E.NOT_COORDINATOR
    assert SHARE_GROUP_STATE not in broker.metadata.image.topics
    look_up = FindCoordinatorRequest(key_type=2, coordinator_keys=[SharePartitionKey("g", identity, 0).text])
    handled(broker, look_up)
    ((result,),) = (topic.partitions for topic in handled(broker, request).results)
    assert result.error_code == E.NONE
    broker.close()


@pytest.mark.parametrize("kill", [False, True])
def test_states_survive_a_restart(scene: Scene, kill: bool) -> None:
    scene.initialize()
    for offset in range(6):
        assert scene.write(start_offset=offset) is E.NONE
    scene.restart(kill=kill)
    assert scene.read() == (E.NONE, 5)
    assert scene.write(start_offset=7) is E.NONE
    assert scene.read() == (E.NONE, 7)


def test_the_log_stays_short(scene: Scene) -> None:
    for partition in range(3):
        scene.initialize(partition)
    for number in range(500):
        assert scene.write(start_offset=number) is E.NONE
    assert (scene.log.log_start_offset, scene.log.log_end_offset) == (0, 503)
    scene.advance(60_000)
    scene.advance(30_000)
    start = scene.log.log_start_offset
    assert start >= 500
    assert scene.log.log_end_offset - start <= 7
    # A kill may bring records back that had been deleted; they change nothing, and are deleted again.
    scene.restart(kill=True)
    assert scene.log.log_start_offset == 0
    scene.advance(30_000)
    assert scene.log.log_start_offset == start
    states = [(E.NONE, 499), (E.NONE, 0), (E.NONE, 0)]
    assert [scene.read(partition) for partition in range(3)] == states
    scene.restart()
    assert scene.log.log_start_offset == start
    assert [scene.read(partition) for partition in range(3)] == states
    # Nothing more happens after that, nor has anybody to be woken.
    scene.advance(300_000)
    (_, shard), *_ = scene.broker.share_state.runtime.in_service()
    assert shard.next_deadline_ms() is None


def test_a_log_that_must_not_be_cut_is_left_alone(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    scene.log.rules = attrs.evolve(scene.log.rules, deletable=False)
    scene.initialize()
    scene.initialize()
    scene.advance(120_000)
    assert scene.log.log_start_offset == 0
    assert scene.write() is E.NONE
    assert caplog.messages == []
    # It is tried again and again, quietly.
    scene.log.rules = attrs.evolve(scene.log.rules, deletable=True)
    scene.advance(30_000)
    assert scene.log.log_start_offset == 2


def test_the_states_of_a_deleted_topic_do_not_come_back(scene: Scene) -> None:
    scene.initialize()
    request = READ.request("g", {scene.topic_id: [ReadData(0, -1)]})
    at_once(scene.broker.metadata.change(delete_topics, DeleteTopicsRequest([DeleteTopicState("t")]), version=6))
    for _ in range(2):
        (topic,) = at_once(scene.broker.share_state.answer(READ, request)).results
        assert topic.partitions[0].error_code == E.INVALID_REQUEST
        scene.restart()


def test_if_the_topic_of_states_is_deleted_all_start_over(scene: Scene) -> None:
    scene.initialize()
    request = DeleteTopicsRequest([DeleteTopicState(SHARE_GROUP_STATE)])
    at_once(scene.broker.metadata.change(delete_topics, request, version=6))
    assert scene.read()[0] is E.NOT_COORDINATOR
    at_once(scene.broker.share_state.runtime.topic.ensure())
    assert scene.read()[0] is E.INVALID_REQUEST
    scene.initialize()


def test_without_its_log_dir_there_is_no_coordinator() -> None:
    clock = FakeClock()
    disks = {"/a": MemoryDisk(), "/b": MemoryDisk()}
    broker = Broker.open(load_config(settings=SETTINGS, data_dirs=list(disks)), disks, clock)
    create(broker, "t", 1)
    at_once(broker.share_state.runtime.topic.ensure())
    scene = Scene(disks["/a"], clock, broker)
    scene.initialize()
    folder = broker.partitions.folder_of(scene.log)
    assert folder is not None
    assert folder is not broker.log_dirs.metadata
    broker.take_offline(folder, OSError(errno.EIO, "the disk has failed"))
    broker.share_state.runtime.settle()
    assert scene.read()[0] is E.NOT_COORDINATOR
    look_up = FindCoordinatorRequest(key_type=2, coordinator_keys=[SharePartitionKey("g", scene.topic_id, 0).text])
    assert handled(broker, look_up).coordinators[0].error_code == E.COORDINATOR_NOT_AVAILABLE
    broker.abandon()


def test_a_client_waits_for_replicas_no_longer_than_the_write_timeout() -> None:
    cluster = ConnectedCluster()
    settings = (
        "share.coordinator.state.topic.num.partitions=1",
        "share.coordinator.state.topic.replication.factor=2",
        "share.coordinator.state.topic.min.isr=1",
        "share.coordinator.write.timeout.ms=700",
    )
    broker = cluster.open(1, *settings)
    cluster.open(2, *settings)
    create(broker, "t", 2)
    at_once(broker.share_state.runtime.topic.ensure())
    identity = broker.metadata.image.topics["t"].topic_id
    cluster.elect(SHARE_GROUP_STATE, 0, 1)
    broker.share_state.runtime.settle()
    broker.partitions.find(SHARE_GROUP_STATE, 0).propose_isr((1, 2))
    partitions = {identity: [InitializeData(0, 0, 0), InitializeData(1, 0, 0), InitializeData(9, 0, 0)]}
    handle = APIS[INITIALIZE_KEY].handler(broker)
    handling = handle(INITIALIZE.request("g", partitions), context(0))
    future = handling.send(None)
    assert isinstance(future, Acknowledgement)
    assert 0 < future.timeout_s <= 0.7
    future.give_up()
    with pytest.raises(StopIteration) as answered:
        handling.send(None)
    (topic,) = answered.value.value.results
    assert {it.partition: it.error_code for it in topic.partitions} == {
        0: E.COORDINATOR_NOT_AVAILABLE,
        1: E.COORDINATOR_NOT_AVAILABLE,
        9: E.UNKNOWN_TOPIC_OR_PARTITION,
    }
    for each in cluster.brokers.values():
        each.abandon()


def test_records_are_kept_until_the_snapshots_that_replace_them_are_committed() -> None:
    cluster, clock = ConnectedCluster(), FakeClock()
    settings = (
        *SETTINGS,
        "share.coordinator.state.topic.replication.factor=2",
        "share.coordinator.state.topic.min.isr=1",
    )
    broker = cluster.open(1, *settings, clock=clock)
    cluster.open(2, *settings)
    create(broker, "t", 2)
    at_once(broker.share_state.runtime.topic.ensure())
    cluster.elect(SHARE_GROUP_STATE, 0, 1)
    scene = Scene(cluster.disk, clock, broker)
    for partition in range(2):
        scene.initialize(partition)
    scene.log.propose_isr((1, 2))
    again = INITIALIZE.request("g", {scene.topic_id: [InitializeData(0, 0, 0), InitializeData(1, 0, 0)]})
    begun(broker.share_state.answer(INITIALIZE, again))
    assert (scene.log.high_watermark, scene.log.log_end_offset) == (2, 4)
    scene.advance(30_000)
    assert scene.log.log_start_offset == 0
    scene.log.settle_isr()
    assert (scene.log.high_watermark, scene.log.log_start_offset) == (4, 2)
    for each in cluster.brokers.values():
        each.abandon()


def test_other_work_has_its_turn_during_a_large_request(scene: Scene) -> None:
    turns: deque[Callable[[], object]] = deque()

    def no_task(_: object) -> None:
        raise AssertionError("it starts no task")

    partitions = [ReadData(partition, -1) for partition in range(3 * PARTITIONS_PER_SLICE)]
    scene.broker.loop.host = Host(turns.append, no_task)
    future = begun(scene.broker.share_state.answer(READ, READ.request("g", {scene.topic_id: partitions})))
    taken = 0
    while turns:
        assert not future.is_set
        turns.popleft()()
        taken += 1
    assert taken == 3
    assert len(future.value.unwrap().results[0].partitions) == len(partitions)
    scene.broker.loop.host = None


def test_what_a_client_may_not_do_is_refused_for_each_partition(scene: Scene) -> None:
    partitions = {scene.topic_id: [WriteData(0), WriteData(2)]}
    refused = WRITE.all_refused(WRITE.request("g", partitions), KafkaError(E.CLUSTER_AUTHORIZATION_FAILED))
    assert [(it.partition, it.error_code) for it in refused.results[0].partitions] == [(0, 31), (2, 31)]
