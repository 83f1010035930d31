"""DescribeTransactions and ListTransactions."""

from __future__ import annotations

import pytest
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.list_transactions import ListTransactionsRequest

from kwire.transactions.listing import TransactionFilter
from testkit.scenes.transactions_shard import FIRST_PRODUCER_ID as P
from testkit.scenes.transactions_shard import ID, T0, T1, U0, ShardDriver


def test_a_transaction_is_described_with_its_partitions_by_topic() -> None:
    driver = ShardDriver()
    driver.advance(30)
    driver.begin(U0, T1, T0, timeout_ms=5_000)
    described = driver.described()
    assert (described.error_code, described.transactional_id, described.transaction_state) == (0, ID, "Ongoing")
    assert (described.producer_id, described.producer_epoch) == (P, 0)
    assert (described.transaction_timeout_ms, described.transaction_start_time_ms) == (5_000, 30)
    assert [(topic.topic, topic.partitions) for topic in described.topics] == [("t", [0, 1]), ("u", [0])]


def test_what_is_not_there_is_described_by_an_error() -> None:
    driver = ShardDriver()
    missing, empty = driver.shard.describe(["nobody", ""])
    assert (missing.transactional_id, missing.error_code) == ("nobody", ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    assert empty.error_code == ErrorCode.INVALID_REQUEST


def test_each_state_is_described_and_listed_by_its_name() -> None:
    driver = ShardDriver()
    driver.unreachable.add(T1)
    for name in ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort"):
        producer = driver.producer(name)
        if name != "Empty":
            driver.add(producer, T1 if name.startswith("Prepare") else T0, transactional_id=name)
        if name not in ("Empty", "Ongoing"):
            driver.end(producer, name.endswith("Commit"), transactional_id=name)
        assert driver.state(name) == name
    for name in ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort"):
        assert driver.listed(state_filters=[name]) == {name}
    assert driver.listed(state_filters=["Empty", "Ongoing", "Nonsense"]) == {"Empty", "Ongoing"}
    assert driver.listed(state_filters=["Nonsense"]) == set()
    assert driver.listed(state_filters=["empty"]) == set()
    assert driver.listed(state_filters=["Dead", "PrepareEpochFence"]) == set()
    assert len(driver.listed()) == 6


def test_unknown_states_are_named() -> None:
    names = ["Empty", "Dead", "PrepareEpochFence", "empty", "What", "What"]
    assert TransactionFilter.of(ListTransactionsRequest(state_filters=names)).unknown_states == ["What", "empty"]


def test_filters_apply_together() -> None:
    driver = ShardDriver()
    for name in ("a1", "a2", "b1"):
        driver.add(driver.producer(name), T0, transactional_id=name)
    assert driver.listed(producer_id_filters=[P, P + 2]) == {"a1", "b1"}
    assert driver.listed(transactional_id_pattern="a.*") == {"a1", "a2"}
    assert driver.listed(transactional_id_pattern="a") == set()
    assert driver.listed(transactional_id_pattern="") == {"a1", "a2", "b1"}
    assert driver.listed(producer_id_filters=[P, P + 2], transactional_id_pattern=".1") == {"a1", "b1"}
    assert driver.listed(producer_id_filters=[P + 1, P + 2], transactional_id_pattern="a.") == {"a2"}


def test_transactions_are_listed_that_began_longer_ago() -> None:
    driver = ShardDriver()
    driver.advance(1_000)
    driver.add(driver.producer("old"), T0, transactional_id="old")
    driver.advance(500)
    driver.add(driver.producer("young"), T0, transactional_id="young")
    driver.advance(100)
    assert driver.listed(duration_filter=-1) == {"old", "young"}
    assert driver.listed(duration_filter=0) == {"old", "young"}
    assert driver.listed(duration_filter=100) == {"old"}
    assert driver.listed(duration_filter=599) == {"old"}
    assert driver.listed(duration_filter=600) == set()


def test_what_is_no_pattern_is_refused() -> None:
    with pytest.raises(KafkaError) as refused:
        TransactionFilter.of(ListTransactionsRequest(transactional_id_pattern="(a"))
    assert refused.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION
