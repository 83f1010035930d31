"""The states of partitions and replicas, derived from the metadata, and the transitions between them.

Kafka's controller based on ZooKeeper stored these states besides its metadata (`PartitionState`, `ReplicaState`). Here
the records are the only state: each decision changes records, and the tables below list the transitions that may
result. The tests compare every decision with them, and docs/cluster.md shows them as diagrams.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

from kwire_protocol.wire import Uuid

from kwire.metadata.image import NO_LEADER, MetadataImage, PartitionRegistration


class PartitionState(Enum):
    NON_EXISTENT = "NonExistent"
    NEW = "New"
    """Recorded, with its leader, but not served yet: brokers open its logs."""
    ONLINE = "Online"
    """It has a leader."""
    OFFLINE = "Offline"
    """It has no leader: no replica that may lead is in service."""


class ReplicaState(Enum):
    NON_EXISTENT = "NonExistent"
    NEW = "New"
    """A reassignment adds it: it copies the log, and may be dropped again."""
    ONLINE = "Online"
    OFFLINE = "Offline"
    """Its broker is fenced or not registered, or its log dir is out of service."""


PARTITION_TRANSITIONS: Final[Mapping[PartitionState, Mapping[PartitionState, str]]] = {
    PartitionState.NON_EXISTENT: {
        PartitionState.NEW: "its topic is created",
        PartitionState.ONLINE: "it is added to its topic",
    },
    PartitionState.NEW: {
        PartitionState.ONLINE: "its logs are open",
        PartitionState.OFFLINE: "the brokers with its replicas have ended meanwhile",
        PartitionState.NON_EXISTENT: "its topic is deleted",
    },
    PartitionState.ONLINE: {
        PartitionState.OFFLINE: "the last replica that may lead has ended",
        PartitionState.NON_EXISTENT: "its topic is deleted",
    },
    PartitionState.OFFLINE: {
        PartitionState.ONLINE: "a replica that may lead is back, or an unclean election is allowed",
        PartitionState.NON_EXISTENT: "its topic is deleted",
    },
}
"""The states that may follow each state, with the cause of each transition."""

REPLICA_TRANSITIONS: Final[Mapping[ReplicaState, Mapping[ReplicaState, str]]] = {
    ReplicaState.NON_EXISTENT: {
        ReplicaState.ONLINE: "its partition is created",
        ReplicaState.NEW: "a reassignment adds it",
        ReplicaState.OFFLINE: "it is assigned to a broker that is not in service",
    },
    ReplicaState.NEW: {
        ReplicaState.ONLINE: "the reassignment is complete, or replaced by one that keeps it",
        ReplicaState.OFFLINE: "its broker or log dir is out of service",
        ReplicaState.NON_EXISTENT: "the reassignment is cancelled or replaced, or the topic is deleted",
    },
    ReplicaState.ONLINE: {
        ReplicaState.OFFLINE: "its broker or log dir is out of service",
        ReplicaState.NON_EXISTENT: "a reassignment drops it, or the topic is deleted",
    },
    ReplicaState.OFFLINE: {
        ReplicaState.ONLINE: "its broker is back",
        ReplicaState.NEW: "its broker is back, and the reassignment continues",
        ReplicaState.NON_EXISTENT: "a reassignment drops it, or the topic is deleted",
    },
}


def partition_state(image: MetadataImage, topic_id: Uuid, index: int) -> PartitionState:
    topic = image.topics_by_id.get(topic_id)
    if topic is None:
        return PartitionState.NEW if image.is_arriving(topic_id) else PartitionState.NON_EXISTENT
    if index >= len(topic.partitions):
        return PartitionState.NON_EXISTENT
    return PartitionState.OFFLINE if topic.partitions[index].leader == NO_LEADER else PartitionState.ONLINE


def replica_state(image: MetadataImage, partition: PartitionRegistration | None, broker_id: int) -> ReplicaState:
    """The state of a replica; `partition` is None if it does not exist."""
    if partition is None or broker_id not in partition.replicas:
        return ReplicaState.NON_EXISTENT
    if not image.is_online(broker_id, partition.directory_of(broker_id)):
        return ReplicaState.OFFLINE
    return ReplicaState.NEW if broker_id in partition.adding_replicas else ReplicaState.ONLINE
