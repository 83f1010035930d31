"""Deliberate mistakes of a broker in a process of its own, which reads from the environment which of them to make.

Each takes the place of a function that is found by its name: where there is none of that name any more, the broker
does not start.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import attrs

VARIABLE = "KWIRE_MISTAKE"
"""The environment variable with the mistake that the broker's process makes."""


@attrs.frozen
class Mistake:
    """`targets` are `module:name` or `module:Class.name`, each with the replacement of the function there."""

    name: str
    what: str
    targets: Mapping[str, Callable[..., Any]]

    def make(self) -> None:
        """Raises AttributeError where there is no such function."""
        for target, function in self.targets.items():
            owner, name = _find(target)
            getattr(owner, name)
            setattr(owner, name, function)


def _find(target: str) -> tuple[object, str]:
    module, _, path = target.partition(":")
    *owners, name = path.split(".")
    owner: object = importlib.import_module(module)
    for it in owners:
        owner = getattr(owner, it)
    return owner, name


def parameters_of(target: str) -> list[str]:
    """Names of what the function takes whose place it is. Raises AttributeError where there is none."""
    return parameters(getattr(*_find(target)))


def parameters(function: Callable[..., object]) -> list[str]:
    return list(inspect.signature(function).parameters)
