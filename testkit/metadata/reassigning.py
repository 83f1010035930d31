"""Requests for reassignments."""

from __future__ import annotations

from collections.abc import Sequence

from kwire_protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)

from kwire.metadata.controller.partitions.reassignments import reassign_partitions
from testkit.metadata.image_cluster import Cluster


def reassign(
    cluster: Cluster,
    replicas: Sequence[int] | None,
    *,
    index: int = 0,
    topic: str = "t",
    may_change_factor: bool = True,
) -> int:
    request = AlterPartitionReassignmentsRequest(
        allow_replication_factor_change=may_change_factor,
        topics=[ReassignableTopic(topic, [ReassignablePartition(index, None if replicas is None else list(replicas))])],
    )
    records, response = reassign_partitions(cluster.state, request)
    cluster.take(records)
    return response.responses[0].partitions[0].error_code
