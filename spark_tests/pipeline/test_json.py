"""JSON values as a table's fields: given, inferred, and growing."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from kwire.pipeline.errors import PipelineError
from testkit.spark.jobs import Jobs, positions
from testkit.spark.records import Record

pytestmark = pytest.mark.more

Sent = Callable[..., None]


def _json(*values: object) -> list[Record]:
    return [Record(json.dumps(value).encode()) for value in values]


def test_a_schema_is_inferred_once_and_fixed_then(jobs: Jobs, topic: str, sent: Sent) -> None:
    """Fields that the sample did not have are left out, and those of another type are an error of that row."""
    sent(topic, [Record(b"{broken"), Record(b"[1]"), *_json({"id": 1, "name": None, "tags": ["a"], "at": {"x": 1.5}})])
    jobs.once(topic, value="json")
    sent(topic, _json({"id": 2, "color": "red", "at": {"x": 2.5, "y": 1}}, {"id": "three"}, {"ID": 4}, {"name": "n"}))
    jobs.once(topic, value="json")

    nothing: dict[str, Any] = {"at": None, "id": None, "name": None, "tags": None}
    assert jobs.values(topic) == [
        {**nothing, "id": 1, "tags": ["a"], "at": {"x": 1.5}},
        {**nothing, "id": 2, "at": {"x": 2.5}},
        nothing,
        {**nothing, "name": "n"},
    ]
    assert [offset for _, offset in positions(jobs.errors(topic))] == [0, 1, 4]


def test_every_type_comes_through_and_what_is_no_json_of_it_does_not(jobs: Jobs, topic: str, sent: Sent) -> None:
    schema = (
        "i INT, l BIGINT, d DOUBLE, n DECIMAL(10,2), b BOOLEAN, s STRING, day DATE, t TIMESTAMP, "
        "a ARRAY<STRUCT<x: BIGINT>>, m MAP<STRING, DOUBLE>, o STRUCT<p: STRUCT<q: STRING>>, `a.b` INT, `e f` INT"
    )
    good: dict[str, Any] = {
        "i": -1,
        "l": 2**62,
        "d": 1e-3,
        "n": 12.34,
        "b": True,
        "s": "\\u00e4\\u0000\\ud83d\\ude00",
        "day": "2024-02-29",
        "t": "2024-01-02T03:04:05.678+02:00",
        "a": [{"x": 1}, {"x": None}, None, {}],
        "m": {"k": 1, "j": None},
        "o": {"p": {"q": "deep", "r": "left out"}},
        "a.b": 1,
        "e f": 2,
    }
    numbers = [*_json({"i": 2**31}, {"l": 1.0}, {"l": "1"}, {"n": 1e9}, {"d": "1.5"}, {"b": 1})]
    dates = _json({"day": "2024-02-30"}, {"day": 5}, {"t": "soon"})
    nested = _json({"a": {"x": 1}}, {"a": [{"x": "y"}]}, {"m": {"k": "v"}}, {"o": {"p": "q"}}, {"o": [{}]})
    texts = [
        b'{"i": 1} and more',
        b'{"i": 1}{"i": 2}',
        b'{"i": 1}, {"i": 2}',
        b'{"i": 1}]',
        b'{"i": 1}}',
        b'{"i": 1}]} {"i": 2}',
        b'{"i": 1',
        b'{"i": 1,}',
        b"{'i': 1}",
        b'{"d": NaN}',
        b'{"i": 1} // one',
        b"null",
        b"[]",
        b'[{"i": 1}]',
        b"7",
        b" ",
        b'\xef\xbb\xbf{"i": 1}',
        b'{"s": "\xc3\x28"}',
    ]
    bad = [*numbers, *dates, *nested, *map(Record, texts)]
    sent(topic, [*_json(good), *bad, Record(b'\n {"i": 7} \t')])

    jobs.once(topic, value="json", schema=schema)

    first, last = jobs.values(topic)
    assert {name: value for name, value in last.items() if value is not None} == {"i": 7}
    day = datetime.date(2024, 2, 29)
    at = datetime.datetime.fromtimestamp(1704157445.678)  # as Spark hands it out: local time
    assert first == {
        **good,
        "n": Decimal("12.34"),
        "day": day,
        "t": at,
        "a": [{"x": 1}, {"x": None}, None, {"x": None}],
        "m": {"k": 1.0, "j": None},
        "o": {"p": {"q": "deep"}},
    }
    assert [row["value"] for row in jobs.errors(topic)] == [it.value for it in bad]


def test_a_schema_that_gains_fields_makes_the_table_grow_whatever_their_order(
    jobs: Jobs, topic: str, sent: Sent
) -> None:
    sent(topic, _json({"id": 1, "o": {"x": 1}, "a": [{"x": 1}], "m": {"k": {"x": 1}}}))
    jobs.once(
        topic,
        value="json",
        schema="id BIGINT, o STRUCT<x: INT>, a ARRAY<STRUCT<x: INT>>, m MAP<STRING, STRUCT<x: INT>>",
    )
    value = {"o": {"y": 2, "x": 1}, "name": "n", "id": 2, "a": [{"y": 2}], "m": {"k": {"y": 2}}, "a.b": {"c`d": 3}}
    sent(topic, _json(value))
    wider = (
        "`a.b` STRUCT<`c``d`: INT>, o STRUCT<y: INT, x: INT>, name STRING, ID BIGINT, a ARRAY<STRUCT<y: INT>>, "
        "m MAP<STRING, STRUCT<y: INT>>"
    )
    jobs.once(topic, value="json", schema=wider)
    sent(topic, _json({"id": 3, "name": "of the table's own schema"}))
    jobs.once(topic, value="json")
    jobs.once(topic, value="json", schema="name STRING")

    first, second, third = jobs.values(topic)
    assert first == {
        "id": 1,
        "o": {"x": 1, "y": None},
        "a": [{"x": 1, "y": None}],
        "m": {"k": {"x": 1, "y": None}},
        "a.b": None,
        "name": None,
    }
    assert second == {
        "id": 2,
        "o": {"x": 1, "y": 2},
        "a": [{"x": None, "y": 2}],
        "m": {"k": {"x": None, "y": 2}},
        "a.b": {"c`d": 3},
        "name": "n",
    }
    assert (third["id"], third["name"]) == (3, "of the table's own schema")


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("id STRING", "the schema wants value.id as string, and the table has it as bigint"),
        ("o STRUCT<x: STRING>", "the schema wants value.o.x as string, and the table has it as int"),
        ("o STRING", "the schema wants value.o as string, and the table has it as struct<x:int>"),
        ("id BIGINT, ID BIGINT", "a field twice"),
        ("id BIGNUMBER,, x", "the schema cannot be read"),
        ('{"type": "struct", "fields": [{"name": "id"}]}', "the schema cannot be read"),
    ],
)
def test_a_schema_that_does_not_go_with_the_table_is_one_line(jobs: Jobs, schema: str, message: str) -> None:
    from pyspark.sql.types import StructType

    from kwire.pipeline.tables.schemas import additions, read_json_schema

    have = read_json_schema("id BIGINT, o STRUCT<x: INT>")
    with pytest.raises(PipelineError) as raised:
        additions(have, read_json_schema(schema))
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)
    assert isinstance(have, StructType)


def test_a_conflicting_schema_ends_the_job_and_changes_nothing(jobs: Jobs, topic: str, sent: Sent) -> None:
    sent(topic, _json({"id": 1}))
    jobs.once(topic, value="json", schema="id BIGINT")
    sent(topic, _json({"id": 2}))
    with pytest.raises(PipelineError, match=r"wants value\.id as string"):
        jobs.once(topic, value="json", schema="name STRING, id STRING")
    assert jobs.values(topic) == [{"id": 1}]


def test_a_topic_without_json_has_no_schema_to_infer(jobs: Jobs, topic: str, sent: Sent) -> None:
    sent(topic, [Record(b"[]"), Record(b"\xff"), Record(None)])
    with pytest.raises(PipelineError, match="has no JSON objects to infer a schema from"):
        jobs.once(topic, value="json")


def test_fields_that_appear_in_mid_stream_are_added_if_the_table_may_grow(jobs: Jobs, topic: str, sent: Sent) -> None:
    """A few records a batch: what a batch brings is there from its own rows on."""
    sent(
        topic,
        _json(
            {"id": 1, "later": None, "o": {"x": 1}},
            {"id": 2, "name": "n", "o": {"x": 1, "y": {"z": 1}}, "a": [{"p": 1}]},
            {"id": 3, "NAME": "another spelling", "a": [{"p": 1, "q": 2}], "a.b": 1},
            {"id": "four", "name": 4, "other": True},
            {"id": 5, "later": 5.5, "nothing": None, "empty": {}},
        ),
    )
    jobs.once(topic, value="json", evolve=True, sample_records=1, max_records_per_commit=2)
    sent(topic, [Record(b'{"id": 6, "broken": 1'), Record(b'[{"no": 1}]'), *_json({"id": 7, "last": 7})])
    jobs.once(topic, value="json", evolve=True)

    nothing = dict.fromkeys(("id", "name", "o", "a", "a.b", "other", "later", "last"))
    assert jobs.values(topic) == [
        {**nothing, "id": 1, "o": {"x": 1, "y": None}},
        {**nothing, "id": 2, "name": "n", "o": {"x": 1, "y": {"z": 1}}, "a": [{"p": 1, "q": None}]},
        {**nothing, "id": 3, "a": [{"p": 1, "q": 2}], "a.b": 1},
        {**nothing, "id": 5, "later": 5.5},
        {**nothing, "id": 7, "last": 7},
    ]
    assert [offset for _, offset in positions(jobs.errors(topic))] == [3, 5, 6]
