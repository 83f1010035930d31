"""Which known configuration was meant by an unknown name: for error messages and warnings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from kwire_protocol.kafka_error import quoted

LONGEST_NAME: Final = 100
"""Longer names are not compared: the time that a comparison takes grows with the square of the length."""

MOST_NAMES: Final = 10
"""Of more unknown names only the number is told."""

_SIMILARITY: Final = 0.75
"""As difflib.SequenceMatcher.ratio has it: 1 for the same name, 0 for nothing in common."""


def nearest(name: str, known: Iterable[str], elsewhere: Mapping[str, str] | None = None) -> str | None:
    """The known name that is most like `name`.

    `elsewhere` are names of another kind of resource, with what stands for them here: a broker has log.retention.ms
    where a topic has retention.ms.
    """
    if elsewhere and name in elsewhere:
        return elsewhere[name]
    if len(name) > LONGEST_NAME:
        return None
    # Imported here: a broker whose configurations are all known does without.
    from difflib import get_close_matches

    return next(iter(get_close_matches(name, known, n=1, cutoff=_SIMILARITY)), None)


def did_you_mean(name: str, known: Iterable[str], elsewhere: Mapping[str, str] | None = None) -> str:
    """A sentence to follow the one that says that `name` is unknown; empty where no known name is like it."""
    found = nearest(name, known, elsewhere)
    return "" if found is None else f". Did you mean {found}?"


def listed(names: Iterable[str], known: Iterable[str], elsewhere: Mapping[str, str] | None = None) -> str:
    """Unknown names in one line, each with the one that was probably meant."""
    names, known = list(names), list(known)
    told = []
    for name in names[:MOST_NAMES]:
        found = nearest(name, known, elsewhere)
        told.append(quoted(name) if found is None else f"{quoted(name)} (did you mean {found}?)")
    if len(names) > MOST_NAMES:
        told.append(f"and {len(names) - MOST_NAMES} more")
    return ", ".join(told)
