"""The bounds of a range, as a person writes them."""

from __future__ import annotations

import pytest

from kwire.pipeline.bounds import Bound, Edge, Moment, Offset, Offsets, parse_bound, resolve
from kwire.pipeline.errors import PipelineError
from kwire.pipeline.topic_state import TopicState

NOW_MS = 1_795_341_600_000
TOPIC = TopicState("cluster", "orders", "id", {0: 10, 1: 0}, {0: 100, 1: 50})


@pytest.mark.parametrize(
    ("text", "bound"),
    [
        ("earliest", Edge(latest=False)),
        ("latest", Edge(latest=True)),
        ("4711", Offset(4711)),
        ("0:4711,12:0", Offsets({0: 4711, 12: 0})),
        ("2026-11-22", Moment(1_795_305_600_000)),
        ("2026-11-22T10:00:00.250", Moment(1_795_341_600_250)),
        ("2026-11-22T10:00:00+02:00", Moment(1_795_334_400_000)),
        ("2h", Moment(NOW_MS - 7_200_000)),
    ],
)
def test_offsets_times_and_edges_are_distinguished(text: str, bound: Bound) -> None:
    assert parse_bound(text, now_ms=NOW_MS) == bound


@pytest.mark.parametrize("text", ["", "soon", "-1", "0:", "0:1;1:2", "1" * 19, "2026-13-01"])
def test_what_is_none_of_them_is_refused_in_a_line(text: str) -> None:
    with pytest.raises(PipelineError, match="neither an offset .* nor a time") as raised:
        parse_bound(text, now_ms=NOW_MS)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("bound", "offsets"),
    [
        (Edge(latest=False), {0: 10, 1: 0}),
        (Edge(latest=True), {0: 100, 1: 50}),
        (Offset(70), {0: 70, 1: 50}),
        (Offset(5), {0: 10, 1: 5}),
        (Offsets({1: 7}), {1: 7}),
    ],
)
def test_a_bound_lies_within_what_the_topic_has(bound: Bound, offsets: dict[int, int]) -> None:
    assert resolve(bound, TOPIC, lambda _: {}) == offsets


def test_a_partition_without_a_record_that_is_young_enough_is_bound_at_its_end() -> None:
    assert resolve(Moment(1000), TOPIC, lambda ms: {0: ms // 50}) == {0: 20, 1: 50}


def test_a_partition_that_the_topic_has_not_is_named() -> None:
    with pytest.raises(PipelineError, match="has no partition 7, but 2 from 0"):
        resolve(Offsets({7: 1}), TOPIC, lambda _: {})
