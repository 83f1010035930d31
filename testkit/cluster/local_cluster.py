"""A few brokers in this process that are a cluster of the local form, each in a thread of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import attrs
from kwire_protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from kwire_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic

from kwire.testing import Broker
from testkit.raw.client import RawClient

ALONE = {
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "offsets.topic.num.partitions": "6",
    "transaction.state.log.num.partitions": "6",
}


@attrs.define
class LocalCluster:
    """`nodes` by their ids. A node that was stopped is started again by `start`, on another port."""

    folder: Path
    settings: Mapping[str, str]
    nodes: dict[int, Broker] = attrs.field(factory=dict)

    def start(self, node_id: int) -> Broker:
        settings = {"node.id": str(node_id), "kwire.cluster.dir": str(self.folder / "cluster"), **self.settings}
        node = Broker(data_dir=self.folder / f"node-{node_id}", settings=settings)
        node.start()
        self.nodes[node_id] = node
        return node

    def stop(self, node_id: int) -> None:
        self.nodes.pop(node_id).stop()

    def describe(self, node_id: int, *, fenced: bool = True) -> DescribeClusterResponse:
        with RawClient(self.nodes[node_id].address) as client:
            answer: DescribeClusterResponse = client.call(DescribeClusterRequest(include_fenced_brokers=fenced), 2)
        return answer

    def in_service(self, node_id: int) -> list[int]:
        """The brokers that this one calls in service."""
        return sorted(it.broker_id for it in self.describe(node_id).brokers if not it.is_fenced)

    def fenced(self, node_id: int) -> list[int]:
        """The brokers that this one calls fenced."""
        return sorted(it.broker_id for it in self.describe(node_id).brokers if it.is_fenced)

    def leaders(self, node_id: int, topic: str) -> list[int]:
        """The leaders of the partitions in this node's metadata."""
        with RawClient(self.nodes[node_id].address) as client:
            described = client.call(MetadataRequest([MetadataRequestTopic(name=topic)]), 12).topics[0]
        return [it.leader_id for it in sorted(described.partitions, key=lambda it: it.partition_index)]


@contextmanager
def local_cluster(folder: Path, *node_ids: int, settings: Mapping[str, str] = ALONE) -> Iterator[LocalCluster]:
    cluster = LocalCluster(folder, settings)
    try:
        for node_id in node_ids:
            cluster.start(node_id)
        yield cluster
    finally:
        for node_id in list(cluster.nodes):
            cluster.stop(node_id)
