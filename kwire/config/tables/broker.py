"""Every broker configuration: Kafka's, by subject, and kwire's own.

Together they are some 360 names, so the ones without effect are only loaded when a name asks for them: a broker that
starts with a few settings and is never asked to describe itself does without.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Final

from kwire.config.definition import ConfigDefinition, Definitions, table
from kwire.config.tables.coordinators import COORDINATOR_CONFIGS
from kwire.config.tables.log_defaults import LOG_DEFAULT_CONFIGS
from kwire.config.tables.rows import INT, LONG, STRING, row
from kwire.config.tables.server import SERVER_CONFIGS
from kwire.config.tables.topic import TOPIC_CONFIGS
from kwire.config.validators import NonEmptyText, Range

KWIRE_CONFIGS: Final = table(
    row(
        "kwire.cluster.id",
        STRING,
        None,
        NonEmptyText(),
        "The id of the cluster, written down at the first start; a random one if not set.",
    ),
    row(
        "kwire.log.max.open.files",
        INT,
        0,
        Range(0),
        "The most segment files held open at a time; others are opened when they are needed. 0: half of what the "
        "process may open, so that as many connections have room.",
    ),
    row(
        "kwire.log.reserve.bytes",
        LONG,
        16 * 1024 * 1024,
        Range(0),
        "How much room of each data folder's disk is kept back, so that on a full disk topics can be deleted and the "
        "broker stops cleanly. 0 keeps none.",
    ),
    row(
        "kwire.spin.us",
        INT,
        80,
        Range(0, 1000),
        "How many microseconds the broker asks for the next request before it sleeps, when the ones before came as "
        "quickly: less latency, and less work than waking up. 0 always sleeps.",
    ),
)

HONOURED_CONFIGS: Final[Definitions] = {
    **SERVER_CONFIGS,
    **COORDINATOR_CONFIGS,
    **LOG_DEFAULT_CONFIGS,
    **KWIRE_CONFIGS,
}


@cache
def broker_configs() -> Definitions:
    """All of them, by name."""
    from kwire.config.tables.without_effect import CONFIGS_WITHOUT_EFFECT

    return {**HONOURED_CONFIGS, **CONFIGS_WITHOUT_EFFECT}


def has_effect(definition: ConfigDefinition) -> bool:
    """False too for what is only the default of a topic configuration without effect."""
    return definition.has_effect and definition.name not in _DEFAULTS_WITHOUT_EFFECT


_DEFAULTS_WITHOUT_EFFECT: Final = frozenset(
    synonym for topic in TOPIC_CONFIGS.values() if not topic.has_effect for synonym, _ in topic.broker_synonyms
)

BROKER_NAMES_OF_TOPIC_CONFIGS: Final = {
    topic.name: topic.broker_synonyms[0][0] for topic in TOPIC_CONFIGS.values() if topic.broker_synonyms
}
"""What a broker calls its default of a topic configuration."""


def broker_config(name: str) -> ConfigDefinition | None:
    return HONOURED_CONFIGS.get(name) or broker_configs().get(name)


_OF_A_LISTENER: Final = re.compile(r"listener\.name\.[^.]*\.(.+)")

CLUSTER_WIDE_OF_LISTENERS: Final = frozenset(("max.connections", "max.connection.creation.rate", "num.network.threads"))
"""What all brokers may have in common for listeners of the same name; all else is for one broker."""


def listener_config(name: str) -> ConfigDefinition | None:
    """What stands behind the prefix listener.name.NAME., if that is a configuration. kwire acts on none of them."""
    match = _OF_A_LISTENER.fullmatch(name)
    return None if match is None else broker_config(match[1])


SYNONYMS: Final[tuple[tuple[str, ...], ...]] = (
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
)


def synonyms(name: str) -> tuple[str, ...]:
    """The names that set the same thing as `name`, the strongest first; as Kafka's brokerConfigSynonyms."""
    for family in SYNONYMS:
        if name in family:
            return family
    return (name,)
