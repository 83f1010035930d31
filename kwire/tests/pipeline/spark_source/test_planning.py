"""Ranges, limits and losses: pure arithmetic on offsets."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kwire.client.cluster import TopicPartition
from kwire.pipeline.spark_source.limits import Patience, limited
from kwire.pipeline.spark_source.losses import losses
from kwire.pipeline.spark_source.positions import from_json_value, listed, to_json_value
from kwire.pipeline.spark_source.ranges import OffsetRange, split

A, B, C = (TopicPartition("t", partition) for partition in range(3))


def pieces(*ranges: tuple[TopicPartition, int, int], **limits: int) -> list[tuple[TopicPartition, int, int]]:
    return [(it.at, it.start, it.stop) for it in split([OffsetRange(*it) for it in ranges], **limits)]


def test_a_partition_is_a_task_and_an_empty_one_is_none() -> None:
    assert pieces((B, 5, 9), (A, 0, 1), (C, 3, 3)) == [(A, 0, 1), (B, 5, 9)]


def test_a_long_partition_is_cut_into_equal_pieces() -> None:
    assert pieces((A, 10, 20), max_records=4) == [(A, 10, 13), (A, 13, 16), (A, 16, 20)]
    assert pieces((A, 10, 20), max_records=10) == [(A, 10, 20)]


def test_more_tasks_are_made_of_the_long_ones() -> None:
    assert pieces((A, 0, 100), (B, 0, 2), min_partitions=4) == [(A, 0, 33), (A, 33, 66), (A, 66, 100), (B, 0, 2)]
    # A half rounds up: 2.5 and 1.5 of four tasks.
    assert [it[0] for it in pieces((A, 0, 50), (B, 0, 30), min_partitions=4)] == [A, A, A, B, B]
    assert pieces((A, 0, 100), (B, 0, 100), min_partitions=2) == [(A, 0, 100), (B, 0, 100)]


@given(
    st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 1000)), max_size=5),
    st.none() | st.integers(1, 40),
    st.none() | st.integers(1, 50),
)
def test_pieces_are_the_ranges_again(
    sizes: list[tuple[int, int]], min_partitions: int | None, max_records: int | None
) -> None:
    ranges = [OffsetRange(TopicPartition("t", i), start, start + size) for i, (start, size) in enumerate(sizes)]
    found = split(ranges, min_partitions=min_partitions, max_records=max_records)
    for whole in ranges:
        mine = [it for it in found if it.at == whole.at]
        offsets = [offset for it in mine for offset in range(it.start, it.stop)]
        assert offsets == list(range(whole.start, whole.stop))
    assert all(it.size > 0 and (max_records is None or it.size <= max_records) for it in found)


def test_a_limit_is_shared_in_proportion_and_starves_nobody() -> None:
    assert limited({A: 0, B: 0, C: 5}, {A: 900, B: 100, C: 5}, 10) == {A: 9, B: 1, C: 5}
    assert limited({A: 0, B: 0}, {A: 1000, B: 1}, 10) == {A: 9, B: 1}
    assert limited({A: 0}, {A: 3}, 10) == {A: 3}
    assert limited({A: 7}, {A: 7}, 10) == {A: 7}


def test_a_partition_that_is_behind_its_start_is_left_to_the_look_for_losses() -> None:
    assert limited({A: 50, B: 0}, {A: 10, B: 100}, 5) == {A: 10, B: 5}


@given(
    st.dictionaries(st.integers(0, 5), st.tuples(st.integers(0, 1 << 40), st.integers(0, 1 << 40)), max_size=6),
    st.integers(1, 1 << 50),
)
def test_a_limit_is_kept_and_leads_on(sizes: dict[int, tuple[int, int]], most: int) -> None:
    start = {TopicPartition("t", p): begin for p, (begin, _) in sizes.items()}
    latest = {TopicPartition("t", p): begin + size for p, (begin, size) in sizes.items()}
    ends = limited(start, latest, most)
    taken = {at: ends[at] - start[at] for at in start}
    assert all(0 <= taken[at] <= latest[at] - start[at] for at in start)
    assert sum(taken.values()) <= most + len(start)
    assert any(taken.values()) == any(latest[at] > start[at] for at in start)


def test_a_batch_waits_for_enough_or_long_enough() -> None:
    patience = Patience(10, 1000)
    assert patience.is_over({A: 0}, {A: 1}, now_ms=0)
    assert not patience.is_over({A: 1}, {A: 10}, now_ms=999)
    assert patience.is_over({A: 1}, {A: 11}, now_ms=999)
    assert not patience.is_over({A: 11}, {A: 12}, now_ms=1998)
    assert patience.is_over({A: 11}, {A: 12}, now_ms=1999)


def test_what_is_gone_is_named() -> None:
    assert losses({A: 3}, {A: 5}, {}) == []
    assert losses({A: 3}, {A: 5, B: 2}, {B: 0}) == []
    assert losses({A: 3, B: 1}, {A: 5}, {}) == ["t-1: deleted"]
    assert losses({A: 3}, {A: 2}, {}) == ["t-0: its end has moved back from 3 to 2"]
    assert losses({A: 3}, {A: 5, B: 9}, {B: 4}) == ["t-1: new, and its offsets 0 to 3 are gone"]
    assert losses({A: 3}, {A: 5, B: 9}, {}) == ["t-1: new, and gone again"]


def test_offsets_are_written_as_the_connector_writes_them() -> None:
    value = to_json_value({TopicPartition("b", 10): 1, TopicPartition("b", 2): 2, TopicPartition("a", 0): 3})
    assert json.dumps(value) == '{"a": {"0": 3}, "b": {"2": 2, "10": 1}}'
    assert to_json_value(from_json_value(value)) == value


@pytest.mark.parametrize("value", [[], {"t": 3}, {"t": {"0": "1"}}, {"t": {"-1": 1}}, {"t": {"0": True}}])
def test_other_values_are_no_offsets(value: object) -> None:
    with pytest.raises(ValueError):
        from_json_value(value)


def test_a_list_for_a_message_ends_somewhere() -> None:
    assert listed({TopicPartition("t", p): 0 for p in range(12)}).endswith("t-9 and 2 more")
