"""Records as a mirror's tasks get them, and as readers of committed data see them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from kwire_protocol.records import Record

from kwire.client.cluster import Cluster, TopicPartition
from kwire.client.fetching import PartitionReader
from kwire.client.offsets import EARLIEST, LATEST, IsolationLevel, list_offsets
from kwire.pipeline.mirror.writing import OffsetRange


def records_of(cluster: Cluster, at: TopicPartition) -> list[Record]:
    """Committed records, from where the partition begins."""
    first, end = (list_offsets(cluster, at.topic, which)[at.partition] for which in (EARLIEST, LATEST))
    return list(_committed(cluster, at, first, end))


def rows(cluster: Cluster, ranges: Mapping[TopicPartition, OffsetRange]) -> Iterator[tuple[TopicPartition, Record]]:
    """Committed records of the ranges, ordered by partition and offset."""
    for at, it in ranges.items():
        for record in _committed(cluster, at, it.position.next, it.until):
            yield at, record


def without_offsets(records: Sequence[Record]) -> list[Record]:
    return [it._replace(offset=0) for it in records]


def _committed(cluster: Cluster, at: TopicPartition, first: int, end: int) -> Iterator[Record]:
    with PartitionReader(cluster, at, first, end, isolation_level=IsolationLevel.READ_COMMITTED) as reader:
        yield from reader.records()
