"""Configurations of groups and client metrics. Those of client metrics have no effect.

They are stored and described as in Kafka.
"""

from __future__ import annotations

from typing import Final

from kwire.config.definition import ConfigDefinition, ConfigType, Validator, Value, table
from kwire.config.validators import ListOf, OffsetReset, OneOf, Range

_BOOLEAN, _INT, _LONG, _STRING = ConfigType.BOOLEAN, ConfigType.INT, ConfigType.LONG, ConfigType.STRING
_LIST = ConfigType.LIST


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
    )


def _int(name: str, default: int, low: int, documentation: str) -> ConfigDefinition:
    return _group(name, _INT, default, documentation, Range(low), f"group.{name}")


GROUP_CONFIGS: Final = table(
    _int("consumer.assignment.interval.ms", 0, 0, "The minimum time between two assignments of a consumer group."),
    _int("consumer.heartbeat.interval.ms", 5000, 1, "The heartbeat interval of members of a KIP-848 consumer group."),
    _int("consumer.session.timeout.ms", 45000, 1, "The session timeout of members of a KIP-848 consumer group."),
    _group(
        "errors.deadletterqueue.copy.record.enable",
        _BOOLEAN,
        False,
        "Whether dead letters of a share group have the key, the value and the headers of the record.",
    ),
    _group(
        "errors.deadletterqueue.topic.name",
        _STRING,
        "",
        "The topic for records that a share group gives up; empty for none.",
    ),
    _group(
        "kwire.share.release.delay.max.ms",
        _INT,
        60_000,
        "Up to how long a share group's record that came back is kept, while the delay doubles with each delivery.",
        Range(0),
    ),
    _group(
        "kwire.share.release.delay.ms",
        _INT,
        0,
        "How long a share group's record that came back is kept before it is delivered again; 0 for not at all.",
        Range(0),
    ),
    _int("share.assignment.interval.ms", 1000, 0, "The minimum time between two assignments of a share group."),
    _group(
        "share.auto.offset.reset",
        _STRING,
        "latest",
        "Where a share group starts: latest, earliest, or by_duration: and an ISO 8601 duration.",
        OffsetReset(),
    ),
    _int("share.delivery.count.limit", 5, 2, "How often a share group delivers a record before it is archived."),
    _int("share.heartbeat.interval.ms", 5000, 1, "The heartbeat interval of members of a share group."),
    _group(
        "share.isolation.level",
        _STRING,
        "read_uncommitted",
        "Whether a share group sees records of open transactions.",
        OneOf(("read_committed", "read_uncommitted")),
    ),
    _int("share.partition.max.record.locks", 2000, 100, "The maximum number of records of a partition in delivery."),
    _int("share.record.lock.duration.ms", 30000, 1000, "How long a delivered record waits for its acknowledgement."),
    _group("share.renew.acknowledge.enable", _BOOLEAN, True, "Whether a member may extend the lock of a record."),
    _int("share.session.timeout.ms", 45000, 1, "The session timeout of members of a share group."),
    _group(
        "streams.acceptable.recovery.lag",
        _LONG,
        10_000,
        "How many records a task of a streams group may lack on the member that it moves to.",
        Range(0),
        "group.streams.acceptable.recovery.lag",
    ),
    _int("streams.assignment.interval.ms", 1000, 0, "The minimum time between two assignments of a streams group."),
    _int("streams.heartbeat.interval.ms", 5000, 1, "The heartbeat interval of members of a streams group."),
    _int("streams.initial.rebalance.delay.ms", 3000, 0, "How long a new streams group waits for more members."),
    _int("streams.num.standby.replicas", 0, 0, "The number of standby replicas of each task of a streams group."),
    _int("streams.num.warmup.replicas", 2, 0, "How many tasks of a streams group warm up at a time before they move."),
    _int("streams.session.timeout.ms", 45000, 1, "The session timeout of members of a streams group."),
    _int(
        "streams.task.offset.interval.ms", 60_000, 1, "How often members of a streams group report how far tasks are."
    ),
)


def _subscription(
    name: str, type_: ConfigType, default: Value, documentation: str, validator: Validator
) -> ConfigDefinition:
    return ConfigDefinition(name, type_, default, validator, documentation, has_effect=False)


CLIENT_METRICS_CONFIGS: Final = table(
    _subscription(
        "interval.ms", _INT, 300_000, "How often the matching clients send their metrics.", Range(100, 3_600_000)
    ),
    _subscription("match", _LIST, (), "The clients that send metrics: attribute=pattern pairs.", ListOf()),
    _subscription("metrics", _LIST, (), "Prefixes of the requested metrics.", ListOf()),
)
