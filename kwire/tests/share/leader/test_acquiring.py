"""The records that a fetch acquires."""

from __future__ import annotations

import attrs
import pytest

from kwire.share.leader.states import ACQUIRED, ARCHIVED, AVAILABLE, ShareLimits
from testkit.share.leader.scene import ACCEPT, RELEASE, scene


def test_new_records_are_acquired_as_one_batch_in_flight() -> None:
    s = scene()
    assert s.fetch("a", (0, 4), (5, 9)) == [(0, 9, 1)]
    assert s.states() == [(0, 9, ACQUIRED, 1)]
    assert s.partition.next_fetch_offset == 10
    assert len(s.partition.in_flight.batches) == 1


def test_the_start_offset_follows_the_first_record_of_the_log() -> None:
    s = scene(5)
    assert s.fetch("a", (20, 29)) == [(20, 29, 1)]
    assert (s.partition.start_offset, s.partition.end_offset) == (20, 29)


def test_a_batch_that_begins_before_the_start_offset_is_acquired_from_there() -> None:
    s = scene(5)
    assert s.fetch("a", (0, 9)) == [(5, 9, 1)]


def test_the_maximum_of_records_is_reached_with_a_whole_batch_of_the_log() -> None:
    s = scene()
    assert s.fetch("a", (0, 4), (5, 9), (10, 14), max_records=7) == [(0, 9, 1)]
    assert s.fetch("a", (10, 14), max_records=1) == [(10, 14, 1)]


def test_a_maximum_in_a_hole_of_the_log_is_taken_as_it_is() -> None:
    s = scene()
    assert s.fetch("a", (0, 4), (10, 14), max_records=7) == [(0, 6, 1)]
    assert s.partition.next_fetch_offset == 7


def test_with_a_record_limit_the_maximum_is_exact_and_the_rest_is_available() -> None:
    s = scene()
    assert s.fetch("a", (0, 9), (10, 19), max_records=7, exactly=True) == [(0, 6, 1)]
    assert s.states() == [(0, 6, ACQUIRED, 1), (7, 9, AVAILABLE, 0)]
    assert s.partition.next_fetch_offset == 7
    assert s.fetch("b", (0, 9), (10, 19), max_records=5, exactly=True) == [(7, 9, 1), (10, 11, 1)]


def test_new_records_are_split_at_batches_of_the_log_that_reach_the_batch_size() -> None:
    s = scene()
    assert s.fetch("a", (0, 2), (3, 5), (6, 8), (9, 9), batch_size=4) == [(0, 5, 1), (6, 9, 1)]
    assert len(s.partition.in_flight.batches) == 2


def test_a_record_limit_ignores_the_batch_size() -> None:
    assert scene().fetch("a", (0, 2), (3, 5), (6, 8), batch_size=2, exactly=True) == [(0, 8, 1)]


def test_what_is_released_is_acquired_again_with_one_more_delivery() -> None:
    s = scene()
    s.fetch("a", (0, 9))
    s.done("a", (0, 9, RELEASE))
    assert s.partition.next_fetch_offset == 0
    assert s.fetch("b", (0, 9)) == [(0, 9, 2)]


def test_what_others_hold_is_passed_over() -> None:
    s = scene()
    s.fetch("a", (0, 9))
    s.done("a", (4, 6, RELEASE))
    assert s.fetch("b", (0, 9), (10, 14)) == [(4, 6, 2), (10, 14, 1)]


def test_released_neighbours_of_one_delivery_count_are_one_range() -> None:
    s = scene()
    s.fetch("a", (0, 9))
    s.done("a", (2, 2, RELEASE))
    s.done("a", (3, 3, RELEASE))
    s.done("a", (7, 7, RELEASE))
    assert s.fetch("b", (0, 9)) == [(2, 3, 2), (7, 7, 2)]


def test_only_what_was_read_is_acquired_again() -> None:
    s = scene()
    s.fetch("a", (0, 9), (10, 19))
    s.done("a", (0, 19, RELEASE))
    assert s.fetch("b", (0, 9)) == [(0, 9, 2)]
    assert s.partition.next_fetch_offset == 10


def test_a_record_limit_counts_what_is_acquired_again() -> None:
    s = scene()
    s.fetch("a", (0, 9))
    s.done("a", (0, 9, RELEASE))
    assert s.fetch("b", (0, 9), max_records=3, exactly=True) == [(0, 2, 2)]
    assert s.partition.next_fetch_offset == 3


def test_nothing_is_acquired_beyond_the_limit_of_records_in_flight() -> None:
    s = scene(limits=ShareLimits(max_in_flight_records=10))
    assert s.fetch("a", (0, 5), (6, 11), (12, 17)) == [(0, 11, 1)]
    assert not s.partition.can_acquire()
    assert s.fetch("b", (12, 17)) == []
    s.done("a", (0, 3, ACCEPT))
    assert s.partition.can_acquire()
    assert s.fetch("b", (12, 17), max_records=1) == [(12, 17, 1)]


def test_a_full_share_partition_gives_again_what_was_released_and_nothing_new() -> None:
    s = scene(limits=ShareLimits(max_in_flight_records=10))
    s.fetch("a", (0, 9))
    s.done("a", (7, 7, RELEASE))
    assert s.partition.can_acquire()
    assert s.fetch("b", (0, 9), (10, 19)) == [(7, 7, 2)]


def test_what_is_done_counts_for_the_limit_as_long_as_the_start_offset_is_before_it() -> None:
    s = scene(limits=ShareLimits(max_in_flight_records=10))
    s.fetch("a", (0, 9))
    s.done("a", (1, 9, ACCEPT))
    assert s.partition.in_flight.count == 10
    assert not s.partition.can_acquire()
    assert s.partition.delivery_complete_count == 9


def test_a_raised_limit_counts_at_once() -> None:
    s = scene(limits=ShareLimits(max_in_flight_records=10))
    s.fetch("a", (0, 9))
    s.partition.limits = attrs.evolve(s.partition.limits, max_in_flight_records=11)
    assert s.fetch("b", (10, 14)) == [(10, 14, 1)]


def test_what_compaction_took_is_archived() -> None:
    s = scene()
    s.fetch("a", (0, 4), (5, 9), batch_size=5)
    s.done("a", (0, 9, RELEASE))
    assert s.partition.next_fetch_offset == 0
    assert s.fetch("b", (5, 9)) == [(5, 9, 2)]
    assert s.partition.start_offset == 5


def test_what_compaction_took_inside_of_a_batch_is_left_to_the_consumer() -> None:
    s = scene()
    s.fetch("a", (0, 4), (10, 14))
    s.done("a", (0, 14, RELEASE))
    assert s.fetch("b", (0, 4), (10, 14)) == [(0, 14, 2)]


def test_a_hole_of_the_log_between_two_fetches_is_never_acquired() -> None:
    s = scene()
    s.fetch("a", (0, 4))
    s.fetch("a", (10, 14))
    s.done("a", (0, 4, ACCEPT))
    assert s.partition.start_offset == 10
    s.done("a", (10, 14, ACCEPT))
    assert (s.partition.start_offset, s.partition.next_fetch_offset) == (15, 15)


@pytest.mark.parametrize(
    ("archive", "left"),
    [
        ([(0, 4)], [(5, 14, 1)]),
        ([(5, 9)], [(0, 4, 1), (10, 14, 1)]),
        ([(0, 4), (10, 14)], [(5, 9, 1)]),
        ([(0, 14)], []),
        ([(15, 15)], [(0, 14, 1)]),
    ],
)
def test_aborted_records_are_archived_and_not_acquired(
    archive: list[tuple[int, int]], left: list[tuple[int, int, int]]
) -> None:
    s = scene()
    assert s.fetch("a", (0, 4), (5, 9), (10, 14), archive=archive) == left
    held = [(first, last) for first, last, state, _ in s.states() if state is ACQUIRED]
    assert held == [(first, last) for first, last, _ in left]


def test_a_window_full_of_aborted_records_is_passed() -> None:
    s = scene(limits=ShareLimits(max_in_flight_records=10))
    assert s.fetch("a", (0, 14), archive=[(0, 14)]) == []
    assert s.partition.can_acquire()
    assert s.partition.next_fetch_offset == 15
    assert s.partition.next_deadline_ms() is None


def test_aborted_records_of_a_batch_are_done() -> None:
    s = scene()
    s.fetch("a", (0, 4), (5, 9), archive=[(5, 9)])
    assert s.states() == [(0, 4, ACQUIRED, 1), (5, 9, ARCHIVED, 1)]
    assert s.partition.delivery_complete_count == 5


def test_a_batch_that_failed_often_is_acquired_in_ever_smaller_parts() -> None:
    s = scene(0, (0, 15, AVAILABLE, 3), limits=ShareLimits(delivery_count_limit=6))
    assert s.fetch("a", (0, 15)) == [(0, 7, 4)]
    assert s.fetch("a", (0, 15)) == [(8, 15, 4)]
    s.done("a", (0, 15, RELEASE))
    assert s.fetch("a", (0, 15)) == [(0, 3, 5)]


def test_a_last_delivery_is_of_one_record() -> None:
    s = scene(0, (0, 3, AVAILABLE, 4))
    assert s.fetch("a", (0, 3), (4, 9)) == [(0, 0, 5)]
    assert s.fetch("a", (0, 3), (4, 9)) == [(1, 1, 5)]


def test_a_last_delivery_does_not_join_others() -> None:
    s = scene(0, (0, 1, AVAILABLE, 1), (2, 3, AVAILABLE, 4))
    assert s.fetch("a", (0, 3), (4, 9)) == [(0, 1, 2)]
    assert s.fetch("a", (0, 3), (4, 9)) == [(2, 2, 5)]


def test_a_limit_of_two_deliveries_isolates_halves_only() -> None:
    s = scene(0, (0, 3, AVAILABLE, 1), limits=ShareLimits(delivery_count_limit=2))
    assert s.fetch("a", (0, 3)) == [(0, 3, 2)]


def test_records_below_the_throttle_are_not_cut() -> None:
    s = scene(0, (0, 15, AVAILABLE, 2), limits=ShareLimits(delivery_count_limit=5))
    assert s.fetch("a", (0, 15), (16, 19)) == [(0, 15, 3), (16, 19, 1)]


def test_nothing_new_is_acquired_beside_what_fails_often() -> None:
    s = scene(0, (0, 15, AVAILABLE, 3), limits=ShareLimits(delivery_count_limit=5))
    assert s.fetch("a", (0, 15), (16, 19)) == [(0, 7, 4)]


def test_a_fetch_that_brings_nothing_acquires_nothing() -> None:
    s = scene()
    assert s.fetch("a") == []
    assert s.fetch("a", (0, 4), max_records=0) == []
    assert s.states() == []
