"""Kafka's own TransactionsCommand, unmodified: transactions listed and described, hanging ones found and aborted."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from testkit.basics.waiting import eventually
from testkit.clients import confluent
from testkit.clients.transactions.hanging import PRODUCER_ID, leave_hanging
from testkit.clients.transactions.librdkafka import Confluent
from testkit.clients.transactions.queries import end_offset, is_stable
from testkit.java import java_host as tools
from testkit.java.java_host import JavaHost
from testkit.servers.brokers import Broker

Rows = list[dict[str, str]]


@pytest.fixture
def rows(broker: Broker, java: JavaHost) -> Callable[..., Rows]:
    """Runs a subcommand and returns the rows of its table by the names of their columns."""

    def run(*arguments: str) -> Rows:
        head, *rows = java.succeed(tools.TRANSACTIONS, "--bootstrap-server", broker.bootstrap, *arguments).lines
        columns = [name.strip() for name in head.split("\t")]
        return [dict(zip(columns, (it.strip() for it in row.split("\t")), strict=True)) for row in rows]

    return run


def test_transactions_are_listed_and_described(
    broker: Broker, topic: str, rows: Callable[..., Rows], unique: Callable[[str], str]
) -> None:
    name = unique("id")

    def listed(*options: str) -> list[str]:
        return [row["TransactionState"] for row in rows("list", *options) if row["TransactionalId"] == name]

    with Confluent().producing(broker.bootstrap, name) as producer:
        (empty,) = rows("describe", "--transactional-id", name)
        assert (empty["TransactionState"], empty["TopicPartitions"]) == ("Empty", "")
        producer.begin()
        producer.send(topic, [b"value"])
        (ongoing,) = rows("describe", "--transactional-id", name)
        assert ongoing["TransactionalId"] == name
        assert ongoing["TransactionState"] == "Ongoing"
        assert ongoing["TransactionTimeoutMs"] == "60000"
        assert ongoing["TopicPartitions"] == f"{topic}-0"
        assert 0 <= int(ongoing["TransactionDurationMs"]) < 60_000
        assert listed() == ["Ongoing"]
        assert listed("--duration-filter", "3600000") == []
        (state,) = rows("describe-producers", "--topic", topic, "--partition", "0")
        assert (state["ProducerId"], state["ProducerEpoch"]) == (ongoing["ProducerId"], ongoing["ProducerEpoch"])
        assert (state["LastSequence"], state["CurrentTransactionStartOffset"]) == ("0", "0")
        producer.commit()
    eventually(lambda: listed() == ["CompleteCommit"], "the transaction is complete")
    (state,) = rows("describe-producers", "--topic", topic, "--partition", "0")
    assert state["CurrentTransactionStartOffset"] == "None"


def test_an_id_that_nobody_used_is_an_error(broker: Broker, java: JavaHost, unique: Callable[[str], str]) -> None:
    name = unique("id")
    ended = java.run(tools.TRANSACTIONS, "--bootstrap-server", broker.bootstrap, "describe", "--transactional-id", name)
    assert ended.code == 1
    assert f"transactional-id `{name}`" in ended.err


def test_a_hanging_transaction_is_found_and_aborted(
    broker: Broker, java: JavaHost, topic: str, rows: Callable[..., Rows], unique: Callable[[str], str]
) -> None:
    leave_hanging(broker.bootstrap, (topic, 0))
    confluent.fill(broker.bootstrap, topic, [b"held back"])
    assert end_offset(broker.bootstrap, (topic, 0), committed=True) == 0

    def found() -> Rows:
        return [row for row in rows("find-hanging", "--broker-id", "1") if row["Topic"] == topic]

    with Confluent().producing(broker.bootstrap, unique("id")) as healthy:
        healthy.begin()
        healthy.send(topic, [b"healthy"])
        (row,) = found()
        assert (row["Partition"], row["ProducerId"], row["StartOffset"]) == ("0", str(PRODUCER_ID), "0")
        assert 59 <= int(row["Duration(min)"]) <= 62
        at = ("--bootstrap-server", broker.bootstrap)
        spot = ("--topic", topic, "--partition", "0", "--start-offset", row["StartOffset"])
        java.succeed(tools.TRANSACTIONS, *at, "abort", *spot)
        assert found() == []
        again = java.run(tools.TRANSACTIONS, *at, "abort", *spot)
        assert again.code == 1
        assert "Could not find any open transactions" in again.err
        healthy.commit()
    eventually(lambda: is_stable(broker.bootstrap, (topic, 0)), "nothing is held back")
    assert Confluent().values(broker.bootstrap, topic, [0], committed=True) == [b"held back", b"healthy"]
