"""Checks the configurations that a resource would have: names, values, and their combination.

All functions check the complete resulting configuration, and raise KafkaError. The rules and codes are Kafka's: a
change of a topic is refused with INVALID_CONFIG, one of a broker with INVALID_REQUEST.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Final

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError

from kwire.config.definition import ConfigDefinition, ConfigError, Definitions, Scope, Value, shown
from kwire.config.relations import group_violations, topic_violations, violations
from kwire.config.resolution import ConfigResolver, overlay
from kwire.config.server import ServerConfig
from kwire.config.suggestions import did_you_mean
from kwire.config.tables.broker import CLUSTER_WIDE_OF_LISTENERS, broker_config, listener_config
from kwire.config.tables.resource import CLIENT_METRICS_CONFIGS, GROUP_CONFIGS
from kwire.config.tables.tls import TLS_CONFIGS
from kwire.config.tables.topic import TOPIC_CONFIGS
from kwire.metadata.controller.deciding import CheckListeners

MAX_VALUE_LENGTH: Final = 0x7FFF
_OF_SECURITY: Final = ("listener.name.", "sasl.", "connections.max.reauth.ms")
_MAX_NAMES_SHOWN: Final = 10
_THREAD_COUNTS: Final = frozenset(
    (
        "background.threads",
        "log.cleaner.threads",
        "num.io.threads",
        "num.network.threads",
        "num.recovery.threads.per.data.dir",
        "num.replica.fetchers",
        "remote.log.manager.copier.thread.pool.size",
        "remote.log.manager.expiration.thread.pool.size",
        "remote.log.manager.follower.thread.pool.size",
        "remote.log.reader.threads",
    )
)
_TOPIC_NAMES_OF_BROKER_CONFIGS: Final = {
    synonym: topic.name for topic in TOPIC_CONFIGS.values() for synonym, _ in topic.broker_synonyms
}
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


def check_topic_configs(configs: Mapping[str, str], resolver: ConfigResolver) -> None:
    """Raises KafkaError(INVALID_CONFIG)."""
    values = dict(resolver.topic_defaults())
    values.update(_parsed(configs, TOPIC_CONFIGS, "topic", _TOPIC_NAMES_OF_BROKER_CONFIGS))
    for violation in topic_violations(values):
        raise _invalid(violation.message)


def check_broker_configs(
    configs: Mapping[str, str], before: Mapping[str, str], resolver: ConfigResolver, *, per_broker: bool
) -> None:
    """Checks a broker's configuration; `before` is the current one. Raises KafkaError(INVALID_REQUEST).

    Only changes are checked, so that invalid configurations in the metadata log, which no broker follows, can be
    corrected one by one. Unknown names are accepted, since plug-ins define their own.
    """
    changed = {name for name in (*configs, *before) if configs.get(name) != before.get(name)}
    known = {name: it for name in configs if name in changed and (it := broker_config(name)) is not None}
    of_listeners = {name: it for name in configs if name in changed and (it := listener_config(name)) is not None}
    for scope, why in (
        (Scope.READ_ONLY, "Cannot update these configs dynamically"),
        (
            Scope.PER_LISTENER,
            "These security configs can be dynamically updated only per-listener using the listener prefix",
        ),
    ):
        refused = [name for name, definition in known.items() if definition.scope is scope]
        if refused:
            raise invalid_request(f"{why}: [{', '.join(refused)}]")
    for name, definition in (*known.items(), *of_listeners.items()):
        try:
            value = definition.parse(configs[name])
        except ConfigError as error:
            raise invalid_request(str(error)) from None
        if name in _THREAD_COUNTS:
            _check_thread_count(name, value, resolver.value(name))
    if not per_broker:
        own = [name for name, definition in known.items() if definition.scope is Scope.PER_BROKER]
        own += [name for name, definition in of_listeners.items() if definition.name not in CLUSTER_WIDE_OF_LISTENERS]
        if own:
            raise invalid_request(
                f"Cannot update these configs at default cluster level, broker id must be specified: [{', '.join(own)}]"
            )
    followed = resolver.dynamic_broker if per_broker else resolver.dynamic_default
    wanted = {name: text for name, text in configs.items() if name in changed or name in followed}
    after = resolver.with_layer(wanted, per_broker=per_broker)
    _check_relations(after, resolver, changed)
    if any(name.startswith(_OF_SECURITY) for name in changed):
        _check_security(after)


def _check_relations(after: Mapping[str, str], resolver: ConfigResolver, changed: Set[str]) -> None:
    """Refuses violations that the change causes or involves; an unrelated older one is ignored."""
    at_odds = {violation.names for violation in violations(resolver.effective, at_a_change=True)}
    for violation in violations(after, at_a_change=True):
        if violation.names not in at_odds or not changed.isdisjoint(violation.names):
            raise invalid_request(violation.message)


def _check_security(effective: Mapping[str, str]) -> None:
    """Checks that the broker could have listeners with these configurations."""
    try:
        ServerConfig.from_properties(effective)
    except ConfigError as error:
        raise invalid_request(str(error)) from None


def check_listeners(
    configs: Mapping[str, str],
    before: Mapping[str, str],
    resolver: ConfigResolver,
    check: CheckListeners,
) -> None:
    """Checks a change with this broker's listeners. Raises KafkaError(INVALID_REQUEST)."""
    changed = {name for name in {*configs, *before} if configs.get(name) != before.get(name)}
    if any(name in TLS_CONFIGS or listener_config(name) is not None for name in changed):
        below = overlay(resolver.started_with, resolver.dynamic_default)
        try:
            check(overlay(below, configs))
        except ConfigError as error:
            raise invalid_request(f"Validation of the listeners' configurations failed: {error}") from None


def _check_thread_count(name: str, wanted: Value, current: Value) -> None:
    assert isinstance(wanted, int)
    assert isinstance(current, int)
    if not current // 2 <= wanted <= current * 2:
        bound = "less than half" if wanted < current else "greater than double"
        raise invalid_request(
            f"Dynamic thread count update validation failed for {name}={wanted}, "
            f"value should not be {bound} the current value {current}"
        )


def check_group_configs(configs: Mapping[str, str], resolver: ConfigResolver) -> None:
    """Raises KafkaError(INVALID_CONFIG)."""
    for violation in group_violations(_parsed(configs, GROUP_CONFIGS, "group"), resolver.value):
        raise _invalid(violation.message)


def check_client_metrics_configs(configs: Mapping[str, str]) -> None:
    """Raises KafkaError: INVALID_REQUEST, INVALID_CONFIG."""
    for name, text in configs.items():
        definition = CLIENT_METRICS_CONFIGS.get(name)
        if definition is None:
            raise invalid_request(
                f"Unknown client metrics configuration: {shown(name)}{did_you_mean(name, CLIENT_METRICS_CONFIGS)}"
            )
        if name == "interval.ms":
            _check_interval(definition, text)
        value = _parse(definition, text)
        if name == "match":
            assert isinstance(value, tuple)
            for pattern in value:
                _check_match(pattern)


def _check_interval(definition: ConfigDefinition, text: str) -> None:
    """Checks the interval; Kafka's error for a number out of range differs from that for a text that is no number."""
    value = _parse(attrs.evolve(definition, validator=None), text)
    assert isinstance(value, int)
    if not 100 <= value <= 3_600_000:
        raise invalid_request(
            f"Invalid value {value} for {definition.name}, interval must be between 100 and 3600000 (1 hour)"
        )


def _check_match(pattern: str) -> None:
    attribute, equals, expression = pattern.partition("=")
    attribute = attribute.strip()
    wrong = f"Illegal client matching pattern: {shown(pattern)}"
    if not equals or "=" in expression or not expression.strip():
        raise _invalid(f"{wrong}; it is written attribute=pattern")
    if attribute not in _CLIENT_ATTRIBUTES:
        raise _invalid(f"{wrong}; the attribute must be one of {', '.join(sorted(_CLIENT_ATTRIBUTES))}")


def _parsed(
    configs: Mapping[str, str], definitions: Definitions, kind: str, elsewhere: Mapping[str, str] | None = None
) -> dict[str, Value]:
    for name in configs:
        if name not in definitions:
            raise _invalid(f"Unknown {kind} config name: {shown(name)}{did_you_mean(name, definitions, elsewhere)}")
    return {name: _parse(definitions[name], text) for name, text in configs.items()}


def _parse(definition: ConfigDefinition, text: str) -> Value:
    if len(text) > MAX_VALUE_LENGTH:
        raise _invalid(f"a configuration may have {MAX_VALUE_LENGTH} characters, {definition.name} has {len(text)}")
    try:
        return definition.parse(text)
    except ConfigError as error:
        raise _invalid(str(error)) from None


def check_own_broker(name: str, node_id: int) -> None:
    """Checks that a broker's configurations are requested from that broker. The empty name means all brokers."""
    if name:
        if not name.removeprefix("-").isdecimal():
            raise invalid_request(f"Broker id must be an integer, but it is: {shown(name)}")
        if name != str(node_id):
            raise invalid_request(
                f"Unexpected broker id, expected {node_id}, but received {shown(name)}: ask that broker"
            )


def no_value_for(names: Sequence[str]) -> str:
    named = ", ".join(map(shown, names[:_MAX_NAMES_SHOWN]))
    return f"Null value not supported for configs: {named}; give a value, or leave them out"


def unnamed_resource(kind: str) -> KafkaError:
    """The error for a resource without a name; only brokers have configurations for all of them."""
    return invalid_request(f"Default {kind} resources are not allowed: the name of the {kind} must not be empty")


def invalid_request(why: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, why)


def _invalid(why: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_CONFIG, why)
