"""The partitions of each endpoint, for interactive queries: the state of a key is on the member that has its partition
as an active task, or as a standby (Kafka's `EndpointToPartitionsManager`).

One thing differs. A topic of a subtopology may have fewer partitions than the subtopology has tasks. Here those tasks
do not count for it; Kafka 4.3.1 lists the first partitions, independent of the member's tasks.
"""

from __future__ import annotations

from collections.abc import Iterable

from kwire_protocol.messages.streams_group_heartbeat import (
    EndpointToPartitions,
    StreamsGroupHeartbeatResponseEndpoint,
    TopicPartition,
)

from kwire.groups.streams.internal_topics import PartitionCount
from kwire.groups.streams.member import CurrentTasks, StreamsMember
from kwire.groups.streams.topology import Topology


def endpoint_to_partitions(
    member: StreamsMember, current: CurrentTasks, topology: Topology, partition_count: PartitionCount
) -> EndpointToPartitions | None:
    """The member's partitions, in order of topics; None for a member without an endpoint."""
    endpoint = member.user_endpoint
    if endpoint is None:
        return None
    tasks = current.assigned
    return EndpointToPartitions(
        StreamsGroupHeartbeatResponseEndpoint(endpoint.host, endpoint.port),
        _partitions(((name, frozenset(of)) for name, of in tasks.active.items()), topology, partition_count),
        _partitions(tasks.standby.items(), topology, partition_count),
    )


def _partitions(
    tasks: Iterable[tuple[str, frozenset[int]]], topology: Topology, partition_count: PartitionCount
) -> list[TopicPartition]:
    found = []
    for subtopology_id, task_numbers in tasks:
        part = topology.subtopologies.get(subtopology_id)
        for topic in () if part is None else part.read_topics():
            count = partition_count(topic) or 0
            if partitions := sorted(it for it in task_numbers if it < count):
                found.append(TopicPartition(topic, partitions))
    return sorted(found, key=lambda it: it.topic)
