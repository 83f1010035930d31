"""The map of offsets: no translation leaves a record out, and in a run it is exact."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kwire.pipeline.mirror.offsets import Run, joined, renewed, runs_of, superfluous, translated


def test_offsets_that_follow_one_another_are_a_run_and_a_gap_begins_another() -> None:
    assert runs_of([5, 6, 7, 9, 12, 13], 100) == [Run(5, 100, 3), Run(9, 103, 1), Run(12, 104, 2)]
    assert runs_of([], 100) == []


def test_runs_that_meet_on_both_sides_become_one() -> None:
    assert joined([Run(0, 10, 5)], [Run(5, 15, 2), Run(9, 17, 1)]) == [Run(0, 10, 7), Run(9, 17, 1)]
    assert joined([Run(0, 10, 5)], [Run(5, 16, 2)]) == [Run(0, 10, 5), Run(5, 16, 2)]
    assert joined([Run(0, 10, 5)], [Run(6, 15, 2)]) == [Run(0, 10, 5), Run(6, 15, 2)]


def test_a_newer_run_takes_the_place_of_the_one_that_it_grew_from() -> None:
    assert renewed([Run(0, 0, 2), Run(3, 2, 1)], [Run(3, 2, 4), Run(9, 7, 1)]) == [
        Run(0, 0, 2),
        Run(3, 2, 4),
        Run(9, 7, 1),
    ]


@pytest.mark.parametrize(
    ("source", "target"), [(0, 7), (99, 7), (100, 90), (120, 110), (149, 139), (150, 140), (152, 141), (170, 150)]
)
def test_the_example_of_the_module(source: int, target: int) -> None:
    assert translated([Run(100, 90, 50), Run(152, 141, 9)], 7, source) == target


Copies = list[tuple[int, int]]
"""Offsets of each record, at the source and at the target."""


@st.composite
def copies(draw: st.DrawFn) -> tuple[int, Copies, int]:
    """Draws the target's start, the copies with gaps on either side, and a source consumer's positions."""
    begin = draw(st.integers(0, 5))
    source, target = draw(st.integers(0, 5)), begin + draw(st.integers(0, 3))
    found = []
    gaps = st.tuples(st.sampled_from([0, 0, 0, 1, 3]), st.sampled_from([0, 0, 0, 1]))
    for source_gap, target_gap in draw(st.lists(gaps, min_size=1, max_size=40)):
        source, target = source + source_gap, target + target_gap
        found.append((source, target))
        source, target = source + 1, target + 1
    return begin, found, draw(st.integers(0, source + 2))


def mapped(found: Copies, cuts: Sequence[int]) -> list[Run]:
    """Returns the runs, as batches that begin at `cuts` would make them."""
    runs: list[Run] = []
    for at, (source, target) in enumerate(found):
        last = runs[-1:]
        more = joined([] if at in cuts else last, [Run(source, target, 1)])
        runs = renewed(runs, more) if at not in cuts else [*runs, *more]
    return runs


def next_copy(found: Copies, source: int) -> int | None:
    """Returns the target offset of the first record from `source` on: the reference for translations."""
    return min((target for at, target in found if at >= source), default=None)


def next_seen(found: Copies, target: int) -> int | None:
    """Returns what a consumer at the target sees first."""
    return min((at for _, at in found if at >= target), default=None)


@given(copies(), st.sets(st.integers(0, 40)))
def test_a_consumer_that_continues_at_the_target_sees_the_next_record_first(
    made: tuple[int, Copies, int], cuts: set[int]
) -> None:
    begin, found, source = made
    at = translated(mapped(found, sorted(cuts)), begin, source)
    assert next_seen(found, at) == next_copy(found, source)
    assert begin <= at <= found[-1][1] + 1


@given(copies(), st.integers(1, 8), st.integers(0, 60))
def test_a_map_without_some_runs_is_never_too_late_and_exact_in_those_that_it_has(
    made: tuple[int, Copies, int], most: int, log_start: int
) -> None:
    begin, found, source = made
    runs: list[Run] = []
    for at, to in found:  # it is thinned again and again, as it grows
        runs = renewed(runs, joined(runs[-1:], [Run(at, to, 1)]))
        gone = superfluous(runs, log_start, most=most)
        runs = [it for it in runs if it not in gone]
    wanted = next_copy(found, source)
    got = translated(runs, begin, source)
    if wanted is not None:
        assert got <= wanted
    if any(it.source <= source < it.source_end for it in runs):
        assert got == wanted
    assert runs[-1].target_end == found[-1][1] + 1


@given(st.integers(3, 40), st.integers(0, 2000))
def test_the_map_of_a_partition_stays_small_and_its_newer_half_whole(most: int, count: int) -> None:
    runs: list[Run] = []
    for number in range(count):
        runs.append(Run(number * 3, number * 2, 1))
        gone = superfluous(runs, 0, most=most)
        assert runs[-1] not in gone
        runs = [it for it in runs if it not in gone]
        assert len(runs) <= most
        assert runs[0].source == 0, "or else all is read again for a group that is there"
    newest = [Run(number * 3, number * 2, 1) for number in range(count)][-(most // 2) + 1 :] if most > 3 else []
    assert runs[len(runs) - len(newest) :] == newest


def test_runs_below_the_log_start_go_but_for_the_last_of_them() -> None:
    runs = [Run(0, 0, 5), Run(10, 6, 5), Run(20, 12, 5)]
    assert superfluous(runs, 9) == []
    assert superfluous(runs, 12) == [Run(0, 0, 5)]
    assert superfluous(runs, 19) == [Run(0, 0, 5)]
    assert superfluous(runs, 100) == [Run(0, 0, 5), Run(10, 6, 5)]
