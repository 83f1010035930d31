"""Brokers of a `ScriptedCluster` that send each other requests without sockets. The test delivers each request."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

import attrs
from kwire_protocol.internal.metadata_topics import PartitionChangeRecord
from kwire_protocol.messages import APIS as MESSAGES
from kwire_protocol.wire import ApiMessage, Reader, Writer
from outcome import Error, Value

from kwire.client.errors import ConnectionFailed
from kwire.handlers.apis import APIS
from kwire.node.broker import Broker
from kwire.peers.peers import Answer
from kwire.replicas.partition import Partition
from kwire.runtime.futures import Future, begun
from kwire.runtime.loop import Loop
from testkit.basics.futures import at_once
from testkit.cluster.scripted_cluster import ScriptedCluster
from testkit.metadata.harness import context


def handled(broker: Broker, request: ApiMessage, version: int | None = None) -> Any:
    """Returns the answer of a handler that has nothing to wait for."""
    future = answering(broker, request, version)
    assert future.is_set, "it waits"
    return future.value


def answering(broker: Broker, request: ApiMessage, version: int | None = None) -> Future[Any]:
    """Set when the handler has answered."""
    api = APIS[request.api_key]
    number = api.versions[-1] if version is None else version
    handle = api.handler(broker)
    message = MESSAGES[request.api_key]
    handling = handle(_over_the_wire(message.request_class, request, number), context(number))
    answer: Future[Any] = Future()
    if not isinstance(handling, Coroutine):
        answer.set(_over_the_wire(message.response_class, handling, number))
        return answer
    done = begun(handling)

    def respond() -> None:
        answer.set(_over_the_wire(message.response_class, done.value.unwrap(), number))

    if done.is_set:
        respond()
    else:
        done.when_set(respond)
    return answer


def _over_the_wire(kind: Any, message: Any, version: int) -> Any:
    writer = Writer()
    message.write(writer, version)
    # A connection receives into its own memory, in which a batch is given its offset.
    reader = Reader(memoryview(bytearray(writer.getvalue())))
    decoded = kind.read(reader, version)
    assert reader.remaining == 0
    return decoded


@attrs.define(eq=False)
class InFlightRequest:
    """A request on its way to a node."""

    cluster: ConnectedCluster
    node_id: int
    request: Any
    future: Future[Answer]

    def deliver(self) -> None:
        """The node handles it, and its answer comes back when it has one."""
        answer = self.handle()
        if answer.is_set:
            self.respond(answer.value)
        else:
            answer.when_set(lambda: self.respond(answer.value))

    def handle(self) -> Future[Any]:
        """Lets the node handle the request; the test delivers the answer, or loses it."""
        return answering(self.cluster.brokers[self.node_id], self.request)

    def respond(self, response: Any) -> None:
        self.future.set(Value(response))

    def fail(self) -> None:
        self.future.set(Error(ConnectionFailed("the network is down")))


@attrs.define(eq=False)
class FakePeers:
    """A substitute of `Peers`. The requests that were sent are in `cluster.in_flight`."""

    cluster: ConnectedCluster
    loop: Loop = attrs.field(factory=Loop)

    def send(self, node_id: int, request: ApiMessage, *, timeout_s: float, at_least: int = 0) -> Future[Answer]:
        future: Future[Answer] = Future()
        self.cluster.in_flight.append(InFlightRequest(self.cluster, node_id, request, future))
        return future

    def pause(self, seconds: float) -> Future[None]:
        future: Future[None] = Future()
        self.cluster.pauses.append(future)
        return future


@attrs.define(eq=False)
class ConnectedCluster(ScriptedCluster):
    in_flight: list[InFlightRequest] = attrs.field(factory=list)
    pauses: list[Future[None]] = attrs.field(factory=list)

    def start(self, node_id: int, *settings: str) -> Broker:
        broker = self.open(node_id, *settings)
        peers: Any = FakePeers(self)
        service = broker.transactions
        service._marker_sender.peers = service._remote_coordinators._sender.peers = peers
        service._remote_coordinators._peers = peers
        return broker

    def taken(self, kind: type) -> InFlightRequest:
        """The next request on its way, which is of that kind."""
        sent = self.in_flight.pop(0)
        assert isinstance(sent.request, kind), sent.request
        return sent

    def deliver_all(self) -> None:
        """Delivers all requests in flight, and those that follow from their answers."""
        while self.in_flight:
            self.in_flight.pop(0).deliver()

    def elect(self, topic: str, index: int, leader: int) -> None:
        """The node leads the partition from now on; it is alone in the ISR."""
        broker = self.brokers[leader]
        topic_id = broker.metadata.image.topics[topic].topic_id
        change = PartitionChangeRecord(index, topic_id, isr=[leader], leader=leader)
        at_once(broker.metadata.change(lambda state: ([change], None)))

    def replicate(self, topic: str, index: int, *, source: int, target: int) -> None:
        """Copies the records that a follower without them would fetch."""
        follower = self.brokers[target].partitions.find(topic, index)
        leader = self.brokers[source].partitions.find(topic, index)
        for header, piece in leader.log.batches(follower.log_end_offset):
            batch = memoryview(bytearray(piece.read()))
            follower.log.append(batch, header, leader_epoch=header.partition_leader_epoch, now_ms=0)

    def led(self, topic: str, index: int, leader: int) -> Partition:
        return self.brokers[leader].partitions.find(topic, index)
