"""Every broker configuration: Kafka's, by subject, and kwire's own.

There are about 360. Those without effect are loaded when a name is first looked up there, because most brokers never
need them.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Final

from kwire.config.definition import ConfigDefinition, Definitions, table
from kwire.config.tables.access import ACCESS_CONFIGS
from kwire.config.tables.coordinators import COORDINATOR_CONFIGS
from kwire.config.tables.log_defaults import LOG_DEFAULT_CONFIGS
from kwire.config.tables.quotas import QUOTA_CONFIGS
from kwire.config.tables.rows import BOOLEAN, INT, LONG, PASSWORD, STRING, row
from kwire.config.tables.sasl import SASL_CONFIGS
from kwire.config.tables.server import SERVER_CONFIGS
from kwire.config.tables.tls import TLS_CONFIGS
from kwire.config.tables.topic import TOPIC_CONFIGS
from kwire.config.tables.zookeeper import ZOOKEEPER_CONFIGS
from kwire.config.validators import HostAndPort, NonEmptyText, OneOf, Range

KWIRE_CONFIGS: Final = table(
    row(
        "kwire.audit.log",
        STRING,
        "denied",
        OneOf(("none", "denied", "all")),
        "Which decisions of the authorizer, and which logins, are logged: those that were denied, all, or none.",
    ),
    row(
        "kwire.audit.log.format",
        STRING,
        "text",
        OneOf(("text", "json")),
        "Whether a line of the audit log is a sentence or a JSON object.",
    ),
    row(
        "kwire.audit.log.max.lines.per.second",
        INT,
        100,
        Range(1),
        "Above this number, lines of the audit log are left out. Their number is logged.",
    ),
    row(
        "kwire.authentication.timeout.ms",
        INT,
        30_000,
        Range(1),
        "How long a client may take to negotiate TLS and to authenticate. After that its connection is closed.",
    ),
    row(
        "kwire.cluster.dir",
        STRING,
        None,
        NonEmptyText(),
        "A folder that the brokers of one machine share, on a local disk. Brokers with the same folder, each with its "
        "own node.id, listeners and log dirs, are one cluster. Not set: this broker is a cluster of its own.",
    ),
    row(
        "kwire.cluster.id",
        STRING,
        None,
        NonEmptyText(),
        "The cluster id, fixed at the first start. Random if not set.",
    ),
    row(
        "kwire.fast.paths.enable",
        BOOLEAN,
        True,
        None,
        "Whether the requests that clients send most are answered by shorter code. The responses are the same without "
        "it, and cost more CPU time.",
    ),
    row(
        "kwire.log.max.open.files",
        INT,
        0,
        Range(0),
        "The maximum number of open segment files. Others are opened when they are needed. 0 means half of the "
        "process's limit, which leaves the other half for connections.",
    ),
    row(
        "kwire.log.reserve.bytes",
        LONG,
        16 * 1024 * 1024,
        Range(0),
        "Disk space reserved in each log dir, so that on a full disk topics can be deleted and the broker can stop "
        "cleanly. 0 reserves none.",
    ),
    row(
        "kwire.metrics.listen",
        STRING,
        None,
        HostAndPort(),
        "Where to serve metrics over HTTP, for Prometheus: host:port, without authentication. Port 0 picks a free one. "
        "Not set: nowhere.",
    ),
    row(
        "kwire.sasl.secret",
        PASSWORD,
        None,
        NonEmptyText(),
        "Random text from which a broker derives its responses to SCRAM logins of unknown users, so that nobody "
        "learns which users exist. Give all brokers of a cluster the same. Not set: random at each start.",
    ),
    row(
        "kwire.spin.us",
        INT,
        80,
        Range(0, 1000),
        "How many microseconds to poll for the next request before sleeping, if the previous ones arrived that "
        "quickly. Reduces latency. 0 always sleeps.",
    ),
)

HONOURED_CONFIGS: Final[Definitions] = {
    **SERVER_CONFIGS,
    **COORDINATOR_CONFIGS,
    **LOG_DEFAULT_CONFIGS,
    **KWIRE_CONFIGS,
    **TLS_CONFIGS,
    **SASL_CONFIGS,
    **ACCESS_CONFIGS,
    **QUOTA_CONFIGS,
    **ZOOKEEPER_CONFIGS,
}


@cache
def broker_configs() -> Definitions:
    """Returns all broker configurations, by name."""
    from kwire.config.tables.without_effect import CONFIGS_WITHOUT_EFFECT

    return {**HONOURED_CONFIGS, **CONFIGS_WITHOUT_EFFECT}


def has_effect(definition: ConfigDefinition) -> bool:
    """Returns True if kwire uses it; False also for the default of a topic configuration without effect."""
    return definition.has_effect and definition.name not in _DEFAULTS_WITHOUT_EFFECT


_DEFAULTS_WITHOUT_EFFECT: Final = frozenset(
    synonym for topic in TOPIC_CONFIGS.values() if not topic.has_effect for synonym, _ in topic.broker_synonyms
)

BROKER_NAMES_OF_TOPIC_CONFIGS: Final = {
    topic.name: topic.broker_synonyms[0][0] for topic in TOPIC_CONFIGS.values() if topic.broker_synonyms
}
"""The broker configuration with the default of each topic configuration."""


def broker_config(name: str) -> ConfigDefinition | None:
    return HONOURED_CONFIGS.get(name) or broker_configs().get(name)


_OF_A_LISTENER: Final = re.compile(r"listener\.name\.[^.]*\.(.+)")

CLUSTER_WIDE_OF_LISTENERS: Final = frozenset(("max.connections", "max.connection.creation.rate", "num.network.threads"))
"""Listener configurations that can be set for the whole cluster; all others are for one broker."""


_OF_A_MECHANISM: Final = re.compile(r"(?:plain|scram-sha-256|scram-sha-512|oauthbearer|gssapi)\.(.+)")


def listener_config(name: str) -> ConfigDefinition | None:
    """Returns the configuration after the prefix listener.name.NAME., and after a mechanism's (plain.); or None."""
    match = _OF_A_LISTENER.fullmatch(name)
    if match is None:
        return None
    of_mechanism = _OF_A_MECHANISM.fullmatch(match[1])
    return broker_config(match[1] if of_mechanism is None else of_mechanism[1])


def has_effect_for_listener(definition: ConfigDefinition) -> bool:
    """Returns True if kwire uses it with the prefix of a listener."""
    name = definition.name
    is_used = name in TLS_CONFIGS or name in _OF_LISTENERS or name.startswith("sasl.oauthbearer.")
    return is_used and definition.has_effect


_OF_LISTENERS: Final = frozenset(
    (
        "connections.max.reauth.ms",
        "max.connection.creation.rate",
        "sasl.enabled.mechanisms",
        "sasl.jaas.config",
        "sasl.server.callback.handler.class",
    )
)


SYNONYMS: Final[tuple[tuple[str, ...], ...]] = (
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
)


def synonyms(name: str) -> tuple[str, ...]:
    """Returns the synonyms of `name`, itself included, strongest first; Kafka's brokerConfigSynonyms."""
    for family in SYNONYMS:
        if name in family:
            return family
    return (name,)
