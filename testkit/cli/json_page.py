"""The keys of docs/json.md, which are those of the objects that commands print with --json."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any

import attrs

from devtools.places import REPOSITORY


@attrs.define
class Keys:
    always: set[str] = attrs.field(factory=set)
    sometimes: set[str] = attrs.field(factory=set)


Place = tuple[str, str]
"""The kind of an object, and a path such as `headers[].` that leads to an object in it."""


@cache
def page() -> dict[str, dict[Place, Keys]]:
    """Returns the table of docs/json.md, by command."""
    listed: dict[str, dict[Place, Keys]] = {}
    command = ""
    for line in (REPOSITORY / "docs" / "json.md").read_text(encoding="utf-8").splitlines():
        if not line.startswith("| ") or line.startswith("| command"):
            continue
        name, kind, keys = (cell.strip().replace("`", "") for cell in line.strip("|").split("|"))
        command = name or command
        for key in keys.split(", "):
            path, dot, last = key.rpartition(".")
            found = listed.setdefault(command, {}).setdefault((kind, path + dot), Keys())
            (found.sometimes if last.endswith("?") else found.always).add(last.removesuffix("?"))
    return listed


def check_keys(command: str, objects: Iterable[Mapping[str, Any]]) -> None:
    """Asserts that each object is of a kind in the page, with the keys of that kind."""
    for place, keys in _found(objects):
        listed = page()[command].get(place)
        assert listed is not None, f"{command} prints {place}, which is not in docs/json.md"
        assert keys >= listed.always, f"{command} does not print {listed.always - keys} of docs/json.md in {place}"
        unlisted = keys - listed.always - listed.sometimes
        assert not unlisted, f"{command} prints {unlisted} in {place}, which is not in docs/json.md"


def check_all_keys(command: str, objects: Iterable[Mapping[str, Any]]) -> None:
    """Asserts in addition that the objects are of all kinds in the page, and have all keys."""
    objects = list(objects)
    check_keys(command, objects)
    seen: defaultdict[Place, set[str]] = defaultdict(set)
    for place, keys in _found(objects):
        seen[place] |= keys
    assert seen == {place: it.always | it.sometimes for place, it in page()[command].items()}


def _found(objects: Iterable[Mapping[str, Any]]) -> Iterator[tuple[Place, set[str]]]:
    for it in objects:
        yield from _inside(it, str(it.get("type") or it.get("event") or ""), "")


def _inside(it: Mapping[str, Any], kind: str, path: str) -> Iterator[tuple[Place, set[str]]]:
    yield (kind, path), it.keys() - {"type", "event"}
    for name, value in it.items():
        for inner in value if isinstance(value, list) else ():
            if isinstance(inner, dict):
                yield from _inside(inner, kind, f"{path}{name}[].")
