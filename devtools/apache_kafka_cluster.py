"""Starts three Apache Kafkas that are one cluster, to compare kwire's with.

    with ApacheKafkaCluster(settings={"group.initial.rebalance.delay.ms": "0"}) as cluster:
        cluster.kill(2)

Each node is a process on loopback, broker and controller at once, and all of them vote. So a cluster of three loses one
node without harm, and of two it waits. Internal topics have a replica on each of at most three nodes, as by Kafka's
defaults.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Self

from devtools.apache_kafka import VERSION, ApacheKafka, Setting, new_id
from devtools.java import SHORT_LIVED

# Three of them share the machine with the tests.
_NODE_JVM = ("-Xms96m", "-Xmx512m", *SHORT_LIVED)


class ApacheKafkaCluster:
    """Nodes with the ids 1, 2, 3, ... `settings` are for all of them, `node_settings` for one, by its id.

    Everything lies in temporary folders, which go away with `close()`. `start` raises ApacheKafkaError.
    """

    def __init__(
        self,
        size: int = 3,
        settings: Mapping[str, Setting] | None = None,
        *,
        node_settings: Mapping[int, Mapping[str, Setting]] | None = None,
        version: str = VERSION,
        jvm_options: tuple[str, ...] = _NODE_JVM,
    ) -> None:
        cluster_id = new_id()
        replicas, in_sync = min(size, 3), min(size, 2)
        common: dict[str, Setting] = {
            "offsets.topic.replication.factor": replicas,
            "transaction.state.log.replication.factor": replicas,
            "transaction.state.log.min.isr": in_sync,
            "share.coordinator.state.topic.replication.factor": replicas,
            "share.coordinator.state.topic.min.isr": in_sync,
            **(settings or {}),
        }
        self.nodes: dict[int, ApacheKafka] = {}
        for node_id in range(1, size + 1):
            own = {**common, **(node_settings or {}).get(node_id, {}), "node.id": node_id}
            self.nodes[node_id] = ApacheKafka(version, own, jvm_options=jvm_options, cluster_id=cluster_id)

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of the nodes that run, for a client's bootstrap.servers."""
        return ",".join(node.bootstrap for node in self.nodes.values() if node.running)

    def start(self) -> None:
        """Starts all nodes at once, since none of them serves before a majority votes."""
        for node in self.nodes.values():
            node.choose_ports()
        voters = ",".join(f"{node_id}@{node.controller}" for node_id, node in self.nodes.items())
        for node in self.nodes.values():
            node.settings["controller.quorum.voters"] = voters
            node.begin_start()
        for node in self.nodes.values():
            node.wait_until_up()

    def kill(self, node_id: int) -> None:
        """Pulls the plug of a node (SIGKILL)."""
        self.nodes[node_id].kill()

    def restart(self, node_id: int) -> None:
        """Starts a node again, which is stopped first if it runs."""
        self.nodes[node_id].restart()

    def close(self) -> None:
        """Kills all nodes, and removes everything they wrote."""
        for node in self.nodes.values():
            node.close()

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
