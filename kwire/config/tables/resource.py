"""Configurations of groups and of client metrics subscriptions: kept and described as Kafka does, and nothing else."""

from __future__ import annotations

from typing import Final

from kwire.config.definition import ConfigDefinition, ConfigType, Validator, Value, table
from kwire.config.validators import ListOf, OneOf, Range

_BOOLEAN, _INT, _STRING, _LIST = ConfigType.BOOLEAN, ConfigType.INT, ConfigType.STRING, ConfigType.LIST


def _group(
    name: str,
    type_: ConfigType,
    default: Value,
    documentation: str,
    validator: Validator | None = None,
    *synonyms: str,
) -> ConfigDefinition:
    return ConfigDefinition(
        name,
        type_,
        default,
        validator,
        documentation,
        broker_synonyms=tuple((synonym, 1) for synonym in synonyms),
        has_effect=False,
    )


def _int(name: str, default: int, low: int, documentation: str) -> ConfigDefinition:
    return _group(name, _INT, default, documentation, Range(low), f"group.{name}")


GROUP_CONFIGS: Final = table(
    _int("consumer.assignment.interval.ms", 1000, 0, "The least time between two assignments of a consumer group."),
    _int("consumer.heartbeat.interval.ms", 5000, 1, "How often members of a KIP-848 consumer group send heartbeats."),
    _int("consumer.session.timeout.ms", 45000, 1, "When a silent member of a KIP-848 consumer group is given up."),
    _int("share.assignment.interval.ms", 1000, 0, "The least time between two assignments of a share group."),
    _group(
        "share.auto.offset.reset",
        _STRING,
        "latest",
        "Where a share group starts: latest, earliest, or by_duration: and an ISO 8601 duration.",
    ),
    _int("share.delivery.count.limit", 5, 2, "How often a share group delivers a record before it is archived."),
    _int("share.heartbeat.interval.ms", 5000, 1, "How often members of a share group send heartbeats."),
    _group(
        "share.isolation.level",
        _STRING,
        "read_uncommitted",
        "Whether a share group sees records of open transactions.",
        OneOf(("read_committed", "read_uncommitted")),
    ),
    _int("share.partition.max.record.locks", 2000, 100, "How many records of a partition may be out for delivery."),
    _int("share.record.lock.duration.ms", 30000, 1000, "How long a delivered record waits for its acknowledgement."),
    _group("share.renew.acknowledge.enable", _BOOLEAN, True, "Whether a member may ask for more time for a record."),
    _int("share.session.timeout.ms", 45000, 1, "When a silent member of a share group is given up."),
    _int("streams.assignment.interval.ms", 1000, 0, "The least time between two assignments of a streams group."),
    _int("streams.heartbeat.interval.ms", 5000, 1, "How often members of a streams group send heartbeats."),
    _int("streams.initial.rebalance.delay.ms", 3000, 0, "How long a new streams group waits for more members."),
    _int("streams.num.standby.replicas", 0, 0, "How many standby copies of each task a streams group keeps."),
    _int("streams.session.timeout.ms", 45000, 1, "When a silent member of a streams group is given up."),
)


def _subscription(
    name: str, type_: ConfigType, default: Value, documentation: str, validator: Validator
) -> ConfigDefinition:
    return ConfigDefinition(name, type_, default, validator, documentation, has_effect=False)


CLIENT_METRICS_CONFIGS: Final = table(
    _subscription(
        "interval.ms", _INT, 300_000, "How often the matching clients send their metrics.", Range(100, 3_600_000)
    ),
    _subscription("match", _LIST, (), "Which clients send: attribute=pattern pairs.", ListOf()),
    _subscription("metrics", _LIST, (), "Prefixes of the metrics that are wanted.", ListOf()),
)
