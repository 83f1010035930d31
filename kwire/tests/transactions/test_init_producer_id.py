"""InitProducerId of transactional ids: the producer that may use an id, and those that are fenced."""

from __future__ import annotations

import pytest
from kwire_protocol.errors import ErrorCode

from kwire.transactions.config import TransactionConfig
from kwire.transactions.transaction import NO_TIMEOUT_MS
from testkit.scenes.transactions_shard import FIRST_PRODUCER_ID as P
from testkit.scenes.transactions_shard import ID, T0, T1, Answer, ShardDriver

FENCED = Answer(ErrorCode.PRODUCER_FENCED, -1, -1)
CONCURRENT = Answer(ErrorCode.CONCURRENT_TRANSACTIONS, -1, -1)


def got(producer_id: int, epoch: int) -> Answer:
    return Answer(ErrorCode.NONE, producer_id, epoch)


def test_a_new_id_gets_a_producer_id_and_epoch_0() -> None:
    driver = ShardDriver()
    assert driver.init() == got(P, 0)
    assert driver.init("other") == got(P + 1, 0)
    stored = driver.stored()
    assert (stored.producer_id, stored.producer_epoch, stored.previous_producer_id) == (P, 0, P)
    assert (stored.timeout_ms, stored.start_ms, stored.client_version) == (60_000, -1, 0)
    assert driver.state() == "Empty"


def test_the_next_producer_gets_the_next_epoch_and_its_own_time_out() -> None:
    driver = ShardDriver()
    driver.init()
    driver.advance(5)
    assert driver.init(timeout_ms=1_000) == got(P, 1)
    assert driver.stored().timeout_ms == 1_000
    assert driver.stored().last_update_ms == 5


def test_the_producer_before_is_fenced() -> None:
    driver = ShardDriver()
    first, second = driver.producer(), driver.producer()
    assert driver.add(first, T0) is ErrorCode.PRODUCER_FENCED
    assert driver.commit(first).error is ErrorCode.PRODUCER_FENCED
    assert driver.verify(first, T0) == [ErrorCode.PRODUCER_FENCED]
    assert driver.add(second, T0) is ErrorCode.NONE


@pytest.mark.parametrize("version", [0, 1, 2])
def test_an_open_transaction_is_aborted_and_the_client_comes_again(version: int) -> None:
    driver = ShardDriver(version=version)
    old = driver.begin(T0, T1)
    assert driver.init() == CONCURRENT
    assert driver.state() == "CompleteAbort"
    # The marker has an epoch that no producer was given, so that whatever the old one still sends is refused.
    assert driver.markers(T0) == driver.markers(T1) == [(P, 1, False)]
    assert driver.add(old, T0) is ErrorCode.PRODUCER_FENCED
    assert driver.init() == got(P, 2)
    assert driver.commit(old).error is ErrorCode.PRODUCER_FENCED


def test_the_fence_has_the_clusters_version_whatever_the_client_spoke() -> None:
    driver = ShardDriver(version=2)
    driver.add(driver.producer(), T0, version=0)
    driver.init()
    (markers,) = driver.sent_markers
    assert markers.transaction_version == 2
    driver = ShardDriver(version=1)
    driver.add(driver.producer(), T0, version=0)
    driver.init()
    (markers,) = driver.sent_markers
    assert markers.transaction_version == 0


def test_while_markers_are_missing_the_client_is_sent_away() -> None:
    driver = ShardDriver()
    producer = driver.begin(T0)
    driver.unreachable.add(T0)
    assert driver.commit(producer).error is ErrorCode.NONE
    assert driver.init() == CONCURRENT
    assert driver.init(expected=(77, 0)) == CONCURRENT
    assert driver.state() == "PrepareCommit"
    driver.unreachable.clear()
    driver.advance(60_000)
    assert driver.init() == got(P, 2)


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"timeout_ms": 0}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ({"timeout_ms": -1}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ({"timeout_ms": 900_001}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ({"transactional_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"transactional_id": "é" * 16_384}, ErrorCode.INVALID_REQUEST),
        ({"expected": (5, -1)}, ErrorCode.INVALID_REQUEST),
        ({"expected": (-1, 5)}, ErrorCode.INVALID_REQUEST),
        ({"two_phase": True}, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        ({"two_phase": True, "keep_prepared": True}, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        ({"keep_prepared": True}, ErrorCode.UNSUPPORTED_VERSION),
        ({"keep_prepared": True, "timeout_ms": 0}, ErrorCode.UNSUPPORTED_VERSION),
    ],
)
def test_what_no_producer_may_ask_for(fields: dict[str, object], error: ErrorCode) -> None:
    driver = ShardDriver()
    assert driver.init(**fields) == Answer(error, -1, -1)  # type: ignore[arg-type]
    assert driver.log == []


def test_the_longest_time_out_and_the_longest_id_are_taken() -> None:
    driver = ShardDriver()
    assert driver.init("é" * 16_383 + "e", timeout_ms=900_000).error is ErrorCode.NONE


def test_with_two_phase_commit_enabled_a_producer_has_no_time_out() -> None:
    driver = ShardDriver(TransactionConfig(two_phase_commit_enable=True))
    producer = driver.producer(two_phase=True, timeout_ms=0)
    assert driver.stored().timeout_ms == NO_TIMEOUT_MS
    driver.add(producer, T0)
    driver.advance(NO_TIMEOUT_MS)
    assert driver.state() == "Ongoing"
    assert driver.init(keep_prepared=True, two_phase=True).error is ErrorCode.UNSUPPORTED_VERSION


# A producer that bumps its own epoch (KIP-360)


def test_a_producer_that_names_its_epoch_gets_the_next_one() -> None:
    driver = ShardDriver()
    producer = driver.producer()
    assert driver.init(expected=producer) == got(P, 1)


def test_a_bump_whose_answer_was_lost_finds_it_again() -> None:
    driver = ShardDriver()
    producer = driver.producer()
    assert driver.init(expected=producer) == got(P, 1)
    assert driver.init(expected=producer) == got(P, 1)
    assert driver.init(expected=producer) == got(P, 1)
    assert driver.init(expected=(P, 1)) == got(P, 2)
    assert driver.init(expected=producer) == FENCED


def test_once_another_producer_came_the_bump_is_fenced() -> None:
    driver = ShardDriver()
    producer = driver.producer()
    driver.init(expected=producer)
    driver.init()
    assert driver.init(expected=producer) == FENCED
    assert driver.init(expected=(P, 1)) == FENCED


def test_a_bump_with_another_producer_id_is_fenced() -> None:
    driver = ShardDriver()
    driver.producer()
    assert driver.init(expected=(P + 50, 0)) == FENCED
    assert driver.state() == "Empty"


def test_an_id_that_has_expired_starts_over_whatever_the_producer_names() -> None:
    driver = ShardDriver()
    assert driver.init(expected=(5, 3)) == got(P, 0)


def test_a_bump_in_an_open_transaction_aborts_it_and_then_finds_its_epoch() -> None:
    driver = ShardDriver(version=2)
    producer = driver.begin(T0)
    assert driver.init(expected=producer) == CONCURRENT
    assert driver.init(expected=producer) == got(P, 1)


def test_before_version_2_a_bump_in_an_open_transaction_fences_its_own_producer() -> None:
    driver = ShardDriver(version=1)
    producer = driver.begin(T0)
    assert driver.init(expected=producer) == CONCURRENT
    assert driver.init(expected=producer) == FENCED


# The end of the epochs


def test_after_the_last_epoch_comes_a_new_producer_id() -> None:
    driver = ShardDriver()
    driver.producer(epoch=32_765)
    assert driver.init() == got(P, 32_766)
    assert driver.init() == got(P + 1, 0)
    assert driver.stored().previous_producer_id == P


def test_a_producer_at_the_last_epoch_gets_a_new_id_and_its_retry_finds_it() -> None:
    driver = ShardDriver()
    driver.producer(epoch=32_766)
    assert driver.init(expected=(P, 32_766)) == got(P + 1, 0)
    assert driver.init(expected=(P, 32_766)) == got(P + 1, 0)
    assert driver.init(expected=(P, 32_765)) == FENCED


def test_the_retry_of_a_bump_to_the_last_epoch_finds_it() -> None:
    driver = ShardDriver()
    driver.producer(epoch=32_765)
    assert driver.init(expected=(P, 32_765)) == got(P, 32_766)
    assert driver.init(expected=(P, 32_765)) == got(P, 32_766)
    assert driver.init(expected=(P, 32_764)) == FENCED


@pytest.mark.parametrize("version", [1, 2])
def test_the_last_producer_of_an_id_can_be_fenced(version: int) -> None:
    driver = ShardDriver(version=version)
    old = driver.begin(T0, epoch=32_766)
    assert driver.init() == CONCURRENT
    assert driver.markers(T0) == [(P, 32_767, False)]
    answer = driver.init()
    assert answer == got(P + 1, 0 if version == 1 else 1)
    assert driver.add(old, T0) is ErrorCode.INVALID_PRODUCER_ID_MAPPING


@pytest.mark.parametrize("version", [1, 2])
def test_an_epoch_never_overflows(version: int) -> None:
    driver = ShardDriver(version=version)
    producer = driver.producer(epoch=32_767)
    driver.add(producer, T0)
    assert driver.init() == CONCURRENT
    assert driver.markers(T0) == [(P, 32_767, False)]


# Failures


@pytest.mark.parametrize(
    ("append_error", "error"),
    [
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.CORRUPT_MESSAGE, ErrorCode.CORRUPT_MESSAGE),
    ],
)
def test_an_append_that_fails_changes_nothing_and_returns_the_error_that_kafka_does(
    append_error: ErrorCode, error: ErrorCode
) -> None:
    driver = ShardDriver()
    driver.append_error = append_error
    assert driver.init() == Answer(error, -1, -1)
    assert driver.state() == "TRANSACTIONAL_ID_NOT_FOUND"
    driver.append_error = ErrorCode.NONE
    driver.init()
    driver.append_error = append_error
    assert driver.init() == Answer(error, -1, -1)
    assert driver.producer_of()[1] == 0


@pytest.mark.parametrize("version", [1, 2])
def test_a_fence_that_fails_does_not_bump_twice(version: int) -> None:
    driver = ShardDriver(version=version)
    old = driver.begin(T0)
    driver.failing_appends = 2
    assert driver.init() == Answer(ErrorCode.NOT_COORDINATOR, -1, -1)
    assert driver.init() == Answer(ErrorCode.NOT_COORDINATOR, -1, -1)
    assert (driver.state(), driver.producer_of()) == ("Ongoing", old)
    assert driver.sent_markers == []
    assert driver.init() == CONCURRENT
    assert driver.markers(T0) == [(P, 1, False)]


def test_without_a_producer_id_to_give_the_error_is_passed_on() -> None:
    driver = ShardDriver()
    driver.producer_id_error = ErrorCode.KAFKA_STORAGE_ERROR
    assert driver.init() == Answer(ErrorCode.KAFKA_STORAGE_ERROR, -1, -1)
    driver.producer_id_error = ErrorCode.NONE
    producer = driver.begin(T0, epoch=32_766)
    driver.producer_id_error = ErrorCode.KAFKA_STORAGE_ERROR
    assert driver.init() == Answer(ErrorCode.KAFKA_STORAGE_ERROR, -1, -1)
    assert driver.commit(producer).error is ErrorCode.KAFKA_STORAGE_ERROR
    assert driver.state() == "Ongoing"


def test_what_a_producer_received_holds_after_a_restart() -> None:
    driver = ShardDriver()
    driver.producer()
    driver.producer()
    driver.restart()
    assert driver.producer_of(ID) == (P, 1)
    assert driver.init() == got(P, 2)
