"""The settings of single groups: those of the group's own configuration, else the broker's.

They may change at any time, by AlterConfigs of a GROUP or of the broker. A value outside of the broker's bounds is
limited to them: the bounds may have changed after the value was accepted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kwire.config.definition import ConfigError
from kwire.config.tables.resource import GROUP_CONFIGS
from kwire.groups.config import ConsumerGroupSettings
from kwire.metadata.image import Changes, ConfigResourceType

if TYPE_CHECKING:
    from kwire.metadata.service import MetadataService


class GroupSettings:
    def __init__(self, metadata: MetadataService) -> None:
        self._metadata = metadata
        self._consumer: dict[str, ConsumerGroupSettings] = {}
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
