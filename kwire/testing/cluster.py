"""A cluster inside the caller's process, for testing code that uses Kafka while brokers fail."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import attrs
from kwire_protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from kwire_protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from kwire_protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from kwire_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from kwire_protocol.wire import uuid_to_text
from kwire_storage.disk.files import Disk
from kwire_storage.disk.memory_disk import MemoryDisk

from kwire.client.connection import BrokerConnection
from kwire.client.errors import refused
from kwire.client.transport import parse_addresses
from kwire.client.waiting import SystemClock as WaitingClock
from kwire.config.server import ServerConfig
from kwire.names.topic_names import internal_replication_factors
from kwire.network.server import BoundListener
from kwire.node.broker import Broker as RunningBroker
from kwire.node.running import Body, close_broker, open_broker, serve
from kwire.peers.connecting import over_streams
from kwire.runtime.clock import Clock, SystemClock
from kwire.runtime.loop import Loop
from kwire.testing.broker import STOP_TIMEOUT_S, Broker
from kwire.testing.cutting_off import DeafNode, Network

NO_LEADER: Final = -1
PAUSE_S: Final = 0.005
"""The pause between two checks of an operation in progress."""


@attrs.define(eq=False)
class ClusterNode(Broker):
    """One broker of a `Cluster`. Its disk is in memory, and keeps the data for the next start."""

    disk: MemoryDisk = attrs.field(factory=MemoryDisk)
    defaults: Mapping[str, str] = attrs.field(factory=dict)
    """The cluster's defaults of settings."""
    network: Network | None = None
    """The network to the other brokers. None: the broker is never cut off."""
    _membership: DeafNode | None = attrs.field(default=None, init=False)
    _is_killed: bool = attrs.field(default=False, init=False)
    _goes_on: threading.Event | None = attrs.field(default=None, init=False)

    @property
    def is_running(self) -> bool:
        return self._thread is not None

    @property
    def answers(self) -> bool:
        """True if it runs, and is not paused."""
        return self.is_running and self._goes_on is None

    def kill(self) -> None:
        """Ends it like SIGKILL: other brokers are not notified, and nothing more is written."""
        thread, running = self._thread, self._running
        if thread is None or running is None:
            return
        self.go_on()
        self._is_killed = True
        running.call(running.scope.cancel)
        self._join(thread)
        self._thread = self._running = None
        self._is_killed = False

    def pause(self) -> None:
        """Stops it like SIGSTOP, until `go_on`."""
        if self._running is not None and self._goes_on is None:
            self._goes_on = threading.Event()
            self._running.call(self._goes_on.wait)

    def go_on(self) -> None:
        if self._goes_on is not None:
            self._goes_on.set()
            self._goes_on = None

    def stop(self) -> None:
        self.go_on()
        super().stop()

    def cut_off(self) -> None:
        """Cuts the broker off from the others. Returns when that is done."""
        if self._membership is not None:
            self._do(self._membership.cut_off)

    def reconnect(self) -> None:
        if self._membership is not None:
            self._do(self._membership.reconnect)

    def _do(self, call: Callable[[], None]) -> None:
        """Runs `call` in the loop's thread, and waits for it."""
        done = threading.Event()
        assert self._running is not None

        def run() -> None:
            try:
                call()
            finally:
                done.set()

        self._running.call(run)
        done.wait(STOP_TIMEOUT_S)

    def _defaults(self) -> Mapping[str, str]:
        return self.defaults

    def _open_disk(self) -> Disk:
        return self.disk

    def _open(self, config: ServerConfig, disk: Disk, listeners: list[BoundListener]) -> RunningBroker:
        broker = open_broker(config, disk, SystemClock(), listeners, self._join_cluster)
        if self.network is not None:
            for peers in broker.all_peers:
                peers.connect = over_streams(partial(self.network.connect, config.node_id))
        return broker

    def _join_cluster(self, config: ServerConfig, clock: Clock, loop: Loop) -> DeafNode:
        assert config.kwire_cluster_dir is not None
        self._membership = DeafNode.join(
            config.kwire_cluster_dir,
            config.node_id,
            clock.now_ms,
            loop,
            new_cluster_id=config.cluster_id or uuid_to_text(clock.uuid()),
        )
        return self._membership

    def _serve(
        self, broker: RunningBroker, listeners: list[BoundListener], beside: Body, metrics: BoundListener | None
    ) -> None:
        def close(broker: RunningBroker) -> None:
            self._membership = None
            if self._is_killed:
                broker.abandon()
            else:
                close_broker(broker)

        network = self.network or Network(lambda _: None)
        connect = partial(network.connect, broker.config.node_id)
        serve(broker, listeners, body=beside, close=close, connect=connect, metrics=metrics)


@attrs.define(eq=False)
class Cluster:
    """Brokers with the ids 1, 2, 3, ... on free ports of 127.0.0.1, each in a thread, with their data in memory.

    settings: Kafka's broker settings, for all of them.
    node_settings: those of one broker, by its id, such as its broker.rack.

    Internal topics, and topics without a replication factor, have a replica on each of at most three brokers.
    `start` raises StartError or ConfigError if a broker cannot start.
    """

    size: int = 3
    settings: Mapping[str, str] = attrs.field(factory=dict)
    node_settings: Mapping[int, Mapping[str, str]] = attrs.field(factory=dict)
    nodes: dict[int, ClusterNode] = attrs.field(factory=dict, init=False)
    """The brokers by node id."""
    _ended: ExitStack = attrs.field(factory=ExitStack, init=False)
    _network: Network = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._network = Network(self._node_at)

    def _node_at(self, address: tuple[str, int]) -> int | None:
        return next((node_id for node_id, it in self.nodes.items() if (it.host, it.port) == address), None)

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of the running brokers, for a client's bootstrap.servers."""
        return ",".join(node.address for node in self.nodes.values() if node.is_running)

    def start(self) -> Self:
        """Starts all brokers. Clients can connect, and all brokers are in service, when this returns."""
        assert not self.nodes, "the cluster is running"
        folder = self._ended.enter_context(tempfile.TemporaryDirectory(prefix="kwire-"))
        replicas = min(self.size, 3)
        defaults = {"default.replication.factor": str(replicas), **internal_replication_factors(replicas)}
        settings = {**self.settings, "kwire.cluster.dir": str(Path(folder) / "c")}
        try:
            for node_id in range(1, self.size + 1):
                own = {**settings, **self.node_settings.get(node_id, {}), "node.id": str(node_id)}
                node = self.nodes[node_id] = ClusterNode(settings=own, network=self._network, defaults=defaults)
                node.start()
            self._wait_until_in_service()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Stops all brokers that run."""
        with self._ended:
            for node in reversed(self.nodes.values()):
                if node.is_running:
                    node.stop()
            self.nodes.clear()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def kill(self, node_id: int) -> None:
        """Ends a broker like SIGKILL."""
        self.nodes[node_id].kill()
        self._network.reconnect(node_id)

    def pause(self, node_id: int) -> None:
        """Stops a broker like SIGSTOP: it is alive, and does not respond until `go_on`."""
        self.nodes[node_id].pause()

    def go_on(self, node_id: int) -> None:
        """Resumes a paused broker."""
        self.nodes[node_id].go_on()

    def cut_off(self, node_id: int) -> None:
        """Separates a broker from the others, until `reconnect`. Clients can connect to all of them.

        The other brokers detect that it has ended, and become leaders of its partitions. It does not detect that: it
        still responds with its own metadata, and acts as leader. It cannot change topics and configurations, and no
        follower replicates the records that it appends. When it is reconnected, it follows the new leaders, and
        truncates the records that only it has. A client that requests metadata only from this broker does not get the
        new leaders either.

        `kill` and `restart` reconnect it, too.
        """
        if not self._network.is_cut_off(node_id):
            self._network.cut_off(node_id)
            self.nodes[node_id].cut_off()

    def reconnect(self, node_id: int) -> None:
        """Makes a broker that was cut off part of the cluster again. Returns when all brokers have it in service."""
        if self._network.is_cut_off(node_id):
            self._network.reconnect(node_id)
            self.nodes[node_id].reconnect()
            self._wait_until_in_service()

    def restart(self, node_id: int) -> None:
        """Starts a broker again, with the data that it had. A running broker is stopped cleanly first."""
        node = self.nodes[node_id]
        self.reconnect(node_id)
        if node.is_running:
            node.stop()
        node.start()
        self._wait_until_in_service()

    def leader_of(self, topic: str, partition: int) -> int:
        """Returns the partition's leader; -1 if it has none. Raises kwire.client.errors.ClientError."""
        with self._connection() as connection:
            request = MetadataRequest([MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
            answer: MetadataResponse = connection.call(request)
        (described,) = answer.topics
        if described.error_code:
            raise refused(f"topic {topic}", described.error_code)
        found = {it.partition_index: it.leader_id for it in described.partitions}
        return found.get(partition, NO_LEADER)

    def move(self, topic: str, partition: int, replicas: Sequence[int], *, timeout_s: float = 30.0) -> None:
        """Moves a partition to these brokers, the preferred leader first. Returns when the move is complete.

        Raises kwire.client.errors.ClientError, TimeoutError.
        """
        request = AlterPartitionReassignmentsRequest(
            topics=[ReassignableTopic(topic, [ReassignablePartition(partition, list(replicas))])]
        )
        under_way = ListPartitionReassignmentsRequest(topics=[ListPartitionReassignmentsTopics(topic, [partition])])
        with self._connection() as connection:
            answer = connection.call(request)
            outcome = answer.responses[0].partitions[0]
            if outcome.error_code:
                raise refused(f"{topic}-{partition}", outcome.error_code, outcome.error_message)
            _wait_until(lambda: not connection.call(under_way).topics, f"{topic}-{partition} was not moved", timeout_s)

    def _connection(self) -> BrokerConnection:
        """Returns a connection to a broker that runs, and is neither paused nor cut off."""
        node = next(it for number, it in self.nodes.items() if it.answers and not self._network.is_cut_off(number))
        return BrokerConnection(parse_addresses(node.address)[0])

    def _wait_until_in_service(self) -> None:
        """Waits until every broker that runs, and is neither paused nor cut off, has all of them in service."""
        answering = {
            node_id: node
            for node_id, node in self.nodes.items()
            if node.answers and not self._network.is_cut_off(node_id)
        }
        for node in answering.values():
            with BrokerConnection(parse_addresses(node.address)[0]) as connection:
                _wait_until(partial(_serve, connection, answering.keys()), "not all brokers are in service")


def _serve(connection: BrokerConnection, node_ids: Set[int]) -> bool:
    described: DescribeClusterResponse = connection.call(DescribeClusterRequest())
    return node_ids <= {it.broker_id for it in described.brokers}


def _wait_until(what: Callable[[], bool], otherwise: str, timeout_s: float = 30.0) -> None:
    clock = WaitingClock()
    deadline = clock.monotonic() + timeout_s
    while not what():
        if clock.monotonic() > deadline:
            raise TimeoutError(f"timed out after {timeout_s:g} s: {otherwise}")
        clock.sleep(PAUSE_S)
