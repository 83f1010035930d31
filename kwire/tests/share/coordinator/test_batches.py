"""Batches of states against a dictionary of offsets."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from devtools.suite.tiers import examples
from kwire.share.coordinator.batches import combined
from kwire.share.coordinator.state import StateBatch
from testkit.share.coordinator.spreading import Offsets, assert_is_normal, spread

INT64_MAX = 2**63 - 1


batches = st.builds(
    StateBatch,
    first_offset=st.integers(0, 24),
    last_offset=st.integers(0, 24),
    delivery_state=st.sampled_from([0, 2, 4]),
    delivery_count=st.integers(1, 3),
)


@settings(max_examples=examples(300))
@given(st.lists(st.tuples(st.lists(batches, max_size=6), st.integers(-1, 26)), max_size=6))
def test_each_offset_has_the_latest_state_that_was_written_for_it(writes: list[tuple[list[StateBatch], int]]) -> None:
    found: tuple[StateBatch, ...] = ()
    expected: Offsets = {}
    for written, start_offset in writes:
        found = combined(found, written, start_offset)
        expected = {
            offset: max(expected.get(offset, (-99, 0)), new.get(offset, (-99, 0)))
            for new in [spread(written)]
            for offset in expected.keys() | new.keys()
            if offset >= start_offset
        }
        assert_is_normal(found)
        assert spread(found) == expected


@given(st.lists(batches, max_size=8), st.randoms(use_true_random=False))
def test_the_order_of_writes_does_not_matter(written: list[StateBatch], random: object) -> None:
    shuffled = list(written)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    one_by_one: tuple[StateBatch, ...] = ()
    for batch in shuffled:
        one_by_one = combined(one_by_one, [batch])
    assert combined((), written) == one_by_one
    assert combined(one_by_one, written) == one_by_one, "a write may be repeated"


@pytest.mark.parametrize("start_offset", [-1, 0, 5])
def test_reversed_batches_hold_nothing(start_offset: int) -> None:
    assert combined((), [StateBatch(9, 5, 0, 1), StateBatch(50, 45, 2, 2)], start_offset) == ()
    kept = (StateBatch(5, 9, 0, 1),)
    assert combined(kept, [StateBatch(8, 7, 2, 2)], start_offset) == kept


def test_the_largest_offset_and_negative_ones_are_like_others() -> None:
    assert combined((StateBatch(-9, INT64_MAX, 0, 1),), [StateBatch(0, INT64_MAX, -128, 32_767)]) == (
        StateBatch(-9, -1, 0, 1),
        StateBatch(0, INT64_MAX, -128, 32_767),
    )


def test_a_write_touches_only_what_it_meets() -> None:
    many = tuple(StateBatch(2 * number, 2 * number, 2 * (number % 2), 1) for number in range(5_000))
    after = combined(many, [StateBatch(9_998, 10_000, 2, 3)])
    assert after[:-1] == many[:-1]
    assert all(a is b for a, b in zip(after[:-1], many[:-1], strict=True))
    assert after[-1] == StateBatch(9_998, 10_000, 2, 3)
