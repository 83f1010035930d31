"""The checks on configuration values: ranges, choices, lists. Their words are Kafka's."""

from __future__ import annotations

import re
from typing import Final

import attrs

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
            raise invalid(name, value, f"Value must be at least {self.low}")
        if self.high is not None and value > self.high:
            raise invalid(name, value, f"Value must be no more than {self.high}")


@attrs.frozen
class RangeOr:
    """A number from `low` to `high`, or the one number that means «whatever is usual»."""

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
                raise invalid(name, value, f"String must be one of (case insensitive): {', '.join(self.choices)}")
        elif value not in self.choices:
            raise invalid(name, value, f"String must be one of: {', '.join(self.choices)}")


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
            raise ConfigError(f"Configuration '{name}' must not be empty. Valid values include: {self._choices()}")
        if "" in value:
            raise ConfigError(f"Configuration '{name}' values must not be empty.")
        if self.choices:
            for element in value:
                OneOf(self.choices).check(name, element)

    def _choices(self) -> str:
        return f"[{', '.join(self.choices)}]" if self.choices else "any non-empty value"


@attrs.frozen
class ThrottledReplicas:
    """`*`, or `partition:broker` pairs."""

    def check(self, name: str, value: Value) -> None:
        assert isinstance(value, tuple)
        if value == ("*",) or all(_THROTTLED_REPLICA.fullmatch(pair) for pair in value):
            return
        raise invalid(
            name,
            f"[{', '.join(value)}]",
            f"{name} must be the literal '*' or a list of replicas in the following format: "
            "[partitionId]:[brokerId],[partitionId]:[brokerId],...",
        )


@attrs.frozen
class NonEmptyText:
    def check(self, name: str, value: Value) -> None:
        if value == "":
            raise invalid(name, value, "String must be non-empty")
