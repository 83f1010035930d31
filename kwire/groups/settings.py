"""The settings of single groups: those of the group's own configuration, else the broker's.

They may change at any time, by AlterConfigs of a GROUP or of the broker. A value outside of the broker's bounds is
limited to them: the bounds may have changed after the value was accepted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kwire.config.definition import ConfigError, Value
from kwire.config.tables.resource import GROUP_CONFIGS
from kwire.config.tables.rows import MAX_INT, MAX_LONG
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
            config = self._metadata.config
            settings = self._consumer[group_id] = ConsumerGroupSettings(
                session_timeout_ms=self._value(
                    group_id,
                    "consumer.session.timeout.ms",
                    config.group_consumer_session_timeout_ms,
                    config.group_consumer_min_session_timeout_ms,
                    config.group_consumer_max_session_timeout_ms,
                ),
                heartbeat_interval_ms=self._value(
                    group_id,
                    "consumer.heartbeat.interval.ms",
                    config.group_consumer_heartbeat_interval_ms,
                    config.group_consumer_min_heartbeat_interval_ms,
                    config.group_consumer_max_heartbeat_interval_ms,
                ),
                assignment_interval_ms=self._value(
                    group_id,
                    "consumer.assignment.interval.ms",
                    config.group_consumer_assignment_interval_ms,
                    config.group_consumer_min_assignment_interval_ms,
                    config.group_consumer_max_assignment_interval_ms,
                ),
            )
        return settings

    def of_share_group(self, group_id: str) -> ShareGroupSettings:
        settings = self._share.get(group_id)
        if settings is None:
            config = self._metadata.config
            settings = self._share[group_id] = ShareGroupSettings(
                session_timeout_ms=self._value(
                    group_id,
                    "share.session.timeout.ms",
                    config.group_share_session_timeout_ms,
                    config.group_share_min_session_timeout_ms,
                    config.group_share_max_session_timeout_ms,
                ),
                heartbeat_interval_ms=self._value(
                    group_id,
                    "share.heartbeat.interval.ms",
                    config.group_share_heartbeat_interval_ms,
                    config.group_share_min_heartbeat_interval_ms,
                    config.group_share_max_heartbeat_interval_ms,
                ),
                assignment_interval_ms=self._value(
                    group_id,
                    "share.assignment.interval.ms",
                    config.group_share_assignment_interval_ms,
                    config.group_share_min_assignment_interval_ms,
                    config.group_share_max_assignment_interval_ms,
                ),
            )
        return settings

    def of_streams_group(self, group_id: str) -> StreamsGroupSettings:
        settings = self._streams.get(group_id)
        if settings is None:
            config = self._metadata.config
            settings = self._streams[group_id] = StreamsGroupSettings(
                session_timeout_ms=self._value(
                    group_id,
                    "streams.session.timeout.ms",
                    config.group_streams_session_timeout_ms,
                    config.group_streams_min_session_timeout_ms,
                    config.group_streams_max_session_timeout_ms,
                ),
                heartbeat_interval_ms=self._value(
                    group_id,
                    "streams.heartbeat.interval.ms",
                    config.group_streams_heartbeat_interval_ms,
                    config.group_streams_min_heartbeat_interval_ms,
                    config.group_streams_max_heartbeat_interval_ms,
                ),
                assignment_interval_ms=self._value(
                    group_id,
                    "streams.assignment.interval.ms",
                    config.group_streams_assignment_interval_ms,
                    config.group_streams_min_assignment_interval_ms,
                    config.group_streams_max_assignment_interval_ms,
                ),
                num_standby_replicas=self._value(
                    group_id,
                    "streams.num.standby.replicas",
                    config.group_streams_num_standby_replicas,
                    0,
                    config.group_streams_max_standby_replicas,
                ),
                initial_rebalance_delay_ms=self._value(
                    group_id,
                    "streams.initial.rebalance.delay.ms",
                    config.group_streams_initial_rebalance_delay_ms,
                    0,
                    MAX_INT,
                ),
                warmups=WarmupSettings(
                    num_warmup_replicas=self._value(
                        group_id,
                        "streams.num.warmup.replicas",
                        config.group_streams_num_warmup_replicas,
                        0,
                        config.group_streams_max_warmup_replicas,
                    ),
                    acceptable_recovery_lag=self._value(
                        group_id,
                        "streams.acceptable.recovery.lag",
                        config.group_streams_acceptable_recovery_lag,
                        0,
                        MAX_LONG,
                    ),
                ),
                task_offset_interval_ms=self._value(
                    group_id,
                    "streams.task.offset.interval.ms",
                    config.group_streams_task_offset_interval_ms,
                    config.group_streams_min_task_offset_interval_ms,
                    MAX_INT,
                ),
            )
        return settings

    def of_share_partitions(self, group_id: str) -> SharePartitionSettings:
        settings = self._share_partitions.get(group_id)
        if settings is None:
            config = self._metadata.config
            settings = self._share_partitions[group_id] = SharePartitionSettings(
                max_record_locks=self._value(
                    group_id,
                    "share.partition.max.record.locks",
                    config.group_share_partition_max_record_locks,
                    config.group_share_min_partition_max_record_locks,
                    config.group_share_max_partition_max_record_locks,
                ),
                delivery_count_limit=self._value(
                    group_id,
                    "share.delivery.count.limit",
                    config.group_share_delivery_count_limit,
                    config.group_share_min_delivery_count_limit,
                    config.group_share_max_delivery_count_limit,
                ),
                record_lock_duration_ms=self._value(
                    group_id,
                    "share.record.lock.duration.ms",
                    config.group_share_record_lock_duration_ms,
                    config.group_share_min_record_lock_duration_ms,
                    config.group_share_max_record_lock_duration_ms,
                ),
                reads_committed=self._own(group_id, "share.isolation.level") == "read_committed",
                auto_offset_reset=str(self._own(group_id, "share.auto.offset.reset")),
                may_renew=bool(self._own(group_id, "share.renew.acknowledge.enable")),
                dead_letter_topic=str(self._own(group_id, "errors.deadletterqueue.topic.name")),
                copies_dead_letters=bool(self._own(group_id, "errors.deadletterqueue.copy.record.enable")),
                release_delay_ms=self._own_int(group_id, "kwire.share.release.delay.ms"),
                max_release_delay_ms=self._own_int(group_id, "kwire.share.release.delay.max.ms"),
            )
        return settings

    def forget_share_partitions(self, group_id: str) -> None:
        """Nobody fetches for the group any more."""
        self._share_partitions.pop(group_id, None)

    def _own(self, group_id: str, name: str) -> Value:
        """A setting that the broker has no default of."""
        definition = GROUP_CONFIGS[name]
        text = self._metadata.image.config(ConfigResourceType.GROUP, group_id).get(name)
        if text is None:
            return definition.default
        try:
            return definition.parse(text)
        except ConfigError:
            return definition.default  # another version has accepted it

    def _own_int(self, group_id: str, name: str) -> int:
        value = self._own(group_id, name)
        assert isinstance(value, int)
        return value

    def _value(self, group_id: str, name: str, default: int, lowest: int, highest: int) -> int:
        text = self._metadata.image.config(ConfigResourceType.GROUP, group_id).get(name)
        if text is None:
            return default
        try:
            value = GROUP_CONFIGS[name].parse(text)
        except ConfigError:
            return default  # another version has accepted it
        assert isinstance(value, int)
        return max(lowest, min(value, highest))

    def _changed(self, changes: Changes) -> None:
        if any(kind in (ConfigResourceType.GROUP, ConfigResourceType.BROKER) for kind, _ in changes.configs):
            self._consumer.clear()
            self._share.clear()
            self._streams.clear()
            self._share_partitions.clear()
