"""AddPartitionsToTxn in both forms, and EndTxn: the table of states in Kafka's TransactionCoordinator."""

from __future__ import annotations

import pytest
from kwire_protocol.errors import ErrorCode

from kwire.transactions.shard import MAX_PARTITIONS
from testkit.scenes.transactions_shard import FIRST_PRODUCER_ID as P
from testkit.scenes.transactions_shard import ID, T0, T1, U0, Answer, ShardDriver


def ended(producer_id: int = -1, epoch: int = -1) -> Answer:
    return Answer(ErrorCode.NONE, producer_id, epoch)


def refused(error: ErrorCode) -> Answer:
    return Answer(error, -1, -1)


ITS = refused(ErrorCode.INVALID_TXN_STATE)
FENCED = refused(ErrorCode.PRODUCER_FENCED)
UNMAPPED = refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
CONCURRENT = refused(ErrorCode.CONCURRENT_TRANSACTIONS)


def driver_in(state: str, version: int) -> tuple[ShardDriver, tuple[int, int]]:
    """Makes a driver whose id is in this state, and the producer id and epoch that it has there."""
    driver = ShardDriver(version=version)
    if state == "Empty":
        driver.producer()
        driver.producer()
    else:
        producer = driver.begin(T0)
        if state.startswith("Prepare"):
            driver.unreachable.add(T0)
        if state != "Ongoing":
            driver.end(producer, state.endswith("Commit"))
    assert driver.state() == state
    return driver, driver.producer_of()


# Partitions


def test_partitions_begin_a_transaction_and_join_it() -> None:
    driver = ShardDriver()
    producer = driver.producer()
    driver.advance(10)
    assert driver.add(producer, T0) is ErrorCode.NONE
    driver.advance(10)
    assert driver.add(producer, T1, U0) is ErrorCode.NONE
    stored = driver.stored()
    assert (stored.start_ms, stored.last_update_ms) == (10, 20)
    assert stored.partitions == {T0, T1, U0}
    assert stored.client_version == 2


def test_partitions_that_are_there_already_need_no_record() -> None:
    driver = ShardDriver()
    producer = driver.begin(T0, T1)
    records = len(driver.log)
    assert driver.add(producer, T1) is ErrorCode.NONE
    assert len(driver.log) == records


@pytest.mark.parametrize("state", ["Empty", "CompleteCommit", "CompleteAbort"])
def test_each_idle_state_begins_a_transaction_of_its_own(state: str) -> None:
    driver, producer = driver_in(state, 2)
    driver.advance(100)
    assert driver.add(producer, T1) is ErrorCode.NONE
    assert driver.stored().start_ms == 100
    assert driver.stored().partitions == {T1}


@pytest.mark.parametrize("state", ["PrepareCommit", "PrepareAbort"])
def test_while_a_transaction_ends_there_is_no_next_one(state: str) -> None:
    driver, producer = driver_in(state, 2)
    assert driver.add(producer, T1) is ErrorCode.CONCURRENT_TRANSACTIONS
    # Even of a producer that is not known yet: it may have received the id that comes next.
    assert driver.add((77, 0), T1) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert driver.verify(producer, T0) == [ErrorCode.CONCURRENT_TRANSACTIONS]
    assert driver.verify((77, 0), T0) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING]


@pytest.mark.parametrize("state", ["Empty", "Ongoing", "CompleteCommit", "CompleteAbort"])
def test_only_the_ids_producer_may_add_partitions(state: str) -> None:
    driver, (producer_id, epoch) = driver_in(state, 2)
    assert driver.add((producer_id + 1, epoch), T1) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert driver.add((producer_id, epoch - 1), T1) is ErrorCode.PRODUCER_FENCED
    assert driver.add((producer_id, epoch + 1), T1) is ErrorCode.PRODUCER_FENCED
    assert driver.state() == state


def test_an_unknown_or_empty_id_has_no_transaction() -> None:
    driver = ShardDriver()
    assert driver.add((P, 0), T0, transactional_id="nobody") is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert driver.add((P, 0), T0, transactional_id="") is ErrorCode.INVALID_REQUEST
    assert driver.commit((P, 0), transactional_id="nobody") == UNMAPPED
    assert driver.commit((P, 0), transactional_id="") == refused(ErrorCode.INVALID_REQUEST)
    assert driver.verify((P, 0), T0, T1, transactional_id="nobody") == 2 * [ErrorCode.INVALID_PRODUCER_ID_MAPPING]
    assert driver.verify((P, 0), T0, transactional_id="") == [ErrorCode.INVALID_REQUEST]


def test_a_transaction_has_so_many_partitions_and_no_more() -> None:
    driver = ShardDriver()
    producer = driver.producer()
    many = [("t", index) for index in range(MAX_PARTITIONS)]
    assert driver.add(producer, *many, ("t", MAX_PARTITIONS)) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert driver.state() == "Empty"
    assert driver.add(producer, *many) is ErrorCode.NONE
    assert driver.add(producer, U0) is ErrorCode.UNKNOWN_SERVER_ERROR


def test_partitions_whose_record_is_not_in_are_not_in_the_transaction() -> None:
    driver = ShardDriver()
    producer = driver.begin(T0)
    driver.failing_appends = 1
    assert driver.add(producer, T1) is ErrorCode.NOT_COORDINATOR
    assert driver.verify(producer, T0, T1) == [ErrorCode.NONE, ErrorCode.TRANSACTION_ABORTABLE]


def test_verifying_answers_partition_by_partition_and_adds_none() -> None:
    driver = ShardDriver()
    producer = driver.begin(T0)
    records = len(driver.log)
    assert driver.verify(producer, T0, T1) == [ErrorCode.NONE, ErrorCode.TRANSACTION_ABORTABLE]
    assert len(driver.log) == records
    driver.commit(producer)
    assert driver.verify((P, 1), T0) == [ErrorCode.TRANSACTION_ABORTABLE]


# EndTxn before transaction version 2

CLASSIC = {
    # state: (commit, abort)
    "Empty": (ITS, ITS),
    "Ongoing": (ended(), ended()),
    "PrepareCommit": (CONCURRENT, CONCURRENT),
    "PrepareAbort": (CONCURRENT, CONCURRENT),
    "CompleteCommit": (ended(), ITS),
    "CompleteAbort": (ITS, ended()),
}


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("state", CLASSIC)
def test_the_end_before_version_2(state: str, committed: bool, version: int) -> None:
    driver, producer = driver_in(state, version)
    expected = CLASSIC[state][0 if committed else 1]
    assert driver.end(producer, committed) == expected
    assert driver.end(producer, committed) == expected, "a retry finds the same answer"
    assert driver.producer_of() == producer
    if state == "Ongoing":
        assert driver.state() == ("CompleteCommit" if committed else "CompleteAbort")
        assert driver.markers(T0) == [(*producer, committed)]
        assert driver.sent_markers[0].transaction_version == 0
    else:
        assert driver.state() == state


@pytest.mark.parametrize("state", CLASSIC)
def test_before_version_2_only_the_ids_producer_may_end(state: str) -> None:
    driver, (producer_id, epoch) = driver_in(state, 1)
    for committed in (True, False):
        assert driver.end((producer_id + 1, epoch), committed) == UNMAPPED
        assert driver.end((producer_id, epoch - 1), committed) == FENCED
        assert driver.end((producer_id, epoch + 1), committed) == FENCED
    assert driver.state() == state


# EndTxn with transaction version 2

BUMP = "no error, and the epoch is raised"
SAME = "no error, and the epoch is the one that it was raised to"
WITH_BUMP = {
    # state: (abort retried, abort, commit retried, commit)
    "Empty": (FENCED, BUMP, FENCED, ITS),
    "Ongoing": (FENCED, BUMP, FENCED, BUMP),
    "PrepareCommit": (CONCURRENT, CONCURRENT, CONCURRENT, CONCURRENT),
    "PrepareAbort": (CONCURRENT, CONCURRENT, CONCURRENT, CONCURRENT),
    "CompleteAbort": (SAME, BUMP, ITS, ITS),
    "CompleteCommit": (ITS, BUMP, SAME, ITS),
}


@pytest.mark.parametrize("after_restart", [False, True])
@pytest.mark.parametrize(("column", "committed", "is_retry"), [(0, 0, 1), (1, 0, 0), (2, 1, 1), (3, 1, 0)])
@pytest.mark.parametrize("state", WITH_BUMP)
def test_the_end_with_version_2(state: str, column: int, committed: bool, is_retry: bool, after_restart: bool) -> None:
    driver, (producer_id, epoch) = driver_in(state, 2)
    if after_restart:
        driver.restart()
    expected = WITH_BUMP[state][column]
    answer = driver.end((producer_id, epoch - is_retry), bool(committed))
    if expected is BUMP:
        assert answer == ended(producer_id, epoch + 1)
        assert driver.producer_of() == (producer_id, epoch + 1)
        assert driver.state() == ("CompleteCommit" if committed else "CompleteAbort")
    else:
        assert answer == (ended(producer_id, epoch) if expected is SAME else expected)
        assert driver.producer_of() == (producer_id, epoch)
        assert driver.state() == state


@pytest.mark.parametrize("state", ["Empty", "Ongoing", "CompleteAbort", "CompleteCommit"])
def test_with_version_2_only_the_ids_producer_may_end(state: str) -> None:
    driver, (producer_id, epoch) = driver_in(state, 2)
    for committed in (True, False):
        assert driver.end((producer_id + 1, epoch), committed) == UNMAPPED
        assert driver.end((producer_id + 1, epoch - 1), committed) == UNMAPPED
        assert driver.end((producer_id, epoch - 2), committed) == FENCED
        assert driver.end((producer_id, epoch + 1), committed) == FENCED
    assert driver.producer_of() == (producer_id, epoch)


def test_the_marker_has_the_epoch_that_the_producer_continues_with() -> None:
    driver = ShardDriver()
    producer = driver.begin(T0, U0)
    assert driver.commit(producer) == ended(P, 1)
    assert driver.markers(T0) == driver.markers(U0) == [(P, 1, True)]
    (markers,) = driver.sent_markers
    assert (markers.coordinator_epoch, markers.transaction_version) == (7, 2)
    assert driver.add(producer, T0) is ErrorCode.PRODUCER_FENCED
    assert driver.add((P, 1), T0) is ErrorCode.NONE


def test_an_abort_without_partitions_is_complete_at_once() -> None:
    driver = ShardDriver()
    producer = driver.producer()
    driver.advance(40)
    assert driver.abort(producer) == ended(P, 1)
    assert driver.sent_markers == []
    assert driver.state() == "CompleteAbort"
    assert driver.described().transaction_start_time_ms == 40
    assert driver.stored(back=1).state.value == "PrepareAbort"


def test_after_the_last_epoch_a_producer_continues_with_a_new_id() -> None:
    driver = ShardDriver()
    old = driver.begin(T0, epoch=32_766)
    driver.unreachable.add(T0)
    assert driver.commit(old) == ended(P + 1, 0)
    assert driver.producer_of() == (P, 32_767)
    assert driver.add((P + 1, 0), T1) is ErrorCode.CONCURRENT_TRANSACTIONS
    driver.restart()
    driver.unreachable.clear()
    driver.advance(5_000)
    assert driver.markers(T0) == [(P, 32_767, True)]
    assert driver.producer_of() == (P + 1, 0)
    assert driver.stored().next_producer_id == -1
    driver.restart()
    assert driver.commit(old) == ended(P + 1, 0), "the retry finds the new id"
    assert driver.abort(old) == ITS
    assert driver.add((P + 1, 0), T1) is ErrorCode.NONE
    assert driver.commit(old) == UNMAPPED


def test_before_version_2_the_last_epoch_does_not_move() -> None:
    driver = ShardDriver(version=1)
    producer = driver.begin(T0, epoch=32_766)
    assert driver.commit(producer) == ended()
    assert driver.producer_of() == (P, 32_766)


def test_an_end_whose_record_is_not_in_has_not_happened() -> None:
    driver = ShardDriver()
    producer = driver.begin(T0)
    driver.failing_appends = 1
    assert driver.commit(producer) == refused(ErrorCode.NOT_COORDINATOR)
    assert (driver.state(), driver.producer_of()) == ("Ongoing", producer)
    assert driver.sent_markers == []
    assert driver.abort(producer) == ended(P, 1)
    assert driver.markers(T0) == [(P, 1, False)]


def test_ids_do_not_mix() -> None:
    driver = ShardDriver()
    one = driver.begin(T0)
    other = driver.producer("other")
    driver.add(other, T0, transactional_id="other")
    driver.commit(one)
    assert driver.state("other") == "Ongoing"
    assert driver.state(ID) == "CompleteCommit"
    assert driver.abort(other, transactional_id="other") == ended(P + 1, 1)
    assert driver.markers(T0) == [(P, 1, True), (P + 1, 1, False)]
