"""The checks on configuration values: ranges, choices, lists. The rules are Kafka's."""

from __future__ import annotations

import re
from typing import Final

import attrs

from kwire.config.definition import ConfigError, Value, invalid
from kwire.config.listeners import parse_address
from kwire.security.principal import parse_principals

_THROTTLED_REPLICA: Final = re.compile(r"(?:\d+:\d+)?")
_OFFSET_RESET: Final = re.compile(r"latest|earliest|by_duration:P(?=.)(\d+D)?(T(?=.)(\d+H)?(\d+M)?(\d+(\.\d+)?S)?)?")
_HOST: Final = re.compile(r"[0-9a-zA-Z%._:-]+")
_MOST: Final = (1 << 31) - 1


@attrs.frozen
class Range:
    """A number from `low` to `high`, both included."""

    low: float | None = None
    high: float | None = None

    def check(self, name: str, value: Value) -> None:
        if value is None:
            return
        assert isinstance(value, int | float)
        if self.low is not None and value < self.low:
            raise invalid(name, value, f"Value must be at least {self.low}")
        if self.high is not None and value > self.high:
            raise invalid(name, value, f"Value must be no more than {self.high}")


@attrs.frozen
class PositiveOrUnlimited:
    """A number of at least 1; any negative number means unlimited."""

    def check(self, name: str, value: Value) -> None:
        if value == 0:
            raise invalid(name, value, "Value must be unlimited (-1) or greater than or equal to 1")


@attrs.frozen
class Admitted:
    """A maximum number of connections: at least one.

    As in Kafka, whose error message this is, a change to 0 is refused; but a Kafka broker starts with it, and serves no
    client.
    """

    def check(self, name: str, value: Value) -> None:
        Range(0).check(name, value)
        if value == 0:
            raise invalid(name, value, "nobody could connect")


@attrs.frozen
class RangeOr:
    """A number from `low` to `high`, or the number that means the default."""

    low: int
    high: int
    usual: int

    def check(self, name: str, value: Value) -> None:
        assert isinstance(value, int)
        if value != self.usual and not self.low <= value <= self.high:
            raise invalid(name, value, f"Value must be between {self.low} and {self.high} or equal to {self.usual}")


@attrs.frozen
class OneOf:
    choices: tuple[str, ...]
    any_case: bool = False

    def check(self, name: str, value: Value) -> None:
        assert isinstance(value, str)
        if self.any_case:
            if value.upper() not in {choice.upper() for choice in self.choices}:
                raise invalid(name, value, f"String must be one of: {', '.join(self.choices)} (upper or lower case)")
        elif value not in self.choices:
            raise invalid(name, value, f"String must be one of: {', '.join(self.choices)}")


@attrs.frozen
class JavaClass:
    """No class, or one that kwire implements.

    Any other class is refused: without a class that protects something, the broker would permit what it was configured
    to prevent.
    """

    known: tuple[str, ...] = ()

    def check(self, name: str, value: Value) -> None:
        if value is not None and value not in self.known:
            instead = f", or set it to {', '.join(self.known)}" if self.known else ""
            raise invalid(name, value, f"kwire loads no classes of Java: remove it{instead}")


@attrs.frozen
class OptionalChoice:
    """No value, or one of `choices`."""

    choices: tuple[str, ...]

    def check(self, name: str, value: Value) -> None:
        if value is not None and value not in self.choices:
            raise invalid(name, value, f"kwire has only: {', '.join(filter(None, self.choices))}")


@attrs.frozen
class ListOf:
    """A list without empty elements, whose elements are in `choices` if there are any."""

    choices: tuple[str, ...] = ()
    may_be_empty: bool = True

    def check(self, name: str, value: Value) -> None:
        if value is None:
            return
        assert isinstance(value, tuple)
        if not value and not self.may_be_empty:
            raise ConfigError(f"Configuration '{name}' must not be empty")
        if "" in value:
            raise ConfigError(f"Configuration '{name}' values must not be empty: remove the extra comma")
        for element in value:
            if self.choices and element not in self.choices:
                raise invalid(name, element, f"String must be one of: {', '.join(self.choices)}")


@attrs.frozen
class ThrottledReplicas:
    """`*`, or `partition:broker` pairs. As in Kafka, some of them may be empty."""

    def check(self, name: str, value: Value) -> None:
        assert isinstance(value, tuple)
        if value == ("*",) or all(_THROTTLED_REPLICA.fullmatch(pair) for pair in value):
            return
        raise invalid(
            name,
            ",".join(value),
            f"{name} must be the literal '*' or a list of replicas as partition:broker, such as 0:1,0:2",
        )


@attrs.frozen
class HostAndPort:
    """An address in the format of `kwire.config.listeners.parse_address`."""

    def check(self, name: str, value: Value) -> None:
        if value is not None:
            assert isinstance(value, str)
            parse_address(name, value)


@attrs.frozen
class CountsOfHosts:
    """host:count pairs, separated by commas; see `counts_of_hosts`."""

    def check(self, name: str, value: Value) -> None:
        assert isinstance(value, str)
        try:
            counts_of_hosts(value)
        except ValueError:
            raise invalid(
                name, value, "Each entry must be a host, a colon and a number, such as 10.0.0.1:100,10.0.0.2:200"
            ) from None


def counts_of_hosts(text: str) -> dict[str, int]:
    """Returns the counts by host, which ends at the last colon of an entry. As in Kafka, a negative count is like 0.

    Raises ValueError.
    """
    counts = {}
    for entry in filter(None, map(str.strip, text.split(","))):
        host, _, count = entry.rpartition(":")
        host = host.strip().strip("[]")
        if not _HOST.fullmatch(host) or abs(int(count)) > _MOST:
            raise ValueError(entry)
        counts[host] = max(int(count), 0)
    return counts


@attrs.frozen
class OffsetReset:
    """The offset at which a share group starts."""

    def check(self, name: str, value: Value) -> None:
        assert isinstance(value, str)
        if not _OFFSET_RESET.fullmatch(value):
            wanted = (
                "The value must be either 'earliest', 'latest' or 'by_duration:' followed by an ISO 8601 duration, "
                "such as by_duration:P1DT12H"
            )
            raise invalid(name, value, wanted)


@attrs.frozen
class NonEmptyText:
    def check(self, name: str, value: Value) -> None:
        if value == "":
            raise invalid(name, value, "String must be non-empty")


@attrs.frozen
class Principals:
    """Principals with their types, separated by semicolons."""

    def check(self, name: str, value: Value) -> None:
        assert isinstance(value, str)
        try:
            parse_principals(value)
        except ValueError as error:
            raise invalid(name, value, str(error)) from error
