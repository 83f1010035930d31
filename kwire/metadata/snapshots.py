"""Metadata snapshots: an image as records that reproduce it, and a file of them in Kafka's own format.

The file `00000000000000000123-0000000001.checkpoint` of the metadata log replaces its records before offset 123, the
last of them written in epoch 1 (KIP-630). It has record batches from offset 0 on: a control record that begins it, data
batches, and a control record that ends it. Without the last one it is incomplete.

A start applies a snapshot and reads the log from there, so earlier records may be deleted from the log. A snapshot has
no records of deleted topics, or of changes that were undone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

import attrs
from kwire_protocol.control_records import ControlType, build_control_batch, control_key
from kwire_protocol.internal.control_records import SnapshotFooterRecord, SnapshotHeaderRecord
from kwire_protocol.internal.metadata_brokers import (
    BrokerEndpoint,
    BrokerFeature,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)
from kwire_protocol.internal.metadata_configs import ConfigRecord, FeatureLevelRecord, ProducerIdsRecord
from kwire_protocol.internal.metadata_topics import PartitionRecord, RemoveTopicRecord, TopicRecord
from kwire_protocol.records import InvalidBatch, Record, build_batch, check_batch, iter_headers, iter_records
from kwire_protocol.wire import Writer
from kwire_storage.errors import CorruptLogError

from kwire.metadata.image import (
    BrokerRegistration,
    Changes,
    ConfigResourceType,
    MetadataImage,
    PartitionRegistration,
    TopicImage,
)
from kwire.metadata.records import MetadataRecord, decode_record

RECORDS_PER_BATCH: Final = 500

LONG_BYTES: Final = 256 << 10
"""The size of the log above which a start replaces it, which is faster than reading it at the next start."""


@attrs.frozen
class Snapshot:
    """The values of its records, which replace the log before `end_offset`."""

    end_offset: int
    values: Sequence[bytes]

    def apply_to(self, image: MetadataImage) -> Changes:
        """Applies the snapshot to an empty image."""
        changes = Changes()
        for value in self.values:
            image.apply(decode_record(value), offset=self.end_offset - 1, changes=changes)
        image.publish(changes)
        return changes


@attrs.define
class SnapshotSchedule:
    """Decides after each change whether a snapshot is due, like Kafka's `SnapshotGenerator`.

    One is due after `max_bytes` of the log, or `max_interval_ms` (unless 0) after the last one or the start. Starts may
    be more frequent, and each writes records for all partitions. So there is another rule for them: `is_long`.
    """

    max_bytes: int
    max_interval_ms: int
    last_ms: int
    _bytes: int = 0

    def applied(self, size_in_bytes: int) -> None:
        """Counts the bytes of the log that were read."""
        self._bytes += size_in_bytes

    def is_due(self, *, now_ms: int) -> bool:
        if not self._bytes:
            return False
        return self._bytes >= self.max_bytes or 0 < self.max_interval_ms <= now_ms - self.last_ms

    @property
    def is_long(self) -> bool:
        """True if a start should write a snapshot, so that the next start need not read the log again."""
        return self._bytes >= min(LONG_BYTES, self.max_bytes)

    def restart(self, *, now_ms: int) -> None:
        """Restarts the schedule, even if no snapshot can be written."""
        self._bytes, self.last_ms = 0, now_ms


def image_records(image: MetadataImage) -> Iterator[MetadataRecord]:
    """Yields records that turn an empty image into this one, which must not change meanwhile."""
    for name, level in image.features.items():
        yield FeatureLevelRecord(name, level)
    for broker in image.brokers.values():
        yield _registration(broker)
    for topic in image.topics.values():
        yield TopicRecord(topic.name, topic.topic_id)
        for index, partition in enumerate(topic.partitions):
            yield _partition(topic, index, partition)
    for (resource_type, resource_name), configs in image.configs.items():
        for name, value in configs.items():
            yield ConfigRecord(resource_type, resource_name, name, value)
    yield from image.access.records()
    if image.next_producer_id:
        yield ProducerIdsRecord(broker_id=-1, broker_epoch=-1, next_producer_id=image.next_producer_id)


def difference_records(before: MetadataImage, after: MetadataImage) -> Iterator[MetadataRecord]:
    """Yields records that turn the first image into the second one; both must not change meanwhile."""
    for topic in before.topics.values():
        if topic.topic_id not in after.topics_by_id:
            yield RemoveTopicRecord(topic.topic_id)
    for broker_id, broker in before.brokers.items():
        if broker_id not in after.brokers:
            yield UnregisterBrokerRecord(broker_id, broker.broker_epoch)
    for key, configs in before.configs.items():
        resource_type, resource_name = key
        # The removal of a topic removes its configuration, too.
        if resource_type != ConfigResourceType.TOPIC or _has_same_topic(before, after, resource_name):
            for name in configs.keys() - after.configs.get(key, {}).keys():
                yield ConfigRecord(resource_type, resource_name, name, None)
    for feature, level in after.features.items():
        if before.features.get(feature) != level:
            yield FeatureLevelRecord(feature, level)
    for broker_id, broker in after.brokers.items():
        if before.brokers.get(broker_id) != broker:
            yield _registration(broker)
    for topic in after.topics.values():
        known = before.topics_by_id.get(topic.topic_id)
        if known is None:
            yield TopicRecord(topic.name, topic.topic_id)
        partitions = [] if known is None else known.partitions
        for index, partition in enumerate(topic.partitions):
            if index >= len(partitions) or partitions[index] != partition:
                yield _partition(topic, index, partition)
    for key, configs in after.configs.items():
        resource_type, resource_name = key
        is_same_resource = resource_type != ConfigResourceType.TOPIC or _has_same_topic(before, after, resource_name)
        former = before.configs.get(key, {}) if is_same_resource else {}
        for name, value in configs.items():
            if former.get(name) != value:
                yield ConfigRecord(resource_type, resource_name, name, value)
    yield from after.access.records_since(before.access)
    if before.next_producer_id != after.next_producer_id:
        yield ProducerIdsRecord(broker_id=-1, broker_epoch=-1, next_producer_id=after.next_producer_id)


def _has_same_topic(before: MetadataImage, after: MetadataImage, name: str) -> bool:
    former, topic = before.topics.get(name), after.topics.get(name)
    return former is not None and topic is not None and former.topic_id == topic.topic_id


def _registration(broker: BrokerRegistration) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=broker.broker_id,
        incarnation_id=broker.incarnation_id,
        broker_epoch=broker.broker_epoch,
        end_points=[
            BrokerEndpoint(name, it.host, it.port, it.security_protocol) for name, it in broker.endpoints.items()
        ],
        features=[BrokerFeature(name, low, high) for name, (low, high) in broker.features.items()],
        rack=broker.rack,
        fenced=broker.fenced,
        in_controlled_shutdown=broker.in_controlled_shutdown,
        log_dirs=list(broker.log_dirs),
    )


def _partition(topic: TopicImage, index: int, it: PartitionRegistration) -> PartitionRecord:
    return PartitionRecord(
        partition_id=index,
        topic_id=topic.topic_id,
        replicas=list(it.replicas),
        isr=list(it.isr),
        removing_replicas=list(it.removing_replicas),
        adding_replicas=list(it.adding_replicas),
        leader=it.leader,
        leader_recovery_state=it.leader_recovery_state,
        leader_epoch=it.leader_epoch,
        partition_epoch=it.partition_epoch,
        directories=list(it.directories),
        eligible_leader_replicas=list(it.eligible_leader_replicas) or None,
        last_known_elr=list(it.last_known_elr) or None,
    )


# -- as a file


def snapshot_batches(values: Sequence[bytes], *, epoch: int, now_ms: int) -> Iterator[bytes]:
    """Yields the pieces of the file. `now_ms` is the time of the log's last record, or later."""
    header = SnapshotHeaderRecord(last_contained_log_timestamp=now_ms)
    yield _control_batch(ControlType.SNAPSHOT_HEADER, header, 0, epoch, now_ms)
    offset, rest = 1, iter(values)
    while batch := [Record(0, now_ms, None, value) for value in islice(rest, RECORDS_PER_BATCH)]:
        yield build_batch(batch, base_offset=offset, leader_epoch=epoch)
        offset += len(batch)
    yield _control_batch(ControlType.SNAPSHOT_FOOTER, SnapshotFooterRecord(), offset, epoch, now_ms)


def _control_batch(
    kind: ControlType, record: SnapshotHeaderRecord | SnapshotFooterRecord, offset: int, epoch: int, now_ms: int
) -> bytes:
    writer = Writer()
    record.write(writer, 0)
    return build_control_batch(kind, writer.getvalue(), timestamp_ms=now_ms, base_offset=offset, leader_epoch=epoch)


def read_snapshot_file(content: bytes) -> list[bytes]:
    """Returns the values of the file's records. Raises CorruptLogError if it is damaged or incomplete."""
    values: list[bytes] = []
    keys: list[bytes] = []
    view = memoryview(content)
    try:
        for position, header in iter_headers(view):
            batch = view[position : position + header.size_in_bytes]
            check_batch(batch, header)
            for record in iter_records(batch):
                if header.is_control:
                    keys.append(bytes(record.key or b""))
                elif record.value is not None:
                    values.append(bytes(record.value))
    except InvalidBatch as error:
        raise CorruptLogError(f"a batch of the snapshot: {error}") from error
    ends = [control_key(ControlType.SNAPSHOT_HEADER), control_key(ControlType.SNAPSHOT_FOOTER)]
    if [*keys[:1], *keys[-1:]] != ends:
        raise CorruptLogError("the snapshot does not begin with its header, or does not end with its footer")
    return values
