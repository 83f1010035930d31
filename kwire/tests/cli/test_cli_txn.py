"""`kwire txn` over a cluster that is made up: its output and its aborts."""

from __future__ import annotations

from collections.abc import Sequence

import click
import pytest
from click.testing import CliRunner
from kwire_protocol.errors import ErrorCode

from devtools.ports import free_port
from devtools.suite.snapshots import Snapshot
from kwire.admin.transactions import OpenTransaction
from kwire.cli import main
from kwire.cli.txn import commands
from testkit.cli.json_page import check_all_keys
from testkit.cli.prompt import ClusterClient
from testkit.fakes.txn_brokers import Coordinated, TxnBrokers

E = ErrorCode
NOW_MS = 10_000_000
OLD_MS = NOW_MS - 900_000 - 1


Client = ClusterClient[TxnBrokers]


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Client:
    """A client whose commands run at NOW_MS."""

    class Clock:
        def now_ms(self) -> int:
            return NOW_MS

    monkeypatch.setattr(commands, "SystemClock", Clock)
    return Client.of("txn", TxnBrokers(), monkeypatch)


def test_lists_of_transactions_as_people_see_them(client: Client, snapshot: Snapshot) -> None:
    client("list")
    client("list", "--hanging")
    client.brokers.ids = {"b": Coordinated(8, "Empty"), "a\x1b[2J": Coordinated(7, node_id=2)}
    client("list")
    client("list", "--state", "Dead")
    client.brokers.opens("or\x1bders", 3, 9, 4711, last_timestamp=OLD_MS, producer_epoch=5, coordinator_epoch=-1)
    client.brokers.leaders["or\x1bders", 0] = -1
    client("list", "--hanging", code=1)
    snapshot("txn-list", client.transcript)


def test_ids_are_listed_with_their_coordinators(client: Client) -> None:
    assert client.json("list") == []
    client.brokers.ids = {"b": Coordinated(8, "Empty"), "a": Coordinated(7, node_id=2)}
    assert [(it["transactional_id"], it["coordinator_id"], it["state"]) for it in client.json("list")] == [
        ("b", 1, "Empty"),
        ("a", 2, "Ongoing"),
    ]
    assert client.json("list", "--state", "Empty") == [
        {"type": "transactional_id", "transactional_id": "b", "coordinator_id": 1, "producer_id": 8, "state": "Empty"}
    ]


def test_hanging_transactions_are_listed_and_the_exit_code_is_1(client: Client) -> None:
    client.brokers.ids = {"a": Coordinated(7, "Empty")}
    assert client.json("list", "--hanging") == []
    client.brokers.opens("orders", 3, 7, 4711, last_timestamp=OLD_MS, producer_epoch=5, coordinator_epoch=-1)
    client("list", "--hanging", code=1)
    rows = client.json("list", "--hanging", code=1)
    check_all_keys("txn list", [*client.json("list"), *rows])
    assert rows == [
        {
            "type": "hanging",
            "topic": "orders",
            "partition": 3,
            "leader_id": 1,
            "producer_id": 7,
            "producer_epoch": 5,
            "coordinator_epoch": -1,
            "start_offset": 4711,
            "last_timestamp_ms": OLD_MS,
            "minutes": 15,
        }
    ]
    assert client.json("list", "--hanging", "--max-transaction-timeout", "16") == []


def test_a_partition_that_was_not_looked_at_is_no_all_clear(client: Client) -> None:
    client.brokers.leaders["orders", 0] = -1
    assert client.json("list", "--hanging", code=1) == []
    assert client.stderr == "not looked at: orders-0 has no leader\n"
    assert client("list", "--hanging", code=1).stdout == ""


def test_ids_as_people_see_them(client: Client, snapshot: Snapshot) -> None:
    client.brokers.ids["a"] = Coordinated(7, "Ongoing", [("orders", 1), ("or\x1bders", 0)], node_id=2)
    client("describe", "a")
    client.brokers.ids["a"] = Coordinated(7, "Empty", start_ms=-1)
    client("describe", "a")
    snapshot("txn-describe", client.transcript)


def test_an_id_is_described(client: Client) -> None:
    client.brokers.ids["a"] = Coordinated(7, "Ongoing", [("orders", 1), ("orders", 0)], node_id=2)
    described = client.json("describe", "a")
    check_all_keys("txn describe", described)
    assert described == [
        {
            "type": "transaction",
            "transactional_id": "a",
            "coordinator_id": 2,
            "producer_id": 7,
            "producer_epoch": 3,
            "state": "Ongoing",
            "timeout_ms": 60000,
            "start_ms": 500,
            "partitions": [{"topic": "orders", "partition": 0}, {"topic": "orders", "partition": 1}],
        }
    ]
    client.brokers.ids["a"] = Coordinated(7, "Empty", start_ms=-1)
    assert client.json("describe", "a")[0]["start_ms"] is None
    assert "'b'" in client("describe", "b", code=1).stderr


HANGING = ("abort", "--topic", "orders", "--partition", "0")


@pytest.mark.parametrize("which", [("--start-offset", "100"), ("--producer-id", "7")])
def test_a_hanging_transaction_is_aborted_by_the_leader_of_its_partition(client: Client, which: Sequence[str]) -> None:
    client.brokers.opens("orders", 0, 6, 90, leader=2)
    client.brokers.opens("orders", 0, 7, 100, leader=2, producer_epoch=5, coordinator_epoch=12)
    result = client(*HANGING, *which, "--yes")
    assert result.output == "aborted the transaction of producer 7, epoch 5, in orders-0 from offset 100 on\n"
    ((node_id, marker),) = client.brokers.markers()
    assert (node_id, marker.producer_id, marker.producer_epoch, marker.coordinator_epoch) == (2, 7, 5, 12)
    assert not marker.transaction_result
    assert [(topic.name, topic.partition_indexes) for topic in marker.topics] == [("orders", [0])]


def test_a_producer_without_any_marker_is_ended_in_coordinator_epoch_0(client: Client) -> None:
    client.brokers.opens("orders", 0, 7, 100, coordinator_epoch=-1)
    client(*HANGING, "--start-offset", "100", "--yes")
    assert client.brokers.markers()[0][1].coordinator_epoch == 0


def test_nothing_is_aborted_without_a_yes(client: Client) -> None:
    client.brokers.opens("orders", 0, 7, 100)
    refused = client(*HANGING, "--start-offset", "100", stdin="n\n", code=1)
    assert client.brokers.markers() == []
    assert "abort the transaction of producer 7" in refused.stdout
    client(*HANGING, "--start-offset", "100", stdin="y\n")
    assert len(client.brokers.markers()) == 1


def test_what_its_coordinator_will_end_is_aborted_only_by_force(client: Client) -> None:
    client.brokers.opens("orders", 0, 7, 100)
    client.brokers.ids["a"] = Coordinated(7, "Ongoing", [("orders", 0)], node_id=2)
    refused = client(*HANGING, "--start-offset", "100", "--yes", code=1)
    assert client.brokers.markers() == []
    for fact in ("broker 2", "'a' is Ongoing", "60000 ms", "--force"):
        assert fact in refused.stderr
    client(*HANGING, "--start-offset", "100", "--yes", "--force")
    assert len(client.brokers.markers()) == 1


def test_a_transaction_that_is_not_open_is_reported_with_those_that_are(client: Client) -> None:
    client.brokers.opens("orders", 0, 7, 100)
    client.brokers.opens("orders", 0, 8, -1)
    for which in (("--start-offset", "99"), ("--producer-id", "8")):
        result = client(*HANGING, *which, "--yes", code=1)
        assert client.brokers.markers() == []
        assert result.stderr == (
            "Error: no such transaction is open in orders-0; open there, by start offset: 100 (producer 7)\n"
        )


def test_a_leader_that_refuses_is_reported(client: Client) -> None:
    client.brokers.opens("orders", 0, 7, 100)
    client.brokers.marker_error = E.INVALID_PRODUCER_EPOCH
    result = client(*HANGING, "--producer-id", "7", "--yes", code=1)
    assert "did not abort the transaction of producer 7 in orders-0: INVALID_PRODUCER_EPOCH" in result.stderr
    client.brokers.producer_errors["orders", 0] = E.NOT_LEADER_OR_FOLLOWER
    assert "NOT_LEADER_OR_FOLLOWER" in client(*HANGING, "--producer-id", "7", "--yes", code=1).stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (HANGING, "--start-offset or by --producer-id"),
        ((*HANGING, "--start-offset", "1", "--producer-id", "2"), "--start-offset or by --producer-id"),
        (("list", "--topic", "t"), "are for --hanging"),
        (("list", "--hanging", "--partition", "0"), "--topic"),
        (("list", "--hanging", "--state", "Empty"), "leave it or --hanging out"),
        (("list", "--state", "Sleeping"), "no state 'Sleeping', only Empty, Ongoing"),
    ],
)
def test_what_does_not_go_together_is_a_usage_error(client: Client, arguments: Sequence[str], message: str) -> None:
    result = client(*arguments, code=click.UsageError.exit_code)
    assert message in result.stderr


def test_an_open_transaction_is_identified_by_where_it_began_or_by_its_producer() -> None:
    it = OpenTransaction("t", 0, 1, 7, 0, 0, 100, 0)
    assert commands.Which("t", 0, 100, None).matches(it)
    assert commands.Which("t", 0, None, 7).matches(it)
    assert not commands.Which("t", 0, 7, None).matches(it)
    assert not commands.Which("t", 0, None, 100).matches(it)


def test_a_cluster_that_cannot_be_reached_is_reported_in_one_line() -> None:
    nobody = f"127.0.0.1:{free_port()}"
    result = CliRunner().invoke(main, ["txn", "list", "--bootstrap-server", nobody])
    assert result.exit_code == 1
    hint = "--bootstrap-server names the broker to connect to"
    assert result.stderr == f"Error: cannot reach {nobody}: Connection refused. {hint}\n"


def test_an_address_that_is_none_is_a_usage_error() -> None:
    result = CliRunner().invoke(main, ["txn", "list", "--bootstrap-server", "there"])
    assert result.exit_code == click.UsageError.exit_code
    assert "--bootstrap-server 'there' is not HOST:PORT, such as 127.0.0.1:9092" in result.stderr


def test_a_partition_that_does_not_exist_is_reported_in_one_line(client: Client) -> None:
    client.brokers.opens("t", 0, 7, 100)
    result = client("abort", "--topic", "t", "--partition", "1", "--start-offset", "1", "--yes", code=1)
    assert result.stderr == "Error: topic 't' has no partition 1, but 1 of them, from 0\n"
