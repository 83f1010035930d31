"""Whether a resource may have the configurations it would have: names, values, and what must fit together.

Everything here looks at the whole configuration that a resource would end up with, and raises KafkaError. The rules and
the codes are Kafka's: broker configurations refuse with INVALID_REQUEST where topics refuse with INVALID_CONFIG.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError, quoted

from kwire.configs.broker import broker_config
from kwire.configs.definition import ConfigDefinition, ConfigError, Definitions, Scope, Value, invalid
from kwire.configs.resolution import ConfigResolver
from kwire.configs.resource import CLIENT_METRICS_CONFIGS, GROUP_CONFIGS
from kwire.configs.topic import TOPIC_CONFIGS

MAX_VALUE_LENGTH: Final = 0x7FFF
_MOST_NAMES_TOLD: Final = 10
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
            f"min.compaction.lag.ms would be {lowest}, and max.compaction.lag.ms {highest}: "
            "the first must not be above the second"
        )
    if values["remote.storage.enable"]:
        raise _invalid("remote.storage.enable must be false: kwire does not have tiered storage yet")


def check_broker_configs(configs: Mapping[str, str], *, per_broker: bool) -> None:
    """Raises KafkaError(INVALID_REQUEST). Names that nobody knows are kept: plug-ins have such."""
    known = {name: definition for name in configs if (definition := broker_config(name)) is not None}
    fixed = [name for name, definition in known.items() if definition.scope is Scope.READ_ONLY]
    if fixed:
        raise invalid_request(f"cannot change while the broker runs: {', '.join(sorted(fixed))}")
    if not per_broker:
        own = [name for name, definition in known.items() if definition.scope is Scope.PER_BROKER]
        if own:
            raise invalid_request(f"set these for each broker, not for all at once: {', '.join(sorted(own))}")
    for name, definition in known.items():
        try:
            definition.parse(configs[name])
        except ConfigError as error:
            raise invalid_request(str(error)) from None


def check_group_configs(configs: Mapping[str, str], resolver: ConfigResolver) -> None:
    """Raises KafkaError(INVALID_CONFIG)."""
    values = _parsed(configs, GROUP_CONFIGS, "group")
    for name, value in values.items():
        if name == "share.auto.offset.reset" and not _OFFSET_RESET.fullmatch(str(value)):
            wanted = "earliest, latest, or by_duration: followed by an ISO 8601 duration, such as by_duration:P1DT12H"
            raise _invalid(str(invalid(name, value, wanted)))
        # consumer.session.timeout.ms is bounded by group.consumer.min.session.timeout.ms and the like.
        kind, _, rest = name.partition(".")
        for bound, word in (("min", "least"), ("max", "most")):
            bound_name = f"group.{kind}.{bound}.{rest}"
            if broker_config(bound_name) is None:
                continue
            limit = resolver.value(bound_name)
            assert isinstance(limit, int)
            assert isinstance(value, int)
            if (value < limit) if bound == "min" else (value > limit):
                wanted = f"at {word} {limit}, which is the broker's {bound_name}"
                raise _invalid(str(invalid(name, value, wanted)))


def check_client_metrics_configs(configs: Mapping[str, str]) -> None:
    """Raises KafkaError: INVALID_REQUEST, INVALID_CONFIG."""
    for name, text in configs.items():
        definition = CLIENT_METRICS_CONFIGS.get(name)
        if definition is None:
            raise invalid_request(_unknown("client metrics", name))
        digits = text.strip()
        if name == "interval.ms" and digits.isdecimal() and not 100 <= int(digits[:20]) <= 3_600_000:
            wanted = "from 100 to 3600000, which is an hour"
            raise invalid_request(str(invalid(name, digits, wanted)))
        value = _parse(definition, text)
        if name == "match":
            assert isinstance(value, tuple)
            for pattern in value:
                _check_match(pattern)


def _check_match(pattern: str) -> None:
    attribute, equals, expression = pattern.partition("=")
    attribute = attribute.strip()
    if not equals or "=" in expression or not expression.strip():
        raise _invalid(f"match has {quoted(pattern)}: an element is written attribute=pattern")
    if attribute not in _CLIENT_ATTRIBUTES:
        known = ", ".join(sorted(_CLIENT_ATTRIBUTES))
        raise _invalid(f"match has {quoted(pattern)}: a client's attribute is one of {known}")


def _parsed(configs: Mapping[str, str], definitions: Definitions, kind: str) -> dict[str, Value]:
    for name in configs:
        if name not in definitions:
            raise _invalid(_unknown(kind, name))
    return {name: _parse(definitions[name], text) for name, text in configs.items()}


def _parse(definition: ConfigDefinition, text: str) -> Value:
    if len(text) > MAX_VALUE_LENGTH:
        raise _invalid(f"a configuration may have {MAX_VALUE_LENGTH} characters, {definition.name} has {len(text)}")
    try:
        return definition.parse(text)
    except ConfigError as error:
        raise _invalid(str(error)) from None


def check_own_broker(name: str, node_id: int) -> None:
    """A broker's configurations are that broker's to change and to describe; the empty name stands for all brokers."""
    if name:
        if not name.removeprefix("-").isdecimal():
            raise invalid_request(f"{quoted(name)} is no broker's id, which is a whole number")
        if name != str(node_id):
            raise invalid_request(f"this is broker {node_id}: what is about broker {quoted(name)} goes to that one")


def no_value_for(names: Sequence[str]) -> str:
    told = ", ".join(map(quoted, names[:_MOST_NAMES_TOLD]))
    return f"no value is given for {told}: give one, or leave the configuration out"


def which_one(kind: str) -> KafkaError:
    """Only brokers have something that is common to all of them."""
    return invalid_request(f"the resource's name is empty: say which {kind} is meant")


def invalid_request(why: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, why)


def _invalid(why: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_CONFIG, why)


def _unknown(kind: str, name: str) -> str:
    return f"there is no {kind} configuration {quoted(name)}"
