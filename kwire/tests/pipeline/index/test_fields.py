"""The fields of an index: how they are requested, ordered, stored, and read out of a value."""

from __future__ import annotations

import json

import pytest

from kwire.pipeline.errors import PipelineError
from kwire.pipeline.index.fields import (
    NotIndexed,
    Wanted,
    fields_from_json,
    fields_to_json,
    ordered,
    parse_fields,
    read_fields,
    with_columns,
)
from testkit.spark.field_values import NOT_INDEXED

FIELDS = with_columns([("n", "BIGINT"), ("d", "DOUBLE"), ("s", "STRING"), ("b", "BOOLEAN"), ("o.i", "BIGINT")])


def test_fields_are_requested_by_path_with_or_without_a_type() -> None:
    found = parse_fields(" user.id , total:double,ok: bool,n:LONG,")
    wanted = (Wanted("user.id"), Wanted("total", "DOUBLE"), Wanted("ok", "BOOLEAN"), Wanted("n", "BIGINT"))
    assert found == wanted


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "names none"),
        (" , ", "names none"),
        ("a b", "'a b' is no field"),
        ("a.", "'a.' is no field"),
        ("a`b", "is no field"),
        ("1a", "is no field"),
        ("a:DATE", "a cannot be DATE; there are BIGINT, DOUBLE, STRING, BOOLEAN"),
        ("a:", "a cannot be of no type"),
        ("a,b,a", "names a twice"),
        ("a,A", "names a twice"),
        ("a,a.b", "one is within the other"),
        ("a.b,a", "one is within the other"),
    ],
)
def test_fields_that_cannot_be_are_one_line(text: str, message: str) -> None:
    with pytest.raises(PipelineError) as caught:
        parse_fields(text)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_columns_have_names_of_their_own() -> None:
    paths = ["user.id", "USER_id", "value", "kafka", "VALUE.x", "value_x"]
    found = [it.column for it in with_columns((path, "STRING") for path in paths)]
    assert found == ["user_id", "USER_id_", "value_", "kafka_", "VALUE_x", "value_x_"]


def test_what_repeats_comes_first_and_buckets_are_of_what_fills_them() -> None:
    unique, user, level, price = with_columns(
        [("log_id", "STRING"), ("user_id", "BIGINT"), ("level", "STRING"), ("price", "DOUBLE")]
    )
    different = {"log_id": 10_000, "user_id": 6_000, "level": 5, "price": 900}
    assert ordered((unique, user, level, price), different, 8) == ((level, price, user, unique), user)
    assert ordered((unique, level), {"log_id": 3, "level": 2}, 8) == ((level, unique), unique)
    assert ordered((price,), different, 8) == ((price,), None)


def test_fields_are_kept_as_json() -> None:
    assert fields_from_json(fields_to_json(FIELDS)) == FIELDS
    for text in ("", "[]", "{", '[{"path": "a"}]', '[{"path": "a", "column": "a", "type": "UUID"}]'):
        with pytest.raises(PipelineError, match="fields cannot be read"):
            fields_from_json(text)


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (None, [None] * 5),
        (b"{}", [None] * 5),
        (b' \n{"n": 1, "d": 2, "s": "x", "b": true, "o": {"i": 3}}\t', [1, 2.0, "x", True, 3]),
        (b'{"n": -9223372036854775808, "d": 1e400, "s": "", "b": false}', [-(1 << 63), float("inf"), "", False, None]),
        (b'{"n": null, "d": null, "s": null, "b": null, "o": null}', [None] * 5),
        (b'{"o": {}, "N": "x", "n": -0}', [0, None, None, None, None]),
        (b'{"n": 1, "n": 2}', [2, None, None, None, None]),
        (b'{"s": "\\ud83d\\ude00\\u0000"}', [None, None, "\U0001f600\0", None, None]),
        (b'{"s": "a\\ud83d"}', [None, None, "a?", None, None]),
        (b'{"d": 1%s}' % (b"0" * 400), [None, float("inf"), None, None, None]),
        (b'{"d": -1%s}' % (b"0" * 400), [None, float("-inf"), None, None, None]),
    ],
)
def test_fields_are_read_out_of_a_value(value: bytes | None, found: list[object]) -> None:
    assert read_fields(value, FIELDS) == found
    assert [type(it) for it in read_fields(value, FIELDS)] == [type(it) for it in found]


@pytest.mark.parametrize(("value", "reason"), NOT_INDEXED)
def test_a_value_that_cannot_be_indexed_is_reported_with_the_reason(value: bytes, reason: str) -> None:
    with pytest.raises(NotIndexed, match=reason):
        read_fields(value, FIELDS)


def test_a_value_of_a_megabyte_is_read() -> None:
    assert read_fields(json.dumps({"s": "x", "rest": "y" * (1 << 20)}).encode(), FIELDS[2:3]) == ["x"]
