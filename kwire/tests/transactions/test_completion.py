"""A transaction without its producer: markers, retries, restarts, time-outs, expiry."""

from __future__ import annotations

import logging

import pytest
from kwire_protocol.errors import ErrorCode

from kwire.transactions.config import TransactionConfig
from kwire.transactions.shard import MAX_RECORDS_PER_CLEANUP_BATCH
from kwire.transactions.transaction import NO_TIMEOUT_MS
from testkit.scenes.transactions_shard import FIRST_PRODUCER_ID as P
from testkit.scenes.transactions_shard import ID, T0, T1, U0, ShardDriver

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


# Markers


def test_a_transaction_is_prepared_marked_and_completed_in_this_order() -> None:
    driver = ShardDriver()
    producer = driver.begin(T0, T1)
    driver.done.clear()
    driver.commit(producer)
    assert driver.done == ["append", "markers", "append", "reply"]
    assert [driver.stored(back=back).state.value for back in (1, 0)] == ["PrepareCommit", "CompleteCommit"]
    assert driver.stored(back=1).partitions == {T0, T1}
    assert driver.stored().partitions == frozenset()


def test_the_client_is_answered_while_markers_are_missing() -> None:
    driver = ShardDriver()
    producer = driver.begin(T0)
    driver.unreachable.add(T0)
    assert driver.commit(producer).error is ErrorCode.NONE
    assert driver.state() == "PrepareCommit"


def test_missing_markers_are_sent_again_and_those_alone() -> None:
    driver = ShardDriver()
    producer = driver.begin(T0, T1, U0)
    driver.unreachable |= {T1, U0}
    driver.commit(producer)
    driver.advance(99)
    assert len(driver.sent_markers) == 1
    driver.unreachable.remove(T1)
    driver.advance(1)
    assert [set(markers.partitions) for markers in driver.sent_markers] == [{T0, T1, U0}, {T1, U0}]
    assert [topic.partitions for topic in driver.described().topics] == [[0]]
    driver.unreachable.clear()
    driver.advance(200)
    assert driver.sent_markers[-1].partitions == {U0}
    assert driver.markers(T0) == driver.markers(T1) == driver.markers(U0) == [(P, 1, True)]
    assert driver.state() == "CompleteCommit"
    driver.advance(60_000)
    assert len(driver.sent_markers) == 3


def test_asking_becomes_rarer_but_never_ends() -> None:
    driver = ShardDriver()
    producer = driver.begin(T0)
    driver.unreachable.add(T0)
    driver.commit(producer)
    times = []
    for _ in range(9):
        before = len(driver.sent_markers)
        while len(driver.sent_markers) == before:
            deadline_ms = driver.shard.next_deadline_ms()
            assert deadline_ms is not None
            driver.advance_to(deadline_ms)
        times.append(driver.now_ms)
    assert times == [100, 300, 700, 1_500, 3_100, 6_300, 11_300, 16_300, 21_300]


def test_the_next_transaction_sends_its_markers_as_often_as_the_first() -> None:
    driver = ShardDriver()
    producer = driver.begin(T0)
    for _ in range(2):
        driver.unreachable.add(T0)
        answer = driver.commit(producer)
        sent, begun_ms = len(driver.sent_markers), driver.now_ms
        driver.advance(100)
        assert len(driver.sent_markers) == sent + 1
        driver.unreachable.clear()
        driver.advance_to(begun_ms + 5_000)
        producer = (answer.producer_id, answer.epoch)
        driver.add(producer, T0)


def test_a_partition_that_is_no_more_counts_as_marked() -> None:
    driver = ShardDriver()
    producer = driver.begin(T0, T1)
    driver.unreachable |= {T0, T1}
    driver.abort(producer)
    (markers,) = driver.sent_markers
    driver.run(driver.written([T0], markers=markers))
    assert driver.state() == "PrepareAbort"
    driver.run(driver.written([T1], markers=markers))
    assert driver.state() == "CompleteAbort"


def test_word_of_markers_that_nobody_waits_for_changes_nothing() -> None:
    driver = ShardDriver()
    first = driver.begin(T0)
    driver.commit(first)
    (markers,) = driver.sent_markers
    driver.add((P, 1), T0, T1)
    driver.run(driver.written([T0], markers=markers))
    assert driver.verify((P, 1), T0) == [ErrorCode.NONE]
    driver.unreachable |= {T0, T1}
    driver.commit((P, 1))
    driver.run(driver.written([T0, T1], markers=markers))
    assert driver.state() == "PrepareCommit"
    records = len(driver.log)
    driver.run(driver.written([U0], markers=driver.sent_markers[-1]))
    driver.run(driver.shard.markers_written("nobody", P, 2, [T0], now=driver.now))
    assert len(driver.log) == records


def test_a_complete_record_that_is_not_in_is_tried_again() -> None:
    driver = ShardDriver()
    producer = driver.begin(T0)
    driver.unreachable.add(T0)
    answer = driver.commit(producer)
    driver.append_error = ErrorCode.KAFKA_STORAGE_ERROR
    driver.unreachable.clear()
    driver.advance(1_000)
    assert driver.state() == "PrepareCommit"
    assert driver.markers(T0) == [(P, 1, True)]
    assert answer.error is ErrorCode.NONE
    driver.append_error = ErrorCode.NONE
    driver.advance(5_000)
    assert driver.state() == "CompleteCommit"
    assert driver.markers(T0) == [(P, 1, True)]


def test_a_transaction_that_cannot_be_aborted_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    driver = ShardDriver()
    driver.begin(T0)
    driver.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    with caplog.at_level(logging.INFO):
        driver.advance(120_000)
        driver.append_error = ErrorCode.NONE
        driver.advance(5_000)
    assert driver.state() == "CompleteAbort"
    assert 5 < driver.done.count("append") < 30
    lines = [record.getMessage() for record in caplog.records]
    assert [line.partition(" ms ")[2] or line.partition(" is tried ")[2] for line in lines] == [
        "and is aborted",
        "again, with growing pauses",
    ]


# Restarts


@pytest.mark.parametrize("committed", [True, False])
def test_what_was_prepared_is_finished_after_a_crash(committed: bool) -> None:
    driver = ShardDriver()
    producer = driver.begin(T0, T1)
    driver.unreachable.add(T1)
    driver.end(producer, committed)
    driver.unreachable.clear()
    driver.restart()
    # The log does not record which of them was in: the marker comes twice, to the same end.
    assert driver.markers(T0) == [(P, 1, committed)] * 2
    assert driver.markers(T1) == [(P, 1, committed)]
    assert driver.state() == ("CompleteCommit" if committed else "CompleteAbort")


def test_after_a_crash_markers_are_sent_until_they_are_in() -> None:
    driver = ShardDriver()
    producer = driver.begin(T0)
    driver.unreachable.add(T0)
    driver.commit(producer)
    driver.restart()
    driver.advance(1_000)
    assert driver.state() == "PrepareCommit"
    driver.unreachable.clear()
    driver.advance(5_000)
    assert driver.state() == "CompleteCommit"


def test_a_prepared_transaction_without_partitions_is_completed_at_the_start() -> None:
    driver = ShardDriver()
    producer = driver.producer()
    driver.abort(producer)
    assert driver.stored(back=1).state.value == "PrepareAbort"
    del driver.log[-1]
    driver.restart()
    assert driver.state() == "CompleteAbort"


def test_an_open_transaction_stays_open_and_keeps_its_deadline() -> None:
    driver = ShardDriver()
    producer = driver.begin(T0, timeout_ms=10_000)
    driver.advance(6_000)
    driver.restart()
    assert driver.add(producer, T1) is ErrorCode.NONE
    driver.advance(3_999)
    assert driver.state() == "Ongoing"
    driver.advance(1)
    assert driver.state() == "CompleteAbort"
    assert driver.markers(T0) == driver.markers(T1) == [(P, 1, False)]


# Time-outs


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_transaction_that_takes_too_long_is_aborted_and_its_producer_fenced(version: int) -> None:
    driver = ShardDriver(version=version)
    producer = driver.producer(timeout_ms=10_000)
    driver.advance(50_000)
    driver.add(producer, T0)
    driver.advance(9_999)
    assert driver.state() == "Ongoing"
    driver.advance(1)
    assert driver.state() == "CompleteAbort"
    assert driver.markers(T0) == [(P, 1, False)]
    assert driver.commit(producer).error is (ErrorCode.PRODUCER_FENCED if version < 2 else ErrorCode.INVALID_TXN_STATE)
    assert driver.add(producer, T0) is ErrorCode.PRODUCER_FENCED


def test_with_version_2_a_producer_that_was_timed_out_learns_of_it_by_its_abort() -> None:
    driver = ShardDriver()
    producer = driver.begin(T0)
    driver.advance(60_000)
    answer = driver.abort(producer)
    assert (answer.error, answer.producer_id, answer.epoch) == (ErrorCode.NONE, P, 1)


def test_further_partitions_do_not_move_the_deadline() -> None:
    driver = ShardDriver()
    producer = driver.begin(T0, timeout_ms=1_000)
    driver.advance(900)
    driver.add(producer, T1)
    driver.advance(100)
    assert driver.state() == "CompleteAbort"


@pytest.mark.parametrize("jump_ms", [HOUR_MS, -HOUR_MS])
def test_a_wall_clock_that_is_set_does_not_move_the_deadline(jump_ms: int) -> None:
    driver = ShardDriver()
    producer = driver.begin(T0)
    driver.advance(30_000)
    driver.wall_ahead_ms = jump_ms
    assert driver.add(producer, T1) is ErrorCode.NONE
    driver.advance(29_999)
    assert driver.state() == "Ongoing"
    driver.advance(1)
    assert driver.state() == "CompleteAbort"


def test_after_a_start_a_transaction_has_what_the_wall_clock_leaves_of_its_time_and_never_more_than_all() -> None:
    driver = ShardDriver()
    driver.begin(T0)
    driver.wall_ahead_ms = 20_000
    driver.restart()
    driver.advance(39_999)
    assert driver.state() == "Ongoing"
    driver.advance(1)
    assert driver.state() == "CompleteAbort"
    driver.begin(T0)
    driver.wall_ahead_ms = -HOUR_MS
    driver.restart()
    driver.advance(60_000)
    assert driver.state() == "CompleteAbort"


def test_an_ended_transaction_times_out_no_more() -> None:
    driver = ShardDriver()
    producer = driver.begin(T0)
    driver.commit(producer)
    driver.advance(HOUR_MS - 1)
    assert driver.state() == "CompleteCommit"


def test_a_transaction_of_a_two_phase_commit_has_no_deadline() -> None:
    driver = ShardDriver()
    driver.begin(T0)
    driver.rewrite(timeout_ms=NO_TIMEOUT_MS)
    driver.advance(2 * NO_TIMEOUT_MS)
    assert driver.state() == "Ongoing"


@pytest.mark.parametrize("version", [1, 2])
def test_an_abort_for_time_that_fails_is_tried_again_with_the_same_epoch(version: int) -> None:
    driver = ShardDriver(version=version)
    driver.begin(T0)
    driver.failing_appends = 3
    driver.advance(60_000)
    assert (driver.state(), driver.producer_of()) == ("Ongoing", (P, 0))
    driver.advance(699)
    assert driver.state() == "Ongoing"
    driver.advance(1)
    assert driver.state() == "CompleteAbort"
    assert driver.markers(T0) == [(P, 1, False)]


def test_an_abort_for_time_waits_for_a_producer_id() -> None:
    driver = ShardDriver()
    driver.begin(T0, epoch=32_766)
    driver.producer_id_error = ErrorCode.KAFKA_STORAGE_ERROR
    driver.advance(61_000)
    assert driver.state() == "Ongoing"
    driver.producer_id_error = ErrorCode.NONE
    driver.advance(5_000)
    assert driver.producer_of() == (P + 1, 0)


# Expiry


def test_an_id_without_use_is_forgotten() -> None:
    driver = ShardDriver()
    driver.producer()
    driver.advance(7 * DAY_MS - 1)
    assert driver.state() == "Empty"
    driver.advance(1)
    assert driver.state() == "TRANSACTIONAL_ID_NOT_FOUND"
    assert driver.log[-1] == (b"\0\0\0\x08payments", None)
    driver.restart()
    assert driver.state() == "TRANSACTIONAL_ID_NOT_FOUND"
    assert driver.init().producer_id == P + 1


def test_only_ids_without_a_transaction_are_forgotten() -> None:
    driver = ShardDriver(TransactionConfig(max_timeout_ms=NO_TIMEOUT_MS))
    for name in ("empty", "committed", "aborted", "open", "prepared"):
        producer = driver.producer(name, timeout_ms=NO_TIMEOUT_MS)
        if name != "empty":
            driver.add(producer, T1 if name == "prepared" else T0, transactional_id=name)
        if name == "prepared":
            driver.unreachable.add(T1)
        if name not in ("empty", "open"):
            driver.end(producer, name != "aborted", transactional_id=name)
    driver.advance(8 * DAY_MS)
    assert driver.listed() == {"open", "prepared"}


def test_use_of_an_id_puts_its_end_off() -> None:
    driver = ShardDriver()
    producer = driver.producer()
    driver.advance(6 * DAY_MS)
    driver.add(producer, T0)
    driver.commit(producer)
    driver.advance(6 * DAY_MS)
    assert driver.state() == "CompleteCommit"
    driver.advance(1 * DAY_MS)
    assert driver.state() == "TRANSACTIONAL_ID_NOT_FOUND"


def test_ids_expire_in_batches_and_those_of_a_batch_that_failed_later() -> None:
    driver = ShardDriver()
    count = 2 * MAX_RECORDS_PER_CLEANUP_BATCH + 1
    for number in range(count):
        driver.producer(f"id{number}")
    driver.done.clear()
    driver.advance_to(7 * DAY_MS - 1)
    driver.failing_appends = 1
    driver.advance(1)
    assert driver.done == ["append"] * 3
    assert len(driver.listed()) == MAX_RECORDS_PER_CLEANUP_BATCH
    driver.advance(HOUR_MS)
    assert driver.listed() == set()


# The end


def test_a_shard_that_is_unloaded_has_nothing_left_to_do() -> None:
    driver = ShardDriver()
    driver.begin(T0)
    other = driver.producer("other")
    driver.add(other, T1, transactional_id="other")
    driver.unreachable.add(T1)
    driver.commit(other, transactional_id="other")
    driver.run(driver.shard.unload(now=driver.now))
    driver.advance(DAY_MS)
    assert len(driver.sent_markers) == 1
    assert driver.state(ID) == "TRANSACTIONAL_ID_NOT_FOUND"
    assert driver.tokens == set(driver.replies)
