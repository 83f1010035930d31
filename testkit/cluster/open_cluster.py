"""Brokers of one cluster that send each other requests."""

from __future__ import annotations

import queue
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import attrs
from kwire_storage.disk.files import Disk

from kwire.config.server import ServerConfig
from kwire.network.server import BoundListener
from kwire.node import broker as broker_module
from kwire.runtime.futures import begun
from kwire.share.coordinator.persister import Persister
from kwire.testing import Broker
from testkit.cluster.local_cluster import ALONE, LocalCluster

T = TypeVar("T")


SETTINGS = {
    **ALONE,
    "share.coordinator.state.topic.num.partitions": "6",
    "share.coordinator.state.topic.replication.factor": "3",
    "share.coordinator.state.topic.min.isr": "2",
    "share.coordinator.snapshot.update.records.per.snapshot": "3",
}


class OpenBroker(Broker):
    """A broker whose persister a test can call."""

    inner: broker_module.Broker

    def _open(self, config: ServerConfig, disk: Disk, listeners: list[BoundListener]) -> broker_module.Broker:
        self.inner = super()._open(config, disk, listeners)
        return self.inner

    def run(self, call: Callable[[Persister], Coroutine[Any, None, T]], *, timeout_s: float = 30.0) -> T:
        """Runs the coroutine in the loop of the broker."""
        outcomes: queue.SimpleQueue[Any] = queue.SimpleQueue()

        def begin() -> None:
            future = begun(call(self.inner.persister))
            if future.is_set:
                outcomes.put(future.value)
            else:
                future.when_set(lambda: outcomes.put(future.value))

        assert self._running is not None
        self._running.call(begin)
        result: T = outcomes.get(timeout=timeout_s).unwrap()
        return result


@attrs.define
class OpenCluster(LocalCluster):
    def start(self, node_id: int) -> Broker:
        settings = {"node.id": str(node_id), "kwire.cluster.dir": str(self.folder / "cluster"), **self.settings}
        node = OpenBroker(data_dir=self.folder / f"node-{node_id}", settings=settings)
        node.start()
        self.nodes[node_id] = node
        return node

    def node(self, node_id: int) -> OpenBroker:
        node = self.nodes[node_id]
        assert isinstance(node, OpenBroker)
        return node
