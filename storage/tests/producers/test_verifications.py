"""From the request to a transaction's coordinator to its first batch: Kafka's rules (KIP-890)."""

from __future__ import annotations

import pytest
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_storage.producers.states import EndTxnMarker, ProducerStates, Verification

from testkit.storage.logs import header_of


def begin(states: ProducerStates, *, adds: bool = False, now_ms: int = 0, **fields: int) -> Verification:
    return states.begin_verification(header_of(transactional=True, **fields), adds=adds, now_ms=now_ms)


def verified(states: ProducerStates, verification: Verification, **fields: int) -> ErrorCode | None:
    """Returns the error of the first batch once the coordinator has agreed, or None."""
    try:
        states.check_verified(header_of(transactional=True, **fields), verification)
    except KafkaError as error:
        return error.code
    return None


def end(states: ProducerStates, at: int, *, epoch: int = 0) -> None:
    states.apply_marker(header_of(epoch=epoch), at, EndTxnMarker(committed=True, coordinator_epoch=0), 0)


def test_a_transaction_is_held_from_its_first_batch_to_its_marker_and_in_its_epoch_only() -> None:
    states = ProducerStates()
    first = header_of(transactional=True, epoch=3)
    assert not states.holds_transaction(first)
    states.apply(first, 0)
    assert states.holds_transaction(first)
    assert not states.holds_transaction(header_of(transactional=True, epoch=4))
    assert not states.holds_transaction(header_of(transactional=True, epoch=3, producer_id=2))
    end(states, 1, epoch=3)
    assert not states.holds_transaction(first)


def test_a_batch_without_a_transaction_opens_none() -> None:
    states = ProducerStates()
    states.apply(header_of(), 0)
    assert not states.holds_transaction(header_of())


def test_a_marker_that_comes_before_the_coordinators_answer_makes_it_worthless() -> None:
    states = ProducerStates()
    verification = begin(states)
    assert verified(states, verification) is None
    end(states, 0)
    assert verified(states, verification) == ErrorCode.INVALID_TXN_STATE
    assert verified(states, begin(states)) is None


def test_another_verification_of_the_same_producer_does_not_stand_in_for_one_that_ended() -> None:
    states = ProducerStates()
    old = begin(states)
    end(states, 0)
    begin(states)
    assert verified(states, old) == ErrorCode.INVALID_TXN_STATE


def test_the_first_batch_ends_the_verification() -> None:
    states = ProducerStates()
    verification = begin(states)
    states.apply(header_of(transactional=True), 0)
    assert verified(states, verification) == ErrorCode.INVALID_TXN_STATE


def test_requests_at_the_same_time_share_one_verification() -> None:
    states = ProducerStates()
    assert begin(states) is begin(states, sequence=1)
    assert begin(states) is not begin(states, producer_id=2)


def test_an_epoch_below_the_known_one_is_not_worth_a_question_or_was_not() -> None:
    states = ProducerStates()
    verification = begin(states, epoch=0)
    end(states, 0, epoch=1)
    with pytest.raises(KafkaError) as refused:
        begin(states, epoch=0)
    assert refused.value.code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert verified(states, verification, epoch=0) == ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_later_batch_does_not_overtake_one_that_has_to_be_sent_again() -> None:
    states = ProducerStates()
    begin(states, sequence=4)
    later = begin(states, sequence=6)
    assert verified(states, later, sequence=6) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert verified(states, begin(states, sequence=2), sequence=4) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert verified(states, later, sequence=2) is None


def test_a_new_epoch_has_nothing_to_send_again() -> None:
    states = ProducerStates()
    begin(states, sequence=0, epoch=0)
    assert verified(states, begin(states, sequence=5, epoch=1), sequence=5, epoch=1) is None


def test_a_verification_of_an_old_epoch_does_not_hold_back_the_new_one() -> None:
    states = ProducerStates()
    begin(states, sequence=5, epoch=1)
    assert verified(states, begin(states, sequence=0, epoch=0), sequence=5, epoch=1) is None


@pytest.mark.parametrize(("adds", "code"), [(True, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER), (False, None)])
def test_with_transaction_version_2_an_unknown_producer_begins_with_sequence_0(
    adds: bool, code: ErrorCode | None
) -> None:
    states = ProducerStates()
    assert verified(states, begin(states, sequence=3, adds=adds), sequence=3) is code


def test_a_producer_that_is_known_by_a_marker_only_begins_with_sequence_0_too() -> None:
    states = ProducerStates()
    end(states, 0, epoch=1)
    verification = begin(states, sequence=3, epoch=1, adds=True)
    assert verified(states, verification, sequence=3, epoch=1) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_refusal_for_good_leaves_nothing_behind() -> None:
    states = ProducerStates()
    begin(states, sequence=0)
    states.drop_verification(header_of())
    states.drop_verification(header_of())
    assert verified(states, begin(states, sequence=7), sequence=7) is None


def test_a_refusal_of_an_old_epoch_is_none_of_the_new_one() -> None:
    states = ProducerStates()
    verification = begin(states, epoch=1)
    states.drop_verification(header_of(epoch=0))
    assert verified(states, verification, epoch=1) is None


def test_verifications_that_came_to_nothing_go_with_the_idle_producers() -> None:
    states = ProducerStates(expiration_ms=1000)
    old = begin(states, now_ms=0)
    states.expire(999)
    assert begin(states, now_ms=999) is old
    states.expire(1000)
    assert begin(states, now_ms=1000) is not old
