"""The waits of throttled replicas (KIP-73). Pure."""

from __future__ import annotations

import attrs
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kwire.replicas.quotas import ALL_REPLICAS, MOST_SAMPLES, NO_REPLICAS, ReplicationQuota, ThrottledReplicas


@attrs.define(eq=False)
class Limit:
    value: int

    def __call__(self) -> int:
        return self.value


def test_what_exceeds_the_limit_has_to_wait_until_the_rate_is_the_limit() -> None:
    quota = ReplicationQuota(Limit(1000))
    assert not quota.is_exceeded(0)
    quota.record(1000, 0)
    assert not quota.is_exceeded(0)
    quota.record(4000, 0)
    assert quota.is_exceeded(0)
    assert quota.free_at_ms() == 5000
    assert quota.is_exceeded(4999)
    assert not quota.is_exceeded(5000)


def test_nothing_waits_for_longer_than_all_samples() -> None:
    for limit in (0, 1):
        quota = ReplicationQuota(Limit(limit), samples=11, sample_ms=1000)
        quota.record(10**9, 500)
        assert quota.is_exceeded(11_499)
        assert quota.free_at_ms() == 11_500
        assert not quota.is_exceeded(11_500)


def test_a_limit_that_is_changed_counts_at_once() -> None:
    limit = Limit(1)
    quota = ReplicationQuota(limit)
    quota.record(100, 0)
    assert quota.is_exceeded(0)
    limit.value = 100
    assert not quota.is_exceeded(0)


def test_what_was_recorded_before_a_pause_counts_no_more() -> None:
    quota = ReplicationQuota(Limit(10), samples=2, sample_ms=100)
    quota.record(1000, 0)
    assert not quota.is_exceeded(10_000)
    quota.record(2, 10_000)
    assert quota.is_exceeded(10_000), "20 bytes per second, over one sample"


def test_many_samples_take_little_memory() -> None:
    quota = ReplicationQuota(Limit(10), samples=2**31 - 1, sample_ms=1000)
    for number in range(10 * MOST_SAMPLES):
        quota.record(1, number * quota.sample_ms)
    assert len(quota._taken) <= MOST_SAMPLES
    assert MOST_SAMPLES * quota.sample_ms >= (2**31 - 1) * 1000


moves = st.lists(st.tuples(st.integers(0, 500), st.integers(0, 5000)), min_size=1, max_size=40)


@given(moves, st.integers(0, 5000), st.integers(1, 12), st.integers(1, 300))
@example(
    taken=[(0, 0), (493, 0), (163, 1)], limit=2, samples=4, sample_ms=164
)  # the first sample ends with the last record
def test_it_is_known_when_the_wait_ends(taken: list[tuple[int, int]], limit: int, samples: int, sample_ms: int) -> None:
    quota = ReplicationQuota(Limit(limit), samples, sample_ms)
    now_ms = 0
    for pause_ms, size in taken:
        now_ms += pause_ms
        quota.record(size, now_ms)
    free_at_ms = quota.free_at_ms()
    assert free_at_ms <= now_ms + samples * sample_ms
    if quota.is_exceeded(now_ms):
        assert quota.is_exceeded(free_at_ms - 1)
        assert not quota.is_exceeded(free_at_ms)
    else:
        assert free_at_ms <= now_ms


@given(st.integers(1, 10_000_000), st.integers(1, 2_000_000), st.integers(1, 50))
def test_in_the_long_run_the_rate_is_the_limit(limit: int, size: int, pause_ms: int) -> None:
    """One answer more than the limit, and what a sample allows at first."""
    quota = ReplicationQuota(Limit(limit))
    sent, now_ms = 0, 0
    while now_ms < 60_000 and sent < 40 * size:
        if quota.is_exceeded(now_ms):
            now_ms = quota.free_at_ms()
        else:
            quota.record(size, now_ms)
            sent += size
            now_ms += pause_ms
    waits = now_ms // (quota.samples * quota.sample_ms) + 1
    assert sent <= limit * (now_ms / 1000 + 1) + size * waits


@pytest.mark.parametrize(
    ("value", "named"),
    [((), []), (("0:1", "12:3"), [(0, 1), (12, 3)]), (("*",), [(0, 1), (12, 3), (12, 1)])],
)
def test_replicas_are_named_by_partition_and_broker(value: tuple[str, ...], named: list[tuple[int, int]]) -> None:
    throttled = ThrottledReplicas.parse(value)
    assert [it for it in ((0, 1), (12, 3), (12, 1)) if throttled.has(*it)] == named
    assert throttled == {(): NO_REPLICAS, ("*",): ALL_REPLICAS}.get(value, throttled)
