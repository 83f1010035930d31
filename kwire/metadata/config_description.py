"""Answers DescribeConfigs: every configuration of a resource, its value, and the value's source.

Documentation is kwire's own. Values of passwords, and of unknown broker configurations (which may be passwords), are
left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

from kwire.config.definition import (
    ConfigDefinition,
    ConfigError,
    ConfigSource,
    ConfigType,
    Definitions,
    Scope,
    Value,
    to_text,
)
from kwire.config.resolution import Origin
from kwire.config.tables.broker import broker_config, broker_configs, listener_config
from kwire.config.tables.resource import CLIENT_METRICS_CONFIGS, GROUP_CONFIGS
from kwire.config.tables.topic import TOPIC_CONFIGS
from kwire.metadata.controller.configs.config_checks import check_own_broker, unnamed_resource
from kwire.metadata.controller.deciding import ClusterState
from kwire.metadata.image import ConfigResourceType
from kwire.names.topic_names import check_topic_name

Entries = Iterable[DescribeConfigsResourceResult]


def describe_configs(
    state: ClusterState, request: DescribeConfigsRequest, *, loggers: Mapping[str, str]
) -> DescribeConfigsResponse:
    """Describes resources. `loggers` has the levels of this broker's loggers. Raises KafkaError for an unknown type."""
    known = set(ConfigResourceType)
    if any(resource.resource_type not in known for resource in request.resources):
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    describer = _Describer(state, loggers, request.include_synonyms, request.include_documentation)
    return DescribeConfigsResponse(results=[describer.result(resource) for resource in request.resources])


@attrs.frozen
class _Describer:
    state: ClusterState
    loggers: Mapping[str, str]
    with_synonyms: bool
    with_documentation: bool

    def result(self, resource: DescribeConfigsResource) -> DescribeConfigsResult:
        try:
            wanted = frozenset(resource.configuration_keys or ())
            return DescribeConfigsResult(
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
                configs=[entry for entry in self._entries(resource) if not wanted or entry.name in wanted],
            )
        except KafkaError as error:
            return DescribeConfigsResult(error.code, error.message, resource.resource_type, resource.resource_name, [])

    def _entries(self, resource: DescribeConfigsResource) -> Entries:
        name = resource.resource_name
        match resource.resource_type:
            case ConfigResourceType.TOPIC:
                return self._topic(name)
            case ConfigResourceType.BROKER:
                check_own_broker(name, self.state.node_id)
                return self._broker() if name else self._cluster()
            case ConfigResourceType.BROKER_LOGGER:
                check_own_broker(name, self.state.node_id)
                if not name:
                    raise unnamed_resource("broker")
                return self._loggers()
            case ConfigResourceType.CLIENT_METRICS:
                if not name:
                    raise unnamed_resource("client metrics subscription")
                return self._resource(
                    ConfigResourceType.CLIENT_METRICS, name, CLIENT_METRICS_CONFIGS, ConfigSource.CLIENT_METRICS_CONFIG
                )
            case _:
                if not name:
                    raise unnamed_resource("group")
                return self._resource(ConfigResourceType.GROUP, name, GROUP_CONFIGS, ConfigSource.GROUP_CONFIG)

    def _topic(self, name: str) -> Entries:
        check_topic_name(name)
        if name not in self.state.image.topics:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        overrides = self.state.image.config(ConfigResourceType.TOPIC, name)
        values = self.state.configs.topic_values(overrides)
        for definition in TOPIC_CONFIGS.values():
            if definition.internal and definition.name not in overrides:
                continue
            origins: list[Origin] = []
            if definition.name in overrides:
                text = to_text(values[definition.name])
                origins.append(Origin(definition.name, text, ConfigSource.DYNAMIC_TOPIC_CONFIG))
            if definition.broker_synonyms:
                origins += self.state.configs.origins(definition.broker_synonyms[0][0])
            yield self._entry(definition, values[definition.name], origins, read_only=False)

    def _broker(self) -> Entries:
        configs = self.state.configs
        definitions = broker_configs()
        for name in sorted({*definitions, *configs.effective}):
            definition = definitions.get(name)
            if definition is None:
                definition = _unlisted(name)
            elif definition.internal and name not in configs.effective:
                continue
            yield self._entry(
                definition,
                _value_or_text(definition, configs.effective.get(name)),
                configs.origins(name),
                read_only=definition.scope is Scope.READ_ONLY,
            )

    def _cluster(self) -> Entries:
        """Describes only the configurations that were set dynamically for all brokers."""
        for name, text in sorted(self.state.configs.dynamic_default.items()):
            definition = broker_config(name) or _unlisted(name)
            origins = [Origin(name, text, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG)]
            yield self._entry(definition, text, origins, read_only=definition.scope is Scope.READ_ONLY)

    def _loggers(self) -> Entries:
        for name, level in sorted(self.loggers.items()):
            yield DescribeConfigsResourceResult(
                name, level, False, ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG, documentation=None
            )

    def _resource(
        self, resource_type: ConfigResourceType, name: str, definitions: Definitions, source: ConfigSource
    ) -> Entries:
        configured = self.state.image.config(resource_type, name)
        for definition in definitions.values():
            text = configured.get(definition.name)
            origins: list[Origin] = []
            if text is not None:
                origins.append(Origin(definition.name, text, source))
            value: Value = definition.default if text is None else _value_or_text(definition, text)
            for synonym, _ in definition.broker_synonyms:
                if text is None:
                    value = self.state.configs.value(synonym)
                origins += self.state.configs.origins(synonym)
            if not definition.broker_synonyms and resource_type is ConfigResourceType.GROUP:
                origins.append(Origin(definition.name, to_text(definition.default), ConfigSource.DEFAULT_CONFIG))
            yield self._entry(definition, value, origins, read_only=False)

    def _entry(
        self, definition: ConfigDefinition, value: Value, origins: Sequence[Origin], *, read_only: bool
    ) -> DescribeConfigsResourceResult:
        sensitive = definition.sensitive or definition.type is ConfigType.UNKNOWN
        return DescribeConfigsResourceResult(
            name=definition.name,
            value=None if sensitive else to_text(value),
            read_only=read_only,
            config_source=origins[0].source if origins else ConfigSource.DEFAULT_CONFIG,
            is_sensitive=sensitive,
            synonyms=[
                DescribeConfigsSynonym(origin.name, None if sensitive else origin.text, origin.source)
                for origin in (origins if self.with_synonyms else ())
            ],
            config_type=definition.type,
            documentation=definition.documentation if self.with_documentation else None,
        )


def _unlisted(name: str) -> ConfigDefinition:
    """Describes a broker's configuration that is set but in no table: a listener's, or an unknown one."""
    of_listener = listener_config(name)
    if of_listener is None:
        return ConfigDefinition(name, ConfigType.UNKNOWN, None)
    return ConfigDefinition(name, of_listener.type, None, of_listener.validator, of_listener.documentation)


def _value_or_text(definition: ConfigDefinition, text: str | None) -> Value:
    """Returns the parsed value; the text itself if it would be refused (a name without effect is never parsed)."""
    if text is None:
        return definition.default
    try:
        return definition.parse(text)
    except ConfigError:
        return text
