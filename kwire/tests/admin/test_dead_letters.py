"""Letters as values: their content, their selection, and the note of those that were sent."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kwire_protocol.records import Record

from kwire.admin.dead_letters.letters import Letter, Origin, Selection
from kwire.admin.dead_letters.redriven import BLOCK, Redriven, state_topic_of
from kwire.client.cluster import TopicPartition
from kwire.client.errors import ClientError
from testkit.fakes.letter_scene import COUNTED, copy, letter_headers, reference

ORDERS = TopicPartition("orders", 2)
DLQ = TopicPartition("dlq.g", 0)
ID, OTHER_ID = b"a" * 16, b"b" * 16

PLACES = st.sets(st.tuples(st.integers(0, 3), st.integers(0, 3 * BLOCK)), max_size=60)


def letter(record: Record, offset: int = 17) -> Letter:
    found = Letter.read(DLQ, record._replace(offset=offset))
    assert found is not None
    return found


def test_a_letter_is_read_from_its_headers() -> None:
    it = letter(copy(ORDERS, 5, b"k", b"v", ("mine", None), reason=COUNTED))
    assert (it.at, it.offset, it.origin, it.group_id) == (DLQ, 17, Origin(ORDERS, 5), "g")
    assert (it.delivery_count, it.reason, it.timestamp_ms) == (1, COUNTED.decode(), 1_000)
    assert (it.key, it.value, it.headers, it.is_copy) == (b"k", b"v", (("mine", None),), True)


def test_a_letter_without_content_refers_to_its_record() -> None:
    assert not letter(reference(ORDERS, 5)).is_copy
    for some in (copy(ORDERS, 5, b"", None), copy(ORDERS, 5, None, b""), copy(ORDERS, 5, None, None, ("mine", b""))):
        assert letter(some).is_copy


@pytest.mark.parametrize("name", ["topic", "partition", "offset"])
@pytest.mark.parametrize("value", [b"", b"-1", b"1.5", b"9" * 19, b"9" * 4000, None, "missing"])
def test_a_record_without_its_origin_is_no_letter(name: str, value: Any) -> None:
    if name == "topic" and value not in (b"", None, "missing"):
        return
    full = f"__dlq.errors.{name}"
    headers = [(it, value if it == full else old) for it, old in letter_headers(ORDERS, 5)]
    if value == "missing":
        headers = [it for it in headers if it[0] != full]
    assert Letter.read(DLQ, Record(0, 0, b"k", b"v", headers)) is None


def test_other_headers_of_a_letter_may_be_missing_or_wrong() -> None:
    others: list[tuple[str, bytes | None]] = [
        ("__dlq.errors.delivery.count", b"many"),
        ("__dlq.errors.group", b"\xff"),
    ]
    headers = [*letter_headers(ORDERS, 5)[:3], *others]
    it = letter(Record(0, 0, None, None, headers))
    assert (it.delivery_count, it.group_id, it.reason) == (None, "\\xff", None)


@pytest.mark.parametrize(
    ("selection", "is_meant"),
    [
        (Selection(), True),
        (Selection(partition=0, offsets=frozenset([17, 18])), True),
        (Selection(partition=1), False),
        (Selection(partition=0, offsets=frozenset([18])), False),
        (Selection(groups=frozenset(["g", "h"])), True),
        (Selection(groups=frozenset(["h"])), False),
        (Selection(origin_topics=frozenset(["orders"]), origin_partition=2, origin_offset=5), True),
        (Selection(origin_topics=frozenset(["order"])), False),
        (Selection(origin_partition=0), False),
        (Selection(origin_offset=6), False),
        (Selection(reason="REJECTED"), True),
        (Selection(reason="exceeded"), False),
        (Selection(since_ms=1_000, until_ms=1_001), True),
        (Selection(since_ms=1_001), False),
        (Selection(until_ms=1_000), False),
    ],
)
def test_a_selection_restricts_the_letters(selection: Selection, is_meant: bool) -> None:
    assert selection.matches(letter(reference(ORDERS, 5))) is is_meant


# What was sent


@given(PLACES, PLACES)
def test_the_note_of_what_was_sent_is_read_as_it_was_written(first: set[Any], second: set[Any]) -> None:
    noted: dict[bytes, bytes | None] = {}
    for places in (first, second):
        redriven = Redriven.of("t", ID, noted)
        blocks = redriven.adding(places)
        redriven.added(blocks)
        noted |= redriven.encode(blocks)
        assert all(place in redriven for place in places)
    again = Redriven.of("t", ID, noted)
    for partition, offset in first | second:
        near = {(partition, offset + by) for by in (-1, 0, 1) if offset + by >= 0}
        assert {it for it in near if it in again} == near & (first | second)
    assert not any(place in Redriven.of("t", OTHER_ID, noted) for place in first | second)


@given(PLACES)
def test_the_note_of_a_block_is_short_enough_for_a_batch(places: set[Any]) -> None:
    every_other = {(0, offset) for offset in range(0, BLOCK, 2)}
    redriven = Redriven("t", ID)
    encoded = redriven.encode(redriven.adding(every_other | places))
    assert max(map(len, encoded.values())) < 16 << 10


def test_notes_about_letters_that_are_gone_are_deleted() -> None:
    redriven = Redriven("t", ID)
    blocks = redriven.adding([(0, 0), (0, BLOCK), (1, 5)])
    noted: dict[bytes, bytes | None] = {**redriven.encode(blocks)}
    earlier = Redriven("t", OTHER_ID)
    of_earlier = earlier.encode(earlier.adding([(0, 0)]))
    read = Redriven.of("t", ID, {**noted, **of_earlier})
    stale = read.drop_stale({0: BLOCK + 1, 1: BLOCK - 1})
    assert [json.loads(key) for key in stale if key not in of_earlier] == [
        {"topic_id": "YWFhYWFhYWFhYWFhYWFhYQ", "partition": 0, "first_offset": 0}
    ]
    assert stale >= set(of_earlier)
    assert ((0, 0) in read, (0, BLOCK) in read, (1, 5) in read) == (False, True, True)
    assert read.drop_stale({0: BLOCK + 1, 1: BLOCK - 1}) == set()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"", b"{}"),
        (b"{}", b'{"sent": "0"}'),
        (b"[]", b'{"sent": "0"}'),
        *(
            (b'{"topic_id": "YWFhYWFhYWFhYWFhYWFhYQ", "partition": 0, "first_offset": 0}', value)
            for value in (b"", b"\xff", b"{}", b'{"sent": 5}', b'{"sent": ""}', b'{"sent": "4096"}', b'{"sent": "5-4"}')
        ),
        (b'{"topic_id":"YWFhYWFhYWFhYWFhYWFhYQ","partition":0,"first_offset":7}', b'{"sent": "0"}'),
    ],
)
def test_a_note_that_no_redrive_has_written_is_rejected(key: bytes, value: bytes) -> None:
    with pytest.raises(ClientError, match="topic kwire-redriven-t holds what was sent of t, but has a record"):
        Redriven.of("t", ID, {key: value})


def test_a_name_that_would_be_too_long_is_rejected() -> None:
    assert len(state_topic_of("t" * 234)) == 249
    with pytest.raises(ClientError, match="at most 249 characters"):
        state_topic_of("t" * 235)
