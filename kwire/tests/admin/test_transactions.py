"""Transactions of a made-up cluster in the admin library: hanging ones, lists, and the brokers queried."""

from __future__ import annotations

import pytest
from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages.describe_producers import DescribeProducersRequest
from kwire_protocol.messages.list_transactions import ListTransactionsRequest

from kwire.admin.batches import MAX_BATCH
from kwire.admin.hanging import find_hanging
from kwire.admin.transactions import TransactionAdmin
from kwire.client.errors import ClientError
from testkit.fakes.txn_brokers import Coordinated, TxnBrokers

E = ErrorCode
NOW_MS = 10_000_000
LIMIT_MS = 900_000
OLD_MS, YOUNG_MS = NOW_MS - LIMIT_MS - 1, NOW_MS - LIMIT_MS


def admin(brokers: TxnBrokers) -> TransactionAdmin:
    return TransactionAdmin(brokers.cluster())


def hanging(brokers: TxnBrokers, topic: str | None = None, partition: int | None = None) -> list[tuple[str, int]]:
    """Returns the partitions with a hanging transaction, and the producer of each."""
    found = find_hanging(admin(brokers), now_ms=NOW_MS, max_timeout_ms=LIMIT_MS, topic=topic, partition=partition)
    assert found.problems == []
    return [(it.name, it.producer_id) for it in found.found]


def test_a_transaction_without_a_coordinator_s_entry_hangs() -> None:
    brokers = TxnBrokers()
    brokers.opens("orders", 0, 7, 100, last_timestamp=OLD_MS)
    brokers.opens("orders", 1, 8, 5, last_timestamp=OLD_MS, leader=2)
    assert hanging(brokers) == [("orders-0", 7), ("orders-1", 8)]


def test_what_was_written_within_the_longest_timeout_is_not_suspected() -> None:
    brokers = TxnBrokers()
    brokers.opens("orders", 0, 7, 100, last_timestamp=YOUNG_MS)
    assert hanging(brokers) == []
    assert brokers.requests(ListTransactionsRequest) == []


def test_a_producer_without_an_open_transaction_does_not_hang() -> None:
    brokers = TxnBrokers()
    brokers.opens("orders", 0, 7, -1, last_timestamp=0)
    brokers.opens("orders", 0, 8, 0, last_timestamp=0)
    assert hanging(brokers) == [("orders-0", 8)]


@pytest.mark.parametrize("state", ["Ongoing", "PrepareCommit", "PrepareAbort"])
def test_what_its_coordinator_will_still_end_there_does_not_hang(state: str) -> None:
    brokers = TxnBrokers(ids={"a": Coordinated(7, state, [("orders", 0)], node_id=2)})
    brokers.opens("orders", 0, 7, 100, last_timestamp=0)
    brokers.opens("orders", 1, 7, 200, last_timestamp=0)
    assert hanging(brokers) == [("orders-1", 7)]


def test_what_another_producer_id_has_there_is_no_excuse() -> None:
    brokers = TxnBrokers(ids={"a": Coordinated(8, "Ongoing", [("orders", 0)])})
    brokers.opens("orders", 0, 7, 100, last_timestamp=0)
    assert hanging(brokers) == [("orders-0", 7)]


def test_a_transaction_whose_id_is_forgotten_during_the_search_hangs() -> None:
    brokers = TxnBrokers(ids={"a": Coordinated(7, "Dead", [("orders", 0)], described=False)})
    brokers.opens("orders", 0, 7, 100, last_timestamp=0)
    assert hanging(brokers) == [("orders-0", 7)]


def test_a_transaction_that_ended_during_the_search_does_not_hang() -> None:
    brokers = TxnBrokers()
    brokers.opens("orders", 0, 7, 100, last_timestamp=0)
    brokers.opens("orders", 1, 7, 100, last_timestamp=0)
    brokers.ends_meanwhile = {("orders", 0)}
    assert hanging(brokers) == [("orders-1", 7)]


def test_one_topic_or_one_partition_may_be_looked_at() -> None:
    brokers = TxnBrokers()
    for topic in ("orders", "payments"):
        for index in (0, 1):
            brokers.opens(topic, index, 7, 100, last_timestamp=0)
    assert hanging(brokers, "orders") == [("orders-0", 7), ("orders-1", 7)]
    assert hanging(brokers, "payments", 1) == [("payments-1", 7)]
    for topic, partition, message in (("none", None, "no topic 'none'"), ("orders", 2, "no partition 2")):
        with pytest.raises(ClientError, match=message):
            hanging(brokers, topic, partition)


def test_partitions_are_requested_in_batches_from_their_leaders() -> None:
    brokers = TxnBrokers()
    for index in range(MAX_BATCH + 1):
        brokers.opens("wide", index, 7, 1, last_timestamp=OLD_MS)
    brokers.opens("other", 0, 8, 1, last_timestamp=OLD_MS, leader=2)
    assert len(hanging(brokers)) == MAX_BATCH + 2
    first_look = brokers.requests(DescribeProducersRequest)[:3]
    requested = [(node_id, sum(len(it.partition_indexes) for it in request.topics)) for node_id, request in first_look]
    assert requested == [(1, MAX_BATCH), (1, 1), (2, 1)]


def test_a_partition_that_cannot_be_described_is_reported_and_the_others_are_searched() -> None:
    brokers = TxnBrokers(producer_errors={("orders", 1): E.NOT_LEADER_OR_FOLLOWER})
    brokers.opens("orders", 0, 7, 1, last_timestamp=0)
    brokers.opens("orders", 1, 7, 1, last_timestamp=0)
    brokers.opens("orders", 2, 7, 1, leader=-1)
    found = find_hanging(admin(brokers), now_ms=NOW_MS, max_timeout_ms=LIMIT_MS)
    assert [it.name for it in found.found] == ["orders-0"]
    assert found.problems == [
        "orders-2 has no leader",
        "broker 1 does not describe orders-1: NOT_LEADER_OR_FOLLOWER",
    ]


def test_a_request_to_a_coordinator_that_is_not_ready_is_retried() -> None:
    brokers = TxnBrokers(ids={"a": Coordinated(7)}, passing_errors=[E.COORDINATOR_NOT_AVAILABLE, E.NOT_COORDINATOR])
    assert admin(brokers).describe_transactions(["a"])["a"].producer_id == 7
    assert brokers.network.clock.slept_s == [0.02, 0.04]
    brokers.passing_errors = [E.COORDINATOR_LOAD_IN_PROGRESS]
    assert [it.transactional_id for it in admin(brokers).list_transactions()] == ["a"]


def test_a_coordinator_that_stays_away_is_an_error() -> None:
    brokers = TxnBrokers(passing_errors=[E.COORDINATOR_NOT_AVAILABLE] * 99)
    with pytest.raises(ClientError, match="no coordinator of transaction 'a': COORDINATOR_NOT_AVAILABLE"):
        admin(brokers).describe_transactions(["a"])
    assert 28 < sum(brokers.network.clock.slept_s) <= 30


def test_an_error_that_does_not_pass_is_reported_at_once() -> None:
    brokers = TxnBrokers(passing_errors=[E.CLUSTER_AUTHORIZATION_FAILED])
    with pytest.raises(ClientError, match="broker 1 does not list its transactions: CLUSTER_AUTHORIZATION_FAILED"):
        admin(brokers).list_transactions()
    assert brokers.network.clock.slept_s == []
    brokers = TxnBrokers(unknown_states=["Sleeping"])
    with pytest.raises(ClientError, match="has no state Sleeping"):
        admin(brokers).list_transactions(states=["Sleeping"])


def test_many_producers_are_requested_in_batches() -> None:
    brokers = TxnBrokers(nodes=[1])
    admin(brokers).list_transactions(producer_ids=range(MAX_BATCH + 1))
    assert [len(it.producer_id_filters) for _, it in brokers.requests(ListTransactionsRequest)] == [MAX_BATCH, 1]
