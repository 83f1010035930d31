"""A cluster at one moment: its brokers, its partitions, and what is wrong with them.

The answers come from several requests, so they need not be of the same moment. Data that a broker is too old to send,
or does not send to this client, is left out, and noted in a sentence of `notes`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Final

import attrs
from kwire_protocol.kafka_error import quoted
from kwire_protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from kwire_protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from kwire_protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
    DescribeQuorumResponse,
)
from kwire_protocol.messages.metadata import MetadataResponse, MetadataResponseTopic

from kwire.admin.batches import batches
from kwire.admin.partitions import PartitionState, partition_states
from kwire.admin.reassignments import Reassignment, list_reassignments
from kwire.client.cluster import Cluster, TopicPartition
from kwire.client.errors import Refused, VersionNotServed, refused

METADATA_TOPIC: Final = "__cluster_metadata"
MIN_ISR: Final = "min.insync.replicas"
_TOPIC = 2
_FIRST_WITH_FENCED_BROKERS = 2


class NodeState(StrEnum):
    IN_SERVICE = "in_service"
    FENCED = "fenced"
    """Registered, and not in service: starting, stopping, stopped or cut off."""
    MISSING = "missing"
    """It has replicas, and the cluster does not list it: it was unregistered, or the brokers list no fenced ones."""


@attrs.frozen
class Node:
    """A broker. Host, port and rack are None if the cluster does not report them."""

    node_id: int
    host: str | None
    port: int | None
    rack: str | None
    state: NodeState
    leads: int
    """The number of partitions that it leads."""
    replicas: int
    """The number of partitions of which it has a replica, or is to get one."""


@attrs.frozen
class ClusterState:
    cluster_id: str | None
    controller_id: int | None
    """The id of the controller, which with KRaft need not be a broker. None when it is unknown, or there is none."""
    nodes: Sequence[Node]
    partitions: Sequence[PartitionState]
    reassignments: Sequence[Reassignment] | None
    """The reassignments in progress; None if the cluster does not report them."""
    notes: Sequence[str]

    def node(self, node_id: int) -> Node | None:
        return next((it for it in self.nodes if it.node_id == node_id), None)

    @property
    def offline(self) -> list[PartitionState]:
        return [it for it in self.partitions if it.is_offline]

    @property
    def under_replicated(self) -> list[PartitionState]:
        return [it for it in self.partitions if it.is_under_replicated]

    @property
    def below_min_isr(self) -> list[PartitionState]:
        return [it for it in self.partitions if it.is_below_min_isr]

    @property
    def is_healthy(self) -> bool:
        return not any(it.needs_attention for it in self.partitions)


def describe_cluster(cluster: Cluster) -> ClusterState:
    """Raises ClientError if the brokers do not report even their metadata."""
    notes: list[str] = []
    metadata = cluster.metadata(None)
    reassignments = _reassignments(cluster, notes)
    partitions = [
        attrs.evolve(it, adding=_adding(it, reassignments or {}))
        for it in partition_states(_served(metadata.topics, notes))
    ]
    min_isr = _min_isr(cluster, {it.at.topic for it in partitions if len(it.isr) < len(it.replicas)}, notes)
    partitions = [attrs.evolve(it, min_isr=min_isr.get(it.at.topic)) for it in partitions]
    return ClusterState(
        cluster_id=metadata.cluster_id,
        controller_id=_controller(cluster, metadata, notes),
        nodes=_nodes(cluster, metadata, partitions, notes),
        partitions=partitions,
        reassignments=None if reassignments is None else list(reassignments.values()),
        notes=notes,
    )


def _served(topics: Iterable[MetadataResponseTopic], notes: list[str]) -> list[MetadataResponseTopic]:
    served = []
    for it in topics:
        if it.error_code:
            notes.append(refused(f"topic {quoted(it.name)} is left out", it.error_code).message)
        else:
            served.append(it)
    return served


def _adding(it: PartitionState, reassignments: Mapping[TopicPartition, Reassignment]) -> tuple[int, ...]:
    """A reassignment may have begun, or ended, since the replicas were looked up."""
    if it.at not in reassignments:
        return ()
    return tuple(node_id for node_id in reassignments[it.at].adding if node_id in it.replicas)


def _reassignments(cluster: Cluster, notes: list[str]) -> dict[TopicPartition, Reassignment] | None:
    try:
        return {it.at: it for it in list_reassignments(cluster)}
    except (Refused, VersionNotServed) as error:
        notes.append(f"reassignments are not known: {error.message}")
        return None


def _controller(cluster: Cluster, metadata: MetadataResponse, notes: list[str]) -> int | None:
    """The leader of the metadata log. A broker that has no such log names the controller in its metadata.

    The brokers of a KRaft cluster name some broker there.
    """
    partitions = [DescribeQuorumRequestPartitionData(0)]
    request = DescribeQuorumRequest([DescribeQuorumRequestTopicData(METADATA_TOPIC, partitions)])

    def attempt() -> int | None:
        answer: DescribeQuorumResponse = cluster.call(request)
        what = "the controller is not known"
        if answer.error_code:
            raise refused(what, answer.error_code, answer.error_message)
        for it in (it for topic in answer.topics for it in topic.partitions):
            if it.error_code:
                raise refused(what, it.error_code, it.error_message)
            return it.leader_id if it.leader_id >= 0 else None
        return None

    try:
        return cluster.until_done(attempt)
    except VersionNotServed:
        return metadata.controller_id if metadata.controller_id >= 0 else None
    except Refused as error:
        notes.append(error.message)
        return None


def _nodes(
    cluster: Cluster, metadata: MetadataResponse, partitions: Iterable[PartitionState], notes: list[str]
) -> list[Node]:
    leads: Counter[int] = Counter()
    replicas: Counter[int] = Counter()
    for partition in partitions:
        replicas.update(partition.replicas)
        if partition.leader_id is not None:
            leads[partition.leader_id] += 1

    def node(node_id: int, host: str | None, port: int | None, rack: str | None, state: NodeState) -> Node:
        return Node(node_id, host, port, rack, state, leads[node_id], replicas[node_id])

    request = DescribeClusterRequest(include_fenced_brokers=True)
    try:
        described: DescribeClusterResponse = cluster.call(request, at_least=_FIRST_WITH_FENCED_BROKERS)
        if described.error_code:
            raise refused("the brokers are not described", described.error_code, described.error_message)
        found = {
            it.broker_id: node(
                it.broker_id, it.host, it.port, it.rack, NodeState.FENCED if it.is_fenced else NodeState.IN_SERVICE
            )
            for it in described.brokers
        }
    except (Refused, VersionNotServed) as error:
        notes.append(f"fenced brokers are listed only if they have replicas: {error.message}")
        found = {
            it.node_id: node(it.node_id, it.host, it.port, it.rack, NodeState.IN_SERVICE) for it in metadata.brokers
        }
    for node_id in replicas.keys() - found.keys():
        found[node_id] = node(node_id, None, None, None, NodeState.MISSING)
    return [found[node_id] for node_id in sorted(found)]


def _min_isr(cluster: Cluster, topics: Collection[str], notes: list[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for some in batches(sorted(topics)):
        request = DescribeConfigsRequest([DescribeConfigsResource(_TOPIC, name, [MIN_ISR]) for name in some])
        try:
            results = cluster.call(request).results
        except VersionNotServed as error:
            notes.append(f"{MIN_ISR} is not known: {error.message}")
            return found
        for it in results:
            if it.error_code:
                what = f"{MIN_ISR} of topic {quoted(it.resource_name)} is not known"
                notes.append(refused(what, it.error_code, it.error_message).message)
            for config in it.configs:
                if config.name == MIN_ISR and config.value is not None and config.value.isdecimal():
                    found[it.resource_name] = int(config.value)
    return found
