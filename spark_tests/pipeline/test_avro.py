"""Avro values as a table's fields: plain, and in Confluent's wire format."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from kwire.pipeline.errors import PipelineError
from kwire.pipeline.tables.values import AvroSchemas
from testkit.spark.jobs import Jobs
from testkit.spark.records import Record

pytestmark = pytest.mark.more

NewTopic = Callable[..., str]
Sent = Callable[..., None]


def _record(*fields: dict[str, Any], name: str = "order") -> str:
    return json.dumps({"type": "record", "name": name, "namespace": "shop", "fields": list(fields)})


_ID: dict[str, Any] = {"name": "id", "type": "long"}
_NAME: dict[str, Any] = {"name": "name", "type": ["null", "string"], "default": None}
_PLACE_TYPE = {"type": "record", "name": "place", "fields": [{"name": "x", "type": "int"}]}
_PLACES: dict[str, Any] = {"name": "places", "type": {"type": "array", "items": _PLACE_TYPE}, "default": []}

_FIRST = _record(_ID)
_SECOND = _record(_ID, _NAME)
_THIRD = _record(_NAME, _ID, _PLACES)  # in another order


def _long(number: int) -> bytes:
    """Zigzag, seven bits a byte."""
    rest, out = (number << 1) ^ (number >> 63), bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*out, rest])


def _string(text: str) -> bytes:
    return _long(len(text.encode())) + text.encode()


def _name(text: str | None) -> bytes:
    return _long(0) if text is None else _long(1) + _string(text)


def _places(*xs: int) -> bytes:
    return (_long(len(xs)) + b"".join(map(_long, xs)) if xs else b"") + _long(0)


def _confluent(schema_id: int, datum: bytes) -> bytes:
    return b"\x00" + schema_id.to_bytes(4, "big") + datum


def test_plain_avro_is_read_to_its_last_byte_and_the_table_grows_with_its_schema(
    jobs: Jobs, topic: str, sent: Sent
) -> None:
    bad = [b"", _long(2**40)[:2], _long(1) + b"x"]
    sent(topic, [Record(_long(1)), *map(Record, bad), Record(None), Record(_long(-(2**40)))])
    jobs.once(topic, value="avro", avro=AvroSchemas(_FIRST))
    assert jobs.values(topic) == [{"id": 1}, None, {"id": -(2**40)}]
    assert [row["value"] for row in jobs.errors(topic)] == bad
    assert {row["reason"] for row in jobs.errors(topic)} == {"not Avro of the table's schema"}

    bad = [_long(2), _long(2) + _long(1) + _long(5) + b"ab"]
    sent(topic, [*map(Record, bad), Record(_long(3) + _name("n")), Record(_long(4) + _name(None))])
    jobs.once(topic, value="avro", avro=AvroSchemas(_SECOND))
    nothing = {"id": None, "name": None}
    wanted = [{**nothing, "id": 1}, None, {**nothing, "id": -(2**40)}, {"id": 3, "name": "n"}, {"id": 4, "name": None}]
    assert jobs.values(topic) == wanted
    assert len(jobs.errors(topic)) == 5

    # A table with more fields than the schema: they stay, and are null.
    sent(topic, [Record(_long(5))])
    jobs.once(topic, value="avro", avro=AvroSchemas(_FIRST))
    assert jobs.values(topic) == [*wanted, {"id": 5, "name": None}]


def test_each_value_of_confluents_is_read_by_the_schema_that_it_names(jobs: Jobs, topic: str, sent: Sent) -> None:
    """The schemas come in time: with the second job, the table gains a field."""
    two = AvroSchemas(_SECOND, {7: _FIRST, 8: _record({**_ID, "type": "string"}), 300: _SECOND})
    broken = [
        _confluent(300, _long(2)),  # cut off
        _confluent(300, _long(2) + _name("n") + b"x"),  # something behind it
        _confluent(7, b""),
        _confluent(8, _string("1")),  # a schema that does not go with the newest
    ]
    unknown = [_confluent(301, _long(1)), _confluent(0x07000000, _long(1))]
    no_magic = [b"", b"\x00", b"\x00\x00\x00\x00", b'{"id": 1}', b"\x01" + _confluent(7, _long(1))[1:]]
    good = [_confluent(7, _long(1)), _confluent(300, _long(2) + _name("n"))]
    sent(topic, [Record(it) for it in [*good, *broken, *unknown, *no_magic]] + [Record(None)])
    jobs.once(topic, value="confluent-avro", avro=two)

    assert jobs.values(topic) == [{"id": 1, "name": None}, {"id": 2, "name": "n"}, None]
    errors = jobs.errors(topic)
    assert [row["value"] for row in errors] == [*broken, *unknown, *no_magic]
    assert [row["reason"] for row in errors] == [
        *["not Avro of its schema"] * 4,
        "unknown schema id 301; known are 7, 8, 300",
        "unknown schema id 117440512; known are 7, 8, 300",
        *["not in Confluent's wire format"] * 5,
    ]

    sent(topic, [Record(_confluent(301, _name(None) + _long(3) + _places(5, 6))), Record(_confluent(7, _long(4)))])
    jobs.once(topic, value="confluent-avro", avro=AvroSchemas(_THIRD, {**two.by_id, 301: _THIRD}))
    assert jobs.values(topic)[1:] == [
        {"id": 2, "name": "n", "places": None},
        None,
        {"id": 3, "name": None, "places": [{"x": 5}, {"x": 6}]},
        {"id": 4, "name": None, "places": []},
    ]


@pytest.mark.parametrize(
    ("avro", "message"),
    [
        (AvroSchemas('{"type": "record", "name": "r", "fields": [{"name": "x", "type": "nope"}]}'), "nope"),
        (AvroSchemas('{"type": "record", "name": "r"}'), "no fields"),
        (AvroSchemas('{"type": "record", "name": "r", "fields": []}'), "no fields"),
        (AvroSchemas(_record({"name": "next", "type": ["null", "shop.order"]})), "recursive"),
        (AvroSchemas(_FIRST, {7: '{"type": "record", "name": "r", "fields": [{}]}', 8: _FIRST}), "7.avsc"),
    ],
)
def test_an_avro_schema_that_cannot_be_used_is_one_line_and_makes_no_table(
    jobs: Jobs, topic: str, avro: AvroSchemas, message: str
) -> None:
    with pytest.raises(PipelineError) as raised:
        jobs.once(topic, value="confluent-avro" if avro.by_id else "avro", avro=avro)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)
    assert not jobs.spark.catalog.tableExists(jobs.warehouse.spark_name(jobs.plan(topic).table))
