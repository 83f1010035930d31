"""Conditions: their syntax, their meaning with nulls, and refusals."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kwire.pipeline.errors import PipelineError
from kwire.pipeline.index.fields import with_columns
from kwire.pipeline.index.where import And, Column, Compare, Condition, In, IsNull, Not, Or, holds, lookups, parse_where

FIELDS = with_columns(
    [("n", "BIGINT"), ("d", "DOUBLE"), ("s", "STRING"), ("b", "BOOLEAN"), ("user.id", "BIGINT"), ("key", "STRING")]
)
NOW_MS = 1_700_000_000_000


def found(text: str, **values: Any) -> bool | None:
    """Returns whether a record of these values meets the condition; the names have _ for dots."""

    def value_of(column: Column) -> object:
        return values.get("_".join(column.path) if column.path[0] == "kafka" else column.name.replace(".", "_"))

    return holds(parse_where(text, FIELDS, now_ms=NOW_MS), value_of)


@pytest.mark.parametrize(
    ("text", "values", "meets"),
    [
        ("n = 42", {"n": 42}, True),
        ("n == 42", {"n": 41}, False),
        ("n != 42", {"n": 41}, True),
        ("n <> 42", {"n": 42}, False),
        ("n < -1 or n > +7", {"n": 8}, True),
        ("n <= 7 and n >= 7", {"n": 7}, True),
        ("n <= 7 and n >= 7", {"n": 8}, False),
        ("d = 10.5", {"d": 10.5}, True),
        ("d > 1e3", {"d": 1000.5}, True),
        ("d = 2", {"d": 2.0}, True),
        ("s = 'it''s'", {"s": "it's"}, True),
        ("s = ''", {"s": ""}, True),
        ("b = true", {"b": True}, True),
        ("b = FALSE", {"b": True}, False),
        ("user.id IN (1, 2,3)", {"user_id": 3}, True),
        ("user.id NOT IN (1,2)", {"user_id": 3}, True),
        ("user.id NOT IN (1,2)", {"user_id": 2}, False),
        ("n between 1 AND 3 and b = true", {"n": 3, "b": True}, True),
        ("n not between 1 and 3", {"n": 4}, True),
        ("n is null", {}, True),
        ("n IS NOT NULL", {}, False),
        ("NOT n IS NULL", {"n": 1}, True),
        # AND before OR, NOT before AND.
        ("n = 1 OR n = 2 AND b = true", {"n": 1, "b": False}, True),
        ("(n = 1 OR n = 2) AND b = true", {"n": 1, "b": False}, False),
        ("NOT n = 1 AND b = true", {"n": 2, "b": False}, False),
        ("NOT (n = 1 AND b = true)", {"n": 1, "b": False}, True),
        # Nulls.
        ("n = 1", {}, None),
        ("n != 1", {}, None),
        ("NOT n = 1", {}, None),
        ("n IN (1)", {}, None),
        ("n NOT IN (1)", {}, None),
        ("n = 1 OR b = true", {"b": True}, True),
        ("n = 1 OR b = true", {"b": False}, None),
        ("n = 1 AND b = true", {"b": False}, False),
        ("n = 1 AND b = true", {"b": True}, None),
        # Kafka's.
        ("key = 'k'", {"key": "k"}, True),
        ("kafka.key = 'k'", {"kafka_key": b"k"}, True),
        ("kafka.key = X'00fF'", {"kafka_key": b"\x00\xff"}, True),
        ("partition = 1 AND offset >= 10", {"kafka_partition": 1, "kafka_offset": 10}, True),
        ("timestamp >= '2023-11-14T22:13:20Z'", {"kafka_timestamp": NOW_MS}, True),
        ("timestamp < '2023-11-14T22:13:20Z'", {"kafka_timestamp": NOW_MS}, False),
        ("timestamp > '1h'", {"kafka_timestamp": NOW_MS - 3_600_000}, False),
        ("timestamp = 1700000000000", {"kafka_timestamp": NOW_MS}, True),
    ],
)
def test_a_condition_means_the_same_as_in_sql(text: str, values: dict[str, Any], meets: bool | None) -> None:
    assert found(text, **values) is meets


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has 'the end' where a field should be"),
        ("n", "where =, <, IN, BETWEEN, IS NULL or the like should be"),
        ("n =", "where a value should be"),
        ("n = 1 2", "has '2' where AND, OR or the end should be"),
        ("n = 1 AND", "where a field should be"),
        ("(n = 1", "where ) should be"),
        ("n IN ()", "')' is no BIGINT"),
        ("n IN (1", "where ) should be"),
        ("n IS 1", "where NULL should be"),
        ("n NOT = 1", "where IN or BETWEEN should be"),
        ("n = 'x'", "'\\'x\\'' is no BIGINT, as n is|\"'x'\" is no BIGINT, as n is"),
        ("n = 1.5", "'1.5' is no BIGINT"),
        ("n = 9223372036854775808", "is no BIGINT"),
        ("n = NULL", "'NULL' is no BIGINT"),
        ("n = b", "'b' is no BIGINT"),
        ("d = 'x'", "is no DOUBLE"),
        ("s = 5", "'5' is no STRING, as s is"),
        ("b = 1", "is no BOOLEAN"),
        ("kafka.key = 5", "is no BYTES"),
        ("kafka.key = X'0'", "is no BYTES"),
        ("timestamp > 'soon'", "'soon' is no moment"),
        ("gone = 1", "'gone' is not indexed: n, d, s, b, user.id, key are, and there are key, partition"),
        ("user = 1", "'user' is not indexed"),
        ("1 = n", "where a field should be"),
        ("n = 1; DROP TABLE x", "cannot be read from '; DROP TABLE x' on"),
        ("n = 1 -- x", "cannot be read from '-- x' on"),
        ('"n" = 1', "cannot be read from"),
        ("s = 'open", 'cannot be read from "\'open" on'),
        ("n = 1x", "cannot be read from '1x' on"),
        ("n = \x1b[31m", "cannot be read from '\\x1b[31m' on"),
        ("NOT " * 200 + "n = 1", "nested deeper than 100"),
        ("(" * 200 + "n = 1" + ")" * 200, "nested deeper than 100"),
    ],
)
def test_what_is_no_condition_is_one_line(text: str, message: str) -> None:
    with pytest.raises(PipelineError) as caught:
        parse_where(text, FIELDS, now_ms=NOW_MS)
    assert any(it in str(caught.value) for it in message.split("|"))
    assert str(caught.value).isprintable()


COLUMNS = [Column(name, "BIGINT", (name,)) for name in ("a", "b", "c")]
NUMBERS = st.integers(0, 2)
LEAVES = st.one_of(
    st.builds(Compare, st.sampled_from(COLUMNS), st.sampled_from(["=", "!=", "<"]), NUMBERS),
    st.builds(In, st.sampled_from(COLUMNS), st.lists(NUMBERS, max_size=2).map(tuple)),
    st.builds(IsNull, st.sampled_from(COLUMNS)),
)


def _joined(parts: st.SearchStrategy[Condition]) -> st.SearchStrategy[Condition]:
    several = st.lists(parts, min_size=1, max_size=3).map(tuple)
    return st.one_of(st.builds(And, several), st.builds(Or, several), st.builds(Not, parts))


@given(
    st.recursive(LEAVES, _joined, max_leaves=8),
    st.fixed_dictionaries({name: st.none() | NUMBERS for name in ("a", "b", "c")}),
    st.integers(1, 5),
)
def test_a_record_meets_a_condition_if_it_meets_one_of_its_lookups(
    condition: Condition, values: dict[str, int | None], most: int
) -> None:
    parts = lookups(condition, most)
    assert len(parts) <= most
    one_of_them = any(holds(it, lambda column: values[column.name]) is True for it in parts)
    assert one_of_them == (holds(condition, lambda column: values[column.name]) is True)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("n = 1 OR s = 'x'", ["n = 1", "s = 'x'"]),
        ("(n = 1 OR s = 'x') AND d > 2", ["n = 1 AND d > 2", "s = 'x' AND d > 2"]),
        ("n IN (1, 2) OR user.id = 7 OR s = 'x'", ["n IN (1, 2)", "user.id = 7", "s = 'x'"]),
        ("n = 1 OR d > 2", ["n = 1 OR d > 2"]),
        ("n = 1 OR b = true", ["n = 1 OR b = true"]),
        ("NOT (n = 1 OR s = 'x')", ["NOT (n = 1 OR s = 'x')"]),
        (" OR ".join(f"n = {number}" for number in range(17)), [" OR ".join(f"n = {it}" for it in range(17))]),
    ],
)
def test_only_what_names_its_values_is_looked_up_one_by_one(text: str, parts: list[str]) -> None:
    def parsed(it: str) -> Condition:
        return parse_where(it, FIELDS, now_ms=NOW_MS)

    assert lookups(parsed(text)) == tuple(map(parsed, parts))
