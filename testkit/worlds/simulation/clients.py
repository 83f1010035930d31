"""Clients of the simulated cluster, which retry as Kafka's do. What they were promised goes into the ledger."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Protocol

import attrs
import trio
from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from kwire_protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from kwire_protocol.messages.end_txn import EndTxnRequest
from kwire_protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kwire_protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest
from kwire_protocol.messages.init_producer_id import InitProducerIdRequest
from kwire_protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kwire_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from kwire_protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kwire_protocol.records import Record, build_batch, iter_headers, iter_records
from kwire_protocol.wire import ApiMessage, Uuid

from kwire.client.async_connection import AsyncBrokerConnection
from kwire.client.errors import ClientError
from kwire.client.transport import Address
from testkit.worlds.simulation.eligibility import PartitionId
from testkit.worlds.simulation.history import BrokenPromise, History
from testkit.worlds.simulation.ledger import ABORTED, COMMITTED, UNKNOWN, Ledger
from testkit.worlds.simulation.network import Network, SimStream

REQUEST_TIMEOUT_S = 1.0
PAUSE_S = 0.05
SHARE_FROM_ANY_REPLICA = 0.3
"""The share of a reader's fetches from any replica (KIP-392)."""

SHARE_OF_UNKNOWN_EPOCHS = 0.05
"""The share of a reader's ListOffsets with a leader epoch that does not exist yet (KIP-320)."""
FACTORS = (2, 3, 3)
"""Replicas of a partition, when it is moved."""

GROUP, TRANSACTION, SHARE = 0, 1, 2


class Client(Protocol):
    cluster: Cluster

    async def run(self) -> None: ...


class Again(Exception):
    """A request failed in a way that a client retries, after it has refreshed the metadata."""


@attrs.define(eq=False)
class Cluster:
    """The metadata and the connections of one client."""

    network: Network
    name: str
    bootstrap: list[Address]
    topic: str
    random: random.Random
    topic_id: Uuid = bytes(16)
    brokers: dict[int, Address] = attrs.field(factory=dict)
    leaders: dict[int, int] = attrs.field(factory=dict)
    epochs: dict[int, int] = attrs.field(factory=dict)
    _connections: dict[Address, AsyncBrokerConnection] = attrs.field(factory=dict)

    async def call(self, address: Address, request: ApiMessage, **versions: int) -> Any:
        """Raises Again."""
        try:
            found = self._connections.get(address)
            if found is None or found.is_closed:
                found = self._connections[address] = await AsyncBrokerConnection.open(
                    address, REQUEST_TIMEOUT_S, client_id=self.name, connect=self._connect
                )
            return await found.call(request, **versions)
        except ClientError as error:
            raise Again(str(error)) from error

    async def _connect(self, address: Address) -> SimStream:
        return SimStream(await self.network.connect(self.network.host(self.name), address))

    def connection(self, node_id: int) -> AsyncBrokerConnection | None:
        """Returns the connection to that node, perhaps a closed one."""
        address = self.brokers.get(node_id)
        return None if address is None else self._connections.get(address)

    async def close(self) -> None:
        for connection in self._connections.values():
            connection.close()

    async def refresh_metadata(self) -> None:
        """Raises Again."""
        address = self.random.choice([*self.brokers.values(), *self.bootstrap])
        found = await self.call(
            address, MetadataRequest([MetadataRequestTopic(name=self.topic)], allow_auto_topic_creation=False)
        )
        topic = found.topics[0]
        if found.brokers and topic.error_code == 0:
            self.brokers = {it.node_id: (it.host, it.port) for it in found.brokers}
            self.topic_id = topic.topic_id
            self.leaders = {it.partition_index: it.leader_id for it in topic.partitions}
            self.epochs = {it.partition_index: it.leader_epoch for it in topic.partitions}

    async def call_leader(self, index: int, request: ApiMessage, **versions: int) -> Any:
        """Raises Again."""
        address = self.brokers.get(self.leaders.get(index, -1))
        if address is None:
            await self.refresh_metadata()
            raise Again("no leader is known")
        return await self.call(address, request, **versions)

    async def find_coordinator(self, kind: int, key: str) -> Coordinator:
        """Raises Again."""
        answer = await self.call(
            self.random.choice(self.bootstrap), FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
        )
        found: Coordinator = answer.coordinators[0]
        if found.error_code:
            raise Again(f"no coordinator: {found.error_code}")
        return found

    async def call_coordinator(self, kind: int, key: str, request: ApiMessage, **versions: int) -> Any:
        """Raises Again."""
        found = await self.find_coordinator(kind, key)
        return await self.call((found.host, found.port), request, **versions)

    async def persist(self, step: Callable[[], Any]) -> Any:
        """Repeats the step until it succeeds."""
        while True:
            try:
                return await step()
            except Again:
                await self.rest()

    async def rest(self) -> None:
        await trio.sleep(PAUSE_S * self.random.uniform(0.5, 1.5))
        with suppress(Again):
            await self.refresh_metadata()


def _produce(cluster: Cluster, index: int, batch: bytes, *, acks: int, transactional_id: str | None = None) -> Any:
    data = [TopicProduceData(topic_id=cluster.topic_id, partition_data=[PartitionProduceData(index, batch)])]
    return cluster.call_leader(index, ProduceRequest(transactional_id, acks, 1500, data), at_least=13)


async def _produced(
    cluster: Cluster, index: int, batch: bytes, *, acks: int, transactional_id: str | None = None
) -> Any:
    """The partition's response. Raises Again."""
    response = await _produce(cluster, index, batch, acks=acks, transactional_id=transactional_id)
    return response.responses[0].partition_responses[0]


@attrs.define(eq=False)
class Producer:
    """An idempotent producer with acks=all: an acknowledged record is there, once."""

    cluster: Cluster
    ledger: Ledger
    partitions: int
    now_ms: Callable[[], int]
    stops: Callable[[], bool]
    producer_id: int = -1
    epoch: int = -1
    sequences: dict[int, int] = attrs.field(factory=dict)
    written: int = 0

    async def run(self) -> None:
        await self.cluster.persist(self._begin)
        while not self.stops():
            await self.send(self.cluster.random.randrange(self.partitions))
            await trio.sleep(self.cluster.random.expovariate(25))

    async def _begin(self) -> None:
        address = self.cluster.random.choice(self.cluster.bootstrap)
        found = await self.cluster.call(address, InitProducerIdRequest(transactional_id=None))
        if found.error_code:
            raise Again(str(found.error_code))
        self.producer_id, self.epoch = found.producer_id, found.producer_epoch

    async def send(self, index: int) -> None:
        """Sends until it is acknowledged."""
        self.written += 1
        values = [
            f"{self.cluster.name}-{self.written}-{it}".encode() for it in range(self.cluster.random.choice([1, 1, 3]))
        ]
        self.ledger.sent.update(values)
        key, sent_at = (self.cluster.topic, index), trio.current_time()
        timestamp = self.now_ms()

        async def send() -> None:
            sequence = self.sequences.get(index, 0)
            batch = build_batch(
                [Record(timestamp=timestamp, value=value) for value in values],
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                base_sequence=sequence,
            )
            answer = await _produced(self.cluster, index, batch, acks=-1)
            if answer.error_code == 0:
                for number, value in enumerate(values):
                    self.ledger.acknowledge(key, answer.base_offset + number, value, sent_at)
                return
            if answer.error_code in (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID):
                if self.ledger.has_lost(key):
                    # As a new producer, which may repeat what an earlier attempt has written.
                    await self._begin()
                    self.sequences.clear()
                    self.ledger.sent.update(values)
                    raise Again("earlier records are lost")
                raise BrokenPromise(
                    f"{self.cluster.name}: error {answer.error_code} for sequence {sequence} of {index}"
                )
            raise Again(str(answer.error_code))

        await self.cluster.persist(send)
        self.sequences[index] = self.sequences.get(index, 0) + len(values)


@attrs.define(eq=False)
class HastyProducer:
    """A producer with acks=1: its acknowledged records may be lost, and get in the way of others."""

    cluster: Cluster
    partitions: int
    now_ms: Callable[[], int]
    stops: Callable[[], bool]

    async def run(self) -> None:
        count = 0
        while not self.stops():
            count += 1
            batch = build_batch([Record(timestamp=self.now_ms(), value=f"hasty-{count}".encode())])
            try:
                answer = await _produced(self.cluster, self.cluster.random.randrange(self.partitions), batch, acks=1)
                if answer.error_code:
                    await self.cluster.rest()
            except Again:
                await self.cluster.rest()
            await trio.sleep(self.cluster.random.expovariate(15))


@attrs.define(eq=False)
class TransactionalProducer:
    cluster: Cluster
    ledger: Ledger
    partitions: int
    now_ms: Callable[[], int]
    stops: Callable[[], bool]
    producer_id: int = -1
    epoch: int = -1
    sequences: dict[int, int] = attrs.field(factory=dict)
    count: int = 0

    async def run(self) -> None:
        await self.cluster.persist(self._begin)
        while not self.stops():
            await self._transact()
            await trio.sleep(self.cluster.random.expovariate(8))

    @property
    def _id(self) -> str:
        return self.cluster.name

    async def _begin(self) -> None:
        request = InitProducerIdRequest(self._id, 60_000, self.producer_id, self.epoch)
        found = await self.cluster.call_coordinator(TRANSACTION, self._id, request)
        is_fenced = found.error_code in (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED)
        if is_fenced or (found.error_code and self.ledger.losses):
            self.producer_id = self.epoch = -1
        if found.error_code:
            raise Again(str(found.error_code))
        self.producer_id, self.epoch = found.producer_id, found.producer_epoch
        self.sequences.clear()

    async def _transact(self) -> None:
        self.count += 1
        name = f"{self._id}-{self.count}".encode()
        chance = self.cluster.random
        indexes = chance.sample(range(self.partitions), min(2, self.partitions))
        self.ledger.members[name] = {(self.cluster.topic, it) for it in indexes}
        self.ledger.transactions[name] = UNKNOWN
        committed = chance.random() < 0.7
        try:
            for index in indexes:
                await self._write(index, name)
        except Again:
            # InitProducerId aborts it.
            await self.cluster.persist(self._begin)
            self.ledger.transactions[name] = ABORTED
            return
        while True:
            try:
                request = EndTxnRequest(self._id, self.producer_id, self.epoch, committed)
                ended = await self.cluster.call_coordinator(TRANSACTION, self._id, request, at_least=5)
            except Again:
                # It may have been carried out, and the next response shows that.
                await self.cluster.rest()
                continue
            if ended.error_code == 0:
                self.ledger.transactions[name] = COMMITTED if committed else ABORTED
                if (ended.producer_id, ended.producer_epoch) != (self.producer_id, self.epoch):
                    self.producer_id, self.epoch = ended.producer_id, ended.producer_epoch
                    self.sequences.clear()
                return
            if ended.error_code in _NOT_NOW:
                await self.cluster.rest()
                continue
            # A coordinator whose clock is far ahead has aborted it, as Apache Kafka's does.
            await self.cluster.persist(self._begin)
            return

    async def _write(self, index: int, name: bytes) -> None:
        sequence = self.sequences.get(index, 0)
        batch = build_batch(
            [Record(timestamp=self.now_ms(), key=b"txn", value=name)],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            transactional=True,
        )
        for _ in range(20):
            try:
                answer = await _produced(self.cluster, index, batch, acks=-1, transactional_id=self._id)
            except Again:
                await self.cluster.rest()
                continue
            if answer.error_code == 0:
                self.sequences[index] = sequence + 1
                return
            if answer.error_code in (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_TXN_STATE):
                break
            await self.cluster.rest()
        raise Again("it could not be written")


_NOT_NOW = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    }
)


@attrs.define
class Session:
    """A fetch session of a reader with a node (KIP-227). `sent` has the offset and leader epoch of each partition in
    it.
    """

    session_id: int = 0
    epoch: int = 0
    sent: dict[int, tuple[int, int]] = attrs.field(factory=dict)


@attrs.define(eq=False)
class Reader:
    """A consumer that reads every partition from its beginning, mostly from the leader and now and then from another
    replica, and fetches its end.

    `records` are those that it has read.
    """

    cluster: Cluster
    ledger: Ledger
    history: History
    partitions: int
    stops: Callable[[], bool]
    isolation_level: int
    records: dict[PartitionId, list[Record]] = attrs.field(factory=dict)
    positions: dict[int, int] = attrs.field(factory=dict)
    _known_losses: int = 0
    _sessions: dict[int, Session] = attrs.field(factory=dict)

    async def run(self) -> None:
        while not self.stops():
            index = self.cluster.random.randrange(self.partitions)
            try:
                await self.read(index)
                await self.fetch_end(index)
                if self.cluster.random.random() < SHARE_OF_UNKNOWN_EPOCHS:
                    await self._fetch_end_in_an_unknown_epoch(index)
            except Again:
                await self.cluster.rest()
            await trio.sleep(self.cluster.random.expovariate(12))

    def forget_lost(self) -> None:
        """Resets positions to where their partitions continue after a loss."""
        lost, self._known_losses = self.ledger.losses[self._known_losses :], len(self.ledger.losses)
        for loss in lost:
            topic, index = loss.key
            if topic == self.cluster.topic:
                self.positions[index] = min(self.positions.get(index, 0), loss.offset)
                self.records[loss.key] = [it for it in self.records.get(loss.key, []) if it.offset < loss.offset]

    def _check_not_lost(self) -> None:
        """Raises Again, if what was answered may be from before a loss."""
        if len(self.ledger.losses) > self._known_losses:
            raise Again("something is lost")

    def _may_be_lost(self, index: int, leader_epoch: int, is_from_leader: bool) -> bool:
        """True if the answering replica may still lack the news that the partition has lost records."""
        key = self.cluster.topic, index
        lost_in = [it.leader_epoch for it in self.ledger.losses if it.key == key]
        return bool(lost_in) and not (is_from_leader and leader_epoch >= max(lost_in))

    async def read(self, index: int) -> None:
        """Raises Again."""
        self.forget_lost()
        leader = self.cluster.leaders.get(index, -1)
        node_id = leader
        if self.cluster.brokers and self.cluster.random.random() < SHARE_FROM_ANY_REPLICA:
            node_id = self.cluster.random.choice(sorted(self.cluster.brokers))
        address = self.cluster.brokers.get(node_id)
        if address is None:
            await self.cluster.refresh_metadata()
            raise Again("no leader is known")
        session = self._sessions.pop(node_id, None) or Session()  # it is there again when it was answered well
        sent = {**session.sent, index: (0, 0)}
        sent = {it: (self.positions.get(it, 0), self.cluster.epochs.get(it, -1)) for it in sent}
        wanted = [
            FetchPartition(it, epoch, offset, partition_max_bytes=20_000)
            for it, (offset, epoch) in sent.items()
            if session.sent.get(it) != (offset, epoch)
        ]
        request = FetchRequest(
            max_wait_ms=20,
            min_bytes=1,
            isolation_level=self.isolation_level,
            session_id=session.session_id,
            session_epoch=session.epoch,
            topics=[FetchTopic(topic_id=self.cluster.topic_id, partitions=wanted)] if wanted else [],
        )
        answer = await self.cluster.call(address, request, at_least=13)
        self._check_not_lost()
        if answer.error_code:
            raise Again(str(answer.error_code))
        for found in (it for topic in answer.responses for it in topic.partitions):
            position, _ = sent[found.partition_index]
            key = self.cluster.topic, found.partition_index
            # In the same leader epoch, it is still the leader.
            is_from_leader = self.cluster.leaders.get(found.partition_index) == node_id
            if self._may_be_lost(found.partition_index, sent[found.partition_index][1], is_from_leader):
                continue
            if found.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and is_from_leader:
                raise BrokenPromise(f"{key}: a reader at {position} is out of range")
            if found.error_code:
                raise Again(str(found.error_code))
            aborted = {(it.producer_id, it.first_offset) for it in found.aborted_transactions or ()}
            self._take(key, bytes(found.records or b""), position, aborted)
        if answer.session_id:
            self._sessions[node_id] = Session(answer.session_id, session.epoch + 1, sent)

    def _take(self, key: PartitionId, data: bytes, position: int, aborted: set[tuple[int, int]]) -> None:
        skipped: set[int] = set()
        for start, header in iter_headers(memoryview(data)):
            batch = data[start : start + header.size_in_bytes]
            known = self.history.committed.get(key, {}).get(header.base_offset)
            if known is not None and known != batch:
                raise BrokenPromise(f"{key}: a reader got another batch at {header.base_offset} than was committed")
            for producer_id, first in sorted(aborted):
                if first <= header.base_offset and producer_id == header.producer_id:
                    skipped.add(producer_id)
                    aborted.discard((producer_id, first))
            if header.is_control:
                skipped.discard(header.producer_id)
            elif not (self.isolation_level and header.is_transactional and header.producer_id in skipped):
                self.records.setdefault(key, []).extend(
                    it for it in iter_records(memoryview(batch)) if it.offset >= position
                )
            self.positions[key[1]] = header.next_offset

    async def fetch_end(self, index: int) -> int:
        """Returns the end offset in the response to a reader. Raises Again."""
        self.forget_lost()
        epoch = self.cluster.epochs.get(index, -1)
        found = await self._end_in_epoch(index, epoch)
        self._check_not_lost()
        if found.error_code or self._may_be_lost(index, epoch, is_from_leader=True):
            raise Again(str(found.error_code))
        self.ledger.note_end((self.cluster.topic, index), self.isolation_level, found.offset)
        return int(found.offset)

    async def _fetch_end_in_an_unknown_epoch(self, index: int) -> None:
        epoch = self.cluster.epochs.get(index, -1) + 1000
        found = await self._end_in_epoch(index, epoch)
        if found.error_code == ErrorCode.NONE:
            raise BrokenPromise(f"partition {index} has told its end in leader epoch {epoch}, which is unknown")

    async def _end_in_epoch(self, index: int, epoch: int) -> Any:
        wanted = [ListOffsetsTopic(self.cluster.topic, [ListOffsetsPartition(index, epoch, timestamp=-1)])]
        answer = await self.cluster.call_leader(index, ListOffsetsRequest(-1, self.isolation_level, wanted))
        return answer.topics[0].partitions[0]

    async def read_all(self) -> dict[PartitionId, list[Record]]:
        """Everything up to the end."""
        for index in range(self.partitions):
            end = await self.cluster.persist(partial(self.fetch_end, index))
            while self.positions.get(index, 0) < end:
                await self.cluster.persist(partial(self.read, index))
        return self.records


@attrs.define(eq=False)
class Operator:
    """Moves partitions, and has other replicas lead them, while all is well or not. In the end all nodes have all."""

    cluster: Cluster
    partitions: list[PartitionId]
    """Those of internal topics may not exist yet."""
    node_ids: list[int]
    stops: Callable[[], bool]

    async def run(self) -> None:
        chance = self.cluster.random
        while not self.stops():
            topic, index = chance.choice(self.partitions)
            replicas = chance.sample(self.node_ids, chance.choice(FACTORS))
            with suppress(Again):
                await self._reassign([(topic, index)], replicas)
                await self._call(ElectLeadersRequest(0, [TopicPartitions(topic, [index])], 1000))
            await trio.sleep(chance.expovariate(3))
        await self.cluster.persist(partial(self._reassign, self.partitions, self.node_ids))

    async def _reassign(self, partitions: list[PartitionId], replicas: list[int]) -> None:
        moved = [ReassignableTopic(topic, [ReassignablePartition(index, replicas)]) for topic, index in partitions]
        answer = await self._call(AlterPartitionReassignmentsRequest(1000, True, moved))
        errors = {answer.error_code, *(it.error_code for topic in answer.responses for it in topic.partitions)}
        if errors - {ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}:
            raise Again(str(errors))

    async def _call(self, request: ApiMessage) -> Any:
        return await self.cluster.call(self.cluster.random.choice(self.cluster.bootstrap), request)
