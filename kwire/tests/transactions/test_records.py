"""The bytes of `__transaction_state`."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kwire_protocol.wire import ProtocolError, UnsupportedVersion

from kwire.transactions.records import TransactionChange, read_record
from kwire.transactions.transaction import Transaction, TransactionState

names = st.text(max_size=20)
int64s = st.integers(-(2**63), 2**63 - 1)
int32s = st.integers(-(2**31), 2**31 - 1)
int16s = st.integers(-(2**15), 2**15 - 1)
stored_states = st.sampled_from(
    [state for state in TransactionState if state.value not in ("Empty", "Dead", "PrepareEpochFence")]
)

transactions = st.builds(
    Transaction,
    transactional_id=st.just("id"),
    producer_id=int64s,
    producer_epoch=int16s,
    timeout_ms=int32s,
    state=stored_states,
    last_update_ms=int64s,
    partitions=st.frozensets(st.tuples(names, int32s), max_size=5),
    start_ms=int64s,
    previous_producer_id=int64s,
    next_producer_id=int64s,
    next_producer_epoch=int16s,
    client_version=int16s,
)


def changed(**fields: int) -> Transaction:
    return Transaction(
        "id",
        fields.pop("producer_id", 5),
        fields.pop("producer_epoch", 2),
        60_000,
        TransactionState.ONGOING,
        1_000,
        frozenset({("t", 1), ("t", 0), ("a", 3)}),
        900,
        **fields,
    )


@given(transactions)
def test_what_is_written_is_what_is_read(transaction: Transaction) -> None:
    change = TransactionChange("id", transaction)
    for version in (1, 2):
        assert read_record(*change.record(version)) == change


def test_an_open_transaction_is_written_as_kafka_4_writes_it() -> None:
    key, value = TransactionChange("id", changed(previous_producer_id=5, client_version=2)).record(2)
    assert key == b"\0\0\0\2id"
    topics = b"\3\2a\2\0\0\0\3\0\2t\3\0\0\0\0\0\0\0\1\0"
    times = (1_000).to_bytes(8, "big") + (900).to_bytes(8, "big")
    tags = b"\2\0\x08" + (5).to_bytes(8, "big") + b"\2\2\0\2"
    assert (
        value
        == b"\0\1" + (5).to_bytes(8, "big") + b"\0\2" + (60_000).to_bytes(4, "big") + b"\1" + topics + times + tags
    )


def test_before_transaction_version_1_the_value_is_the_one_of_older_brokers() -> None:
    change = TransactionChange("id", changed(previous_producer_id=5, next_producer_id=9, client_version=2))
    _, value = change.record(0)
    assert value is not None
    assert value[:2] == b"\0\0"
    assert b"\0\0\0\2\0\1a\0\0\0\1\0\0\0\3\0\1t\0\0\0\2\0\0\0\0\0\0\0\1" in value
    assert read_record(*change.record(0)) == TransactionChange("id", changed())


def test_an_empty_id_has_no_list_of_partitions() -> None:
    _, value = TransactionChange("id", Transaction.new("id", 5, timeout_ms=1, now_ms=2)).record(2)
    assert value is not None
    assert value[2 + 8 + 2 + 4 : 2 + 8 + 2 + 4 + 2] == b"\0\0"  # the state Empty, and null


def test_an_expired_id_is_a_tombstone() -> None:
    assert TransactionChange("id", None).record(2) == (b"\0\0\0\2id", None)
    assert read_record(b"\0\0\0\2id", None) == TransactionChange("id", None)


def test_records_of_other_kinds_are_passed_over() -> None:
    assert read_record(b"\0\1\0\2id", b"\0\0") is None


def test_a_value_of_a_newer_version_is_refused() -> None:
    with pytest.raises(UnsupportedVersion):
        read_record(b"\0\0\0\2id", b"\0\2")


@pytest.mark.parametrize("state", [-1, 6, 7, 8])
def test_a_state_that_is_never_stored_is_refused(state: int) -> None:
    key, value = TransactionChange("id", changed()).record(2)
    assert value is not None
    with pytest.raises(ProtocolError, match=f"no transaction state {state}"):
        read_record(key, value[:16] + state.to_bytes(1, "big", signed=True) + value[17:])


@pytest.mark.parametrize(("key", "value"), [(b"", None), (b"\0\0\0\5i", None), (b"\0\0\0\2id", b"\0\1\0")])
def test_torn_records_are_distinguished_from_records(key: bytes, value: bytes | None) -> None:
    with pytest.raises(ProtocolError):
        read_record(key, value)
