"""Whether a resource may have the configurations it would have: names, values, and what must fit together.

Everything here looks at the whole configuration that a resource would end up with, and raises KafkaError in Kafka's
words. Broker configurations refuse with INVALID_REQUEST where topics refuse with INVALID_CONFIG, as in Kafka.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError

from kwire.configs.broker import broker_config
from kwire.configs.definition import ConfigDefinition, ConfigError, Definitions, Scope, Value
from kwire.configs.resolution import ConfigResolver
from kwire.configs.resource import CLIENT_METRICS_CONFIGS, GROUP_CONFIGS
from kwire.configs.topic import TOPIC_CONFIGS

MAX_VALUE_LENGTH: Final = 0x7FFF
_CLIENT_ATTRIBUTES: Final = frozenset(
    (
        "client_instance_id",
        "client_id",
        "client_software_name",
        "client_software_version",
        "client_source_address",
        "client_source_port",
    )
)
_OFFSET_RESET: Final = re.compile(r"latest|earliest|by_duration:P(?=.)(\d+D)?(T(?=.)(\d+H)?(\d+M)?(\d+(\.\d+)?S)?)?")


def check_topic_configs(configs: Mapping[str, str], resolver: ConfigResolver) -> None:
    """Raises KafkaError(INVALID_CONFIG)."""
    values = dict(resolver.topic_defaults())
    values.update(_parsed(configs, TOPIC_CONFIGS, "topic"))
    lowest, highest = values["min.compaction.lag.ms"], values["max.compaction.lag.ms"]
    assert isinstance(lowest, int)
    assert isinstance(highest, int)
    if lowest > highest:
        raise _invalid(
            f"conflict topic config setting min.compaction.lag.ms ({lowest}) > max.compaction.lag.ms ({highest})"
        )
    if values["remote.storage.enable"]:
        raise _invalid(
            "Tiered Storage functionality is disabled in the broker. "
            "Topic cannot be configured with remote log storage."
        )


def check_broker_configs(configs: Mapping[str, str], *, per_broker: bool) -> None:
    """Raises KafkaError(INVALID_REQUEST). Names that nobody knows are kept: plug-ins have such."""
    known = {name: definition for name in configs if (definition := broker_config(name)) is not None}
    fixed = [name for name, definition in known.items() if definition.scope is Scope.READ_ONLY]
    if fixed:
        raise _invalid_request(f"Cannot update these configs dynamically: [{', '.join(sorted(fixed))}]")
    if not per_broker:
        own = [name for name, definition in known.items() if definition.scope is Scope.PER_BROKER]
        if own:
            raise _invalid_request(
                f"Cannot update these configs at default cluster level, broker id must be specified: "
                f"[{', '.join(sorted(own))}]"
            )
    for name, definition in known.items():
        try:
            definition.parse(configs[name])
        except ConfigError as error:
            raise _invalid_request(str(error)) from None


def check_group_configs(configs: Mapping[str, str], resolver: ConfigResolver) -> None:
    """Raises KafkaError(INVALID_CONFIG)."""
    values = _parsed(configs, GROUP_CONFIGS, "group")
    for name, value in values.items():
        if name == "share.auto.offset.reset" and not _OFFSET_RESET.fullmatch(str(value)):
            raise _invalid(
                f"Invalid value {value} for configuration {name}: Invalid value `{value}` for configuration {name}. "
                "The value must be either 'earliest', 'latest' or of the format 'by_duration:<PnDTnHnMn.nS>'."
            )
        # consumer.session.timeout.ms is bounded by group.consumer.min.session.timeout.ms and the like.
        kind, _, rest = name.partition(".")
        for bound, word in (("min", "greater"), ("max", "less")):
            bound_name = f"group.{kind}.{bound}.{rest}"
            if broker_config(bound_name) is None:
                continue
            limit = resolver.value(bound_name)
            assert isinstance(limit, int)
            assert isinstance(value, int)
            if (value < limit) if bound == "min" else (value > limit):
                raise _invalid(f"{name} must be {word} than or equal to {bound_name}")


def check_client_metrics_configs(configs: Mapping[str, str]) -> None:
    """Raises KafkaError: INVALID_REQUEST, INVALID_CONFIG."""
    for name, text in configs.items():
        definition = CLIENT_METRICS_CONFIGS.get(name)
        if definition is None:
            raise _invalid_request(f"Unknown client metrics configuration: {name}")
        if name == "interval.ms" and text.strip().isdecimal() and not 100 <= int(text[:20]) <= 3_600_000:
            raise _invalid_request(
                f"Invalid value {text.strip()} for interval.ms, interval must be between 100 and 3600000 (1 hour)"
            )
        value = _parse(definition, text)
        if name == "match":
            assert isinstance(value, tuple)
            for pattern in value:
                _check_match(pattern)


def _check_match(pattern: str) -> None:
    attribute, equals, expression = pattern.partition("=")
    if not equals or "=" in expression:
        raise _invalid(f"Illegal client matching pattern: {pattern}")
    if attribute.strip() not in _CLIENT_ATTRIBUTES:
        raise _invalid(f"Illegal client matching pattern: {pattern}")
    if not expression.strip():
        raise _invalid(f"Illegal client matching pattern: {pattern}")


def _parsed(configs: Mapping[str, str], definitions: Definitions, kind: str) -> dict[str, Value]:
    for name in configs:
        if name not in definitions:
            raise _invalid(f"Unknown {kind} config name: {name}")
    return {name: _parse(definitions[name], text) for name, text in configs.items()}


def _parse(definition: ConfigDefinition, text: str) -> Value:
    if len(text) > MAX_VALUE_LENGTH:
        raise _invalid(
            f"The configuration value cannot be added because it exceeds the maximum value size of "
            f"{MAX_VALUE_LENGTH} bytes."
        )
    try:
        return definition.parse(text)
    except ConfigError as error:
        raise _invalid(str(error)) from None


def _invalid(why: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_CONFIG, why)


def _invalid_request(why: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, why)
