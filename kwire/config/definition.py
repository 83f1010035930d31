"""A configuration's definition: its type, default, permitted values and documentation.

Parsing follows Kafka's ConfigDef:

* text is trimmed (Java's trim: everything up to U+0020), except for passwords;
* a number is decimal digits with an optional sign, within the range of its Java type;
* a boolean is `true` or `false` in any case, nothing else;
* a list is split at commas, its elements are trimmed, duplicates count once, and the empty text is the empty list.

An invalid value raises `ConfigError`, with a one-line message for the user.
"""

from __future__ import annotations

import re
from enum import Enum, IntEnum
from typing import Final, Protocol

import attrs
from kwire_protocol.kafka_error import quoted

Value = bool | int | float | str | tuple[str, ...] | None
"""A parsed value; None if nothing is configured and there is no default."""


class ConfigError(Exception):
    """A name or a value is invalid; the message has it, and the reason (Kafka's INVALID_CONFIG)."""


class ConfigType(IntEnum):
    """The numbers are those of DescribeConfigs responses."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class ConfigSource(IntEnum):
    """The source of a value. The numbers are those of DescribeConfigs and CreateTopics responses."""

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    CLIENT_METRICS_CONFIG = 7
    GROUP_CONFIG = 8


class Scope(Enum):
    """The scope of changes at run time to a broker's configuration (Kafka's dynamic update mode)."""

    READ_ONLY = "read-only"
    PER_LISTENER = "per-listener"
    """A configuration of one broker, and only with a listener's prefix (listener.name.NAME.)."""
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


class Validator(Protocol):
    def check(self, name: str, value: Value) -> None:
        """Raises ConfigError if `value` is not valid for `name`."""
        ...


@attrs.frozen
class ConfigDefinition:
    """One configuration name.

    `broker_synonyms` is for topic configs: the broker configs that provide the default, strongest first, each with the
    factor that converts its unit to the topic config's unit. `has_effect` is False for names that kwire accepts but
    ignores. Internal names can be set but are not described.
    """

    name: str
    type: ConfigType
    default: Value
    validator: Validator | None = None
    documentation: str = ""
    scope: Scope = Scope.READ_ONLY
    broker_synonyms: tuple[tuple[str, int], ...] = ()
    has_effect: bool = True
    internal: bool = False

    @property
    def sensitive(self) -> bool:
        return self.type is ConfigType.PASSWORD

    def parse(self, text: str) -> Value:
        """Raises ConfigError."""
        value = parse_text(self.name, self.type, text)
        if self.validator is not None:
            self.validator.check(self.name, value)
        return value


Definitions = dict[str, ConfigDefinition]
"""A table of configurations by name."""


def table(*definitions: ConfigDefinition) -> Definitions:
    named = {definition.name: definition for definition in definitions}
    assert len(named) == len(definitions), "a configuration name is defined twice"
    return named


_PLAIN: Final = re.compile(r"[\w.,:/*=+-]{1,200}", re.ASCII)


def shown(text: object) -> str:
    """Returns a name or a value for a message, in quotes if its end is not obvious."""
    return str(text) if _PLAIN.fullmatch(str(text)) else quoted(text)


def invalid(name: str, value: object, why: str) -> ConfigError:
    """Returns the error for a value. Its message begins like Kafka's ConfigException, because scripts search for it."""
    return ConfigError(f"Invalid value {shown(value)} for configuration {name}: {why}")


_JAVA_WHITESPACE: Final = "".join(map(chr, range(0x21)))
_INTEGER: Final = re.compile(r"[+-]?\d+")
_DECIMAL: Final = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)[fFdD]?", re.ASCII)
_COMMA: Final = re.compile(r"\s*,\s*")
_INTEGER_BITS: Final = {ConfigType.SHORT: 16, ConfigType.INT: 32, ConfigType.LONG: 64}
# More digits than any valid number has. Python refuses to convert thousands of digits.
_MOST_DIGITS: Final = 40


def parse_text(name: str, type_: ConfigType, text: str) -> Value:
    """Parses `text` by its type only. Raises ConfigError."""
    trimmed = text.strip(_JAVA_WHITESPACE)
    match type_:
        case ConfigType.BOOLEAN:
            if trimmed.lower() not in ("true", "false"):
                raise invalid(name, text, "Expected value to be either true or false")
            return trimmed.lower() == "true"
        case ConfigType.INT | ConfigType.SHORT | ConfigType.LONG:
            bound = 1 << (_INTEGER_BITS[type_] - 1)
            if _INTEGER.fullmatch(trimmed) and len(trimmed) <= _MOST_DIGITS:
                number = int(trimmed)
                if -bound <= number < bound:
                    return number
            raise invalid(name, text, f"Not a number of type {type_.name} (from {-bound} to {bound - 1})")
        case ConfigType.DOUBLE:
            decimal = _DECIMAL.fullmatch(trimmed)
            if decimal is None:
                raise invalid(name, text, f"Not a number of type {type_.name} (such as 0.5)")
            return float(decimal[1])
        case ConfigType.LIST:
            return tuple(dict.fromkeys(_COMMA.split(trimmed))) if trimmed else ()
        case ConfigType.PASSWORD:
            return text
        case ConfigType.STRING | ConfigType.CLASS | ConfigType.UNKNOWN:
            return trimmed


def to_text(value: Value) -> str | None:
    """Returns the value as text, in Kafka's format."""
    match value:
        case None | str():
            return value
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float():
            return _double_text(value)
        case tuple():
            return ",".join(value)


def _double_text(value: float) -> str:
    """Returns Java's Double.toString: plain between 10^-3 and 10^7, else one digit, the rest, and an exponent."""
    mantissa, _, exponent = repr(abs(value)).partition("e")
    whole, _, fraction = mantissa.partition(".")
    point = len(whole) + int(exponent or 0)
    digits = (whole + fraction).lstrip("0")
    point -= len(whole + fraction) - len(digits)
    digits = digits.rstrip("0") or "0"
    sign = "-" if value < 0 else ""
    if value == 0:
        return f"{sign}0.0"
    if -3 < point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    if 0 < point <= 7:
        return f"{sign}{digits[:point].ljust(point, '0')}.{digits[point:] or '0'}"
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{point - 1}"
