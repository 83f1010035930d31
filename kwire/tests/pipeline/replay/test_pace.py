"""A rate limit, on a clock that is a number."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kwire.pipeline.replay.pace import Pace


def records_in(pace: Pace, begin_s: float, for_s: float, work_s: float = 0.0) -> int:
    """Returns how many go in that time, each of which takes `work_s` besides."""
    now_s, count = begin_s, 0
    while True:
        now_s += pace.wait_s(now_s)
        if now_s >= begin_s + for_s:
            return count
        pace.went(now_s)
        count += 1
        now_s += work_s


@pytest.mark.parametrize("rate_per_s", [0.5, 7.0, 1000.0])
def test_records_go_at_the_rate(rate_per_s: float) -> None:
    assert records_in(Pace(rate_per_s, 100.0), 100.0, 20.0) == pytest.approx(20 * rate_per_s, abs=1 + 0.02 * rate_per_s)


def test_work_that_takes_its_time_does_not_slow_the_rate_as_long_as_there_is_time() -> None:
    assert records_in(Pace(100.0, 0.0), 0.0, 10.0, work_s=0.009) == pytest.approx(1000, abs=5)


@given(
    rate_per_s=st.floats(0.5, 1e5),
    gaps_s=st.lists(st.floats(0, 5), max_size=30),
)
def test_no_stretch_of_time_has_more_than_the_rate_and_a_second_of_it(rate_per_s: float, gaps_s: list[float]) -> None:
    pace, now_s = Pace(rate_per_s, 0.0), 0.0
    went: list[float] = []
    for gap_s in gaps_s:
        now_s += gap_s
        for _ in range(20):
            now_s += pace.wait_s(now_s)
            pace.went(now_s)
            went.append(now_s)
    for first in range(0, len(went), 7):
        for last in range(first, len(went), 13):
            assert last - first <= rate_per_s * (went[last] - went[first] + 1.02) + 1 + 1e-6
