"""`kwire txn`: transactions listed and described, hanging ones found and aborted, as Kafka's own tool finds them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from testkit.basics.waiting import eventually
from testkit.cli.log_dirs import kwire
from testkit.clients import confluent
from testkit.clients.confluent import CALL_TIMEOUT_S
from testkit.clients.transactions.hanging import PRODUCER_ID, an_hour_ago_ms, leave_hanging
from testkit.clients.transactions.librdkafka import Confluent
from testkit.clients.transactions.queries import end_offset, is_stable
from testkit.java import java_host as tools
from testkit.java.java_host import JavaHost
from testkit.servers.brokers import NODES, Broker

HANGING, ONGOING, NOTHING = 0, 1, 2
"""Partitions: one in which a transaction hangs, one with an old one that has a coordinator, one without any."""

Txn = Callable[..., str]


@pytest.fixture
def txn(broker: Broker) -> Txn:
    """Runs a subcommand, which must end with `code`, and returns its output."""

    def run(*arguments: str, code: int = 0) -> str:
        ran = kwire("txn", *arguments, "--bootstrap-server", broker.bootstrap)
        assert ran.exit_code == code, ran.output
        return ran.stdout or ran.stderr

    return run


def test_ids_are_listed_and_described(broker: Broker, topic: str, txn: Txn, unique: Callable[[str], str]) -> None:
    name = unique("id")

    def listed(*options: str) -> list[dict[str, Any]]:
        rows = map(json.loads, txn("list", "--json", *options).splitlines())
        return [row for row in rows if row["transactional_id"] == name]

    with Confluent().producing(broker.bootstrap, name) as producer:
        described = json.loads(txn("describe", name, "--json"))
        assert (described["state"], described["start_ms"], described["partitions"]) == ("Empty", None, [])
        producer.begin()
        producer.send(topic, [b"value"])
        (row,) = listed()
        assert row["coordinator_id"] in NODES
        assert row["state"] == "Ongoing"
        assert listed("--state", "Ongoing", "--state", "PrepareCommit") == [row]
        assert listed("--state", "Empty") == []
        described = json.loads(txn("describe", name, "--json"))
        assert described["producer_id"] == row["producer_id"]
        assert described["timeout_ms"] == 60_000
        assert described["partitions"] == [{"topic": topic, "partition": 0}]
        assert described["start_ms"] > an_hour_ago_ms()
        producer.commit()
    eventually(lambda: listed()[0]["state"] == "CompleteCommit", "the transaction is complete")


def test_an_id_that_nobody_used_is_an_error(txn: Txn, unique: Callable[[str], str]) -> None:
    name = unique("id")
    assert f"no coordinator has transactional id '{name}'" in txn("describe", name, code=1)


def test_what_hangs_is_found_as_kafkas_own_tool_finds_it_and_aborted(
    broker: Broker, java: JavaHost, txn: Txn, new_topic: Callable[..., str], unique: Callable[[str], str]
) -> None:
    topic, name = new_topic(partitions=3), unique("id")

    def found(*options: str, code: int) -> list[tuple[int, int, int]]:
        """Partition, producer and start offset of each."""
        output = txn("list", "--hanging", "--json", "--topic", topic, *options, code=code)
        return [
            (row["partition"], row["producer_id"], row["start_offset"]) for row in map(json.loads, output.splitlines())
        ]

    def found_by_kafka() -> list[list[str]]:
        at = ("--bootstrap-server", broker.bootstrap)
        lines = java.succeed(tools.TRANSACTIONS, *at, "find-hanging", "--topic", topic).lines
        return [line.split()[:3] for line in lines[1:]]

    def abort(partition: int, start_offset: int, code: int = 0) -> str:
        where = ("--topic", topic, "--partition", str(partition), "--start-offset", str(start_offset))
        return txn("abort", *where, "--yes", code=code)

    confluent.fill(broker.bootstrap, topic, [b"before"], partition=HANGING)
    leave_hanging(broker.bootstrap, (topic, HANGING))
    confluent.fill(broker.bootstrap, topic, [b"held back"], partition=HANGING)
    with confluent.producing(broker.bootstrap, **{"transactional.id": name}) as producer:
        producer.init_transactions(CALL_TIMEOUT_S)
        producer.begin_transaction()
        confluent.send_all(producer, topic, [b"open"], partition=ONGOING, timestamp=an_hour_ago_ms())

        assert found(code=1) == [(HANGING, PRODUCER_ID, 1)]
        assert found_by_kafka() == [[topic, str(HANGING), str(PRODUCER_ID)]]
        assert found("--partition", str(ONGOING), code=0) == []
        assert found("--max-transaction-timeout", "120", code=0) == []
        assert f"'{name}' is Ongoing" in abort(ONGOING, 0, code=1)
        assert "none is open there" in abort(NOTHING, 0, code=1)
        assert "open there, by start offset: 1" in abort(HANGING, 0, code=1)
        assert end_offset(broker.bootstrap, (topic, HANGING), committed=True) == 1

        assert f"aborted the transaction of producer {PRODUCER_ID}" in abort(HANGING, 1)
        assert found(code=0) == []
        assert found_by_kafka() == []
        assert end_offset(broker.bootstrap, (topic, HANGING), committed=True) == 4
        producer.commit_transaction(CALL_TIMEOUT_S)
    eventually(lambda: is_stable(broker.bootstrap, (topic, ONGOING)), "nothing is held back")
    seen = Confluent().values(broker.bootstrap, topic, [HANGING, ONGOING], committed=True)
    assert seen == [b"before", b"held back", b"open"]
