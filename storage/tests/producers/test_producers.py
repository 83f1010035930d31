"""Kafka's rules for idempotent and transactional producers, one by one."""

from __future__ import annotations

import pytest
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_storage.errors import CorruptLogError
from kwire_storage.producers.snapshots import decode_snapshot, encode_snapshot
from kwire_storage.producers.states import (
    LOADED_FOR_MS,
    MAX_SEQUENCE,
    EndTxnMarker,
    ProducerEntry,
    ProducerStates,
)

from testkit.storage.logs import header_of


def sent(states: ProducerStates, *, at: int, now_ms: int = 0, **fields: int) -> None:
    """Applies a batch that is accepted and stands at offset `at`."""
    header = header_of(**fields)
    assert states.check(header, now_ms=now_ms) is None
    states.apply(header, at, now_ms=now_ms)


def refusal(states: ProducerStates, **fields: int) -> ErrorCode:
    with pytest.raises(KafkaError) as refused:
        states.check(header_of(**fields), now_ms=0)
    return refused.value.code


def test_sequences_follow_each_other() -> None:
    states = ProducerStates()
    sent(states, sequence=0, count=3, at=0)
    sent(states, sequence=3, at=3)
    assert refusal(states, sequence=5) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refusal(states, sequence=2) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_an_unknown_producer_may_begin_anywhere() -> None:
    sent(ProducerStates(), sequence=17, at=0)


@pytest.mark.parametrize("first", [0, 3])
def test_what_was_sent_behind_a_batch_that_found_no_room_waits_for_it(first: int) -> None:
    """Accepted, or refused as out of order, it would stand before that one, or be sent again in a new epoch."""
    states = ProducerStates()
    if first:
        sent(states, sequence=0, count=3, at=0)
    refused = header_of(sequence=first, count=2)
    assert states.check(refused, now_ms=0) is None
    states.refuse(refused)
    for sequence in (first + 2, first + 3):
        assert refusal(states, sequence=sequence) == ErrorCode.KAFKA_STORAGE_ERROR
    sent(states, sequence=first, count=2, at=3)
    sent(states, sequence=first + 2, at=5)
    assert refusal(states, sequence=first + 9) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_new_epoch_need_not_wait_for_what_found_no_room_in_the_old_one() -> None:
    states = ProducerStates()
    sent(states, sequence=0, at=0)
    states.refuse(header_of(sequence=1))
    assert refusal(states, sequence=2) == ErrorCode.KAFKA_STORAGE_ERROR
    sent(states, sequence=0, epoch=1, at=1)
    assert refusal(states, sequence=2, epoch=1) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    states.refuse(header_of(sequence=0, epoch=2))
    assert refusal(states, sequence=1, epoch=2) == ErrorCode.KAFKA_STORAGE_ERROR


def test_a_sequence_begins_again_after_the_largest() -> None:
    states = ProducerStates()
    sent(states, sequence=MAX_SEQUENCE - 1, count=2, at=0)
    sent(states, sequence=0, at=2)
    states = ProducerStates()
    sent(states, sequence=MAX_SEQUENCE, count=3, at=0)
    assert states.entries[1].last_sequence == 1
    sent(states, sequence=2, at=3)


def test_one_of_the_last_five_batches_is_recognised_with_its_first_offset() -> None:
    states = ProducerStates()
    for number in range(7):
        sent(states, sequence=number * 2, count=2, at=number * 10)
    for number in range(2, 7):
        assert states.check(header_of(sequence=number * 2, count=2), now_ms=0) == number * 10
    assert refusal(states, sequence=2, count=2) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refusal(states, sequence=12, count=1) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    repeat = states.find_repeat(header_of(sequence=12, count=2))
    assert repeat is not None
    assert (repeat.first_offset, repeat.last_offset) == (60, 61)
    assert states.find_repeat(header_of(producer_id=9)) is None


def test_a_new_epoch_begins_with_zero_and_ends_the_old_one() -> None:
    states = ProducerStates()
    sent(states, sequence=0, at=0)
    assert refusal(states, epoch=1, sequence=1) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    sent(states, epoch=1, sequence=0, at=1)
    assert refusal(states, epoch=0, sequence=1) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert refusal(states, epoch=0, sequence=0) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert states.check(header_of(epoch=1, sequence=0), now_ms=0) == 1


def test_batches_without_sequences_are_checked_by_epoch_only() -> None:
    states = ProducerStates()
    sent(states, epoch=1, sequence=-1, at=0)
    sent(states, epoch=1, sequence=-1, at=1)
    assert refusal(states, epoch=0, sequence=-1) == ErrorCode.INVALID_PRODUCER_EPOCH


def test_producers_are_apart() -> None:
    states = ProducerStates()
    sent(states, producer_id=1, sequence=0, at=0)
    sent(states, producer_id=2, sequence=5, at=1)
    sent(states, producer_id=1, sequence=1, at=2)
    assert sorted(states.entries) == [1, 2]


def test_idle_producers_are_forgotten_but_not_in_a_transaction() -> None:
    states = ProducerStates(expiration_ms=1000)
    sent(states, producer_id=1, now_ms=0, at=0)
    sent(states, producer_id=2, now_ms=500, at=1)
    sent(states, producer_id=3, now_ms=0, transactional=True, at=2)
    assert states.expire(999) == 0
    assert states.expire(1000) == 1
    assert sorted(states.entries) == [2, 3]


DAY_MS = 86_400_000
NOW_MS = 1_790_000_000_000
TIMESTAMPS_MS = pytest.mark.parametrize(
    "timestamp_ms", [-1, 0, NOW_MS - 31 * DAY_MS, NOW_MS, NOW_MS + 70 * 365 * DAY_MS], ids=lambda it: f"{it} ms"
)


@TIMESTAMPS_MS
def test_a_producer_is_kept_from_its_last_append_on_whatever_its_timestamps_are(timestamp_ms: int) -> None:
    states = ProducerStates(expiration_ms=DAY_MS)
    sent(states, timestamp_ms=timestamp_ms, now_ms=NOW_MS, at=7)
    assert states.expire(NOW_MS + DAY_MS - 1) == 0
    assert states.check(header_of(timestamp_ms=timestamp_ms), now_ms=NOW_MS + DAY_MS - 1) == 7
    assert states.entries[1].last_timestamp_ms == timestamp_ms
    assert states.expire(NOW_MS + DAY_MS) == 1


@TIMESTAMPS_MS
def test_an_append_of_a_marker_counts_like_one_of_records(timestamp_ms: int) -> None:
    states = ProducerStates(expiration_ms=DAY_MS)
    states.apply_marker(header_of(), 0, COMMIT, timestamp_ms, NOW_MS)
    assert states.expire(NOW_MS + DAY_MS - 1) == 0
    assert states.expire(NOW_MS + DAY_MS) == 1


@TIMESTAMPS_MS
def test_a_producer_of_a_snapshot_is_kept_for_an_hour_and_no_longer_than_one_that_has_appended(
    timestamp_ms: int,
) -> None:
    before = ProducerStates(expiration_ms=DAY_MS)
    sent(before, timestamp_ms=timestamp_ms, now_ms=NOW_MS - 1, at=7)
    states = ProducerStates(expiration_ms=DAY_MS)
    states.load(decode_snapshot(encode_snapshot(before.entries.values())))
    assert states.check(header_of(timestamp_ms=timestamp_ms), now_ms=NOW_MS) == 7
    assert states.expire(NOW_MS + LOADED_FOR_MS - 1) == 0
    states.expire(NOW_MS + DAY_MS)
    assert not states.entries


def test_with_a_short_expiration_a_producer_of_a_snapshot_is_kept_as_long() -> None:
    states = ProducerStates(expiration_ms=1000)
    states.load([ProducerEntry(1, 0, last_timestamp_ms=0)])
    assert [states.expire(now_ms) for now_ms in (NOW_MS, NOW_MS + 999, NOW_MS + 1000)] == [0, 0, 1]


def test_checking_forgets_idle_producers_now_and_then() -> None:
    states = ProducerStates(expiration_ms=1000)
    sent(states, producer_id=1, timestamp_ms=0, at=0)
    states.check(header_of(producer_id=2), now_ms=599_999)
    assert sorted(states.entries) == [1]
    states.check(header_of(producer_id=2), now_ms=600_000)
    assert sorted(states.entries) == []


def test_how_often_idle_producers_are_looked_for_can_be_chosen() -> None:
    states = ProducerStates(expiration_ms=1000, check_interval_ms=5000)
    sent(states, producer_id=1, timestamp_ms=0, at=0)
    states.check(header_of(producer_id=2), now_ms=4999)
    assert sorted(states.entries) == [1]
    states.check(header_of(producer_id=2), now_ms=5000)
    assert sorted(states.entries) == []


COMMIT, ABORT = EndTxnMarker(True, 0), EndTxnMarker(False, 0)


def test_a_transaction_is_open_until_its_marker() -> None:
    states = ProducerStates()
    sent(states, producer_id=1, transactional=True, at=10)
    sent(states, producer_id=2, transactional=True, at=11)
    sent(states, producer_id=1, sequence=1, transactional=True, at=12)
    assert states.first_undecided_offset == 10
    completed = states.apply_marker(header_of(producer_id=1), 13, COMMIT, 0)
    assert completed == (1, 10, 13, False)
    assert states.first_undecided_offset == 11
    assert states.last_stable_offset_after(completed) == 11
    completed = states.apply_marker(header_of(producer_id=2), 14, ABORT, 0)
    assert completed == (2, 11, 14, True)
    assert states.last_stable_offset_after(completed) == 15
    assert states.first_unstable_offset(high_watermark=99) is None


def test_readers_wait_for_the_markers_replication() -> None:
    states = ProducerStates()
    sent(states, producer_id=1, transactional=True, at=10)
    states.apply_marker(header_of(producer_id=1), 11, COMMIT, 0)
    sent(states, producer_id=2, transactional=True, at=12)
    assert states.first_unstable_offset(high_watermark=11) == 10
    assert states.first_unstable_offset(high_watermark=12) == 12
    states.apply_marker(header_of(producer_id=2), 13, COMMIT, 0)
    assert states.first_unstable_offset(high_watermark=13) == 12
    assert states.first_unstable_offset(high_watermark=14) is None


def test_nothing_but_transactional_batches_while_a_transaction_is_open() -> None:
    states = ProducerStates()
    sent(states, transactional=True, at=0)
    assert refusal(states, sequence=1) == ErrorCode.INVALID_TXN_STATE


def test_a_marker_of_an_empty_transaction_completes_nothing_but_fences() -> None:
    states = ProducerStates()
    assert states.apply_marker(header_of(producer_id=1, epoch=3), 0, COMMIT, 0) is None
    assert refusal(states, producer_id=1, epoch=2) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert refusal(states, producer_id=1, epoch=3, sequence=1) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    sent(states, producer_id=1, epoch=3, sequence=0, at=1)


def test_markers_of_old_epochs_and_old_coordinators_are_refused() -> None:
    states = ProducerStates()
    states.check_marker(header_of(producer_id=1), COMMIT)
    states.apply_marker(header_of(producer_id=1, epoch=3), 0, EndTxnMarker(True, 5), 0)
    states.check_marker(header_of(producer_id=1, epoch=3), EndTxnMarker(True, 5))
    with pytest.raises(KafkaError) as refused:
        states.check_marker(header_of(producer_id=1, epoch=2), EndTxnMarker(True, 5))
    assert refused.value.code == ErrorCode.INVALID_PRODUCER_EPOCH
    with pytest.raises(KafkaError) as refused:
        states.check_marker(header_of(producer_id=1, epoch=3), EndTxnMarker(True, 4))
    assert refused.value.code == ErrorCode.TRANSACTION_COORDINATOR_FENCED


def test_from_transaction_version_2_a_marker_must_bump_the_epoch_of_an_open_transaction() -> None:
    states = ProducerStates()
    sent(states, epoch=3, transactional=True, at=0)
    with pytest.raises(KafkaError) as refused:
        states.check_marker(header_of(epoch=3), COMMIT, transaction_version=2)
    assert refused.value.code == ErrorCode.INVALID_PRODUCER_EPOCH
    states.check_marker(header_of(epoch=4), COMMIT, transaction_version=2)
    states.apply_marker(header_of(epoch=4), 1, COMMIT, 0)
    states.check_marker(header_of(epoch=4), COMMIT, transaction_version=2)


def test_a_snapshot_keeps_the_last_batch_and_the_open_transactions() -> None:
    states = ProducerStates()
    sent(states, producer_id=1, sequence=MAX_SEQUENCE, count=3, at=0)
    sent(states, producer_id=2, epoch=4, transactional=True, at=3, timestamp_ms=77)
    states.apply_marker(header_of(producer_id=3, epoch=2), 4, EndTxnMarker(True, 9), 88)
    data = encode_snapshot(states.entries.values())
    assert len(data) == 6 + 4 + 3 * 46
    again = ProducerStates()
    again.load(decode_snapshot(data))
    assert encode_snapshot(again.entries.values()) == data
    assert again.first_undecided_offset == 3
    assert again.check(header_of(producer_id=1, sequence=MAX_SEQUENCE, count=3), now_ms=0) == 0
    assert again.entries[1].batches == states.entries[1].batches
    assert (again.entries[3].coordinator_epoch, again.entries[3].batches) == (9, [])


def test_a_spoilt_snapshot_is_an_error() -> None:
    states = ProducerStates()
    sent(states, at=0)
    data = encode_snapshot(states.entries.values())
    for position in range(len(data)):
        spoilt = bytearray(data)
        spoilt[position] ^= 1
        with pytest.raises(CorruptLogError):
            decode_snapshot(bytes(spoilt))
        with pytest.raises(CorruptLogError):
            decode_snapshot(data[:position])
