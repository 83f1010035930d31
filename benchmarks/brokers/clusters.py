"""Several brokers that are one cluster: started together, killed and started again one by one.

All nodes have the same cores: those that a single broker has. A cluster counts as started when every node has all of
them in its metadata and a record is acknowledged by all of them (acks=all).
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import attrs
from kwire_protocol.messages.elect_leaders import ElectLeadersRequest
from kwire_protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

from benchmarks.brokers.single import START_TIMEOUT_S, Lab, NotStarted, RunningBroker, Seat, Spec
from benchmarks.load.answers import BadAnswer, check_produce
from benchmarks.load.connection import Connection
from benchmarks.load.requests import produce, value_batch
from benchmarks.machine import Meter, cpu_s
from devtools.zookeeper import ZooKeeper
from testkit.raw.client import ConnectionClosed

WHOLE_TIMEOUT_S = 180.0

_LOOK_AGAIN_S = 0.005
_PREFERRED = 0
_ELECTION_NOT_NEEDED = 84


@attrs.frozen
class Nodes:
    """The cluster of a scenario: how many nodes, and settings of each system.

    `in_zookeeper`: kwire's nodes have what they share in an Apache ZooKeeper, instead of a folder.
    """

    count: int = 3
    kafka: Mapping[str, str] = attrs.field(factory=dict)
    kwire: Mapping[str, str] = attrs.field(factory=dict)
    in_zookeeper: bool = False


@attrs.define(eq=False)
class RunningCluster:
    """`nodes` by node id, 1 and on. A node that was stopped or killed stays among them, until it is launched again."""

    lab: Lab
    spec: Spec
    root: Path
    seats: dict[int, Seat]
    nodes: dict[int, RunningBroker] = attrs.field(factory=dict)
    startup_s: float = 0.0  # from the start of the first process to the first acknowledged record
    startup_cpu_s: float = 0.0

    @property
    def running(self) -> dict[int, RunningBroker]:
        return {node_id: node for node_id, node in self.nodes.items() if node.running}

    @property
    def bootstrap(self) -> str:
        """The addresses of the nodes that run."""
        return ",".join(node.bootstrap for node in self.running.values())

    @property
    def meter(self) -> Meter:
        """A meter of the processes that run now."""
        return Meter([node.pid for node in self.running.values()], self.lab.broker_cores)

    def start(self) -> None:
        """Starts all nodes at once. Raises NotStarted."""
        began = time.monotonic()
        for node_id in self.seats:
            self.launch(node_id)
        try:
            self.wait_until_in_service(began + START_TIMEOUT_S)
            self._write_to_all()
        except TimeoutError as error:
            last_words = "\n".join(node.last_words() for node in self.nodes.values())
            raise NotStarted(f"{len(self.seats)} nodes of {self.spec.name}: {error}\n{last_words}") from None
        self.startup_s = time.monotonic() - began
        self.startup_cpu_s = cpu_s(*self.meter.pids)

    def launch(self, node_id: int) -> None:
        """Starts a node that does not run, and does not wait for it."""
        root = self.root / f"node-{node_id}"
        root.mkdir(exist_ok=True)
        self.nodes[node_id] = self.lab.launch(self.spec, root, self.seats[node_id])

    def stop(self) -> float:
        """Stops all nodes at once; returns the seconds until the last has ended."""
        began = time.monotonic()
        for node in self.nodes.values():
            node.begin_stop()
        for node in self.nodes.values():
            node.stop()
        return time.monotonic() - began

    def kill(self) -> None:
        """SIGKILL to all nodes that run."""
        for node in self.running.values():
            node.kill()

    def wait_until_in_service(self, deadline_s: float) -> None:
        """Waits until every running node has all of them in its metadata. Raises TimeoutError."""
        wanted = set(self.running)

        def are_in_service() -> bool:
            return all(wanted <= brokers_known_to(node.port) for node in self.running.values())

        self._wait_until(are_in_service, "not all nodes are in service", deadline_s)

    def wait_until_whole(self, topics: Collection[str]) -> None:
        """Waits until all replicas of these topics' partitions are in sync. Raises TimeoutError."""
        deadline_s = time.monotonic() + WHOLE_TIMEOUT_S
        self.wait_until_in_service(deadline_s)
        self._wait_until(lambda: self._is_whole(topics), "not all replicas are in sync", deadline_s)

    def prefer_leaders(self, topics: Collection[str]) -> None:
        """Gives all partitions back to their preferred leaders, and waits until these lead."""
        with self.connection() as connection:
            for result in connection.request(ElectLeadersRequest(_PREFERRED, None, 60_000)).replica_election_results:
                for it in result.partition_result:
                    if it.error_code not in (0, _ELECTION_NOT_NEEDED):
                        raise BadAnswer(f"ElectLeaders {result.topic}-{it.partition_id}: {it.error_code}")

        def are_preferred() -> bool:
            found = (it for node in self.running.values() for it in _partitions(node.port, topics))
            return all(it.leader_id == it.replica_nodes[0] for it in found)

        deadline_s = time.monotonic() + WHOLE_TIMEOUT_S
        self._wait_until(are_preferred, "not all preferred leaders lead", deadline_s)

    def connection(self) -> Connection:
        """To a node that runs."""
        return Connection(next(iter(self.running.values())).port)

    def leaders(self, topics: Collection[str]) -> dict[tuple[str, int], int]:
        """Returns the leaders by topic and partition."""
        return leaders_of(next(iter(self.running.values())).port, topics)

    def _is_whole(self, topics: Collection[str]) -> bool:
        found = _partitions(next(iter(self.running.values())).port, topics)
        return all(it.leader_id >= 0 and len(it.isr_nodes) == len(it.replica_nodes) for it in found)

    def _write_to_all(self) -> None:
        topic = "bench-ready"
        with self.connection() as connection:
            connection.create({topic: len(self.seats)}, replicas=len(self.seats))
        batch, check = value_batch(1, 16), check_produce(topic, 1)
        for (_, partition), leader in self.leaders([topic]).items():
            with Connection(self.seats[leader].port) as connection:
                answer = connection.call(produce(topic, [partition], batch))
                check(answer, 0, len(answer))

    def _wait_until(self, what: Callable[[], bool], otherwise: str, deadline_s: float) -> None:
        while not what():
            ended = [node_id for node_id, node in self.nodes.items() if not node.running]
            if time.monotonic() > deadline_s or len(ended) == len(self.nodes):
                raise TimeoutError(f"{otherwise}; not running: {ended}")
            time.sleep(_LOOK_AGAIN_S)


def brokers_known_to(port: int) -> set[int]:
    """Returns the nodes in the metadata of one of them; none, if it does not answer yet."""
    try:
        with Connection(port, timeout_s=10.0) as connection:
            return {it.node_id for it in connection.request(MetadataRequest([])).brokers}
    except (OSError, ConnectionClosed):
        return set()


def leaders_of(port: int, topics: Collection[str]) -> dict[tuple[str, int], int]:
    """Returns the leaders of all partitions in one node's metadata, by topic and partition."""
    return {
        (str(it.name), part.partition_index): part.leader_id
        for it in _described(port, topics)
        for part in it.partitions
    }


def _partitions(port: int, topics: Collection[str]) -> list[MetadataResponsePartition]:
    return [part for topic in _described(port, topics) for part in topic.partitions]


def _described(port: int, topics: Collection[str]) -> list[MetadataResponseTopic]:
    with Connection(port) as connection:
        requested = [MetadataRequestTopic(name=topic) for topic in topics]
        described: list[MetadataResponseTopic] = connection.request(MetadataRequest(requested, False)).topics
    return described


@contextmanager
def running_cluster(lab: Lab, spec: Spec, wanted: Nodes) -> Iterator[RunningCluster]:
    """A cluster on empty folders; its nodes and their data are gone afterwards. Raises NotStarted."""
    if spec.kind == "command":
        raise NotStarted(f"{spec.name} is a command, which starts one broker: no cluster can be made of it")
    with ExitStack() as stack:
        root = Path(tempfile.mkdtemp(prefix="kwire-bench-", dir=lab.data_root))
        stack.callback(shutil.rmtree, root, ignore_errors=True)
        common = {"kwire.cluster.dir": str(root / "cluster")}
        if wanted.in_zookeeper and spec.kind == "kwire":
            common = {"zookeeper.connect": stack.enter_context(ZooKeeper()).connect + "/kwire"}
        cluster = RunningCluster(lab, spec, root, _seats(spec, wanted, common))
        stack.callback(cluster.kill)
        cluster.start()
        yield cluster


def _seats(spec: Spec, wanted: Nodes, common: Mapping[str, str]) -> dict[int, Seat]:
    seats = {node_id: Seat(node_id=node_id) for node_id in range(1, wanted.count + 1)}
    if spec.kind == "kafka":
        common = {"controller.quorum.voters": ",".join(seat.voter for seat in seats.values()), **wanted.kafka}
    else:
        common = {**common, **wanted.kwire}
    return {
        node_id: attrs.evolve(seat, settings={**common, "node.id": str(node_id)}) for node_id, seat in seats.items()
    }
