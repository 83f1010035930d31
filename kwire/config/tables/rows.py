"""Helpers and short names for the tables of broker configurations."""

from __future__ import annotations

import sys
from typing import Final

from kwire.config.definition import ConfigDefinition, ConfigType, Scope, Validator, Value
from kwire.config.tables.topic import MAX_INT, MAX_LONG

__all__ = ["MAX_INT", "MAX_LONG"]

BOOLEAN: Final = ConfigType.BOOLEAN
INT: Final = ConfigType.INT
LONG: Final = ConfigType.LONG
SHORT: Final = ConfigType.SHORT
DOUBLE: Final = ConfigType.DOUBLE
STRING: Final = ConfigType.STRING
LIST: Final = ConfigType.LIST
CLASS: Final = ConfigType.CLASS
PASSWORD: Final = ConfigType.PASSWORD
MAX_DOUBLE: Final = sys.float_info.max
PER_BROKER: Final = Scope.PER_BROKER
PER_LISTENER: Final = Scope.PER_LISTENER
CLUSTER_WIDE: Final = Scope.CLUSTER_WIDE


def row(
    name: str,
    type_: ConfigType,
    default: Value,
    validator: Validator | None = None,
    documentation: str = "",
    scope: Scope = Scope.READ_ONLY,
    *,
    internal: bool = False,
) -> ConfigDefinition:
    return ConfigDefinition(name, type_, default, validator, documentation, scope, internal=internal)


def row_without_effect(
    name: str,
    type_: ConfigType,
    default: Value,
    validator: Validator | None = None,
    scope: Scope = Scope.READ_ONLY,
    *,
    internal: bool = False,
) -> ConfigDefinition:
    return ConfigDefinition(
        name,
        type_,
        default,
        validator,
        "Accepted for compatibility with Kafka; has no effect.",
        scope,
        has_effect=False,
        internal=internal,
    )
