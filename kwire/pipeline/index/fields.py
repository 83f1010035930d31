"""The indexed fields, and how they are read out of a value.

A value is JSON, read as strictly as in a table job. A field is named by its path (`user.id`). A missing or null field
is null in the index. A value that is not a JSON object, or has a field of another type, is an error as a whole.

The values of each type, the same for Spark (`layout.py`), which writes the index, and for Python, which reads the tail:

    BIGINT    whole numbers of 64 bits, without a point or an exponent
    DOUBLE    numbers
    STRING    strings
    BOOLEAN   true, false
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal, cast

import attrs

from kwire.pipeline.errors import PipelineError

FieldType = Literal["BIGINT", "DOUBLE", "STRING", "BOOLEAN"]
TYPES: Final[tuple[FieldType, ...]] = ("BIGINT", "DOUBLE", "STRING", "BOOLEAN")
OWN_COLUMNS: Final = ("kafka", "value")

_PATH = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*", re.ASCII)
_ALSO_CALLED: Final[Mapping[str, FieldType]] = {"LONG": "BIGINT", "INT": "BIGINT", "TEXT": "STRING", "BOOL": "BOOLEAN"}


@attrs.frozen
class Field:
    """`column` is its name in the table."""

    path: str
    type: FieldType
    column: str

    @property
    def steps(self) -> tuple[str, ...]:
        return tuple(self.path.split("."))


@attrs.frozen
class Wanted:
    """A field of --fields. Without a type, the type is inferred from a sample."""

    path: str
    type: FieldType | None = None


def parse_fields(text: str) -> tuple[Wanted, ...]:
    """Parses fields such as `user_id,order.total:DOUBLE`. Raises PipelineError."""
    found: list[Wanted] = []
    for part in filter(None, (it.strip() for it in text.split(","))):
        path, colon, given = (it.strip() for it in part.partition(":"))
        if not _PATH.fullmatch(path):
            raise PipelineError(f"--fields: {path!r} is no field, such as user_id or order.user_id")
        kind = given.upper()
        kind = _ALSO_CALLED.get(kind, kind)
        if colon and kind not in TYPES:
            raise PipelineError(f"--fields: {path} cannot be {given or 'of no type'}; there are {', '.join(TYPES)}")
        found.append(Wanted(path, cast("FieldType", kind) if colon else None))
    paths = [it.path.lower() for it in found]  # SQL does not tell columns apart by case
    if not paths:
        raise PipelineError("--fields names none: it wants some, such as user_id,order.total:DOUBLE")
    for at, path in enumerate(paths):
        for other in paths[:at]:
            if path == other:
                raise PipelineError(f"--fields names {path} twice")
            if path.startswith(f"{other}.") or other.startswith(f"{path}."):
                raise PipelineError(f"--fields: {other} and {path} cannot both be: one is within the other")
    return tuple(found)


def with_columns(typed: Iterable[tuple[str, FieldType]]) -> tuple[Field, ...]:
    """Returns the fields with their columns: `user.id` becomes user_id, with more underscores if the name is taken."""
    taken = set(OWN_COLUMNS)
    found = []
    for path, kind in typed:
        column = path.replace(".", "_")
        while column.lower() in taken:
            column += "_"
        taken.add(column.lower())
        found.append(Field(path, kind, column))
    return tuple(found)


def ordered(
    fields: Sequence[Field], different: Mapping[str, int], buckets: int
) -> tuple[tuple[Field, ...], Field | None]:
    """Returns the fields in the sort order of the index, and the field of its buckets, if there is one.

    different: the number of different values of each field in a sample, by its column.

    Fields that repeat most come first, so the records of each of their values are adjacent, and within these the
    records of the next field's values. In the reverse order, a field that hardly repeats would scatter all others.
    Buckets use the first field with enough values to fill them all; Iceberg has none for floating point numbers and
    booleans.
    """
    found = tuple(sorted(fields, key=lambda it: different[it.column]))
    fit = [it for it in found if it.type in ("BIGINT", "STRING")]
    full = [it for it in fit if different[it.column] >= buckets]
    return found, next(iter(full or fit[-1:]), None)


class NotIndexed(Exception):
    """A value that cannot be indexed; the message is the reason."""


def read_fields(value: bytes | None, fields: Sequence[Field]) -> list[object]:
    """Returns the fields of a record's value, in their order, as the index would have them. Raises NotIndexed.

    If a value has a field twice, the last one counts.
    """
    if value is None:
        return [None] * len(fields)
    try:
        found: object = _DECODER.decode(value.decode())
    except UnicodeDecodeError:
        raise NotIndexed("not UTF-8") from None
    except (ValueError, RecursionError):
        raise NotIndexed("not JSON") from None
    if not isinstance(found, dict):
        raise NotIndexed("no JSON object")
    return [_read_field(found, it) for it in fields]


def _read_field(at: object, field: Field) -> object:
    for step in field.steps:
        if at is None:
            return None
        if not isinstance(at, dict):
            raise NotIndexed(f"{field.path} is within something else than an object")
        at = at.get(step)
    if at is None:
        return None
    match field.type:
        case "BIGINT" if type(at) is int and -(1 << 63) <= at < 1 << 63:
            return at
        case "DOUBLE" if type(at) in (int, float):
            return _as_double(cast("float", at))
        case "STRING" if isinstance(at, str):
            # Half a surrogate pair is no character: it becomes a question mark, as in Java.
            return at if at.isascii() else at.encode(errors="replace").decode()
        case "BOOLEAN" if isinstance(at, bool):
            return at
    raise NotIndexed(f"{field.path} is no {field.type}")


def _as_double(number: float) -> float:
    try:
        return float(number)
    except OverflowError:  # a whole number that is too large
        return float("inf") if number > 0 else float("-inf")


def _refuse(name: str) -> object:
    raise ValueError(f"{name} is no JSON")


_DECODER: Final = json.JSONDecoder(parse_constant=_refuse)


def fields_to_json(fields: Sequence[Field]) -> str:
    """Returns the fields as JSON for the table's properties."""
    return json.dumps([attrs.asdict(it) for it in fields])


def fields_from_json(text: str) -> tuple[Field, ...]:
    """Parses the fields. Raises PipelineError for JSON that this version of kwire did not write."""
    try:
        found = tuple(Field(it["path"], it["type"], it["column"]) for it in json.loads(text))
    except (ValueError, TypeError, KeyError):
        found = ()
    if not found or any(it.type not in TYPES for it in found):
        raise PipelineError(f"the index's fields cannot be read: {text[:200]!r}. Is a newer kwire's? Upgrade kwire")
    return found
