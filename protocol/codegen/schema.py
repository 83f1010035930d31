"""The schemas as values, with implicit facts made explicit."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import attrs

SCHEMAS = Path(__file__).parent.parent / "schemas"

INFINITY = 32767


@attrs.frozen
class Versions:
    """A closed range of versions, empty when high < low."""

    low: int
    high: int

    @classmethod
    def parse(cls, text: str | None) -> Versions:
        if text is None or text == "none":
            return cls(0, -1)
        if text.endswith("+"):
            return cls(int(text[:-1]), INFINITY)
        low, _, high = text.partition("-")
        return cls(int(low), int(high or low))

    def __contains__(self, version: int) -> bool:
        return self.low <= version <= self.high

    def __and__(self, other: Versions) -> Versions:
        return Versions(max(self.low, other.low), min(self.high, other.high))

    def covers(self, other: Versions) -> bool:
        return not other or (self.low <= other.low and other.high <= self.high)

    def __bool__(self) -> bool:
        return self.low <= self.high

    def __iter__(self) -> Any:
        return iter(range(self.low, self.high + 1))


@attrs.frozen
class Field:
    name: str  # Kafka's
    attribute: str  # ours
    element: str  # the scalar type, or the struct's name; of an array, its elements'
    is_array: bool
    is_struct: bool
    versions: Versions
    nullable: Versions
    tag: int | None
    tagged: Versions
    default: Any  # None stands for null, where the field is nullable
    ignorable: bool
    entity_type: str | None
    fields: tuple[Field, ...]


@attrs.frozen
class Struct:
    name: str  # Kafka's
    versions: Versions
    fields: tuple[Field, ...]


@attrs.frozen
class Message:
    name: str
    kind: str  # request, response, metadata, coordinator-key, coordinator-value, data
    api_key: int | None
    versions: Versions
    flexible: Versions
    listeners: tuple[str, ...]
    latest_version_unstable: bool
    fields: tuple[Field, ...]
    structs: tuple[Struct, ...]  # those it is made of, each before its first user


ZEROS: dict[str, Any] = {"bool": False, "float64": 0.0, "string": "", "bytes": b"", "records": None, "uuid": bytes(16)}


def snake_case(name: str) -> str:
    name = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name)
    return re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1_\2", name).lower()


def _field(facts: dict[str, Any]) -> Field:
    kind: str = facts["type"]
    is_array = kind.startswith("[]")
    element = kind.removeprefix("[]")
    is_struct = element[0].isupper()
    if "default" in facts:
        default = facts["default"]
    elif is_array or is_struct:
        default = ()
    else:
        default = ZEROS.get(element, 0)
    return Field(
        name=facts["name"],
        attribute=snake_case(facts["name"]),
        element=element,
        is_array=is_array,
        is_struct=is_struct,
        versions=Versions.parse(facts["versions"]),
        nullable=Versions.parse(facts.get("nullableVersions")),
        tag=facts.get("tag"),
        tagged=Versions.parse(facts.get("taggedVersions")),
        default=default,
        ignorable=facts.get("ignorable", False),
        entity_type=facts.get("entityType"),
        fields=tuple(_field(each) for each in facts.get("fields", ())),
    )


def _collect(fields: tuple[Field, ...], found: dict[str, Struct], common: dict[str, Struct], within: Versions) -> None:
    for field in fields:
        if not field.is_struct or field.element in found:
            continue
        # A common struct has versions of its own: other fields may use it as well.
        here = Struct(field.element, field.versions & within, field.fields)
        struct = here if field.fields else common[field.element]
        _collect(struct.fields, found, common, struct.versions)
        found[field.element] = struct


def load_message(path: Path) -> Message:
    facts = json.loads(path.read_text())
    versions = Versions.parse(facts["validVersions"])
    fields = tuple(_field(each) for each in facts["fields"])
    common = {
        each["name"]: Struct(
            each["name"], Versions.parse(each["versions"]) & versions, tuple(_field(f) for f in each["fields"])
        )
        for each in facts.get("commonStructs", ())
    }
    structs: dict[str, Struct] = {}
    _collect(fields, structs, common, versions)
    return Message(
        name=facts["name"],
        kind=facts["type"],
        api_key=facts.get("apiKey"),
        versions=versions,
        flexible=Versions.parse(facts["flexibleVersions"]) & versions,
        listeners=tuple(facts.get("listeners", ())),
        latest_version_unstable=facts.get("latestVersionUnstable", False),
        fields=fields,
        structs=tuple(structs.values()),
    )


def load_messages() -> list[Message]:
    """The requests and responses, in the order of their keys."""
    messages = [load_message(path) for path in (SCHEMAS / "messages").glob("*.json")]
    return sorted(messages, key=lambda message: (message.api_key, message.kind))


def load_internal() -> dict[str, list[Message]]:
    """The records by module. A key comes before its value."""
    modules = {}
    for folder in sorted((SCHEMAS / "internal").iterdir()):
        messages = [load_message(path) for path in folder.glob("*.json")]
        modules[folder.name] = sorted(messages, key=lambda m: (-1 if m.api_key is None else m.api_key, m.kind, m.name))
    return modules


def load_errors() -> list[dict[str, Any]]:
    errors: list[dict[str, Any]] = json.loads((SCHEMAS / "errors.json").read_text())
    return errors


def kafka_version() -> str:
    return (SCHEMAS / "KAFKA_VERSION").read_text().strip()
