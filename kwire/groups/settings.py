"""The settings of single groups: those of the group's own configuration, else the broker's.

They may change at any time, by AlterConfigs of a GROUP or of the broker. `ConfigResolver.of_group` determines the
effective values.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import attrs

from kwire.config.definition import Value
from kwire.groups.config import (
    ConsumerGroupSettings,
    ShareGroupSettings,
    SharePartitionSettings,
    StreamsGroupSettings,
    WarmupSettings,
)
from kwire.metadata.image import Changes, ConfigResourceType

if TYPE_CHECKING:
    from kwire.metadata.service import MetadataService


@attrs.frozen
class _Read:
    """The values of one group's configuration, by name."""

    values: Mapping[str, Value]

    def int(self, name: str) -> int:
        value = self.values[name]
        assert isinstance(value, int)
        return value

    def flag(self, name: str) -> bool:
        return bool(self.values[name])

    def text(self, name: str) -> str:
        return str(self.values[name])


class GroupSettings:
    def __init__(self, metadata: MetadataService) -> None:
        self._metadata = metadata
        self._consumer: dict[str, ConsumerGroupSettings] = {}
        self._share: dict[str, ShareGroupSettings] = {}
        self._streams: dict[str, StreamsGroupSettings] = {}
        self._share_partitions: dict[str, SharePartitionSettings] = {}
        metadata.watch(self._changed)

    def of_consumer_group(self, group_id: str) -> ConsumerGroupSettings:
        settings = self._consumer.get(group_id)
        if settings is None:
            read = self._read(group_id)
            settings = self._consumer[group_id] = ConsumerGroupSettings(
                session_timeout_ms=read.int("consumer.session.timeout.ms"),
                heartbeat_interval_ms=read.int("consumer.heartbeat.interval.ms"),
                assignment_interval_ms=read.int("consumer.assignment.interval.ms"),
            )
        return settings

    def of_share_group(self, group_id: str) -> ShareGroupSettings:
        settings = self._share.get(group_id)
        if settings is None:
            read = self._read(group_id)
            settings = self._share[group_id] = ShareGroupSettings(
                session_timeout_ms=read.int("share.session.timeout.ms"),
                heartbeat_interval_ms=read.int("share.heartbeat.interval.ms"),
                assignment_interval_ms=read.int("share.assignment.interval.ms"),
            )
        return settings

    def of_streams_group(self, group_id: str) -> StreamsGroupSettings:
        settings = self._streams.get(group_id)
        if settings is None:
            read = self._read(group_id)
            settings = self._streams[group_id] = StreamsGroupSettings(
                session_timeout_ms=read.int("streams.session.timeout.ms"),
                heartbeat_interval_ms=read.int("streams.heartbeat.interval.ms"),
                assignment_interval_ms=read.int("streams.assignment.interval.ms"),
                num_standby_replicas=read.int("streams.num.standby.replicas"),
                initial_rebalance_delay_ms=read.int("streams.initial.rebalance.delay.ms"),
                warmups=WarmupSettings(
                    num_warmup_replicas=read.int("streams.num.warmup.replicas"),
                    acceptable_recovery_lag=read.int("streams.acceptable.recovery.lag"),
                ),
                task_offset_interval_ms=read.int("streams.task.offset.interval.ms"),
            )
        return settings

    def of_share_partitions(self, group_id: str) -> SharePartitionSettings:
        settings = self._share_partitions.get(group_id)
        if settings is None:
            read = self._read(group_id)
            settings = self._share_partitions[group_id] = SharePartitionSettings(
                max_record_locks=read.int("share.partition.max.record.locks"),
                delivery_count_limit=read.int("share.delivery.count.limit"),
                record_lock_duration_ms=read.int("share.record.lock.duration.ms"),
                reads_committed=read.text("share.isolation.level") == "read_committed",
                auto_offset_reset=read.text("share.auto.offset.reset"),
                may_renew=read.flag("share.renew.acknowledge.enable"),
                dead_letter_topic=read.text("errors.deadletterqueue.topic.name"),
                copies_dead_letters=read.flag("errors.deadletterqueue.copy.record.enable"),
                release_delay_ms=read.int("kwire.share.release.delay.ms"),
                max_release_delay_ms=read.int("kwire.share.release.delay.max.ms"),
            )
        return settings

    def forget_share_partitions(self, group_id: str) -> None:
        """Removes the group's cached settings once no partition is fetched for it."""
        self._share_partitions.pop(group_id, None)

    def _read(self, group_id: str) -> _Read:
        own = self._metadata.image.config(ConfigResourceType.GROUP, group_id)
        return _Read(self._metadata.configs.of_group(own).values)

    def _changed(self, changes: Changes) -> None:
        if any(kind in (ConfigResourceType.GROUP, ConfigResourceType.BROKER) for kind, _ in changes.configs):
            self._consumer.clear()
            self._share.clear()
            self._streams.clear()
            self._share_partitions.clear()
