"""Suggests known names for unknown ones, in error messages and warnings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from kwire_protocol.kafka_error import quoted

LONGEST_NAME: Final = 100
"""The length above which names are not compared, because the time grows with the square of the length."""

MOST_NAMES: Final = 10
"""The maximum number of unknown names that are listed. Further ones are only counted."""

_SIMILARITY: Final = 0.75
"""difflib.SequenceMatcher.ratio: 1 for equal names, 0 for nothing in common."""


def nearest(name: str, known: Iterable[str], elsewhere: Mapping[str, str] | None = None) -> str | None:
    """Returns the known name most similar to `name`, or None.

    `elsewhere` maps names of another kind of resource to the names here: a topic's retention.ms is a broker's
    log.retention.ms.
    """
    if elsewhere and name in elsewhere:
        return elsewhere[name]
    if len(name) > LONGEST_NAME:
        return None
    # Imported here because a broker without unknown configurations does not need it.
    from difflib import get_close_matches

    return next(iter(get_close_matches(name, known, n=1, cutoff=_SIMILARITY)), None)


def did_you_mean(name: str, known: Iterable[str], elsewhere: Mapping[str, str] | None = None) -> str:
    """Returns a suggestion to append to a message about an unknown `name`; empty if no known name is similar."""
    found = nearest(name, known, elsewhere)
    return "" if found is None else f". Did you mean {found}?"


def listed(names: Iterable[str], known: Iterable[str], elsewhere: Mapping[str, str] | None = None) -> str:
    """Returns unknown names in one line, each with the name that was probably meant."""
    names, known = list(names), list(known)
    shown = []
    for name in names[:MOST_NAMES]:
        found = nearest(name, known, elsewhere)
        shown.append(quoted(name) if found is None else f"{quoted(name)} (did you mean {found}?)")
    if len(names) > MOST_NAMES:
        shown.append(f"and {len(names) - MOST_NAMES} more")
    return ", ".join(shown)
