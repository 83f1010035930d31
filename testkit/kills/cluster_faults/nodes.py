"""The nodes: processes of `kwire serve`, each with its folder, its ports, and a proxy on each way to it."""

from __future__ import annotations

import hashlib
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import attrs
from kwire_protocol.messages.metadata import MetadataRequest, MetadataResponse

from devtools.ports import free_port
from kwire.admin.reassignments import list_reassignments, reassign
from kwire.client.cluster import Cluster, TopicPartition
from kwire.client.errors import ClientError
from testkit.basics.proxy import Proxy
from testkit.basics.waiting import eventually
from testkit.kills.cluster_faults import mistaken
from testkit.kills.cluster_faults.forms import Form
from testkit.raw.client import ConnectionClosed, RawClient
from testkit.servers.broker_process import BrokerProcess, bugs_in

NODES: Final = (1, 2, 3)
SETTINGS: Final = (
    "default.replication.factor=3",
    "min.insync.replicas=2",
    "replica.lag.time.max.ms=3000",
    "offsets.topic.num.partitions=3",
    "transaction.state.log.num.partitions=3",
    "group.initial.rebalance.delay.ms=0",
    "inter.broker.listener.name=BROKERS",
    "listener.security.protocol.map=CLIENTS:PLAINTEXT,BROKERS:PLAINTEXT",
)
WHOLE_WITHIN_S: Final = 120.0


@attrs.define(eq=False)
class Node:
    """It keeps its ports, its proxies and its folder over its restarts."""

    node_id: int
    folder: Path
    port: int
    """The port where it listens for clients; others listen at `clients`, which leads to it."""
    brokers_port: int
    clients: Proxy
    brokers: Proxy
    process: BrokerProcess | None = None
    """None while it is meant to be down."""

    @classmethod
    def make(cls, node_id: int, folder: Path) -> Node:
        folder.mkdir()
        port, brokers_port = free_port(), free_port()
        proxies = Proxy(f"127.0.0.1:{port}"), Proxy(f"127.0.0.1:{brokers_port}")
        return cls(node_id, folder, port, brokers_port, *proxies)

    @property
    def data_dir(self) -> Path:
        return self.folder / "data"

    @property
    def running(self) -> BrokerProcess:
        assert self.process is not None, f"node {self.node_id} does not run"
        return self.process

    def settings(self) -> list[str]:
        listeners = f"CLIENTS://127.0.0.1:{self.port},BROKERS://127.0.0.1:{self.brokers_port}"
        advertised = f"CLIENTS://{self.clients.address},BROKERS://{self.brokers.address}"
        return [f"node.id={self.node_id}", f"listeners={listeners}", f"advertised.listeners={advertised}"]

    def close(self) -> None:
        if self.process is not None:
            self.process.kill()
        self.clients.close()
        self.brokers.close()


class ClusterOfProcesses:
    """Three nodes at first. A test that waits here supervises them meanwhile (`maintain`), as systemd would."""

    def __init__(self, folder: Path, form: Form, *, mistake: str | None = None) -> None:
        """`mistake`: one that all nodes are to make, of those that the simulation has."""
        self._folder = folder
        self.form = form
        self._kwire = ["kwire"] if mistake is None else [mistaken.__name__, mistake]
        self.nodes: dict[int, Node] = {}
        self.ended_by_themselves: list[int] = []
        """The ids of nodes that did so and were started again."""
        self._logs: list[Path] = []

    def __enter__(self) -> Self:
        with ExitStack() as started:
            started.callback(self.close)
            self.form.start()
            for node_id in NODES:
                self.add(node_id)
            self.wait_until_whole()
            started.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Kills what still runs."""
        for node in self.nodes.values():
            node.close()
        self.form.close()

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of the three nodes that stay, for clients."""
        return ",".join(self.nodes[node_id].clients.address for node_id in NODES)

    # One node

    def add(self, node_id: int) -> None:
        """A new node, with an empty folder."""
        node = self.nodes[node_id] = Node.make(node_id, self._folder / f"node-{node_id}-{len(self._logs)}")
        self._logs.append(node.folder / "log")
        self.start(node_id)

    def start(self, node_id: int) -> None:
        node = self.nodes[node_id]
        node.process = None
        settings = [*node.settings(), *self.form.settings(node_id), *SETTINGS]
        node.process = BrokerProcess(node.folder, settings, port=None, kwire=self._kwire)

    def kill(self, node_id: int) -> None:
        node = self.nodes[node_id]
        node.running.kill()
        node.process = None

    def stop(self, node_id: int) -> None:
        """Stops it gracefully (SIGTERM)."""
        node = self.nodes[node_id]
        process, node.process = node.running, None
        status = process.stop(60)
        assert status == 0 or self.form.may_have_ended(process.log()), f"node {node_id} ended with {status}"

    def pause(self, node_id: int) -> None:
        self.nodes[node_id].running.send(signal.SIGSTOP)

    def resume(self, node_id: int) -> None:
        self.nodes[node_id].running.send(signal.SIGCONT)

    def empty(self, node_id: int) -> None:
        """A new disk for a node that is down."""
        assert self.nodes[node_id].process is None
        shutil.rmtree(self.nodes[node_id].data_dir)

    def forget(self, node_id: int) -> None:
        """Removes a node that is down, and has no replicas, from the cluster."""

        def forgotten() -> bool:
            arguments = ["cluster", "forget", str(node_id), "--yes", "--bootstrap-server", self._direct_servers()]
            done = subprocess.run(
                [sys.executable, "-m", "kwire", *arguments], capture_output=True, text=True, timeout=120, check=False
            )
            assert done.returncode == 0 or "is in service" in done.stderr, done.stderr
            return done.returncode == 0

        self.until(forgotten, f"node {node_id} is forgotten")
        self.nodes.pop(node_id).close()

    # All of them

    def maintain(self) -> None:
        """Starts nodes again that ended by themselves. Fails if they should not have."""
        for node in self.nodes.values():
            if node.process is not None and not node.process.is_running:
                log = node.process.log()
                node.process.stop()
                assert self.form.may_have_ended(log), f"node {node.node_id} ended by itself:\n{log[-4000:]}"
                self.ended_by_themselves.append(node.node_id)
                self.start(node.node_id)

    def until(self, so: Callable[[], bool], what: str, within_s: float = WHOLE_WITHIN_S) -> None:
        """Waits until `so()`, and tends the nodes meanwhile."""

        def probe() -> bool:
            self.maintain()
            return so()

        eventually(probe, what, within_s=within_s, pause_s=0.1)

    def wait_until_whole(self) -> None:
        """Waits until all nodes are in service in the metadata of each, and each replica is in sync."""
        lacks: list[str] = []

        def is_whole() -> bool:
            lacks[:] = [lack for it in self.nodes.values() if (lack := self._lack_of(it)) is not None][:1]
            return not lacks

        try:
            self.until(is_whole, "all nodes are in service, and all replicas in sync")
        except AssertionError as problem:
            raise AssertionError(f"{problem}: {lacks}") from None

    def _lack_of(self, node: Node) -> str | None:
        """Describes what this node's metadata still lacks. None if all nodes serve and all replicas are in sync."""
        found = self.metadata(node.node_id)
        if found is None:
            return f"node {node.node_id} does not answer"
        if (in_service := {it.node_id for it in found.brokers}) != self.nodes.keys():
            return f"by node {node.node_id}, {in_service} are in service"
        for topic in found.topics:
            for it in topic.partitions:
                if it.leader_id not in self.nodes or set(it.isr_nodes) != set(it.replica_nodes):
                    return f"by node {node.node_id}, {topic.name} has {it}"
        return None

    def metadata(self, node_id: int) -> MetadataResponse | None:
        """Returns a node's metadata; None while it does not answer."""
        try:
            with RawClient(f"127.0.0.1:{self.nodes[node_id].port}", timeout_s=20.0) as client:
                answer: MetadataResponse = client.call(MetadataRequest(topics=None), 12)
        except (OSError, ClientError, ConnectionClosed):
            return None
        return answer

    def replicas(self) -> dict[TopicPartition, list[int]]:
        """Returns the replicas of each partition, from the first node that answers."""
        answers: list[MetadataResponse] = []

        def attempt() -> bool:
            answers[:] = [it for node_id in NODES if (it := self.metadata(node_id)) is not None][:1]
            return bool(answers)

        self.until(attempt, "a node answers")
        return {
            TopicPartition(topic.name or "", it.partition_index): list(it.replica_nodes)
            for topic in answers[0].topics
            for it in topic.partitions
        }

    def move(self, targets: dict[TopicPartition, list[int]]) -> None:
        """Returns when the replicas of these partitions are at these nodes."""
        with self.client() as cluster:
            for at, replicas in targets.items():
                reassign(cluster, at, replicas)

            def is_done() -> bool:
                try:
                    return not list_reassignments(cluster)
                except ClientError:
                    return False

            self.until(is_done, "all partitions have moved")
        self.wait_until_whole()

    @contextmanager
    def client(self) -> Iterator[Cluster]:
        with Cluster(self._direct_servers(), timeout_s=60) as cluster:
            yield cluster

    def _direct_servers(self) -> str:
        return ",".join(f"127.0.0.1:{self.nodes[node_id].port}" for node_id in NODES)

    # Afterwards

    def stop_all(self) -> None:
        """Stops all gracefully, one after the other."""
        self.maintain()
        for node_id in list(self.nodes):
            self.stop(node_id)

    def data_dirs(self) -> list[Path]:
        return [it.data_dir for it in self.nodes.values()]

    def bugs(self) -> list[str]:
        """Returns the tracebacks in the logs of all nodes, also of those that were removed."""
        return [bug for log in self._logs for bug in bugs_in(log.read_text(encoding="utf-8"))]

    def differences(self, replicas: Mapping[TopicPartition, list[int]]) -> list[str]:
        """Partitions whose replicas are not the same bytes, or are at other nodes. The nodes must be stopped."""
        found = []
        for at, node_ids in replicas.items():
            has = {node_id: _hash(it.data_dir / str(at)) for node_id, it in self.nodes.items()}
            hashes = {has[node_id] for node_id in node_ids}
            if len(hashes) != 1 or None in hashes:
                found.append(f"the replicas of {at} differ: {has}")
            found += [
                f"node {it} has {at}, whose replicas are at {node_ids}" for it in has if has[it] and it not in node_ids
            ]
        return found


def _hash(partition: Path) -> str | None:
    """The hash of a partition's records; None if there is no such folder."""
    if not partition.exists():
        return None
    digest = hashlib.sha256()
    for segment in sorted(partition.glob("*.log")):
        digest.update(segment.read_bytes())
    return digest.hexdigest()
