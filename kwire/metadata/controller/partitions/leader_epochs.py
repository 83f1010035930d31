"""The leader epochs that a start of a broker without a cluster begins.

Each start is a new leadership, as in Kafka, where a broker is fenced until it has started. Clients that were connected
before notice it by the epoch.

A log that was copied from another cluster (see storage/README.md) may have later leader epochs than this cluster's
metadata. Appends must not continue in an earlier epoch: clients that have seen the later one would consider the
partition's leader outdated, and wait for a newer one forever.
"""

from __future__ import annotations

from collections.abc import Mapping

from kwire_protocol.internal.metadata_topics import PartitionChangeRecord, PartitionRecord
from kwire_protocol.wire import Uuid

from kwire.metadata.controller.deciding import ClusterState, Records


def next_epochs(state: ClusterState) -> Records:
    """Begins the next epoch of each partition that the deciding node leads."""
    return [
        PartitionChangeRecord(partition_id=index, topic_id=topic.topic_id, leader=state.node_id)
        for topic in state.image.topics.values()
        for index, known in enumerate(topic.partitions)
        if known.leader == state.node_id
    ]


def epochs_behind(state: ClusterState, latest: Mapping[tuple[Uuid, int], int]) -> Records:
    """Begins the epoch after the log's latest, for each of these partitions, given by topic id and index."""
    records: Records = []
    for (topic_id, index), epoch in latest.items():
        known = state.image.topics_by_id[topic_id].partitions[index]
        records.append(
            PartitionRecord(
                partition_id=index,
                topic_id=topic_id,
                replicas=list(known.replicas),
                isr=list(known.isr),
                removing_replicas=list(known.removing_replicas),
                adding_replicas=list(known.adding_replicas),
                leader=known.leader,
                leader_epoch=epoch + 1,
                partition_epoch=known.partition_epoch + 1,
                directories=list(known.directories),
                leader_recovery_state=known.leader_recovery_state,
                eligible_leader_replicas=list(known.eligible_leader_replicas) or None,
                last_known_elr=list(known.last_known_elr) or None,
            )
        )
    return records
