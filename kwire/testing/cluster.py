"""A cluster inside the caller's process, for testing how code that uses Kafka gets along when brokers fail."""

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
from kwire_storage.disk.files import Disk
from kwire_storage.disk.memory_disk import MemoryDisk

from kwire.broker import Broker as RunningBroker
from kwire.client.connection import BrokerConnection
from kwire.client.errors import refused
from kwire.client.transport import parse_addresses
from kwire.client.waiting import SystemClock
from kwire.testing.broker import Broker

NO_LEADER: Final = -1
PAUSE_S: Final = 0.005
"""Between two looks at something that takes a while."""


@attrs.define(eq=False)
class ClusterNode(Broker):
    """One broker of a `Cluster`. What it has on its disk, in memory, is there again when it starts again."""

    disk: MemoryDisk = attrs.field(factory=MemoryDisk)
    _is_killed: bool = attrs.field(default=False, init=False)
    _goes_on: threading.Event | None = attrs.field(default=None, init=False)

    @property
    def is_running(self) -> bool:
        return self._thread is not None

    @property
    def answers(self) -> bool:
        """Whether it runs, and is not paused."""
        return self.is_running and self._goes_on is None

    def kill(self) -> None:
        """Ends it as SIGKILL would: nobody is told, and nothing more is written."""
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
        """Stops it as SIGSTOP would, until `go_on`."""
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

    def _open_disk(self) -> Disk:
        return self.disk

    def _close(self, broker: RunningBroker) -> None:
        if self._is_killed:
            broker.abandon()
        else:
            super()._close(broker)


@attrs.define(eq=False)
class Cluster:
    """Brokers with the ids 1, 2, 3, ... on free ports of 127.0.0.1, each in a thread, with their data in memory.

    settings: Kafka's broker settings, for all of them.
    node_settings: those of one broker, by its id, such as its broker.rack.

    Internal topics have a replica on each of at most three brokers, and so have topics that do not say how many.
    `start` raises kwire.running.StartError or kwire.config.server.ConfigError if a broker cannot start.
    """

    size: int = 3
    settings: Mapping[str, str] = attrs.field(factory=dict)
    node_settings: Mapping[int, Mapping[str, str]] = attrs.field(factory=dict)
    nodes: dict[int, ClusterNode] = attrs.field(factory=dict, init=False)
    """By node id."""
    _ended: ExitStack = attrs.field(factory=ExitStack, init=False)

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of the brokers that run, for a client's bootstrap.servers."""
        return ",".join(node.address for node in self.nodes.values() if node.is_running)

    def start(self) -> Self:
        """Starts all brokers. Clients can connect, and all brokers are in service, when this returns."""
        assert not self.nodes, "the cluster is running"
        folder = self._ended.enter_context(tempfile.TemporaryDirectory(prefix="kwire-"))
        replicas = str(min(self.size, 3))
        settings = {
            "default.replication.factor": replicas,
            "offsets.topic.replication.factor": replicas,
            "transaction.state.log.replication.factor": replicas,
            "transaction.state.log.min.isr": str(min(self.size, 2)),
            **self.settings,
            "kwire.cluster.dir": str(Path(folder) / "c"),
        }
        try:
            for node_id in range(1, self.size + 1):
                own = {**settings, **self.node_settings.get(node_id, {}), "node.id": str(node_id)}
                node = self.nodes[node_id] = ClusterNode(settings=own)
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
        """Ends a broker as SIGKILL would."""
        self.nodes[node_id].kill()

    def pause(self, node_id: int) -> None:
        """Stops a broker as SIGSTOP would: it is alive, and answers nobody until `go_on`."""
        self.nodes[node_id].pause()

    def go_on(self, node_id: int) -> None:
        """A paused broker goes on."""
        self.nodes[node_id].go_on()

    def restart(self, node_id: int) -> None:
        """Starts a broker again, with the data that it had. One that runs is stopped first, in good order."""
        node = self.nodes[node_id]
        if node.is_running:
            node.stop()
        node.start()
        self._wait_until_in_service()

    def leader_of(self, topic: str, partition: int) -> int:
        """The broker that leads the partition; -1 if none does. Raises kwire.client.errors.ClientError."""
        with self._connection() as connection:
            asked = MetadataRequest([MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
            answer: MetadataResponse = connection.call(asked)
        (described,) = answer.topics
        if described.error_code:
            raise refused(f"topic {topic}", described.error_code)
        found = {it.partition_index: it.leader_id for it in described.partitions}
        return found.get(partition, NO_LEADER)

    def move(self, topic: str, partition: int, replicas: Sequence[int], *, timeout_s: float = 30.0) -> None:
        """Gives a partition to these brokers, the preferred leader first. Returns when they have all of it.

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
        """To a broker that runs, and is not paused."""
        node = next(it for it in self.nodes.values() if it.answers)
        return BrokerConnection(parse_addresses(node.address)[0])

    def _wait_until_in_service(self) -> None:
        """Until every broker that answers knows that all of them are in service."""
        answering = {node_id: node for node_id, node in self.nodes.items() if node.answers}
        for node in answering.values():
            with BrokerConnection(parse_addresses(node.address)[0]) as connection:
                _wait_until(partial(_serve, connection, answering.keys()), "not all brokers are in service")


def _serve(connection: BrokerConnection, node_ids: Set[int]) -> bool:
    described: DescribeClusterResponse = connection.call(DescribeClusterRequest())
    return node_ids <= {it.broker_id for it in described.brokers}


def _wait_until(what: Callable[[], bool], otherwise: str, timeout_s: float = 30.0) -> None:
    clock = SystemClock()
    deadline = clock.monotonic() + timeout_s
    while not what():
        if clock.monotonic() > deadline:
            raise TimeoutError(f"timed out after {timeout_s:g} s: {otherwise}")
        clock.sleep(PAUSE_S)
