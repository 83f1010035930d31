"""The start of a share partition from the persisted state, and from a log that begins later."""

from __future__ import annotations

import pytest
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError

from kwire.share.leader.effects import StateBatch
from kwire.share.leader.share_partition import FetchHint, PersistedState, SharePartition, Status
from kwire.share.leader.states import ACKNOWLEDGED, ACQUIRED, ARCHIVED, AVAILABLE, RecordState, ShareLimits
from testkit.share.leader.scene import ACCEPT, RELEASE, scene


def test_before_it_is_initialized_nothing_can_be_acquired() -> None:
    partition = SharePartition(3, ShareLimits())
    assert partition.status is Status.INITIALIZING
    assert not partition.can_acquire()


def test_an_empty_state_begins_at_its_start_offset() -> None:
    s = scene(42)
    assert (s.partition.start_offset, s.partition.end_offset, s.partition.next_fetch_offset) == (42, 42, 42)
    assert s.partition.in_flight.count == 0


def test_delivery_counts_continue() -> None:
    s = scene(10, (10, 14, AVAILABLE, 2))
    assert s.fetch("a", (10, 14)) == [(10, 14, 3)]


def test_what_is_done_at_the_start_is_passed() -> None:
    s = scene(10, (10, 14, ACKNOWLEDGED, 1), (15, 15, ARCHIVED, 2), (16, 19, AVAILABLE, 1), (20, 24, ACKNOWLEDGED, 1))
    assert s.partition.start_offset == 16
    assert s.partition.end_offset == 24
    assert s.partition.delivery_complete_count == 5
    assert s.partition.next_fetch_offset == 16


def test_a_state_in_which_all_is_done_is_empty() -> None:
    s = scene(10, (10, 14, ACKNOWLEDGED, 1))
    assert (s.partition.start_offset, s.partition.end_offset, s.partition.next_fetch_offset) == (15, 15, 15)


def test_acquired_records_of_a_persisted_state_are_available() -> None:
    assert scene(0, (0, 4, ACQUIRED, 1)).states() == [(0, 4, AVAILABLE, 1)]


def test_what_was_in_flight_is_fetched_again() -> None:
    """The persister has no record of acquisitions without an acknowledgement."""
    s = scene(10, (15, 19, ACKNOWLEDGED, 1), (25, 29, ACKNOWLEDGED, 1))
    assert (s.partition.start_offset, s.partition.end_offset) == (10, 29)
    assert s.partition.next_fetch_offset == 10
    assert s.fetch("a", (10, 14), (15, 19), (20, 29)) == [(10, 14, 1), (20, 24, 1)]
    assert s.partition.next_fetch_offset == 30
    s.done("a", (10, 14, ACCEPT))
    assert s.partition.start_offset == 20
    s.done("a", (20, 24, ACCEPT))
    assert s.partition.start_offset == 30


def test_a_gap_is_fetched_up_to_the_maximum_of_records() -> None:
    s = scene(10, (30, 34, ACKNOWLEDGED, 1))
    assert s.fetch("a", (10, 14), (15, 19), (20, 34), max_records=7) == [(10, 19, 1)]
    assert s.partition.next_fetch_offset == 20
    assert s.fetch("a", (20, 34), (35, 39), max_records=7, exactly=True) == [(20, 26, 1)]
    assert s.partition.next_fetch_offset == 27
    assert s.fetch("a", (20, 34), (35, 39)) == [(27, 29, 1), (35, 39, 1)]


def test_a_gap_without_records_is_passed() -> None:
    s = scene(10, (20, 24, ACKNOWLEDGED, 1))
    assert s.partition.start_offset == 10
    assert s.fetch("a", (20, 24), (25, 29)) == [(25, 29, 1)]
    assert s.partition.start_offset == 25


def test_a_gap_is_split_by_the_batch_size() -> None:
    s = scene(10, (20, 24, ACKNOWLEDGED, 1))
    assert s.fetch("a", (10, 13), (14, 16), (17, 24), batch_size=4) == [(10, 13, 1), (14, 19, 1)]


@pytest.mark.parametrize(
    "batches",
    [
        [(5, 9, AVAILABLE, 1)],
        [(10, 14, AVAILABLE, 1), (14, 19, AVAILABLE, 1)],
        [(15, 19, AVAILABLE, 1), (10, 14, AVAILABLE, 1)],
        [(15, 14, AVAILABLE, 1)],
    ],
)
def test_a_persisted_state_that_makes_no_sense_is_refused(batches: list[tuple[int, int, RecordState, int]]) -> None:
    partition = SharePartition(3, ShareLimits())
    with pytest.raises(KafkaError) as refused:
        partition.initialize(PersistedState(10, 7, [StateBatch(*it) for it in batches]))
    assert refused.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert partition.status is Status.FAILED
    assert not partition.can_acquire()


def test_the_log_begins_later() -> None:
    s = scene()
    s.fetch("a", (0, 9), (10, 19), batch_size=10)
    s.done("a", (10, 13, ACCEPT))
    assert s.partition.delivery_complete_count == 4
    s.follow(s.partition.move_start_offset(8))
    assert s.states() == [(8, 9, ACQUIRED, 1), (10, 13, ACKNOWLEDGED, 1), (14, 19, ACQUIRED, 1)]
    assert (s.partition.start_offset, s.partition.delivery_complete_count) == (8, 4)


@pytest.mark.parametrize("log_start", [10, 12, 14])
def test_the_log_begins_at_records_that_are_done(log_start: int) -> None:
    s = scene()
    s.fetch("a", (0, 9), (10, 19), batch_size=10)
    s.done("a", (10, 13, ACCEPT))
    s.follow(s.partition.move_start_offset(log_start))
    assert s.states() == [(14, 19, ACQUIRED, 1)]
    assert (s.partition.start_offset, s.partition.delivery_complete_count) == (14, 0)


def test_the_start_offset_is_persisted_with_the_next_write() -> None:
    s = scene()
    s.fetch("a", (0, 9))
    s.follow(s.partition.move_start_offset(5))
    s.acknowledge("a", (0, 9, ACCEPT))
    write = s.answer()
    assert (write.start_offset, write.batches) == (5, [StateBatch(5, 9, ACKNOWLEDGED, 1)])


def test_the_start_offset_never_goes_back() -> None:
    s = scene(10)
    assert s.partition.move_start_offset(5) == []
    assert s.partition.start_offset == 10


def test_the_log_begins_after_everything_in_flight() -> None:
    s = scene()
    s.fetch("a", (0, 9))
    s.acknowledge("a", (0, 4, ACCEPT))
    s.follow(s.partition.move_start_offset(20))
    assert (s.partition.start_offset, s.partition.end_offset, s.partition.next_fetch_offset) == (20, 20, 20)
    assert s.partition._locks == {}
    s.answer(ErrorCode.UNKNOWN_SERVER_ERROR)
    assert s.states() == []
    assert s.fetch("a", (20, 24)) == [(20, 24, 1)]


def test_locks_of_what_the_log_has_lost_end() -> None:
    s = scene()
    s.fetch("a", (0, 9))
    s.follow(s.partition.move_start_offset(5))
    s.wait(s.partition.limits.lock_duration_ms)
    assert s.answer().batches == [StateBatch(5, 9, AVAILABLE, 1)]


def test_a_released_batch_of_which_the_log_lost_a_part_is_acquired_from_there() -> None:
    s = scene()
    s.fetch("a", (0, 9))
    s.done("a", (0, 9, RELEASE))
    s.follow(s.partition.move_start_offset(5))
    assert s.partition.next_fetch_offset == 5
    assert s.fetch("b", (0, 9)) == [(5, 9, 2)]


def test_a_fetch_hint_is_kept_for_its_offset() -> None:
    s = scene()
    s.partition.fetch_hint = FetchHint(0, "here")
    assert s.partition.fetch_hint.offset == s.partition.next_fetch_offset
