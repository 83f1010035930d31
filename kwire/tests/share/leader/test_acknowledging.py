"""Acknowledgements by members of the records that they hold, and what is written of them."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import pytest
from kwire_protocol.errors import ErrorCode

from kwire.share.leader.acknowledgements import AcknowledgementBatch, check
from kwire.share.leader.effects import StateBatch
from kwire.share.leader.share_partition import Status
from kwire.share.leader.states import ACKNOWLEDGED, ACQUIRED, ARCHIVED, AVAILABLE, ShareLimits
from testkit.share.leader.scene import ACCEPT, GAP, REJECT, RELEASE, RENEW, scene


def test_an_accepted_batch_is_written_and_the_start_offset_moves() -> None:
    s = scene()
    s.fetch("a", (0, 9))
    s.acknowledge("a", (0, 9, ACCEPT))
    (write,) = s.writes
    assert write.batches == [StateBatch(0, 9, ACKNOWLEDGED, 1)]
    assert (write.state_epoch, write.leader_epoch, write.start_offset, write.delivery_complete_count) == (7, 3, 0, 10)
    assert s.answers == []
    assert s.partition.start_offset == 0
    s.answer()
    assert s.answers == [ErrorCode.NONE]
    assert (s.partition.start_offset, s.partition.end_offset, s.partition.next_fetch_offset) == (10, 10, 10)
    assert s.partition.delivery_complete_count == 0
    assert s.states() == []
    assert s.wakes == 1


def test_one_type_for_each_offset() -> None:
    s = scene()
    s.fetch("a", (0, 5))
    s.acknowledge("a", (0, 5, [ACCEPT, ACCEPT, RELEASE, REJECT, GAP, ACCEPT]))
    assert s.answer().batches == [
        StateBatch(0, 1, ACKNOWLEDGED, 1),
        StateBatch(2, 2, AVAILABLE, 1),
        StateBatch(3, 4, ARCHIVED, 1),
        StateBatch(5, 5, ACKNOWLEDGED, 1),
    ]
    assert s.partition.start_offset == 2
    assert s.partition.delivery_complete_count == 3
    assert s.partition.next_fetch_offset == 2


def test_a_batch_for_each_record_is_one_run_when_all_are_written() -> None:
    s = scene()
    s.fetch("a", (0, 499))
    for offset in range(1, 500):
        s.acknowledge("a", (offset, offset, ACCEPT))
    while s.writes:
        s.answer(at=-1)
    assert s.states() == [(0, 0, ACQUIRED, 1), (1, 499, ACKNOWLEDGED, 1)]


def test_neighbours_of_one_request_are_written_together() -> None:
    s = scene()
    s.fetch("a", (0, 499))
    s.acknowledge("a", *[(offset, offset, ACCEPT) for offset in range(500)])
    assert s.answer().batches == [StateBatch(0, 499, ACKNOWLEDGED, 1)]


def test_an_acknowledgement_may_span_batches_in_flight() -> None:
    s = scene()
    s.fetch("a", (0, 4))
    s.fetch("a", (5, 9))
    s.acknowledge("a", (3, 6, ACCEPT))
    assert s.answer().batches == [StateBatch(3, 6, ACKNOWLEDGED, 1)]
    assert s.partition.start_offset == 0


def test_an_acknowledgement_may_span_a_hole_of_the_log() -> None:
    s = scene()
    s.fetch("a", (0, 4))
    s.fetch("a", (10, 14))
    s.acknowledge("a", (0, 14, ACCEPT))
    assert s.answer().batches == [StateBatch(0, 4, ACKNOWLEDGED, 1), StateBatch(10, 14, ACKNOWLEDGED, 1)]


def test_while_it_is_written_nobody_else_may_have_it() -> None:
    s = scene()
    s.fetch("a", (0, 9))
    s.acknowledge("a", (0, 9, RELEASE))
    assert s.partition.next_fetch_offset == 10
    assert s.fetch("b", (0, 9), at=0) == []
    s.acknowledge("a", (0, 9, ACCEPT))
    assert s.answers == [ErrorCode.INVALID_RECORD_STATE]
    s.answer()
    assert s.fetch("b", (0, 9)) == [(0, 9, 2)]


def test_a_write_that_fails_leaves_the_records_with_their_member() -> None:
    s = scene()
    s.fetch("a", (0, 9))
    s.acknowledge("a", (2, 4, ACCEPT), (5, 5, RELEASE))
    s.answer(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    assert s.answers == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert s.states() == [(0, 9, ACQUIRED, 1)]
    assert s.partition.delivery_complete_count == 0
    assert s.partition.status is Status.ACTIVE
    s.done("a", (0, 9, ACCEPT))
    assert s.partition.start_offset == 10


def test_answers_may_come_in_any_order() -> None:
    s = scene()
    s.fetch("a", (0, 9))
    s.acknowledge("a", (0, 4, ACCEPT))
    s.acknowledge("a", (5, 9, ACCEPT))
    s.answer(at=1)
    assert s.partition.start_offset == 0
    s.answer()
    assert s.partition.start_offset == 10


@pytest.mark.parametrize(
    "refused",
    [
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.FENCED_STATE_EPOCH,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ],
)
def test_a_write_that_is_refused_for_good_ends_the_share_partition(refused: ErrorCode) -> None:
    s = scene()
    s.fetch("a", (0, 9))
    s.acknowledge("a", (0, 4, ACCEPT))
    s.acknowledge("a", (5, 9, ACCEPT))
    s.answer(refused)
    error = ErrorCode.NOT_LEADER_OR_FOLLOWER if "FENCED" in refused.name else refused
    assert s.partition.status is Status.FENCED
    assert s.ended is error
    assert s.answers == [error]
    s.answer(refused)
    s.acknowledge("a", (0, 9, ACCEPT))
    s.release("a")
    assert s.answers == [error] * 4
    assert s.fetch("a", (10, 19)) == []
    assert not s.partition.can_acquire()
    assert s.partition.next_deadline_ms() is None
    s.wait(10**9)
    assert s.writes == []


@pytest.mark.parametrize(
    ("batches", "may_renew"),
    [
        ([(5, 4, [ACCEPT])], True),
        ([(0, 4, [])], True),
        ([(0, 4, [ACCEPT] * 4)], True),
        ([(0, 4, [ACCEPT] * 6)], True),
        ([(0, 4, [5])], True),
        ([(0, 4, [-1])], True),
        ([(0, 4, [RENEW])], False),
        ([(0, 1, [ACCEPT, RENEW])], False),
        ([(5, 9, [ACCEPT]), (0, 4, [ACCEPT])], True),
        ([(0, 5, [ACCEPT]), (4, 9, [ACCEPT])], True),
        ([(-2, 4, [ACCEPT])], True),
    ],
)
def test_batches_that_make_no_sense_are_refused(
    batches: list[tuple[int, int, Sequence[int]]], *, may_renew: bool
) -> None:
    assert check([AcknowledgementBatch(*it) for it in batches], may_renew=may_renew) is ErrorCode.INVALID_REQUEST
    s = scene()
    s.fetch("a", (0, 9))
    s.acknowledge("a", *batches, may_renew=may_renew)
    assert s.answers == [ErrorCode.INVALID_REQUEST]
    assert s.states() == [(0, 9, ACQUIRED, 1)]


def test_two_batches_may_not_end_one_record() -> None:
    s = scene()
    s.fetch("a", (0, 9))
    s.acknowledge("a", (0, 5, ACCEPT), (5, 9, ACCEPT))
    assert s.answers == [ErrorCode.INVALID_RECORD_STATE]
    s.acknowledge("a", (0, 5, RENEW), (5, 9, ACCEPT))
    assert s.answer().batches == [StateBatch(5, 9, ACKNOWLEDGED, 1)]


@pytest.mark.parametrize(
    ("first", "last", "error"),
    [
        (10, 25, ErrorCode.INVALID_REQUEST),  # ends after everything
        (25, 29, ErrorCode.INVALID_REQUEST),  # after everything
        (10, 15, ErrorCode.INVALID_RECORD_STATE),  # partly another member's
    ],
)
def test_offsets_that_the_member_does_not_hold_are_refused(first: int, last: int, error: ErrorCode) -> None:
    s = scene()
    s.fetch("a", (10, 14))
    s.fetch("b", (15, 19))
    s.acknowledge("a", (first, last, ACCEPT))
    assert s.answers == [error]
    assert s.writes == []
    assert s.states() == [(10, 14, ACQUIRED, 1), (15, 19, ACQUIRED, 1)]


def test_all_batches_take_effect_or_none() -> None:
    s = scene()
    s.fetch("a", (0, 4))
    s.fetch("b", (5, 9))
    s.acknowledge("a", (0, 4, ACCEPT), (5, 9, ACCEPT))
    s.acknowledge("a", (0, 4, RENEW), (5, 9, ACCEPT))
    assert s.answers == [ErrorCode.INVALID_RECORD_STATE] * 2
    s.done("a", (0, 4, ACCEPT))


def test_what_is_done_cannot_be_acknowledged_again() -> None:
    s = scene()
    s.fetch("a", (0, 9))
    s.done("a", (5, 9, ACCEPT))
    s.acknowledge("a", (5, 9, ACCEPT))
    assert s.answers == [ErrorCode.INVALID_RECORD_STATE]


def test_what_is_before_the_start_offset_may_be_acknowledged_in_vain() -> None:
    s = scene()
    s.fetch("a", (0, 9), (10, 19), batch_size=10)
    s.follow(s.partition.move_start_offset(15))
    s.acknowledge("a", (0, 9, ACCEPT))
    assert s.answers.pop() is ErrorCode.NONE
    s.acknowledge("a", (5, 19, ACCEPT))
    assert s.answer().batches == [StateBatch(15, 19, ACKNOWLEDGED, 1)]


def test_a_release_after_the_last_delivery_archives() -> None:
    s = scene(0, (0, 4, AVAILABLE, 1), limits=ShareLimits(delivery_count_limit=2))
    s.fetch("a", (0, 4))
    s.acknowledge("a", (0, 1, RELEASE))
    assert s.answer().batches == [StateBatch(0, 1, ARCHIVED, 2)]
    assert s.partition.start_offset == 2


def test_a_lowered_delivery_limit_counts_at_the_next_release() -> None:
    s = scene()
    s.fetch("a", (0, 4))
    s.partition.limits = attrs.evolve(s.partition.limits, delivery_count_limit=1)
    s.acknowledge("a", (0, 4, RELEASE))
    assert s.answer().batches == [StateBatch(0, 4, ARCHIVED, 1)]


def test_a_member_that_leaves_gives_everything_back() -> None:
    s = scene()
    s.fetch("a", (0, 4))
    s.fetch("b", (5, 9))
    s.fetch("a", (10, 14))
    s.done("a", (1, 2, ACCEPT))
    s.release("a")
    assert s.answer().batches == [
        StateBatch(0, 0, AVAILABLE, 1),
        StateBatch(3, 4, AVAILABLE, 1),
        StateBatch(10, 14, AVAILABLE, 1),
    ]
    assert s.answers == [ErrorCode.NONE]
    assert s.fetch("c", (0, 4), (5, 9), (10, 14)) == [(0, 0, 2), (3, 4, 2), (10, 14, 2)]


def test_a_member_without_records_leaves_at_once() -> None:
    s = scene()
    s.release("a")
    assert s.answers == [ErrorCode.NONE]
    assert s.writes == []


def test_what_a_leaving_member_has_acknowledged_is_left_to_its_write() -> None:
    s = scene()
    s.fetch("a", (0, 4))
    s.acknowledge("a", (0, 1, ACCEPT))
    s.release("a")
    assert [it.batches for it in s.writes] == [[StateBatch(0, 1, ACKNOWLEDGED, 1)], [StateBatch(2, 4, AVAILABLE, 1)]]
    s.answer(ErrorCode.UNKNOWN_SERVER_ERROR)
    s.answer()
    assert s.states() == [(0, 1, ACQUIRED, 1), (2, 4, AVAILABLE, 1)]


def test_the_start_offset_does_not_pass_what_is_being_written() -> None:
    s = scene()
    s.fetch("a", (0, 9))
    s.acknowledge("a", (0, 4, ACCEPT))
    s.acknowledge("a", (5, 9, ACCEPT))
    s.answer(at=1)
    assert (s.partition.start_offset, s.partition.delivery_complete_count) == (0, 10)
    s.answer(ErrorCode.UNKNOWN_SERVER_ERROR)
    assert (s.partition.start_offset, s.partition.delivery_complete_count) == (0, 5)
