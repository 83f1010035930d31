"""Partitions as Metadata describes them, and how large their replicas are (DescribeLogDirs, KIP-113)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import quoted
from kwire_protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from kwire_protocol.messages.metadata import MetadataResponseTopic

from kwire.client.cluster import Cluster, TopicPartition
from kwire.client.errors import ClientError, UnknownTopic, refused


@attrs.frozen
class PartitionState:
    """A partition as Metadata describes it. The first of `replicas` is the preferred leader."""

    at: TopicPartition
    leader_id: int | None
    """None when it has no leader: it is offline."""
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    adding: tuple[int, ...] = ()
    """Those of `replicas` that a reassignment adds."""
    min_isr: int | None = None
    """min.insync.replicas; looked up only where replicas are not in sync."""

    @property
    def is_offline(self) -> bool:
        return self.leader_id is None

    @property
    def is_under_replicated(self) -> bool:
        """True if replicas are not in sync. As in Kafka, those that a reassignment adds need not be."""
        return len(self.isr) < len(self.replicas) - len(self.adding)

    @property
    def is_below_min_isr(self) -> bool:
        """True if a Produce with acks=all fails. As in Kafka, no more than all replicas have to be in sync."""
        return self.min_isr is not None and len(self.isr) < min(self.min_isr, len(self.replicas))

    @property
    def needs_attention(self) -> bool:
        return self.is_offline or self.is_under_replicated or self.is_below_min_isr


def look_up_partitions(cluster: Cluster, topics: Collection[str] | None) -> dict[TopicPartition, PartitionState]:
    """The partitions of these topics, or of all, by name and number. Raises UnknownTopic, Refused."""
    found = cluster.metadata(None if topics is None else sorted(topics)).topics
    for it in found:
        if it.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise UnknownTopic(f"there is no topic {quoted(it.name)}")
        if it.error_code:
            raise refused(f"topic {quoted(it.name)} cannot be looked at", it.error_code)
    return {it.at: it for it in partition_states(found)}


def look_up_partition(cluster: Cluster, at: TopicPartition) -> PartitionState:
    """Raises UnknownTopic, Refused."""
    found = look_up_partitions(cluster, [at.topic])
    if at not in found:
        raise UnknownTopic(
            f"topic {quoted(at.topic)} has no partition {at.partition}, but {len(found)} of them, from 0"
        )
    return found[at]


def partition_states(topics: Iterable[MetadataResponseTopic]) -> list[PartitionState]:
    """Returns the partitions that Metadata describes, by topic and number."""
    return sorted(
        (
            PartitionState(
                TopicPartition(topic.name or "", it.partition_index),
                it.leader_id if it.leader_id >= 0 else None,
                tuple(it.replica_nodes),
                tuple(it.isr_nodes),
            )
            for topic in topics
            for it in topic.partitions
        ),
        key=lambda it: it.at,
    )


def replica_sizes(
    cluster: Cluster, replicas: Iterable[tuple[int, TopicPartition]]
) -> dict[tuple[int, TopicPartition], int]:
    """Returns the sizes of these replicas in bytes, by node id and partition.

    Those of brokers that do not answer are left out; so is a replica that its broker has not created yet.
    """
    wanted: dict[int, list[TopicPartition]] = defaultdict(list)
    for node_id, at in replicas:
        wanted[node_id].append(at)
    requests = {
        node_id: DescribeLogDirsRequest([DescribableLogDirTopic(*it) for it in by_topic(some).items()])
        for node_id, some in wanted.items()
    }
    sizes = {}
    for node_id, answer in cluster.call_each(requests).items():
        if isinstance(answer, ClientError):
            continue
        for topic in (topic for folder in answer.results for topic in folder.topics):
            for it in topic.partitions:
                if not it.is_future_key:  # the copy of a move between folders
                    sizes[node_id, TopicPartition(topic.name, it.partition_index)] = it.partition_size
    return sizes


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Numbers of partitions by topic, as requests have them."""
    found: dict[str, list[int]] = defaultdict(list)
    for topic, index in partitions:
        found[topic].append(index)
    return found
