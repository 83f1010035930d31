"""Values of every message: by hypothesis from the schema, and two that show each field at its least and at its most."""

from __future__ import annotations

import base64
import operator
import reprlib
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

from codegen.schema import Field
from hypothesis import strategies as st
from kwire_protocol.wire import GeneratedMessage, uuid_to_text

from testkit.messages.catalogue import Entry

INTEGERS = {f"{sign}int{bits}": (sign, bits) for sign in ("", "u") for bits in (8, 16, 32, 64)}


def integer_bounds(kind: str) -> tuple[int, int]:
    sign, bits = INTEGERS[kind]
    return (0, 2**bits - 1) if sign else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def default_of(entry: Entry, struct: str, field: Field) -> Any:
    return getattr(entry.classes[struct](), field.attribute)


def may_be_null(field: Field, version: int) -> bool:
    return version in field.nullable


def is_tagged_struct(field: Field) -> bool:
    return field.tag is not None and field.is_struct and not field.is_array and not field.nullable


# By hypothesis


def values(entry: Entry, version: int) -> st.SearchStrategy[Any]:
    return _struct(entry, entry.name, version)


def _struct(entry: Entry, struct: str, version: int) -> st.SearchStrategy[Any]:
    fields = {
        field.attribute: _field(entry, field, version) for field in entry.fields(struct) if version in field.versions
    }
    return st.builds(entry.classes[struct], **fields)


def _field(entry: Entry, field: Field, version: int) -> st.SearchStrategy[Any]:
    strategy = _element(entry, field, version)
    if field.is_array:
        strategy = st.lists(strategy, max_size=3)
    elif is_tagged_struct(field):
        # Kafka leaves out a tagged struct of defaults, which is None to us.
        usual = entry.classes[field.element]()
        strategy = st.none() | strategy.filter(lambda value: value != usual)
    return st.none() | strategy if may_be_null(field, version) else strategy


def _element(entry: Entry, field: Field, version: int) -> st.SearchStrategy[Any]:
    return _struct(entry, field.element, version) if field.is_struct else _plain(field.element)


@cache
def _plain(kind: str) -> st.SearchStrategy[Any]:
    """Returns one strategy for all fields of a kind: hypothesis validates each new one, which takes longer."""
    match kind:
        case "bool":
            return st.booleans()
        case "float64":
            return st.floats(allow_nan=False, allow_infinity=False)
        case "string":
            return st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
        case "uuid":
            return st.binary(min_size=16, max_size=16)
        case "bytes" | "records":
            return st.binary(max_size=20)
        case integer:
            return st.integers(*integer_bounds(integer))


# At the least and at the most


def least(entry: Entry, version: int, struct: str | None = None, *, elements: int = 0, with_tags: bool = True) -> Any:
    """Null wherever that is allowed, else empty, else the smallest number; arrays of so many elements of that kind."""

    def inner(field: Field) -> Any:
        return least(entry, version, field.element, elements=elements, with_tags=with_tags)

    struct = struct or entry.name
    chosen: dict[str, Any] = {}
    for field in entry.fields(struct):
        if version not in field.versions or (field.tag is not None and not with_tags):
            continue
        one: Any
        if field.is_array and elements:
            one = inner(field) if field.is_struct else _extreme(field, 0)
            chosen[field.attribute] = [one] * elements
        elif may_be_null(field, version) or is_tagged_struct(field):
            chosen[field.attribute] = None
        elif field.is_array:
            chosen[field.attribute] = []
        elif field.is_struct:
            chosen[field.attribute] = inner(field)
        else:
            chosen[field.attribute] = _extreme(field, 0)
    return entry.classes[struct](**chosen)


def most(entry: Entry, version: int, struct: str | None = None, *, length: int = 500) -> Any:
    """Everything set, two elements in each array, the largest number, strings of about as many bytes as `length`."""
    struct = struct or entry.name
    chosen = {}
    for field in entry.fields(struct):
        if version in field.versions:
            one = most(entry, version, field.element, length=length) if field.is_struct else _extreme(field, 1, length)
            chosen[field.attribute] = [one, one] if field.is_array else one
    return entry.classes[struct](**chosen)


def filled(entry: Entry, field: Field) -> Any:
    """Something that is not the default."""
    if field.is_array:
        return [entry.classes[field.element]() if field.is_struct else _extreme(field, 1, 5)]
    if field.is_struct:
        return entry.classes[field.element]()
    return not field.default if field.element == "bool" else _extreme(field, 1, 5)


def _extreme(field: Field, end: int, length: int = 0) -> Any:
    match field.element:
        case "bool":
            return (False, True)[end]
        case "float64":
            return (-1e300, 5e-324)[end]
        case "string":
            return ("", "é\U0001f600" * (length // 6) + "x")[end]
        case "uuid":
            return (bytes(16), b"\xff" * 16)[end]
        case "bytes":
            return (b"", bytes(range(256)) * (length // 256) + b"x")[end]
        case "records":
            return (b"", bytes(range(256)) * (length // 8) + b"x")[end]
        case integer:
            return integer_bounds(integer)[end]


def difference(one: Any, other: Any) -> str:
    """The way to the first field in which two messages, or two of Kafka's JSON objects, differ; and its two values."""
    names: Iterable[Any] = ()
    get: Callable[[Any, Any], Any] = operator.getitem
    match one, other:
        case GeneratedMessage(), GeneratedMessage() if type(one) is type(other):
            names, get = one.__slots__, getattr
        case dict(), dict() if one.keys() == other.keys():
            names = one
        case list(), list() if len(one) == len(other):
            names = range(len(one))
    for name in names:
        if get(one, name) != get(other, name):
            return f"{name} {difference(get(one, name), get(other, name))}"
    return f"is {reprlib.repr(one)}, not {reprlib.repr(other)}"


# As Kafka's JSON converters write them


def json_of(entry: Entry, value: Any, version: int, *, records: bool, struct: str | None = None) -> dict[str, Any]:
    """Returns the JSON of a message. With `records`, it includes record bytes: Kafka's converter reads them but does
    not write them.
    """
    struct = struct or entry.name

    def one(field: Field, element: Any) -> Any:
        if field.is_struct:
            return json_of(entry, element, version, records=records, struct=field.element)
        match field.element:
            case "uuid":
                return uuid_to_text(element)
            case "bytes" | "records":
                return base64.b64encode(element if records or field.element == "bytes" else b"").decode()
            case _:
                return element

    json: dict[str, Any] = {}
    for field in entry.fields(struct):
        if version not in field.versions:
            continue
        content = getattr(value, field.attribute)
        if field.tag is not None and content == default_of(entry, struct, field):
            continue
        name = field.name[0].lower() + field.name[1:]
        if content is None:
            json[name] = None
        else:
            json[name] = [one(field, each) for each in content] if field.is_array else one(field, content)
    return json
