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


ObjectPath = tuple[str, str]
"""The kind of an object, and a path such as `headers[].` that leads to an object in it."""


@cache
def page() -> dict[str, dict[ObjectPath, Keys]]:
    """Returns the table of docs/json.md, by command."""
    listed: dict[str, dict[ObjectPath, Keys]] = {}
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
    for path, keys in _found(objects):
        listed = page()[command].get(path)
        assert listed is not None, f"{command} prints {path}, which is not in docs/json.md"
        assert keys >= listed.always, f"{command} does not print {listed.always - keys} of docs/json.md in {path}"
        unlisted = keys - listed.always - listed.sometimes
        assert not unlisted, f"{command} prints {unlisted} in {path}, which is not in docs/json.md"


def check_all_keys(command: str, objects: Iterable[Mapping[str, Any]]) -> None:
    """Asserts in addition that the objects are of all kinds in the page, and have all keys."""
    objects = list(objects)
    check_keys(command, objects)
    seen: defaultdict[ObjectPath, set[str]] = defaultdict(set)
    for path, keys in _found(objects):
        seen[path] |= keys
    assert seen == {path: it.always | it.sometimes for path, it in page()[command].items()}


def _found(objects: Iterable[Mapping[str, Any]]) -> Iterator[tuple[ObjectPath, set[str]]]:
    for it in objects:
        yield from _inside(it, str(it.get("type") or it.get("event") or ""), "")


def _inside(it: Mapping[str, Any], kind: str, path: str) -> Iterator[tuple[ObjectPath, set[str]]]:
    yield (kind, path), it.keys() - {"type", "event"}
    for name, value in it.items():
        for inner in value if isinstance(value, list) else ():
            if isinstance(inner, dict):
                yield from _inside(inner, kind, f"{path}{name}[].")
