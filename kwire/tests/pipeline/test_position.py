"""The position of a table, as JSON and back, and the start of the next job."""

from __future__ import annotations

import json
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kwire.pipeline.errors import PipelineError
from kwire.pipeline.tables.position import (
    PROPERTY,
    Gap,
    LostRange,
    OnGap,
    Position,
    newest_position,
    same_topic,
    start,
)
from kwire.pipeline.topic_state import TopicState

REACHED = Position("cluster", "orders", "id-1", {0: 10, 1: 20})
TOPIC = TopicState("cluster", "orders", "id-1", {0: 0, 1: 0}, {0: 100, 1: 100})

_OFFSETS = st.dictionaries(st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1))
_POSITIONS = st.builds(Position, st.text(), st.text(), st.text(), _OFFSETS)


@given(_POSITIONS)
def test_a_position_comes_back_from_its_json(position: Position) -> None:
    assert Position.from_json(position.to_json()) == position


def test_the_json_is_as_documented() -> None:
    assert json.loads(REACHED.to_json()) == {
        "version": 1,
        "cluster_id": "cluster",
        "topic": "orders",
        "topic_id": "id-1",
        "offsets": {"0": 10, "1": 20},
    }


@given(st.text())
def test_no_text_is_more_than_refused(text: str) -> None:
    with pytest.raises(PipelineError, match="cannot be read"):
        Position.from_json(text)


@pytest.mark.parametrize(
    "change",
    [
        {"offsets": {"0": -1}},
        {"offsets": {"-1": 5}},
        {"offsets": {"0": "x"}},
        {"offsets": [1, 2]},
        {"offsets": None},
        {"topic": 5},
        {"version": "1"},
        {"version": None},
        {"version": 0},
    ],
)
def test_a_position_with_a_part_that_is_none_is_refused(change: dict[str, object]) -> None:
    text = json.dumps({**json.loads(REACHED.to_json()), **change})
    with pytest.raises(PipelineError, match="cannot be read"):
        Position.from_json(text)


def test_a_position_of_a_newer_kwire_requires_an_upgrade() -> None:
    text = json.dumps({"version": 2, "whatever": "comes"})
    with pytest.raises(PipelineError, match="version 2; this kwire reads 1: upgrade kwire"):
        Position.from_json(text)


def test_the_newest_snapshot_with_a_position_counts() -> None:
    older = REACHED.moved({0: 5})
    compaction: dict[str, str] = {"added-records": "7"}
    found = newest_position([compaction, {PROPERTY: REACHED.to_json()}, {PROPERTY: older.to_json()}])
    assert found == REACHED
    assert newest_position([compaction, {}]) is None
    assert newest_position([]) is None


def test_a_position_moves_by_partition() -> None:
    assert REACHED.moved({1: 21, 2: 3}).offsets == {0: 10, 1: 21, 2: 3}
    assert REACHED.offsets == {0: 10, 1: 20}


# Where to start.


def test_a_new_table_begins_at_the_given_offsets() -> None:
    begun = start(None, TOPIC, begin_at={0: 7, 1: 8})
    assert begun.position == Position("cluster", "orders", "id-1", {0: 7, 1: 8})
    assert begun.gaps == ()


def test_a_table_resumes_at_its_position() -> None:
    assert start(REACHED, TOPIC, begin_at={}).position == REACHED


def test_at_the_very_end_and_at_the_very_start_nothing_is_lost() -> None:
    at_end = attrs.evolve(TOPIC, starts={0: 10, 1: 20}, ends={0: 10, 1: 20})
    begun = start(REACHED, at_end, begin_at={})
    assert (begun.position, begun.gaps) == (REACHED, ())


def test_a_new_partition_is_read_from_its_first_record_even_where_the_table_began_at_the_latest() -> None:
    grown = attrs.evolve(TOPIC, starts={0: 0, 1: 0, 2: 4}, ends={0: 100, 1: 100, 2: 9})
    assert start(REACHED, grown, begin_at={0: 100, 1: 100, 2: 9}).position.offsets == {0: 10, 1: 20, 2: 4}


@pytest.mark.parametrize("on_gap", ["fail", "record"])
def test_what_retention_took_unread_is_named(on_gap: OnGap) -> None:
    cut = attrs.evolve(TOPIC, starts={0: 11, 1: 25})
    if on_gap == "fail":
        with pytest.raises(LostRange, match="partition 0 offsets 10 to 10; partition 1 offsets 20 to 24") as caught:
            start(REACHED, cut, begin_at={}, on_gap=on_gap)
        assert "\n" not in str(caught.value)
        return
    begun = start(REACHED, cut, begin_at={}, on_gap=on_gap)
    assert begun.position.offsets == {0: 11, 1: 25}
    assert begun.gaps == (Gap(0, 10, 11), Gap(1, 20, 25))


@pytest.mark.parametrize("on_gap", ["fail", "record"])
def test_a_partition_that_ends_before_the_table_does_is_refused(on_gap: OnGap) -> None:
    """An unclean election: the offsets up to the table's will be those of other records."""
    shrunk = attrs.evolve(TOPIC, ends={0: 9, 1: 100})
    with pytest.raises(PipelineError, match="ends at offset 9, and the table has records up to 9") as caught:
        start(REACHED, shrunk, begin_at={}, on_gap=on_gap)
    assert "lost its newest records" in str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"cluster_id": "other"}, "of cluster cluster, and this is cluster other"),
        ({"topic": "clicks"}, "the table holds topic orders, not clicks"),
        ({"topic_id": "id-2"}, "deleted and created again"),
        ({"starts": {0: 0}, "ends": {0: 100}}, "deleted and created again"),
    ],
)
def test_a_table_never_resumes_at_offsets_of_another_topic(change: dict[str, Any], message: str) -> None:
    other = attrs.evolve(TOPIC, **change)
    for on_gap in ("fail", "record"):
        with pytest.raises(PipelineError, match=message):
            start(REACHED, other, begin_at={}, on_gap=on_gap)
    with pytest.raises(PipelineError, match=message):
        same_topic(REACHED, other)


@pytest.mark.parametrize("mine", ["", "id-1"])
@pytest.mark.parametrize("theirs", ["", "id-1"])
def test_if_brokers_have_no_topic_ids_the_topics_name_counts(mine: str, theirs: str) -> None:
    same_topic(attrs.evolve(REACHED, topic_id=mine), attrs.evolve(TOPIC, topic_id=theirs))


_SPANS = st.dictionaries(
    st.integers(0, 5), st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=1
)  # start, and how many records


@given(_SPANS, st.data())
def test_wherever_a_table_is_each_record_is_read_or_named_as_lost(
    spans: dict[int, tuple[int, int]], data: st.DataObject
) -> None:
    topic = TopicState(
        "c",
        "t",
        "i",
        {n: first for n, (first, _) in spans.items()},
        {n: first + many for n, (first, many) in spans.items()},
    )
    known = data.draw(st.sets(st.sampled_from(sorted(spans))))
    reached = Position("c", "t", "i", {n: data.draw(st.integers(0, topic.ends[n])) for n in known})

    begun = start(reached, topic, begin_at={}, on_gap="record")

    lost = {gap.partition: range(gap.first, gap.until) for gap in begun.gaps}
    assert set(begun.position.offsets) == set(spans)
    for number in spans:
        at = reached.offsets.get(number, topic.starts[number])
        read = range(begun.position.offsets[number], topic.ends[number])
        assert [*lost.get(number, ()), *read] == list(range(at, topic.ends[number]))
        assert begun.position.offsets[number] >= topic.starts[number]
