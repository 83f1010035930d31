"""Time-outs, renewals and delays."""

from __future__ import annotations

import attrs
import pytest
from kwire_protocol.errors import ErrorCode

from kwire.share.leader.effects import StateBatch
from kwire.share.leader.states import ACKNOWLEDGED, ACQUIRED, ARCHIVED, AVAILABLE, ShareLimits
from testkit.share.leader.scene import ACCEPT, RELEASE, RENEW, Scene, scene

SHORT = ShareLimits(lock_duration_ms=100)
SLOW = ShareLimits(lock_duration_ms=100, release_delay_ms=10, max_release_delay_ms=35)


def test_a_lock_ends_at_its_deadline() -> None:
    s = scene(limits=SHORT)
    s.now_ms = 1000
    s.fetch("a", (0, 9))
    assert s.partition.next_deadline_ms() == 1100
    s.wait(1099)
    assert s.states() == [(0, 9, ACQUIRED, 1)]
    s.wait(1100)
    assert s.states() == [(0, 9, AVAILABLE, 1)]
    assert s.wakes == 1
    assert s.fetch("b", (0, 9)) == [(0, 9, 2)]


def test_a_time_out_is_written_and_takes_effect_in_any_case() -> None:
    s = scene(limits=SHORT)
    s.fetch("a", (0, 9))
    s.wait(100)
    assert s.answer(ErrorCode.UNKNOWN_SERVER_ERROR).batches == [StateBatch(0, 9, AVAILABLE, 1)]
    assert s.states() == [(0, 9, AVAILABLE, 1)]
    assert s.answers == []


def test_what_timed_out_cannot_be_acknowledged() -> None:
    s = scene(limits=SHORT)
    s.fetch("a", (0, 9))
    s.wait(100)
    s.acknowledge("a", (0, 9, ACCEPT))
    assert s.answers == [ErrorCode.INVALID_RECORD_STATE]


def test_only_what_is_still_held_times_out() -> None:
    s = scene(limits=SHORT)
    s.fetch("a", (0, 9))
    s.done("a", (2, 3, ACCEPT))
    s.wait(100)
    assert s.states() == [(0, 1, AVAILABLE, 1), (2, 3, ACKNOWLEDGED, 1), (4, 9, AVAILABLE, 1)]


def test_locks_that_end_together_are_one_write() -> None:
    s = scene(limits=SHORT)
    s.fetch("a", (0, 4))
    s.fetch("b", (5, 9))
    s.wait(100)
    assert [it.batches for it in s.writes] == [[StateBatch(0, 9, AVAILABLE, 1)]]


def test_after_the_last_delivery_a_time_out_archives() -> None:
    s = scene(0, (0, 4, AVAILABLE, 1), limits=attrs.evolve(SHORT, delivery_count_limit=2))
    s.fetch("a", (0, 4))
    s.wait(100)
    assert s.answer().batches == [StateBatch(0, 4, ARCHIVED, 2)]
    assert s.partition.start_offset == 5


def test_a_renewed_lock_lasts_its_full_time_again() -> None:
    s = scene(limits=SHORT)
    s.fetch("a", (0, 9))
    s.now_ms = 60
    s.acknowledge("a", (0, 4, RENEW))
    assert s.answers == [ErrorCode.NONE]
    assert s.writes == []
    s.wait(100)
    assert s.states() == [(0, 4, ACQUIRED, 1), (5, 9, AVAILABLE, 1)]
    s.wait(160)
    assert s.states() == [(0, 9, AVAILABLE, 1)]


def test_a_batch_may_renew_some_and_end_others() -> None:
    s = scene(limits=SHORT)
    s.fetch("a", (0, 3))
    s.acknowledge("a", (0, 3, [ACCEPT, RENEW, RENEW, RELEASE]))
    assert s.answer().batches == [StateBatch(0, 0, ACKNOWLEDGED, 1), StateBatch(3, 3, AVAILABLE, 1)]
    assert s.states() == [(1, 2, ACQUIRED, 1), (3, 3, AVAILABLE, 1)]


def test_a_new_duration_counts_for_new_locks() -> None:
    s = scene(limits=SHORT)
    s.fetch("a", (0, 4))
    s.partition.limits = attrs.evolve(SHORT, lock_duration_ms=10)
    s.fetch("b", (5, 9))
    s.wait(10)
    assert s.states() == [(0, 4, ACQUIRED, 1), (5, 9, AVAILABLE, 1)]


@pytest.mark.parametrize("has_expired_first", [True, False])
def test_a_failed_write_of_a_lock_that_timed_out_makes_the_records_available(*, has_expired_first: bool) -> None:
    s = scene(limits=SHORT)
    s.fetch("a", (0, 9))
    s.acknowledge("a", (0, 4, ACCEPT))
    if has_expired_first:
        s.wait(150)
        assert s.states() == [(0, 4, ACKNOWLEDGED, 1), (5, 9, AVAILABLE, 1)]
    s.now_ms = 150
    s.answer(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert s.writes[-1].batches == [StateBatch(0, 4, AVAILABLE, 1)]
    assert s.fetch("b", (0, 9))[0] == (0, 4 if not has_expired_first else 9, 2)


def test_a_write_that_succeeds_after_the_time_out_counts() -> None:
    s = scene(limits=SHORT)
    s.fetch("a", (0, 9))
    s.acknowledge("a", (0, 9, ACCEPT))
    s.wait(150)
    s.answer()
    assert s.partition.start_offset == 10


def test_without_locks_nothing_is_due() -> None:
    s = scene(limits=SHORT)
    assert s.partition.next_deadline_ms() is None
    s.fetch("a", (0, 9))
    s.done("a", (0, 9, ACCEPT))
    s.wait(100)
    assert s.partition.next_deadline_ms() is None
    assert s.writes == []


def test_many_short_locks_leave_nothing_behind() -> None:
    s = scene()
    for offset in range(1000):
        s.fetch("a", (offset, offset))
        s.done("a", (offset, offset, ACCEPT))
    assert len(s.partition._deadlines) < 200
    assert s.partition._locks == {}


def released_once(*, how: str) -> Scene:
    s = scene(limits=SLOW)
    s.fetch("a", (0, 9))
    if how == "release":
        s.done("a", (0, 9, RELEASE))
    elif how == "leave":
        s.release("a")
        s.answer()
    else:
        s.wait(100)
    return s


@pytest.mark.parametrize("how", ["release", "leave", "time-out"])
def test_what_comes_back_is_kept_for_a_while(how: str) -> None:
    s = released_once(how=how)
    assert s.partition.next_fetch_offset == 10
    assert s.fetch("b", (0, 9), at=0) == []
    s.wait(s.now_ms + 9)
    assert s.partition.next_fetch_offset == 10
    wakes = s.wakes
    assert s.partition.next_deadline_ms() == s.now_ms + 1
    s.wait(s.now_ms + 1)
    assert s.wakes == wakes + 1
    assert s.fetch("b", (0, 9)) == [(0, 9, 2)]


def test_the_delay_doubles_with_each_delivery_up_to_its_maximum() -> None:
    assert [SLOW.release_delay(count) for count in (1, 2, 3, 4, 100)] == [10, 20, 35, 35, 35]
    assert ShareLimits().release_delay(3) == 0
    assert ShareLimits(release_delay_ms=10).release_delay(3) == 10


def test_a_delay_starts_when_the_release_is_written() -> None:
    s = scene(limits=SLOW)
    s.fetch("a", (0, 9))
    s.acknowledge("a", (0, 9, RELEASE))
    s.now_ms = 50
    s.answer()
    assert s.partition.next_deadline_ms() == 60


def test_a_full_share_partition_waits_for_what_is_kept() -> None:
    s = scene(limits=attrs.evolve(SLOW, max_in_flight_records=10))
    s.fetch("a", (0, 9))
    s.done("a", (0, 9, RELEASE))
    assert not s.partition.can_acquire()
    s.wait(10)
    assert s.partition.can_acquire()
