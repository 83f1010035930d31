"""Collects a task's records by partition, and writes them in the largest batches that brokers accept by default."""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Mapping
from typing import Final

from crc32c import crc32c
from kwire_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from kwire_protocol.records import Record
from kwire_protocol.wire import NULL_UUID

from kwire.client.cluster import Cluster, TopicPartition
from kwire.client.errors import Refused, UnknownTopic
from kwire.client.producing import DEFAULT_BATCH_BYTES, Producer, split_records
from kwire.pipeline.delivery.partitioning import partition_of

GATHERED_BYTES: Final = 4 << 20
"""The bytes of all partitions that are collected before they are written."""
_RECORD_BYTES: Final = 32
_SIZES: Final = struct.Struct("<qqq")


class RecordWriter:
    """Writes records with a producer that is ready. Call `flush` last.

    first_partition: the first partition for records without keys. Each task has a different one.
    """

    def __init__(
        self,
        cluster: Cluster,
        producer: Producer,
        *,
        first_partition: int = 0,
        batch_bytes: int = DEFAULT_BATCH_BYTES,
    ) -> None:
        self._cluster = cluster
        self._producer = producer
        self._first_partition = first_partition
        self._batch_bytes = batch_bytes
        self._gathered: dict[TopicPartition, list[Record]] = defaultdict(list)
        self._gathered_bytes = 0
        self._counts: dict[str, int] = {}
        self._written_bytes: dict[str, int] = defaultdict(int)
        """The bytes of records without keys, by topic."""
        self.records = 0
        """The number of added records."""
        self.checksum = 0
        """The checksum of the added records in order: equal for tasks with the same records."""

    def add(self, topic: str, partition: int | None, record: Record) -> None:
        """Adds a record. Raises ClientError; some of the records so far may have been written then."""
        key, value = record.key, record.value
        size = _RECORD_BYTES + len(key or b"") + len(value or b"")
        count = self._counts.get(topic) or self._count(topic)
        if partition is None:
            if key is not None:
                partition = partition_of(key, count)
            else:
                written_bytes = self._written_bytes[topic]
                self._written_bytes[topic] = written_bytes + size
                partition = (self._first_partition + written_bytes // self._batch_bytes) % count
        self._gathered[TopicPartition(topic, partition)].append(record)
        sizes = _SIZES.pack(-1 if key is None else len(key), -1 if value is None else len(value), partition)
        checksum = crc32c(value or b"", crc32c(key or b"", crc32c(sizes, self.checksum)))
        if record.headers:
            checksum = crc32c(repr(tuple(record.headers)).encode(), checksum)
        self.checksum = crc32c(topic.encode(), checksum)
        self.records += 1
        self._gathered_bytes += size
        if self._gathered_bytes >= GATHERED_BYTES:
            self.flush()

    def flush(self) -> None:
        """Returns when all replicas have all records. Raises ClientError."""
        gathered, self._gathered = self._gathered, defaultdict(list)
        self._gathered_bytes = 0
        _produce(self._producer, gathered, self._batch_bytes)

    def _count(self, topic: str) -> int:
        self._counts[topic] = partitions_to_write(self._cluster, topic)
        return self._counts[topic]


def _produce(producer: Producer, gathered: Mapping[TopicPartition, list[Record]], batch_bytes: int) -> None:
    """Writes one batch of each partition at a time."""
    left = {at: split_records(records, batch_bytes) for at, records in gathered.items()}
    while left:
        batches = {at: some for at, parts in left.items() if (some := next(parts, None)) is not None}
        if batches:
            producer.produce(batches)
        left = {at: left[at] for at in batches}


def partitions_to_write(cluster: Cluster, topic: str) -> int:
    """Returns the number of partitions. A missing topic is created if the brokers create topics for producers.

    Raises UnknownTopic if they do not, and other ClientErrors.
    """
    try:
        return len(cluster.topic(topic).leaders)
    except UnknownTopic:
        wanted = MetadataRequest([MetadataRequestTopic(NULL_UUID, topic)], allow_auto_topic_creation=True)
        cluster.call(wanted, at_least=4)

    def attempt() -> int:
        cluster.forget_topic(topic)
        try:
            return len(cluster.topic(topic).leaders)
        except UnknownTopic as error:
            raise Refused(error.message, error.code) from None  # may_pass, because the topic is being created

    try:
        return cluster.until_done(attempt)
    except Refused as error:
        raise UnknownTopic(error.message) from None
