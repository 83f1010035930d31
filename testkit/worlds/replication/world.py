"""Three whole brokers in memory that replicate one partition, where the test decides the order of events.

Requests and responses of followers are encoded and decoded as on the wire. The test decides which node fetches, when an
answer arrives, which node leads, which dies, and which does not have the newest metadata yet.
"""

from __future__ import annotations

from typing import Any, cast

import attrs
from kwire_protocol.internal.metadata_topics import PartitionChangeRecord
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.fetch import FetchRequest, FetchResponse
from kwire_protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from kwire_protocol.records import Record, build_batch, read_header
from kwire_protocol.wire import Reader, Writer
from kwire_storage.disk.faulty_disk import FaultyDisk
from kwire_storage.log.slices import LogSlice

from kwire.cluster.local.metadata_log import SharedMetadataLog
from kwire.config.server import load_config
from kwire.handlers import fetch, list_offsets
from kwire.handlers.apis import bound
from kwire.handlers.context import Context
from kwire.metadata.controller.deciding import ClusterState, Records
from kwire.metadata.image import MetadataImage, PartitionRegistration
from kwire.metadata.service import MetadataService
from kwire.node.broker import Broker
from kwire.replicas.acknowledging import ALL_IN_SYNC, Acknowledgement
from kwire.replicas.partition import Partition
from kwire.replicas.roles import NO_LEADER, Follower, Leader
from kwire.replication.fetching import Fetcher, FetchSettings
from kwire.replication.followers import FollowedPartition
from kwire.runtime.futures import Future, at_once
from testkit.cluster.scripted_cluster import ScriptedCluster, ScriptedMember, create
from testkit.metadata.harness import FakeClock

TOPIC = "t"
NODES = (1, 2, 3)
SETTINGS = FetchSettings(max_bytes=300, response_max_bytes=300, max_wait_ms=0, backoff_ms=1000)
"""Settings of fetches with small limits: each gets only some of a few batches."""


def over_the_wire(message: Any, version: int) -> Any:
    """Returns the message as the other side decodes it."""
    writer = Writer()
    message.write(writer, version)
    pieces = [it.read() if isinstance(it, LogSlice) else bytes(it) for it in writer.pieces()]  # type: ignore[arg-type]
    return type(message).read(Reader(memoryview(bytearray(b"".join(pieces)))), version)


@attrs.define(eq=False)
class DeafCluster(ScriptedCluster):
    """A cluster whose nodes in `deaf` are not notified of new metadata. They find it when they append to it."""

    deaf: set[int] = attrs.field(factory=set)

    def notify(self, sender: int) -> None:
        for node_id in self.brokers:
            if node_id != sender and node_id not in self.deaf:
                at_once(self.members[node_id].log.refresh())


class WorldClock(FakeClock):
    """Ids differ in their first bytes too, of which session ids are made."""

    def uuid(self) -> bytes:
        self.ids += 1
        return self.ids.to_bytes(4, "big") + bytes(12)


@attrs.define(eq=False)
class Produced:
    value: bytes
    offset: int
    future: Acknowledgement | None

    @property
    def is_acknowledged(self) -> bool:
        return self.future is None or (self.future.is_set and self.future.value is None)


@attrs.define(eq=False)
class SlowMetadata:
    """A metadata log in which a leader's proposals wait until `decide`, if `is_slow`."""

    metadata: MetadataService
    is_slow: bool = False
    _held: list[Future[None]] = attrs.field(factory=list)

    @property
    def image(self) -> MetadataImage:
        return self.metadata.image

    @property
    def node_id(self) -> int:
        return self.metadata.node_id

    async def change(self, *request: Any) -> Any:
        if self.is_slow:
            future: Future[None] = Future()
            self._held.append(future)
            await future
        return await self.metadata.change(*request)

    def decide(self) -> None:
        self.is_slow = False
        held, self._held = self._held, []
        for future in held:
            future.set(None)


@attrs.define(eq=False, repr=False)  # pytest shows what an assertion names: all that three brokers have is minutes
class World:
    min_insync_replicas: int = 1
    cluster: DeafCluster = attrs.field(factory=DeafCluster)
    clock: WorldClock = attrs.field(factory=WorldClock)
    disks: dict[int, FaultyDisk] = attrs.field(factory=lambda: {node_id: FaultyDisk() for node_id in NODES})
    fetchers: dict[int, Fetcher] = attrs.field(factory=dict)
    slow: dict[int, SlowMetadata] = attrs.field(factory=dict)
    produced: list[Produced] = attrs.field(factory=list)

    def __attrs_post_init__(self) -> None:
        for node_id in NODES:
            self.open(node_id)
        create(self.brokers[1], TOPIC, 1, 3)

    @property
    def brokers(self) -> dict[int, Broker]:
        return self.cluster.brokers

    def open(self, node_id: int) -> None:
        config = load_config(
            data_dirs=[f"/{node_id}"],
            settings=[f"node.id={node_id}", f"min.insync.replicas={self.min_insync_replicas}"],
        )
        log = SharedMetadataLog.open(self.cluster.disk, node_id, self.clock.now_ms)
        log.announce = lambda: self.cluster.notify(node_id)
        self.cluster.alive.add(node_id)
        member = self.cluster.members[node_id] = ScriptedMember(node_id, self.cluster, log)
        broker = Broker.open(config, {f"/{node_id}": self.disks[node_id]}, self.clock, membership=member)
        self.cluster.brokers[node_id] = broker
        slow = self.slow[node_id] = SlowMetadata(broker.metadata)
        broker.in_sync.metadata = cast(MetadataService, slow)
        assert broker.member is not None
        broker.member.serve()

    def kill(self, node_id: int) -> None:
        """The process dies; the others find out at once."""
        broker = self.brokers.pop(node_id)
        self.cluster.alive.discard(node_id)
        self.fetchers.pop(node_id, None)
        del self.slow[node_id]
        self.disks[node_id] = self.disks[node_id].kill()
        broker.log_dirs.abandon()
        if self.cluster.controller_id == node_id and self.brokers:
            self.cluster.controller_id = min(self.brokers)
        for it in list(self.brokers.values()):
            assert it.member is not None
            it.member.reconcile()

    def hear(self, node_id: int) -> None:
        """The node reads the newest metadata."""
        self.cluster.deaf.discard(node_id)
        at_once(self.cluster.members[node_id].log.refresh())

    def partition(self, node_id: int) -> Partition:
        return self.brokers[node_id].partitions.find(TOPIC, 0)

    @property
    def registered(self) -> PartitionRegistration:
        """The newest registration that some node has."""
        newest = max(self.brokers.values(), key=lambda it: it.metadata.image.offset)
        found = newest.metadata.image.partition(TOPIC, 0)
        assert found is not None
        return found

    def elect(self, by: int, leader: int) -> bool:
        """Lets that node make a member of the ISR the leader, if it is one."""

        def decide(state: ClusterState) -> tuple[Records, bool]:
            topic = state.image.topics[TOPIC]
            known = topic.partitions[0]
            alive = {it.broker_id for it in state.image.live_brokers()}
            if leader not in known.isr or leader not in alive or leader == known.leader:
                return [], False
            return [PartitionChangeRecord(partition_id=0, topic_id=topic.topic_id, leader=leader)], True

        return at_once(self.brokers[by].metadata.change(decide))

    @property
    def leaders(self) -> list[int]:
        """The nodes that believe that they lead."""
        return [node_id for node_id in self.brokers if type(self.partition(node_id).role) is Leader]

    # Producing

    def produce(self, node_id: int, value: bytes, acks: int = ALL_IN_SYNC) -> Produced | None:
        """None if the node refuses."""
        partition = self.partition(node_id)
        batch = memoryview(bytearray(build_batch([Record(timestamp=self.clock.now_ms(), value=value)])))
        try:
            result = partition.append(batch, read_header(batch), acks=acks, now_ms=self.clock.now_ms())
        except KafkaError:
            return None
        produced = Produced(value, result.base_offset, partition.when_committed(result.last_offset, acks))
        if acks == ALL_IN_SYNC:
            self.produced.append(produced)
        return produced

    # Following

    def fetcher(self, node_id: int) -> Fetcher | None:
        """Returns the node's fetcher, matched to its role; None if it does not follow."""
        partition = self.partition(node_id)
        role, key = partition.role, (partition.topic_id, 0)
        if type(role) is not Follower or role.leader_id == NO_LEADER:
            self.fetchers.pop(node_id, None)
            return None
        found = self.fetchers.get(node_id)
        if found is None or found.leader_id != role.leader_id:
            member = self.brokers[node_id].member
            assert member is not None
            found = self.fetchers[node_id] = Fetcher(
                role.leader_id, node_id, member.broker_epoch, SETTINGS, self.brokers[node_id].follower_quota
            )
        if found.epoch_of(key) != role.leader_epoch:
            table = self.brokers[node_id].partitions
            found.follow(key, TOPIC, role.leader_epoch, FollowedPartition(partition, table, lambda _key: None))
        return found

    def answer(self, fetcher: Fetcher) -> FetchResponse | ListOffsetsResponse | None:
        """The leader's answer to the next request; None if there is no request, or no leader."""
        leader = self.brokers.get(fetcher.leader_id)
        if leader is None:
            fetcher.disconnected(self.clock.now_ms())
            return None
        request = fetcher.next_request(self.clock.now_ms())
        if request is None:
            return None
        if isinstance(request, FetchRequest):
            decoded = over_the_wire(request, 17)
            answer = bound(fetch.handle, leader)(decoded, Context("node", "127.0.0.1", 9092, api_version=17))
            assert isinstance(answer, FetchResponse), "it waits for nothing"
            response: FetchResponse = over_the_wire(answer, 17)
            return response
        assert isinstance(request, ListOffsetsRequest)
        decoded = over_the_wire(request, 10)
        offsets: ListOffsetsResponse = over_the_wire(
            bound(list_offsets.handle, leader)(decoded, Context("node", "127.0.0.1", 9092, api_version=10)), 10
        )
        return offsets

    def fetch(self, node_id: int) -> None:
        """Lets the node fetch once, if it follows, and delivers the answer."""
        fetcher = self.fetcher(node_id)
        if fetcher is None or fetcher.has_request_in_flight:
            return
        answer = self.answer(fetcher)
        if answer is not None:
            fetcher.received(answer, self.clock.now_ms())

    def settle(self) -> None:
        """Delivers all metadata, and lets all followers fetch until nothing changes."""
        for node_id in list(self.brokers):
            self.hear(node_id)
            self.slow[node_id].decide()
        for _ in range(40):
            self.clock.time_ms += SETTINGS.backoff_ms
            for node_id in list(self.brokers):
                self.fetch(node_id)

    # What is where

    def batches(self, node_id: int) -> list[tuple[int, bytes]]:
        """Base offset and bytes of every batch in the node's log."""
        return [(header.base_offset, piece.read()) for header, piece in self.partition(node_id).log.batches()]

    def check(self) -> None:
        """Committed records are the same everywhere, and nothing that was acknowledged is lost."""
        logs = {node_id: self.batches(node_id) for node_id in self.brokers}
        for node_id, batches in logs.items():
            partition = self.partition(node_id)
            assert partition.log_start_offset <= partition.high_watermark <= partition.log_end_offset
            for other_id, others in logs.items():
                common = min(partition.high_watermark, self.partition(other_id).high_watermark)
                assert _below(batches, common) == _below(others, common), f"nodes {node_id} and {other_id} differ"
        in_sync = [it for it in self.registered.isr if it in self.brokers]
        for produced in self.produced:
            if produced.is_acknowledged:
                for node_id in in_sync:
                    found = dict(logs[node_id]).get(produced.offset)
                    assert found is not None, f"node {node_id} lost {produced.value!r} at offset {produced.offset}"
                    assert produced.value in found, f"node {node_id} has another record at offset {produced.offset}"


def _below(batches: list[tuple[int, bytes]], offset: int) -> list[tuple[int, bytes]]:
    return [it for it in batches if it[0] < offset]
