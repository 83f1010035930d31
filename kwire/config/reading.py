"""Reads configured texts as typed values."""

from __future__ import annotations

import builtins
from collections.abc import Mapping

import attrs

from kwire.config.definition import Value
from kwire.config.tables.broker import HONOURED_CONFIGS


@attrs.frozen
class ConfigReader:
    """Reads values by name, with the type of the name's definition."""

    properties: Mapping[str, str] = attrs.field(repr=False)

    def of_listener(self, name: str) -> ConfigReader:
        """Returns a reader of the values in force for one listener: listener.name.NAME.x overrides x (KIP-103).

        Its `properties` also have the other names after the prefix, such as scram-sha-256.sasl.jaas.config.
        """
        prefix = f"listener.name.{name.lower()}."
        own = {key.removeprefix(prefix): text for key, text in self.properties.items() if key.startswith(prefix)}
        return ConfigReader({**self.properties, **own})

    def value(self, name: str) -> Value:
        definition = HONOURED_CONFIGS[name]
        text = self.properties.get(name)
        return definition.default if text is None else definition.parse(text)

    def int(self, name: str) -> int:
        value = self.value(name)
        assert isinstance(value, int)
        return value

    def optional_int(self, name: str) -> builtins.int | None:
        value = self.value(name)
        assert value is None or isinstance(value, builtins.int)
        return value

    def float(self, name: str) -> float:
        value = self.value(name)
        assert isinstance(value, float)
        return value

    def flag(self, name: str) -> bool:
        value = self.value(name)
        assert isinstance(value, bool)
        return value

    def text(self, name: str) -> str:
        value = self.value(name)
        assert isinstance(value, str)
        return value

    def optional_text(self, name: str) -> str | None:
        value = self.value(name)
        assert value is None or isinstance(value, str)
        return value

    def names(self, name: str) -> tuple[str, ...]:
        value = self.value(name)
        assert value is None or isinstance(value, tuple)
        return value or ()
