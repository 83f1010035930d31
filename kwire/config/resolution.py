"""The value in force of a configuration, and its source.

A broker's configuration has three layers above its defaults, strongest first:

1. dynamic, for this broker (a ConfigRecord for BROKER and its id),
2. dynamic, for every broker (a ConfigRecord for BROKER and the empty name),
3. static: the file and the flags.

Whatever starts the broker may have defaults of its own (`ServerConfig.defaults`), which replace those of the tables.

A dynamic value also overrides the synonyms of its name in the layers below: log.retention.ms overrides
log.retention.hours. A topic's own ConfigRecords override the broker's values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs

from kwire.config.definition import ConfigDefinition, ConfigError, ConfigSource, Scope, Value, to_text
from kwire.config.tables.broker import HONOURED_CONFIGS, broker_config, synonyms
from kwire.config.tables.topic import TOPIC_CONFIGS


@attrs.frozen
class Origin:
    """The value that one layer has for a configuration: the name it uses, the text, and the layer."""

    name: str
    text: str | None
    source: ConfigSource


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
        self.dynamic_default, self.dynamic_broker = self._accepted(dynamic_default), self._accepted(dynamic_broker)
        self._refresh()

    def _accepted(self, layer: Mapping[str, str]) -> dict[str, str]:
        accepted = {}
        for name, text in layer.items():
            definition = HONOURED_CONFIGS.get(name)
            try:
                if definition is not None:
                    definition.parse(text)
                    if definition.scope is Scope.READ_ONLY:
                        raise ConfigError(f"{name} cannot be updated dynamically")
            except ConfigError as error:
                self.refused[name] = str(error)
            else:
                accepted[name] = text
        return accepted

    def _refresh(self) -> None:
        self._effective = overlay(overlay(self.started_with, self.dynamic_default), self.dynamic_broker)
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
        """The broker's value of a known name."""
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
        """The value of every topic configuration for a topic that sets none."""
        return self._topic_defaults

    def topic_values(self, overrides: Mapping[str, str]) -> dict[str, Value]:
        """The value of every topic configuration for a topic with these overrides.

        For a text that this version rejects, the default applies.
        """
        values = dict(self._topic_defaults)
        for name, text in overrides.items():
            definition = TOPIC_CONFIGS.get(name)
            if definition is not None:
                try:
                    values[name] = definition.parse(text)
                except ConfigError:
                    continue
        return values

    def origins(self, name: str) -> list[Origin]:
        """The values that the layers have for a broker's configuration, strongest first.

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
        """The source of a topic configuration's value, synonyms in other units included (for CreateTopics)."""
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


def _any_in(names: Iterable[str], layer: Mapping[str, str]) -> bool:
    return any(name in layer for name in names)


def overlay(below: Mapping[str, str], above: Mapping[str, str]) -> dict[str, str]:
    """`below` overridden by `above`: a name above also removes its synonyms below."""
    silenced = {synonym for name in above for synonym in synonyms(name)}
    return {**{name: text for name, text in below.items() if name not in silenced}, **above}
