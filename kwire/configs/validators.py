"""The checks on configuration values: ranges, choices, lists. The rules are Kafka's."""

from __future__ import annotations

import re
from typing import Final

import attrs
from kwire_protocol.kafka_error import quoted

from kwire.configs.definition import ConfigError, Value, invalid

_THROTTLED_REPLICA: Final = re.compile(r"\d+:\d+")


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
            raise invalid(name, value, f"at least {self.low}")
        if self.high is not None and value > self.high:
            raise invalid(name, value, f"at most {self.high}")


@attrs.frozen
class RangeOr:
    """A number from `low` to `high`, or the one number that means «whatever is usual»."""

    low: int
    high: int
    usual: int

    def check(self, name: str, value: Value) -> None:
        assert isinstance(value, int)
        if value != self.usual and not self.low <= value <= self.high:
            raise invalid(name, value, f"from {self.low} to {self.high}, or {self.usual}")


@attrs.frozen
class OneOf:
    choices: tuple[str, ...]
    any_case: bool = False

    def check(self, name: str, value: Value) -> None:
        assert isinstance(value, str)
        if self.any_case:
            if value.upper() not in {choice.upper() for choice in self.choices}:
                raise invalid(name, value, f"one of {', '.join(self.choices)}, in upper or lower case")
        elif value not in self.choices:
            raise invalid(name, value, f"one of {', '.join(self.choices)}")


@attrs.frozen
class ListOf:
    """A list, of `choices` where they are given; without empty elements, and not empty itself unless it may be."""

    choices: tuple[str, ...] = ()
    may_be_empty: bool = True

    def check(self, name: str, value: Value) -> None:
        if value is None:
            return
        assert isinstance(value, tuple)
        if not value and not self.may_be_empty:
            raise ConfigError(f"{name} is empty: it must have at least one element{self._choices()}")
        if "" in value:
            raise ConfigError(f"{name} has an empty element: leave out the comma beside it")
        for element in value:
            if self.choices and element not in self.choices:
                raise ConfigError(f"{name} has {quoted(element)}: it must be a list{self._choices()}")

    def _choices(self) -> str:
        return f" of {', '.join(self.choices)}" if self.choices else ""


@attrs.frozen
class ThrottledReplicas:
    """`*`, or `partition:broker` pairs."""

    def check(self, name: str, value: Value) -> None:
        assert isinstance(value, tuple)
        if value == ("*",) or all(_THROTTLED_REPLICA.fullmatch(pair) for pair in value):
            return
        raise invalid(
            name,
            ",".join(value),
            "*, or a list of replicas written partition:broker, such as 0:1,0:2",
        )


@attrs.frozen
class NonEmptyText:
    def check(self, name: str, value: Value) -> None:
        if value == "":
            raise invalid(name, value, "a text that is not empty")
