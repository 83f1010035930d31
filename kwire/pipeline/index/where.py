"""The condition of a query: parsed into a small tree, and evaluated for one record.

    user_id = 42 AND (status IN ('new', 'paid') OR NOT total < 10.5) AND timestamp >= '2026-01-31T12:00:00Z'

There are `= != <> < <= > >=`, IN, BETWEEN, IS NULL, AND, OR, NOT and parentheses, as in SQL. Nulls are as in SQL too: a
comparison with null is neither true nor false, and only records for which the condition is true are found. The left
side is an indexed field, or Kafka's key, partition, offset or timestamp; `kafka.key` is Kafka's key even if a field is
called `key`. A key is text, or bytes as in X'00ff'.

A user's text is never part of a statement: columns are those of the index, and values are passed as parameters.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import product
from math import prod
from typing import Final, Literal

import attrs

from kwire.pipeline.errors import PipelineError
from kwire.pipeline.index.fields import Field, FieldType
from kwire.pipeline.moments import parse_moment

ColumnType = FieldType | Literal["BYTES", "TIMESTAMP"]
Operator = Literal["=", "!=", "<", "<=", ">", ">="]
Value = bool | int | float | str | bytes
"""A value of a column's type. A TIMESTAMP is in milliseconds since the epoch."""

_DEEPEST: Final = 100


@attrs.frozen
class Column:
    """A column of a condition. `path` is that in the index: a column, or a struct column and its field."""

    name: str
    type: ColumnType
    path: tuple[str, ...]


KAFKA_COLUMNS: Final = (
    Column("key", "BYTES", ("kafka", "key")),
    Column("partition", "BIGINT", ("kafka", "partition")),
    Column("offset", "BIGINT", ("kafka", "offset")),
    Column("timestamp", "TIMESTAMP", ("kafka", "timestamp")),
)
TIMESTAMP: Final = KAFKA_COLUMNS[3]


@attrs.frozen
class And:
    of: tuple[Condition, ...]


@attrs.frozen
class Or:
    of: tuple[Condition, ...]


@attrs.frozen
class Not:
    of: Condition


@attrs.frozen
class Compare:
    column: Column
    operator: Operator
    value: Value


@attrs.frozen
class In:
    column: Column
    values: tuple[Value, ...]


@attrs.frozen
class IsNull:
    column: Column


Condition = And | Or | Not | Compare | In | IsNull


def holds(condition: Condition, value_of: Callable[[Column], object]) -> bool | None:
    """Returns True if a record meets the condition; None if a null makes that unknown, as in SQL."""
    match condition:
        case And(of):
            return _all(holds(it, value_of) for it in of)
        case Or(of):
            none_of_them = _all(_not(holds(it, value_of)) for it in of)
            return _not(none_of_them)
        case Not(of):
            return _not(holds(of, value_of))
        case Compare(column, operator, value):
            found = value_of(column)
            return None if found is None else _COMPARISONS[operator](found, value)
        case In(column, values):
            found = value_of(column)
            return None if found is None else found in values
        case IsNull(column):
            return value_of(column) is None


def _all(them: Iterable[bool | None]) -> bool | None:
    open_ones = False
    for it in them:
        if it is False:
            return False
        open_ones = open_ones or it is None
    return None if open_ones else True


def _not(it: bool | None) -> bool | None:
    return None if it is None else not it


def lookups(condition: Condition, most: int = 16) -> tuple[Condition, ...]:
    """Splits the condition into alternatives that are lookups by value; a record meets it if it meets one of them.

    An index finds values fast, but not a condition such as "one field or the other". Returns the condition itself if
    alternatives do not help, as with ranges, or if there would be more than `most`.
    """
    found = _alternatives(condition, most)
    return found if found is not None and all(map(_names_values, found)) else (condition,)


def _alternatives(condition: Condition, most: int) -> tuple[Condition, ...] | None:
    """Returns None if there are too many."""
    match condition:
        case Or(of):
            parts = [_alternatives(it, most) for it in of]
            found = tuple(it for some in parts if some is not None for it in some)
            return found if len(found) <= most and None not in parts else None
        case And(of):
            each = [_alternatives(it, most) for it in of]
            several = [it for it in each if it is not None]
            if len(several) < len(each) or prod(map(len, several)) > most:
                return None
            return tuple(it[0] if len(it) == 1 else And(it) for it in product(*several))
        case _:
            return (condition,)


def _names_values(condition: Condition) -> bool:
    match condition:
        case And(of):
            return any(map(_names_values, of))
        case Compare(column, "=") | In(column):
            return column.type != "BOOLEAN"  # half of all records have it
        case _:
            return False


_COMPARISONS: Final[Mapping[Operator, Callable[..., bool]]] = {
    "=": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


def parse_where(text: str, fields: Sequence[Field], *, now_ms: int) -> Condition:
    """Parses the condition of --where. Ages such as '2h' are relative to `now_ms`. Raises PipelineError."""
    return _Parser(text, fields, now_ms).whole()


_TOKEN: Final = re.compile(
    r"""\s*(?:
      (?P<bytes>[xX]'[^']*')
    | (?P<text>'(?:[^']|'')*')
    | (?P<number>[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)(?![\w.])
    | (?P<name>[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)
    | (?P<sign><=|>=|!=|<>|==|[=<>(),])
    )""",
    re.VERBOSE | re.ASCII,
)
_KEYWORDS: Final = frozenset(("AND", "OR", "NOT", "IN", "IS", "NULL", "BETWEEN", "TRUE", "FALSE"))
_SIGNS: Final[Mapping[str, Operator]] = {
    "=": "=",
    "==": "=",
    "!=": "!=",
    "<>": "!=",
    "<": "<",
    "<=": "<=",
    ">": ">",
    ">=": ">=",
}


@attrs.frozen
class _Token:
    """`kind`: name, text, number, bytes, sign, keyword (its text in capitals), or end."""

    kind: str
    text: str


def _tokens(text: str) -> Iterator[_Token]:
    at, end = 0, len(text.rstrip())
    while at < end:
        found = _TOKEN.match(text, at)
        if found is None:
            raise PipelineError(f"--where cannot be read from {_shown(text[at:].strip())} on")
        kind = found.lastgroup
        assert kind is not None
        word = found[kind]
        at = found.end()
        if kind == "name" and word.upper() in _KEYWORDS:
            yield _Token("keyword", word.upper())
        else:
            yield _Token(kind, word)
    yield _Token("end", "the end")


class _Parser:
    """A recursive-descent parser. OR binds weaker than AND, and AND weaker than NOT."""

    def __init__(self, text: str, fields: Sequence[Field], now_ms: int) -> None:
        self._tokens = list(_tokens(text))
        self._at = 0
        self._depth = 0
        self._now_ms = now_ms
        self._columns = {f"kafka.{it.name}": it for it in KAFKA_COLUMNS}
        self._columns |= {it.name: it for it in KAFKA_COLUMNS}
        self._columns |= {it.path: Column(it.path, it.type, (it.column,)) for it in fields}
        self._indexed = [it.path for it in fields]

    def whole(self) -> Condition:
        found = self._any()
        if self._next.kind != "end":
            raise self._wrong("AND, OR or the end")
        return found

    def _any(self) -> Condition:
        return self._joined("OR", self._every, Or)

    def _every(self) -> Condition:
        return self._joined("AND", self._one, And)

    def _joined(self, word: str, part: Callable[[], Condition], of: type[And] | type[Or]) -> Condition:
        found = [part()]
        while self._takes("keyword", word):
            found.append(part())
        return found[0] if len(found) == 1 else of(tuple(found))

    def _one(self) -> Condition:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise PipelineError(f"--where is nested deeper than {_DEEPEST} times")
        try:
            if self._takes("keyword", "NOT"):
                return Not(self._one())
            if self._takes("sign", "("):
                found = self._any()
                self._wants("sign", ")")
                return found
            return self._about(self._column())
        finally:
            self._depth -= 1

    def _about(self, column: Column) -> Condition:
        if self._takes("keyword", "IS"):
            negated = self._takes("keyword", "NOT")
            self._wants("keyword", "NULL")
            return Not(IsNull(column)) if negated else IsNull(column)
        negated = self._takes("keyword", "NOT")
        found: Condition
        if self._takes("keyword", "IN"):
            self._wants("sign", "(")
            values = [self._value(column)]
            while self._takes("sign", ","):
                values.append(self._value(column))
            self._wants("sign", ")")
            found = In(column, tuple(values))
        elif self._takes("keyword", "BETWEEN"):
            first = self._value(column)
            self._wants("keyword", "AND")
            found = And((Compare(column, ">=", first), Compare(column, "<=", self._value(column))))
        elif self._next.kind == "sign" and self._next.text in _SIGNS and not negated:
            operator = _SIGNS[self._take().text]
            found = Compare(column, operator, self._value(column))
        else:
            raise self._wrong("IN or BETWEEN" if negated else "=, <, IN, BETWEEN, IS NULL or the like")
        return Not(found) if negated else found

    def _column(self) -> Column:
        if self._next.kind != "name":
            raise self._wrong("a field")
        name = self._take().text
        if name not in self._columns:
            kafkas = ", ".join(it.name for it in KAFKA_COLUMNS)
            raise PipelineError(
                f"{_shown(name)} is not indexed: {', '.join(self._indexed)} are, and there are {kafkas}. An index of "
                "other fields is made by kwire pipeline index"
            )
        return self._columns[name]

    def _value(self, column: Column) -> Value:
        """Parses a literal as a value of the column's type."""
        token = self._take()
        found = _as_value(token, column.type, self._now_ms)
        if found is None:
            raise PipelineError(f"--where: {_shown(token.text)} is no {column.type}, as {column.name} is")
        return found

    @property
    def _next(self) -> _Token:
        return self._tokens[self._at]

    def _take(self) -> _Token:
        found = self._next
        if found.kind == "end":
            raise self._wrong("a value")
        self._at += 1
        return found

    def _takes(self, kind: str, text: str) -> bool:
        if (self._next.kind, self._next.text) != (kind, text):
            return False
        self._at += 1
        return True

    def _wants(self, kind: str, text: str) -> None:
        if not self._takes(kind, text):
            raise self._wrong(text)

    def _wrong(self, wanted: str) -> PipelineError:
        return PipelineError(f"--where has {_shown(self._next.text)} where {wanted} should be")


def _as_value(token: _Token, kind: ColumnType, now_ms: int) -> Value | None:
    """Returns None if the token is no value of that type."""
    match (token.kind, kind):
        case ("number", "BIGINT") if re.fullmatch(r"[+-]?\d{1,19}", token.text):
            found = int(token.text)
            return found if -(1 << 63) <= found < 1 << 63 else None
        case ("number", "TIMESTAMP") if re.fullmatch(r"\d{1,15}", token.text):
            return int(token.text)
        case ("number", "DOUBLE"):
            return float(token.text)
        case ("text", "STRING"):
            return _unquoted(token.text)
        case ("text", "BYTES"):
            return _unquoted(token.text).encode(errors="surrogateescape")
        case ("text", "TIMESTAMP"):
            return parse_moment(_unquoted(token.text), now_ms=now_ms)
        case ("bytes", "BYTES"):
            try:
                return bytes.fromhex(token.text[2:-1])
            except ValueError:
                return None
        case ("keyword", "BOOLEAN") if token.text in ("TRUE", "FALSE"):
            return token.text == "TRUE"
    return None


def _unquoted(text: str) -> str:
    return text[1:-1].replace("''", "'")


def _shown(text: str) -> str:
    return ascii(text[:40]) if not text[:40].isprintable() else repr(text[:40])
