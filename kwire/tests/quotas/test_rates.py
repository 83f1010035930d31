"""Rates and buckets: Kafka's arithmetic, beside a slow model of it."""

from __future__ import annotations

from itertools import pairwise

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kwire.quotas.rates import LONGEST_MS, MOST_SAMPLES, Rate, TokenBucket, Window

KAFKAS = Window.of(11, 1)


def test_a_new_rate_is_measured_as_if_all_samples_but_one_were_over() -> None:
    rate = Rate(KAFKAS)
    rate.record(1000, 5_000)
    assert rate.measure(5_000) == 100
    assert rate.measure(5_500) == pytest.approx(1000 / 10.5)
    assert rate.measure(6_000) == 100, "one sample is over, and so one less is missing"


def test_what_is_too_much_by_a_tenth_is_waited_for_a_tenth_of_the_time() -> None:
    rate = Rate(KAFKAS)
    rate.record(10_000, 0)
    assert rate.throttle_ms(1000, 0) == 0
    rate.record(1000, 0)
    assert rate.throttle_ms(1000, 0) == 1000


def test_samples_are_forgotten_when_they_are_over() -> None:
    rate = Rate(KAFKAS)
    rate.record(11_000, 0)
    assert rate.measure(10_999) > 0
    assert rate.is_empty(11_000)
    assert rate.throttle_ms(1, 11_000) == 0


def test_what_is_taken_back_was_never_recorded() -> None:
    rate = Rate(KAFKAS)
    rate.record(500, 0)
    rate.record(7_000, 100)
    rate.record(-7_000, 100)
    assert rate.measure(100) == pytest.approx(500 / 10.1)


def test_many_samples_take_little_memory() -> None:
    window = Window.of(2**31 - 1, 1)
    assert window.samples == MOST_SAMPLES
    assert window.length_ms >= (2**31 - 1) * 1000
    rate = Rate(window)
    for number in range(3 * MOST_SAMPLES):
        rate.record(1, number * window.sample_ms)
    assert len(rate._ring) == MOST_SAMPLES + 1


def test_no_pause_is_longer_than_a_response_can_tell() -> None:
    rate = Rate(KAFKAS)
    rate.record(1e300, 0)
    assert rate.throttle_ms(1e-300, 0) == LONGEST_MS
    assert rate.throttle_ms(0, 0) == LONGEST_MS
    bucket = TokenBucket(KAFKAS)
    bucket.take(1e300, 1e-300, 0)
    assert bucket.throttle_ms(1e-300, 0) == LONGEST_MS
    assert bucket.throttle_ms(0, 0) == LONGEST_MS


@attrs.define
class SlowRate:
    """Every value that was recorded, and the sample that it belongs to."""

    samples: int
    sample_ms: int
    recorded: list[tuple[int, float, int]] = attrs.field(factory=list)
    """Time, value, and when its sample began."""

    def record(self, value: float, now_ms: int) -> None:
        begun_ms = self.recorded[-1][2] if self.recorded else now_ms
        if now_ms - begun_ms >= self.sample_ms:
            begun_ms = now_ms
        self.recorded.append((now_ms, value, begun_ms))

    def measure(self, now_ms: int) -> float:
        last = {begun_ms: time_ms for time_ms, _, begun_ms in self.recorded}
        kept = sorted(it for it, last_ms in last.items() if now_ms - last_ms < self.samples * self.sample_ms)
        kept = kept[-(self.samples + 1) :]
        total = sum(value for _, value, begun_ms in self.recorded if begun_ms in kept)
        elapsed_ms = now_ms - min(kept, default=now_ms)
        missing = max(self.samples - 1 - elapsed_ms // self.sample_ms, 0)
        return total / (max(elapsed_ms + missing * self.sample_ms, 1) / 1000)


moves = st.lists(st.tuples(st.integers(0, 900), st.integers(0, 5000)), min_size=1, max_size=60)


@given(moves, st.integers(1, 12), st.sampled_from([1, 7, 100, 1000]))
def test_it_measures_what_the_slow_one_does(taken: list[tuple[int, int]], samples: int, sample_ms: int) -> None:
    rate, slow = Rate(Window(samples, sample_ms)), SlowRate(samples, sample_ms)
    now_ms = 10_000
    for pause_ms, value in taken:
        # A pause in which all is forgotten begins a new sample in one of them, and not always in the other.
        now_ms += min(pause_ms, samples * sample_ms - 1)
        rate.record(value, now_ms)
        slow.record(value, now_ms)
        assert rate.measure(now_ms) == pytest.approx(slow.measure(now_ms))


@given(moves, st.integers(1, 5000))
def test_after_the_pause_the_rate_is_what_it_may_be(taken: list[tuple[int, int]], bound: int) -> None:
    rate = Rate(KAFKAS)
    now_ms = 0
    for pause_ms, value in taken:
        now_ms += pause_ms
        rate.record(value, now_ms)
    throttle_ms = rate.throttle_ms(bound, now_ms)
    assert throttle_ms == 0 or rate.measure(now_ms) > bound
    full_ms = (KAFKAS.samples - 1) * KAFKAS.sample_ms
    if throttle_ms and now_ms >= full_ms:
        assert rate.measure(now_ms + throttle_ms + 1) <= bound


@given(st.integers(1, 400), st.floats(0.5, 20), st.lists(st.integers(0, 3000), min_size=1, max_size=40))
def test_a_client_that_pauses_as_requested_takes_what_it_may(size: int, bound: float, pauses: list[int]) -> None:
    """A client that produces as fast as it can, for a long time."""
    rate = Rate(KAFKAS)
    now_ms, total, bound = 0, 0, bound * 100
    for number in range(400):
        now_ms += pauses[number % len(pauses)] // 100
        rate.record(size, now_ms)
        total += size
        now_ms += rate.throttle_ms(bound, now_ms)
    # Samples are forgotten as a whole, so it is exact to one request in a window.
    in_windows = now_ms / (KAFKAS.length_ms - KAFKAS.sample_ms)
    assert total <= bound * (now_ms + KAFKAS.length_ms) / 1000 + size * (in_windows + 1)


def test_a_bucket_is_full_at_first_and_refills() -> None:
    bucket = TokenBucket(Window.of(11, 1))
    assert bucket.left(5, 0) == 55
    bucket.take(60, 5, 0)
    assert bucket.left(5, 0) == -5
    assert bucket.throttle_ms(5, 0) == 1000
    assert bucket.throttle_ms(5, 999) == 1
    assert bucket.throttle_ms(5, 1000) == 0
    assert bucket.left(5, 100_000) == 55


def test_a_full_bucket_does_not_keep_what_is_given_back_for_when_it_becomes_larger() -> None:
    bucket = TokenBucket(Window.of(10, 1))
    bucket.take(-50, 1, 0)
    assert bucket.left(100, 0) == 10


def test_a_bucket_that_becomes_smaller_loses_what_is_too_much() -> None:
    bucket = TokenBucket(Window.of(10, 1))
    assert bucket.left(10, 0) == 100
    assert bucket.left(1, 0) == 10


@given(st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 50)), max_size=50), st.floats(0.1, 100))
def test_no_more_is_taken_than_the_bucket_had_and_got(taken: list[tuple[int, int]], bound: float) -> None:
    bucket = TokenBucket(KAFKAS)
    now_ms = 7
    given_out = 0
    largest = 0
    for pause_ms, count in taken:
        now_ms += pause_ms
        if not bucket.throttle_ms(bound, now_ms):
            bucket.take(count, bound, now_ms)
            given_out += count
            largest = max(largest, count)
    most = bound * (KAFKAS.length_ms + now_ms) / 1000 + largest
    # A debt of less than half a millisecond is none.
    assert given_out <= most + bound / 1000 * len(taken) + 1e-6


def test_pauses_are_rounded_to_milliseconds_and_halves_upwards() -> None:
    bucket = TokenBucket(Window(1, 1000))
    bucket.take(1 + 0.25 / 1000, 1, 0)
    assert bucket.throttle_ms(1, 0) == 0
    bucket.take(0.25 / 1000, 1, 0)
    assert bucket.throttle_ms(1, 0) == 1


def test_samples_begin_when_something_is_recorded() -> None:
    rate = Rate(Window(3, 100))
    for now_ms in (0, 150, 320, 460, 600):
        rate.record(1, now_ms)
    starts = sorted(it.start_ms for it in rate._ring)
    assert starts == [150, 320, 460, 600], "one more than the window has"
    assert all(later - earlier >= 100 for earlier, later in pairwise(starts))
