"""Records rejected, or delivered too often, go to the dead-letter topic before they are archived (KIP-1191)."""

from __future__ import annotations

from kwire_protocol.errors import ErrorCode

from kwire.share.leader.effects import DeadLetter, StateBatch
from kwire.share.leader.states import ACQUIRED, ARCHIVED, ARCHIVING, AVAILABLE, Cause, ShareLimits
from testkit.share.leader.scene import ACCEPT, GAP, REJECT, RELEASE, scene

LIMITS = ShareLimits(delivery_count_limit=2, lock_duration_ms=100, has_dead_letters=True)


def test_a_rejected_record_is_archived_when_it_was_copied() -> None:
    s = scene(limits=LIMITS)
    s.fetch("a", (0, 4))
    s.acknowledge("a", (0, 4, REJECT))
    assert s.letters == []
    assert s.answer().batches == [StateBatch(0, 4, ARCHIVING, 1)]
    assert s.answers == [ErrorCode.NONE]
    assert s.letters == [DeadLetter(0, 4, 1, Cause.REJECTED)]
    assert (s.partition.start_offset, s.partition.delivery_complete_count) == (0, 0)
    s.follow(s.partition.dead_lettered(s.letters.pop()))
    assert s.partition.delivery_complete_count == 5
    assert s.answer().batches == [StateBatch(0, 4, ARCHIVED, 1)]
    assert s.partition.start_offset == 5


def test_a_rejection_that_is_not_written_copies_nothing() -> None:
    s = scene(limits=LIMITS)
    s.fetch("a", (0, 4))
    s.acknowledge("a", (0, 4, REJECT))
    s.answer(ErrorCode.UNKNOWN_SERVER_ERROR)
    assert s.letters == []
    assert s.states() == [(0, 4, ACQUIRED, 1)]


def test_too_many_deliveries_are_copied() -> None:
    s = scene(0, (0, 4, AVAILABLE, 1), limits=LIMITS)
    s.fetch("a", (0, 4))
    s.acknowledge("a", (0, 1, RELEASE), (2, 2, REJECT))
    s.answer()
    assert s.letters == [DeadLetter(0, 1, 2, Cause.DELIVERY_COUNT), DeadLetter(2, 2, 2, Cause.REJECTED)]
    s.wait(100)
    s.answer()
    assert s.letters[2:] == [DeadLetter(3, 4, 2, Cause.DELIVERY_COUNT)]


def test_a_time_out_that_cannot_be_written_is_still_copied() -> None:
    s = scene(0, (0, 4, AVAILABLE, 1), limits=LIMITS)
    s.fetch("a", (0, 4))
    s.wait(100)
    assert s.letters == []
    s.answer(ErrorCode.UNKNOWN_SERVER_ERROR)
    assert s.letters == [DeadLetter(0, 4, 2, Cause.DELIVERY_COUNT)]


def test_a_gap_is_not_copied() -> None:
    s = scene(limits=LIMITS)
    s.fetch("a", (0, 4))
    s.done("a", (0, 4, GAP))
    assert s.letters == []
    assert s.partition.start_offset == 5


def test_a_dead_letter_that_failed_is_handed_out_again() -> None:
    s = scene(limits=LIMITS)
    s.fetch("a", (0, 4))
    s.done("a", (0, 4, REJECT))
    (letter,) = s.letters
    s.letters.clear()
    s.follow(s.partition.dead_letter_failed(letter, retry_at_ms=50))
    assert s.partition.next_deadline_ms() == 50
    s.wait(50)
    assert s.letters == [letter]


def test_what_the_log_has_lost_is_not_copied_again() -> None:
    s = scene(limits=LIMITS)
    s.fetch("a", (0, 4))
    s.done("a", (0, 4, REJECT))
    (letter,) = s.letters
    s.letters.clear()
    s.follow(s.partition.dead_letter_failed(letter, retry_at_ms=50))
    s.follow(s.partition.move_start_offset(3))
    s.wait(50)
    assert s.letters == [DeadLetter(3, 4, 1, Cause.REJECTED)]
    s.follow(s.partition.move_start_offset(5))
    s.follow(s.partition.dead_lettered(letter))
    assert s.writes == []


def test_what_is_being_copied_is_nobodys() -> None:
    s = scene(limits=LIMITS)
    s.fetch("a", (0, 4))
    s.done("a", (0, 4, REJECT))
    assert s.partition.next_fetch_offset == 5
    assert s.fetch("b", (0, 4), at=0) == []
    s.acknowledge("a", (0, 4, ACCEPT))
    assert s.answers == [ErrorCode.INVALID_RECORD_STATE]


def test_after_a_restart_it_is_copied_again() -> None:
    s = scene(0, (0, 4, ARCHIVING, 1), (5, 5, ARCHIVING, 2), limits=LIMITS)
    assert s.letters == [
        DeadLetter(0, 4, 1, Cause.REJECTED, is_doubtful=True),
        DeadLetter(5, 5, 2, Cause.DELIVERY_COUNT, is_doubtful=True),
    ]
    assert s.partition.start_offset == 0
    for letter in s.letters:
        s.follow(s.partition.dead_lettered(letter))
    s.answer()
    assert s.partition.start_offset == 6


def test_a_group_that_has_no_topic_any_more_copies_nothing() -> None:
    s = scene(0, (0, 4, ARCHIVING, 1))
    assert s.letters == []
    assert s.partition.start_offset == 5


def test_a_copy_that_cannot_be_written_down_still_moves_the_start_offset() -> None:
    s = scene(limits=LIMITS)
    s.fetch("a", (0, 4))
    s.done("a", (0, 4, REJECT))
    s.follow(s.partition.dead_lettered(s.letters.pop()))
    s.answer(ErrorCode.UNKNOWN_SERVER_ERROR)
    assert s.partition.start_offset == 5
