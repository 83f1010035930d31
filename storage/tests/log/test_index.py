"""The sparse indexes, their bytes and their look-ups."""

from __future__ import annotations

from bisect import bisect_left

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kwire_storage.log.index import OffsetIndex, TimeIndex

ascending = st.lists(st.integers(0, 2**31 - 1), unique=True, max_size=50).map(sorted)


def offset_index(*entries: tuple[int, int]) -> OffsetIndex:
    index = OffsetIndex()
    for offset, position in entries:
        index.append(offset, position)
    return index


def test_offset_entries_are_two_big_endian_ints() -> None:
    index = offset_index((1, 2), (0x01020304, 0x05060708))
    assert index.to_bytes() == bytes.fromhex("00000001 00000002 01020304 05060708")


def test_time_entries_are_a_big_endian_long_and_an_int() -> None:
    index = TimeIndex()
    index.maybe_append(0x0102030405060708, 9)
    assert index.to_bytes() == bytes.fromhex("0102030405060708 00000009")


@given(ascending, ascending)
def test_an_offset_index_survives_its_bytes(offsets: list[int], positions: list[int]) -> None:
    index = offset_index(*zip(offsets, positions, strict=False))
    again = OffsetIndex.from_bytes(index.to_bytes())
    assert (again.offsets, again.positions, len(again)) == (index.offsets, index.positions, len(index))


@given(st.lists(st.tuples(st.integers(-1, 2**62), st.integers(0, 2**31 - 1))))
def test_a_time_index_survives_its_bytes_and_ascends(entries: list[tuple[int, int]]) -> None:
    index = TimeIndex()
    for timestamp, offset in entries:
        index.maybe_append(timestamp, offset)
    assert list(index.timestamps) == sorted(set(index.timestamps))
    again = TimeIndex.from_bytes(index.to_bytes())
    assert (again.timestamps, again.offsets) == (index.timestamps, index.offsets)


@given(ascending, st.integers(0, 2**31 - 1))
def test_look_ups_never_lead_beyond_what_is_sought(offsets: list[int], sought: int) -> None:
    index = offset_index(*((offset, number * 100) for number, offset in enumerate(offsets)))
    below = bisect_left(offsets, sought)
    assert index.position_before(sought) == max(below - 1, 0) * 100
    at = index.offset_at_or_after(sought)
    assert at == (offsets[-(-sought // 100)] if sought <= (len(offsets) - 1) * 100 else None)


def test_a_boundary_is_the_last_known_one_not_above_the_position() -> None:
    index = offset_index((10, 100), (20, 200))
    assert [index.boundary_before(position) for position in (0, 99, 100, 199, 200, 9999)] == [0, 0, 100, 100, 200, 200]


def test_timestamps_equal_to_the_sought_one_are_not_skipped() -> None:
    index = TimeIndex()
    index.maybe_append(1000, 5)
    index.maybe_append(2000, 9)
    assert [index.offset_before(timestamp) for timestamp in (999, 1000, 1001, 2000, 2001)] == [-1, -1, 5, 5, 9]


@pytest.mark.parametrize("padding", [b"", bytes(8), bytes(800)])
def test_the_zeros_of_a_preallocated_file_are_no_entries(padding: bytes) -> None:
    entries = offset_index((3, 100), (7, 200)).to_bytes()
    assert list(OffsetIndex.from_bytes(entries + padding).offsets) == [3, 7]
    times = TimeIndex()
    times.maybe_append(50, 3)
    times.maybe_append(60, 7)
    assert list(TimeIndex.from_bytes(times.to_bytes() + bytes(12) * bool(padding)).timestamps) == [50, 60]


def test_a_torn_last_entry_is_left_out() -> None:
    assert len(OffsetIndex.from_bytes(offset_index((3, 100), (7, 200)).to_bytes()[:-1])) == 1


def test_truncating_forgets_what_begins_at_or_after() -> None:
    index = offset_index((10, 100), (20, 200), (30, 300))
    index.truncate(200)
    assert list(index.offsets) == [10]
    times = TimeIndex()
    for timestamp in (1, 2, 3):
        times.maybe_append(timestamp, timestamp * 10)
    times.truncate(20)
    assert list(times.offsets) == [10]
