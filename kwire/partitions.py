"""The partitions that live on this node, by topic name and by topic id.

This table is the metadata image turned into logs: it is told what changed (`apply`) and opens, configures and deletes
logs accordingly. Handlers find partitions here and nowhere else.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.wire import Uuid
from kwire_storage.config import LogConfig
from kwire_storage.data_folder import DataFolder
from kwire_storage.errors import CorruptLogError
from kwire_storage.log import Log
from kwire_storage.recovery import Recovery

from kwire.clock import Clock
from kwire.configs.definition import Value
from kwire.flush_gate import FlushDriver
from kwire.partition import Partition
from kwire.topic_settings import log_config, topic_rules

if TYPE_CHECKING:
    from kwire.metadata.image import Changes, TopicImage

log = logging.getLogger(__name__)

TopicRef = str | Uuid
"""The topic as a client names it: by name, or by id (from Produce and Fetch v13 on)."""


def _tell_of_loss(topic: str, index: int, opened: Log, recovery: Recovery) -> None:
    log.warning(
        "%s-%d was not closed cleanly: cut %d bytes and %d segments behind offset %d (%s)",
        topic,
        index,
        recovery.cut_bytes,
        recovery.deleted_segments,
        opened.log_end_offset,
        recovery.reason,
    )
    if recovery.lost_batches:
        log.error(
            "%s-%d lost %d good batches (%d bytes) up to offset %d: they stood behind bytes that are none, and had not "
            "been synced before the broker died. Deleted segments are kept as *.deleted until the next start",
            topic,
            index,
            recovery.lost_batches,
            recovery.lost_bytes,
            recovery.lost_end_offset - 1,
        )


@attrs.define(eq=False)
class PartitionTable:
    """`topic_values(name)` is a topic's effective configuration, by Kafka's names."""

    node_id: int
    folder: DataFolder
    clock: Clock
    topic_values: Callable[[str], Mapping[str, Value]]
    producer_id_expiration_ms: int
    flush_driver: FlushDriver
    by_name: dict[str, list[Partition]] = attrs.field(factory=dict)
    by_ref: dict[TopicRef, list[Partition]] = attrs.field(factory=dict)
    """Each topic twice: under its name and under its id."""

    def __iter__(self) -> Iterator[Partition]:
        for partitions in self.by_name.values():
            yield from partitions

    def find(self, topic: TopicRef, index: int) -> Partition:
        """Raises KafkaError: UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID."""
        partitions = self.by_ref.get(topic)
        if partitions is None:
            known_by_name = isinstance(topic, str)
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if known_by_name else ErrorCode.UNKNOWN_TOPIC_ID)
        if not 0 <= index < len(partitions):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return partitions[index]

    def apply(self, changes: Changes) -> None:
        """Makes the logs follow the metadata: what the image has after `changes` is what stands here afterwards."""
        for topic in changes.topics_deleted:
            self._delete(topic)
        for topic in changes.topics_created:
            self.by_name[topic.name] = self.by_ref[topic.name] = self.by_ref[topic.topic_id] = []
            self._add(topic, range(len(topic.partitions)))
        for topic, index in changes.partitions_added:
            self._add(topic, range(index, index + 1))
        for topic, index in changes.partitions_changed:
            self._lead(self.by_ref[topic.topic_id][index], topic)

    def reconfigure(self, topics: Iterable[str]) -> None:
        """The effective configuration of these topics may have changed."""
        for name in topics:
            partitions = self.by_name.get(name)
            if partitions:
                values = self.topic_values(name)
                rules, config = topic_rules(values), self._log_config(values)
                for partition in partitions:
                    partition.configure(rules, config)

    def _add(self, topic: TopicImage, indexes: range) -> None:
        values = self.topic_values(topic.name)
        rules, config = topic_rules(values), self._log_config(values)
        partitions = self.by_ref[topic.topic_id]
        now_ms = self.clock.now_ms()
        for index in indexes:
            log = self._open_log(topic, index, config, now_ms)
            partition = Partition(topic.name, topic.topic_id, index, log, self.node_id, rules, self.flush_driver)
            partitions.append(partition)
            self._lead(partition, topic)

    def _open_log(self, topic: TopicImage, index: int, config: LogConfig, now_ms: int) -> Log:
        folder = self.folder
        if (topic.name, index) not in folder.found:
            return folder.create_log(topic.name, index, topic.topic_id, config, now_ms=now_ms)
        known_id = self._known_id(topic, index)
        if known_id not in (topic.topic_id, None):
            # Of a topic that had the same name: the broker died before it could remove it.
            self._set_aside(topic.name, index)
            return folder.create_log(topic.name, index, topic.topic_id, config, now_ms=now_ms)
        opened = folder.open_log(topic.name, index, config, now_ms=now_ms)
        if known_id is None:
            folder.set_topic_id(topic.name, index, topic.topic_id)
        if opened.recovery is not None and (opened.recovery.cut_bytes or opened.recovery.deleted_segments):
            _tell_of_loss(topic.name, index, opened, opened.recovery)
        return opened

    def take_offline(self, folder: DataFolder) -> list[Partition]:
        """The folder is out of service, and with it the partitions whose logs it has: these are returned."""
        lost = [it for it in self if folder.logs.get((it.topic, it.index)) is it.log]
        for partition in lost:
            partition.take_offline()
        return lost

    def epochs_ahead(self) -> dict[tuple[Uuid, int], int]:
        """The latest leader epoch of each log, by topic id and index, that is later than the metadata's."""
        return {
            (partition.topic_id, partition.index): latest
            for partition in self
            if (latest := partition.log.leader_epochs.latest) > partition.leader_epoch
        }

    def _known_id(self, topic: TopicImage, index: int) -> Uuid | None:
        """The topic id that the partition's folder tells, if it does."""
        try:
            return self.folder.topic_id(topic.name, index)
        except CorruptLogError as error:
            log.error("%s-%d: %s; the folder is taken for the topic's by its name", topic.name, index, error)
            return None

    def set_strays_aside(self) -> None:
        """Renames the folders of partitions that no topic of the metadata has; nothing of them is removed."""
        for name, index in sorted(self.folder.found - self.folder.logs.keys()):
            self._set_aside(name, index)

    def _set_aside(self, name: str, index: int) -> None:
        kept_as = self.folder.set_aside(name, index, self.clock.uuid())
        log.warning("no topic of the metadata has the folder %s-%d; it is kept as %s", name, index, kept_as)

    def _delete(self, topic: TopicImage) -> None:
        del self.by_name[topic.name], self.by_ref[topic.name]
        for partition in self.by_ref.pop(topic.topic_id):
            partition.close()
            self._delete_log(topic, partition.index)

    def _delete_log(self, topic: TopicImage, index: int) -> None:
        folder = self.folder
        if folder.failed is not None:
            return  # The next start finds a folder that no topic has.
        try:
            folder.delete_log(topic.name, index, self.clock.uuid())
        except OSError as error:
            folder.on_failed(folder, error)

    @staticmethod
    def _lead(partition: Partition, topic: TopicImage) -> None:
        registered = topic.partitions[partition.index]
        partition.lead(
            leader_id=registered.leader,
            leader_epoch=registered.leader_epoch,
            replicas=list(registered.replicas),
            isr=list(registered.isr),
        )

    def _log_config(self, values: Mapping[str, Value]) -> LogConfig:
        return log_config(values, producer_id_expiration_ms=self.producer_id_expiration_ms)
