"""Leader epochs: their storage, and the answer to OffsetForLeaderEpoch."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kwire_storage.log.epochs import EpochCache


@pytest.fixture
def cache() -> EpochCache:
    return EpochCache([(1, 0), (2, 10), (5, 30)])


@pytest.mark.parametrize(
    ("epoch", "answer"),
    [
        (5, (5, 50)),  # the latest goes to the log's end
        (2, (2, 30)),
        (1, (1, 10)),
        (3, (2, 30)),  # never seen: what was written up to it
        (0, (0, 0)),  # older than all: nothing of it is here
        (6, (-1, -1)),  # newer than all
        (-1, (-1, -1)),
    ],
)
def test_an_epoch_ends_where_the_next_begins(cache: EpochCache, epoch: int, answer: tuple[int, int]) -> None:
    assert cache.end_offset_for(epoch, 50) == answer


def test_nothing_is_known_without_entries() -> None:
    assert EpochCache().end_offset_for(0, 50) == (-1, -1)
    assert EpochCache().epoch_at(0) == -1


def test_an_offset_has_the_epoch_it_was_written_in(cache: EpochCache) -> None:
    assert [cache.epoch_at(offset) for offset in (0, 9, 10, 29, 30, 99)] == [1, 1, 2, 2, 5, 5]


def test_an_epoch_continues_where_it_is_the_latest(cache: EpochCache) -> None:
    cache.assign(5, 40)
    assert cache.entries == [(1, 0), (2, 10), (5, 30)]
    assert not cache.dirty


def test_what_contradicts_a_new_entry_goes(cache: EpochCache) -> None:
    cache.assign(6, 20)
    assert cache.entries == [(1, 0), (2, 10), (6, 20)]
    cache.assign(4, 40)
    assert cache.entries == [(1, 0), (2, 10), (4, 40)]
    cache.assign(-1, 50)
    assert cache.latest == 4
    assert cache.dirty


def test_truncating_from_the_end_forgets_later_epochs(cache: EpochCache) -> None:
    cache.truncate_from_end(10)
    assert cache.entries == [(1, 0)]
    assert cache.latest == 1
    cache.clear()
    assert (cache.entries, cache.latest) == ([], -1)


def test_truncating_from_the_start_keeps_the_epoch_in_force(cache: EpochCache) -> None:
    cache.truncate_from_start(20)
    assert cache.entries == [(2, 20), (5, 30)]
    cache.truncate_from_start(30)
    assert cache.entries == [(5, 30)]
    cache.dirty = False
    cache.truncate_from_start(30)
    cache.truncate_from_start(5)
    assert not cache.dirty
    assert cache.entries == [(5, 30)]


@given(st.lists(st.tuples(st.integers(-1, 20), st.integers(0, 100))))
def test_entries_always_ascend_in_both(assigned: list[tuple[int, int]]) -> None:
    cache = EpochCache()
    for epoch, start in assigned:
        cache.assign(epoch, start)
        epochs, starts = zip(*cache.entries, strict=True) if cache.entries else ((), ())
        assert list(epochs) == sorted(set(epochs))
        assert list(starts) == sorted(set(starts))
