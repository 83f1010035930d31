"""The value in force of a configuration, and its source.

A broker's configuration has three layers above its defaults, strongest first:

1. dynamic, for this broker (a ConfigRecord for BROKER and its id),
2. dynamic, for every broker (a ConfigRecord for BROKER and the empty name),
3. static: the file and the flags.

The program that starts the broker may have its own defaults (`ServerConfig.defaults`), which replace those of the
tables.

A dynamic value also overrides the synonyms of its name in the layers below: log.retention.ms overrides
log.retention.hours. A topic's own ConfigRecords override the broker's values, and so do a group's.

No record in the metadata log stops a broker. A record that this version refuses, on its own or together with others, is
left out: the next layer's value is in force, and the broker logs that. The record stays in the metadata log until an
admin client changes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs

from kwire.config.definition import ConfigDefinition, ConfigError, ConfigSource, Definitions, Scope, Value, to_text
from kwire.config.relations import GROUP_BOUNDS, group_violations, topic_violations, violations
from kwire.config.tables.broker import broker_config, listener_config, synonyms
from kwire.config.tables.resource import GROUP_CONFIGS
from kwire.config.tables.topic import TOPIC_CONFIGS


@attrs.frozen
class Origin:
    """The value that one layer has for a configuration: the name it uses, the text, and the layer."""

    name: str
    text: str | None
    source: ConfigSource


@attrs.frozen
class Followed:
    """The values in force of a topic or a group, and the reasons why some of its own values are ignored."""

    values: dict[str, Value]
    ignored: tuple[str, ...] = ()


@attrs.define(eq=False)
class ConfigResolver:
    """The layers of one broker, and the defaults that differ from the tables. `update` replaces the dynamic layers.

    `refused` maps names in the dynamic layers that this version rejects to the reason. Their records may be from
    another version. They are not in the layers.
    """

    static: Mapping[str, str] = attrs.field(repr=False)
    dynamic_default: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    dynamic_broker: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    defaults: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    refused: dict[str, str] = attrs.field(factory=dict)
    _effective: dict[str, str] = attrs.field(init=False, repr=False)
    _topic_defaults: dict[str, Value] = attrs.field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        self._refresh()

    def update(self, *, dynamic_default: Mapping[str, str], dynamic_broker: Mapping[str, str]) -> None:
        self.refused = {}
        default, own = self._accepted(dynamic_default), self._accepted(dynamic_broker)
        self._leave_out_what_does_not_fit(default, own)
        self.dynamic_default, self.dynamic_broker = default, own
        self._refresh()

    def _accepted(self, layer: Mapping[str, str]) -> dict[str, str]:
        accepted = {}
        for name, text in layer.items():
            definition = broker_config(name)
            try:
                if definition is not None:
                    definition.parse(text)
                    if definition.scope is Scope.READ_ONLY:
                        raise ConfigError(f"{name} cannot be updated dynamically")
                elif (of_listener := listener_config(name)) is not None:
                    of_listener.parse(text)
            except ConfigError as error:
                self.refused[name] = str(error)
            else:
                accepted[name] = text
        return accepted

    def _leave_out_what_does_not_fit(self, default: dict[str, str], own: dict[str, str]) -> None:
        """Removes dynamic values until there are no violations, or only ones without dynamic values.

        The static configuration alone has no violations, or else the broker would not have started.
        """
        while True:
            dynamic = [
                (violation.message, name, layer)
                for violation in violations(overlay(overlay(self.started_with, default), own))
                for layer in (own, default)
                for name in violation.names
                if name in layer
            ]
            if not dynamic:
                return
            message, name, layer = dynamic[0]
            del layer[name]
            self.refused[name] = message

    def with_layer(self, layer: Mapping[str, str], *, per_broker: bool) -> dict[str, str]:
        """Returns the texts that would be in force with `layer` in place of a dynamic layer."""
        default, own = (self.dynamic_default, layer) if per_broker else (layer, self.dynamic_broker)
        return overlay(overlay(self.started_with, default), own)

    def _refresh(self) -> None:
        self._effective = self.with_layer(self.dynamic_broker, per_broker=True)
        self._topic_defaults = {name: self._topic_default(definition) for name, definition in TOPIC_CONFIGS.items()}

    @property
    def effective(self) -> Mapping[str, str]:
        """The texts in force, by name. Names that only have a default are missing."""
        return self._effective

    @property
    def started_with(self) -> Mapping[str, str]:
        """The texts in force without dynamic ones."""
        return overlay(self.defaults, self.static)

    def value(self, name: str) -> Value:
        """Returns the broker's value of a known name."""
        definition = broker_config(name)
        assert definition is not None, name
        text = self._effective.get(name)
        if text is None:
            return definition.default
        return definition.parse(text)

    def _topic_default(self, definition: ConfigDefinition) -> Value:
        for name, factor in definition.broker_synonyms:
            value = self.value(name)
            if value is None:
                continue
            if factor != 1:
                assert isinstance(value, int)
                value *= factor
            # Any negative retention means unlimited, which is -1 for a topic.
            if definition.name == "retention.ms" and isinstance(value, int) and value < 0:
                return -1
            return value
        return definition.default

    def topic_defaults(self) -> Mapping[str, Value]:
        """Returns the value of every topic configuration for a topic that sets none."""
        return self._topic_defaults

    def topic_values(self, overrides: Mapping[str, str]) -> dict[str, Value]:
        """Returns the value of every topic configuration for a topic with these overrides."""
        return self.of_topic(overrides).values

    def of_topic(self, overrides: Mapping[str, str]) -> Followed:
        own, ignored = _parsed(overrides, TOPIC_CONFIGS)
        for violation in topic_violations({**self._topic_defaults, **own}):
            # A violation that only the broker's values cause is not an error of the topic.
            if any(own.pop(name, None) is not None for name in violation.names):
                ignored.append(violation.message)
        return Followed({**self._topic_defaults, **own}, tuple(ignored))

    def of_group(self, overrides: Mapping[str, str]) -> Followed:
        """Returns a group's values, limited to the broker's bounds, which may have changed since they were accepted."""
        own, ignored = _parsed(overrides, GROUP_CONFIGS)
        for name, value in own.items():
            own[name] = self._limited(name, value)
        for violation in group_violations(own, self.value):
            for name in violation.names:
                own.pop(name, None)
            ignored.append(violation.message)
        return Followed({**self._group_defaults(), **own}, tuple(ignored))

    def _limited(self, name: str, value: Value) -> Value:
        if isinstance(value, int):
            lowest, highest = (None if bound is None else self.value(bound) for bound in GROUP_BOUNDS[name])
            if isinstance(lowest, int):
                value = max(value, lowest)
            if isinstance(highest, int):
                value = min(value, highest)
        return value

    def _group_defaults(self) -> dict[str, Value]:
        return {
            name: self._limited(name, self.value(definition.broker_synonyms[0][0]))
            if definition.broker_synonyms
            else definition.default
            for name, definition in GROUP_CONFIGS.items()
        }

    def origins(self, name: str) -> list[Origin]:
        """Returns the values of the layers for a broker's configuration, strongest first.

        As in Kafka, the list starts with the first entry for the name itself.
        """
        family = synonyms(name)
        found: list[Origin] = []
        for layer, source in (
            (self.dynamic_broker, ConfigSource.DYNAMIC_BROKER_CONFIG),
            (self.dynamic_default, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
            (self.static, ConfigSource.STATIC_BROKER_CONFIG),
        ):
            found += [Origin(synonym, layer[synonym], source) for synonym in family if synonym in layer]
        for synonym in family:
            definition = broker_config(synonym)
            if synonym in self.defaults:
                found.append(Origin(synonym, self.defaults[synonym], ConfigSource.DEFAULT_CONFIG))
            elif definition is not None and definition.default is not None:
                found.append(Origin(synonym, to_text(definition.default), ConfigSource.DEFAULT_CONFIG))
        while found and found[0].name != name:
            found.pop(0)
        return found

    def topic_source(self, name: str, overrides: Mapping[str, str]) -> ConfigSource:
        """Returns the source of a topic configuration's value, including synonyms in other units (for CreateTopics)."""
        if name in overrides:
            return ConfigSource.DYNAMIC_TOPIC_CONFIG
        names = [synonym for synonym, _ in TOPIC_CONFIGS[name].broker_synonyms]
        for layer, source in (
            (self.dynamic_broker, ConfigSource.DYNAMIC_BROKER_CONFIG),
            (self.dynamic_default, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
            (self.static, ConfigSource.STATIC_BROKER_CONFIG),
        ):
            if _any_in(names, layer):
                return source
        return ConfigSource.DEFAULT_CONFIG


def _parsed(overrides: Mapping[str, str], definitions: Definitions) -> tuple[dict[str, Value], list[str]]:
    """Returns the values that are valid on their own, and the errors of the others."""
    values: dict[str, Value] = {}
    refused = []
    for name, text in overrides.items():
        definition = definitions.get(name)
        if definition is not None:
            try:
                values[name] = definition.parse(text)
            except ConfigError as error:
                refused.append(str(error))
    return values, refused


def _any_in(names: Iterable[str], layer: Mapping[str, str]) -> bool:
    return any(name in layer for name in names)


def overlay(below: Mapping[str, str], above: Mapping[str, str]) -> dict[str, str]:
    """Returns `below` overridden by `above`: a name above also removes its synonyms below."""
    silenced = {synonym for name in above for synonym in synonyms(name)}
    return {**{name: text for name, text in below.items() if name not in silenced}, **above}
