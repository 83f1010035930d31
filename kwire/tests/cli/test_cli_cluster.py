"""`kwire cluster` over a cluster that is made up: how it tells what it finds, and what it changes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from copy import deepcopy
from types import SimpleNamespace
from typing import Any

import attrs
import click
import pytest
from click.testing import CliRunner, Result
from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from kwire_protocol.messages.describe_cluster import DescribeClusterRequest
from kwire_protocol.messages.describe_configs import DescribeConfigsRequest
from kwire_protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from kwire_protocol.messages.describe_quorum import DescribeQuorumRequest
from kwire_protocol.messages.elect_leaders import ElectLeadersRequest
from kwire_protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from kwire_protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from kwire_protocol.messages.unregister_broker import UnregisterBrokerRequest

from devtools.ports import free_port
from kwire.cli import main
from kwire.cli.cluster import moves, watching
from kwire.cli.columns import size_text
from kwire.cli.reaching import Reach
from kwire.client.cluster import Cluster, TopicPartition
from kwire.tests.admin.cluster_brokers import ClusterBrokers
from kwire.tests.client.fakes import FakeClock

E = ErrorCode
MIB = 1 << 20


@attrs.define
class Client:
    """Runs `kwire cluster` with these brokers for a cluster."""

    brokers: ClusterBrokers

    def __call__(self, *arguments: str, stdin: str = "") -> Result:
        return CliRunner().invoke(main, ["cluster", *arguments], input=stdin)


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Client:
    brokers = ClusterBrokers()

    def connect(reach: Reach) -> Cluster:
        assert (reach.bootstrap, reach.timeout_s) == ("127.0.0.1:9092", 30)
        return brokers.cluster()

    monkeypatch.setattr(Reach, "cluster", connect)
    return Client(brokers)


def rows(result: Result, kind: str | None = None) -> list[Any]:
    found = [json.loads(line) for line in result.stdout.splitlines()]
    return [it for it in found if kind is None or it["type"] == kind]


def lines(result: Result) -> list[str]:
    """Words apart by one space."""
    return [" ".join(line.split()) for line in result.stdout.splitlines()]


# status


def test_a_cluster_in_good_order_is_shown_and_exits_with_0(client: Client) -> None:
    client.brokers.has("orders-0", [1, 2])
    client.brokers.has("orders-1", [2, 1])
    result = client("status")
    assert (result.exit_code, result.stderr) == (0, "")
    assert lines(result) == [
        "cluster a-cluster",
        "controller 2",
        "topics 1 with 2 partitions",
        "",
        "NODE ADDRESS RACK STATE LEADS REPLICAS",
        "1 node:1 rack-1 in service 1 2",
        "2 node:2 rack-2 in service 1 2 controller",
        "3 node:3 rack-3 in service 0 0",
        "",
        "offline 0",
        "under-replicated 0",
        "below min.insync.replicas 0",
        "reassignments 0",
    ]
    assert client.brokers.requests(DescribeConfigsRequest) == []


def test_partitions_that_need_attention_are_named_and_the_exit_code_is_1(client: Client) -> None:
    client.brokers.nodes.remove(3)
    client.brokers.fenced.append(3)
    client.brokers.min_isr = "2"
    client.brokers.has("orders-0", [3], leader=-1)
    client.brokers.has("orders-1", [1, 3], [1])
    client.brokers.has("orders-2", [1, 2])
    client.brokers.has("well-0", [1, 2])
    result = client("status")
    assert result.exit_code == 1
    assert "3 node:3 - fenced 0 2" in lines(result)
    assert lines(result)[-4:] == [
        "offline 1 orders-0",
        "under-replicated 1 orders-1 (in sync 1 of 1,3)",
        "below min.insync.replicas 1 orders-1 (in sync 1 of 1,3)",
        "reassignments 0",
    ]
    (asked,) = client.brokers.requests(DescribeConfigsRequest)
    assert [it.resource_name for it in asked.resources] == ["orders"]


def test_json_of_a_cluster_has_stable_names(client: Client) -> None:
    client.brokers.has("t-0", [1, 2], [1])
    client.brokers.moves("t-1", [1], [2])
    result = client("status", "--json")
    assert result.exit_code == 1
    assert rows(result) == [
        {
            "type": "cluster",
            "cluster_id": "a-cluster",
            "controller_id": 2,
            "healthy": False,
            "nodes": 3,
            "topics": 1,
            "partitions": 2,
            "offline": 0,
            "under_replicated": 1,
            "below_min_isr": 0,
            "reassignments": 1,
            "notes": [],
        },
        *(
            {
                "type": "node",
                "node_id": node_id,
                "host": "node",
                "port": node_id,
                "rack": f"rack-{node_id}",
                "state": "in_service",
                "controller": node_id == 2,
                "leads": leads,
                "replicas": replicas,
            }
            for node_id, leads, replicas in ((1, 2, 2), (2, 0, 2), (3, 0, 0))
        ),
        {
            "type": "partition",
            "topic": "t",
            "partition": 0,
            "leader_id": 1,
            "replicas": [1, 2],
            "isr": [1],
            "min_isr": 1,
            "offline": False,
            "under_replicated": True,
            "below_min_isr": False,
        },
        {
            "type": "reassignment",
            "topic": "t",
            "partition": 1,
            "replicas": [2, 1],
            "adding": [2],
            "removing": [1],
            "target": [2],
        },
    ]


def test_replicas_that_a_reassignment_adds_need_not_be_in_sync(client: Client) -> None:
    client.brokers.moves("t-0", [1, 2], [2, 3])
    assert client("status").exit_code == 0
    client.brokers.partitions[TopicPartition("t", 0)].isr = [1]
    assert client("status").exit_code == 1


def test_a_reassignment_that_leaves_too_few_in_sync_to_write_is_not_well(client: Client) -> None:
    client.brokers.min_isr = "2"
    client.brokers.moves("t-0", [1], [1, 2])
    (found,) = rows(client("status", "--json"), "partition")
    assert (found["under_replicated"], found["below_min_isr"]) == (False, True)
    assert client("status").exit_code == 1


def test_one_replica_is_enough_for_a_topic_that_has_only_one(client: Client) -> None:
    client.brokers.min_isr = "2"
    client.brokers.has("t-0", [1])
    assert client("status").exit_code == 0


def test_only_the_first_names_are_shown_unless_all_are_asked_for(client: Client) -> None:
    for index in range(12):
        client.brokers.has(f"t-{index}", [1], leader=-1)
    told = client("status").stdout
    assert "t-9 and 2 more\n" in told
    assert "--all names all of them" in told
    assert "t-11\n" in client("status", "--all").stdout
    assert "--all" not in client("status", "--all").stdout
    assert len(rows(client("status", "--json"), "partition")) == 12


def test_names_do_not_control_the_terminal(client: Client) -> None:
    client.brokers.has("\x1b[2J-0", [1, 2], [1])
    client.brokers.moves("\x1b[3J-0", [1], [2])
    result = client("status")
    assert "\x1b" not in result.output
    assert "\\x1b[2J-0" in result.stdout
    assert "\\x1b[3J-0 (1 -> 2)" in result.stdout
    assert "\x1b" not in client("reassignments").output


def test_brokers_that_are_too_old_are_described_as_far_as_they_tell(client: Client) -> None:
    client.brokers.nodes.remove(3)
    client.brokers.controller_id = 1
    client.brokers.has("t-0", [1, 3])
    for request in (DescribeQuorumRequest, ListPartitionReassignmentsRequest):
        client.brokers.does_not_serve(request)
    client.brokers.does_not_serve(DescribeClusterRequest, newest=1)
    result = client("status")
    assert result.exit_code == 0
    assert "1 node:1 rack-1 in service 1 1 controller" in lines(result)
    assert "3 - - missing 0 1" in lines(result)
    assert lines(result)[-1] == "reassignments not known"
    notes = result.stderr.splitlines()
    assert [it.partition(": the broker")[0] for it in notes] == [
        "note: reassignments are not known",
        "note: fenced brokers are listed only if they have replicas",
    ]
    (found,) = rows(client("status", "--json"), "cluster")
    assert found["reassignments"] is None
    assert len(found["notes"]) == 2


def test_what_a_client_may_not_see_is_noted_and_the_rest_is_shown(client: Client) -> None:
    client.brokers.has("t-0", [1, 2], [1])
    for request in (
        DescribeClusterRequest,
        DescribeConfigsRequest,
        DescribeQuorumRequest,
        ListPartitionReassignmentsRequest,
    ):
        client.brokers.refuses[request] = E.CLUSTER_AUTHORIZATION_FAILED
    result = client("status")
    assert result.exit_code == 1
    assert result.stderr.count("CLUSTER_AUTHORIZATION_FAILED") == 4
    assert "controller none, or not known" in lines(result)
    assert "under-replicated 1 t-0 (in sync 1 of 1,2)" in lines(result)


def test_a_controller_that_is_no_broker_is_named(client: Client) -> None:
    client.brokers.quorum_leader = 3000
    assert "controller 3000 (not a broker)" in lines(client("status"))
    client.brokers.quorum_leader = -1
    assert "controller none, or not known" in lines(client("status"))


# reassignments


def test_reassignments_are_listed_with_what_is_copied(client: Client) -> None:
    assert client("reassignments").stdout == "no reassignment is in progress\n"
    assert client("reassignments", "--json").stdout == ""
    client.brokers.moves("t-0", [1], [2, 3], n1=100 * MIB, n2=50 * MIB)
    client.brokers.moves("t-1", [1], [2], n2=5)
    result = client("reassignments")
    assert lines(result) == [
        "PARTITION FROM TO COPIED OF %",
        "t-0 1 2,3 50.0 MiB 200.0 MiB 25",
        "t-1 1 2 5 B - -",
    ]
    first, second = rows(client("reassignments", "--json"))
    assert first == {
        "type": "reassignment",
        "topic": "t",
        "partition": 0,
        "replicas": [2, 3, 1],
        "adding": [2, 3],
        "removing": [1],
        "target": [2, 3],
        "copied_bytes": 50 * MIB,
        "total_bytes": 200 * MIB,
        "percent": 25,
    }
    assert (second["total_bytes"], second["percent"]) == (None, None)


def test_without_a_terminal_a_watch_prints_a_line_for_each_change(client: Client) -> None:
    client.brokers.copies_per_look = 50
    client.brokers.moves("t-0", [1], [2], n1=100)
    result = client("reassignments", "--watch")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.splitlines() == [
        "t-0 -> 2: 0% of 100 B copied",
        "t-0 -> 2: 50% of 100 B copied",
        "t-0 -> 2: 100% of 100 B copied",
        "t-0 -> 2: complete",
    ]
    assert client("reassignments", "--watch").stdout == "no reassignment is in progress\n"


def test_a_watch_does_not_repeat_itself_while_nothing_changes(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    moving = client.brokers.moves("t-0", [1], [2], n1=100, n2=10)

    def sleep(clock: FakeClock, seconds: float) -> None:
        clock.now_s += seconds
        if clock.now_s > 60:
            moving.replicas, moving.adding, moving.removing = [1], [], []

    monkeypatch.setattr(FakeClock, "sleep", sleep)
    result = client("reassignments", "--watch")
    assert result.stdout.splitlines() == ["t-0 -> 2: 10% of 100 B copied", "t-0 -> 2: cancelled"]
    assert result.exit_code == 1


def test_on_a_terminal_a_watch_shows_bars(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # for rich this is a terminal
    client.brokers.copies_per_look = 50
    client.brokers.moves("t-0", [1], [2], n1=100)
    result = client("reassignments", "--watch")
    assert result.exit_code == 0
    assert result.stdout.splitlines() == ["t-0 -> 2: complete"]
    assert "100/100 bytes" in result.stderr


@pytest.mark.parametrize("shared", [False, True])
def test_bars_of_what_has_ended_go_and_a_line_stays(
    client: Client, monkeypatch: pytest.MonkeyPatch, shared: bool
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    if shared:  # standard output is the same terminal
        monkeypatch.setattr(watching, "sys", SimpleNamespace(stdout=SimpleNamespace(isatty=lambda: True)))
    client.brokers.copies_per_look = 50
    client.brokers.moves("t-0", [1], [2], n1=100)
    client.brokers.moves("t-1", [1], [2], n1=400)
    result = client("reassignments", "--watch")
    assert result.exit_code == 0
    assert result.stdout == ("" if shared else "t-0 -> 2: complete\nt-1 -> 2: complete\n")
    bars = result.stderr.replace("t-0 -> 2: complete", "")
    assert bars.rpartition("t-0 -> 2")[2].count("t-1 -> 2") >= 3
    assert ("t-1 -> 2: complete" in result.stderr) is shared


# move


def test_a_partition_is_moved_after_its_consequences_are_told(client: Client) -> None:
    client.brokers.has("t-0", [1, 2]).sizes = {1: 3 * MIB}
    refused = client("move", "t-0", "--to", "2,3,4", stdin="n\n")
    assert refused.exit_code == 1
    assert client.brokers.requests(AlterPartitionReassignmentsRequest) == []
    assert [line.removesuffix("n") for line in refused.stdout.splitlines()[:7]] == [
        "t-0 is on 1,2, and is to be on 2,3,4.",
        "Each of brokers 3,4 copies 3.0 MiB from broker 1, 6.0 MiB in total.",
        "The replicas on broker 1 are deleted when all others are in sync.",
        "Its replication factor becomes 3; it is 2.",
        "Its preferred leader becomes broker 2.",
        "Not in service: broker 4. The reassignment is not complete before it is.",
        "move it? [y/N]: ",
    ]
    done = client("move", "t-0", "--to", "2,3,4", stdin="y\n")
    assert done.exit_code == 0
    assert done.stdout.endswith("moving t-0 to 2,3,4\n")
    (request,) = client.brokers.requests(AlterPartitionReassignmentsRequest)
    assert request.topics[0].partitions[0].replicas == [2, 3, 4]
    assert client("move", "t-0", "--to", "2,3,4", "--yes").stdout == "t-0 is being moved to 2,3,4 already\n"
    assert len(client.brokers.requests(AlterPartitionReassignmentsRequest)) == 1


def test_a_move_that_replaces_another_says_so(client: Client) -> None:
    client.brokers.moves("t-0", [1], [2], n1=1023)
    told = client("move", "t-0", "--to", "3", stdin="y\n").stdout
    assert "Its reassignment to 2 is in progress, and ends." in told
    assert "Broker 3 copies 1023 B from broker 1." in told


def test_a_move_that_copies_nothing_says_so(client: Client) -> None:
    client.brokers.has("t-0", [1, 2])
    told = client("move", "t-0", "--to", "2,1", stdin="n\n").stdout
    assert "Nothing is copied." in told
    assert "Its preferred leader becomes broker 2." in told


def test_a_move_without_a_leader_or_a_size_says_so(client: Client) -> None:
    client.brokers.has("t-0", [1], leader=-1)
    assert "It has no leader: broker 2 cannot copy it" in client("move", "t-0", "--to", "2", stdin="n\n").stdout
    client.brokers.has("t-0", [1])
    assert "copies an unknown number of bytes" in client("move", "t-0", "--to", "2", stdin="n\n").stdout


def test_a_partition_that_is_where_it_is_to_be_is_left_alone(client: Client) -> None:
    client.brokers.has("t-0", [1, 2])
    result = client("move", "t-0", "--to", "1,2", "--yes", "--watch")
    assert (result.exit_code, result.stdout) == (0, "t-0 is on 1,2 already\n")
    assert client.brokers.requests(AlterPartitionReassignmentsRequest) == []


def test_a_move_is_watched_until_it_is_complete(client: Client) -> None:
    client.brokers.copies_per_look = 100
    client.brokers.has("t-0", [1]).sizes = {1: 100}
    client.brokers.moves("other-0", [1], [2])
    result = client("move", "t-0", "--to", "2", "--yes", "--watch")
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "moving t-0 to 2",
        "t-0 -> 2: 0% of 100 B copied",
        "t-0 -> 2: 100% of 100 B copied",
        "t-0 -> 2: complete",
    ]


def limits(client: Client) -> dict[str, dict[str, str]]:
    return {name: known for (_, name), known in client.brokers.configs.items() if known}


def test_a_move_is_limited_until_it_is_complete(client: Client) -> None:
    client.brokers.copies_per_look = 100
    client.brokers.has("t-0", [1, 2]).sizes = {1: 100}
    client.brokers.configs[2, "t"] = {"leader.replication.throttled.replicas": "7:1"}
    seen = {}

    def log_dirs(node_id: int, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
        seen.update(deepcopy(limits(client)))
        return client.brokers._log_dirs(node_id, request)

    client.brokers.network.answers[DescribeLogDirsRequest] = log_dirs
    result = client("move", "t-0", "--to", "2,3", "--yes", "--watch", "--throttle", "2048")
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines() == [
        "limiting t-0 to 2.0 KiB per second",
        "moving t-0 to 2,3",
        "t-0 -> 2,3: 0% of 100 B copied",
        "t-0 -> 2,3: 100% of 100 B copied",
        "t-0 -> 2,3: complete",
        "removed the limit on t-0",
    ]
    assert seen == {
        "t": {
            "leader.replication.throttled.replicas": "7:1,0:2,0:1",
            "follower.replication.throttled.replicas": "0:3",
        },
        "1": {"leader.replication.throttled.rate": "2048"},
        "2": {"leader.replication.throttled.rate": "2048"},
        "3": {"follower.replication.throttled.rate": "2048"},
    }
    assert limits(client) == {"t": {"leader.replication.throttled.replicas": "7:1"}}


def test_an_interrupted_watch_leaves_the_limit_and_says_how_to_remove_it(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_cluster: Cluster, _only: object) -> None:
        raise KeyboardInterrupt

    client.brokers.has("t-0", [1]).sizes = {1: 100}
    with monkeypatch.context() as patched:
        patched.setattr(moves, "watch_until_ended", interrupted)
        result = client("move", "t-0", "--to", "2", "--yes", "--watch", "--throttle", "1")
    assert result.exit_code == 1
    assert "the limit on t-0 stays. To remove it, repeat the command, or --cancel\n" in result.stderr
    assert limits(client).keys() == {"t", "1", "2"}
    told = client("move", "t-0", "--cancel", "--yes").stdout
    assert told == "cancelled the reassignment of t-0\nremoved the limit on t-0\n"
    assert limits(client) == {}


def test_a_repeated_command_removes_the_limit_of_what_is_complete(client: Client) -> None:
    client.brokers.has("t-0", [2])
    client.brokers.configs[2, "t"] = {"follower.replication.throttled.replicas": "0:2"}
    result = client("move", "t-0", "--to", "2", "--watch", "--throttle", "1")
    assert (result.exit_code, result.stdout) == (0, "t-0 is on 2 already\nremoved the limit on t-0\n")
    assert limits(client) == {}


def test_a_rate_that_other_reassignments_may_need_stays(client: Client) -> None:
    client.brokers.copies_per_look = 100
    client.brokers.has("t-0", [1]).sizes = {1: 100}
    client.brokers.moves("other-0", [1], [2])
    assert client("move", "t-0", "--to", "2", "--yes", "--watch", "--throttle", "1").exit_code == 0
    assert limits(client).keys() == {"1", "2"}


def test_a_move_that_is_refused_leaves_no_limit(client: Client) -> None:
    client.brokers.has("t-0", [1])
    client.brokers.refuses[AlterPartitionReassignmentsRequest] = E.INVALID_REPLICA_ASSIGNMENT
    result = client("move", "t-0", "--to", "2", "--yes", "--watch", "--throttle", "1")
    assert result.exit_code == 1
    assert result.stderr == "Error: t-0 cannot be moved: INVALID_REPLICA_ASSIGNMENT (the broker's own words)\n"
    assert limits(client) == {}


def test_a_limit_that_is_refused_begins_no_move(client: Client) -> None:
    client.brokers.has("t-0", [1])
    client.brokers.refuses[IncrementalAlterConfigsRequest] = E.CLUSTER_AUTHORIZATION_FAILED
    result = client("move", "t-0", "--to", "2", "--yes", "--watch", "--throttle", "1")
    assert result.stderr == "Error: the limit of broker 1 cannot be changed: CLUSTER_AUTHORIZATION_FAILED\n"
    assert client.brokers.requests(AlterPartitionReassignmentsRequest) == []


def test_a_move_is_cancelled(client: Client) -> None:
    client.brokers.moves("t-0", [1, 2], [2, 3])
    kept = client("move", "t-0", "--cancel", stdin="n\n")
    assert (kept.exit_code, client.brokers.requests(AlterPartitionReassignmentsRequest)) == (1, [])
    assert "t-0 stays on 2,1. What broker 3 copied so far is deleted.\n" in kept.stdout
    result = client("move", "t-0", "--cancel", "--yes")
    assert (result.exit_code, result.stdout) == (0, "cancelled the reassignment of t-0\n")
    again = client("move", "t-0", "--cancel", "--yes")
    assert again.exit_code == 1
    assert again.stderr == "Error: the reassignment of t-0 cannot be cancelled: NO_REASSIGNMENT_IN_PROGRESS\n"


def test_a_cluster_that_refuses_a_move_is_told_in_one_line(client: Client) -> None:
    client.brokers.has("t-0", [1])
    client.brokers.refuses[AlterPartitionReassignmentsRequest] = E.INVALID_REPLICA_ASSIGNMENT
    result = client("move", "t-0", "--to", "9", "--yes")
    assert result.exit_code == 1
    assert result.stderr == "Error: t-0 cannot be moved: INVALID_REPLICA_ASSIGNMENT (the broker's own words)\n"
    assert client("move", "u-0", "--to", "1", "--yes").stderr == "Error: there is no topic 'u'\n"
    assert client("move", "t-1", "--to", "1", "--yes").stderr == (
        "Error: topic 't' has no partition 1, but 1 of them, from 0\n"
    )
    client.brokers.does_not_serve(ListPartitionReassignmentsRequest)
    assert "does not serve ListPartitionReassignments" in client("reassignments").stderr


# elect


def test_preferred_leaders_are_elected_where_others_lead(client: Client) -> None:
    client.brokers.has("t-0", [1, 2], leader=2)
    client.brokers.has("t-1", [2, 1])
    client.brokers.has("u-0", [3, 1], [1], leader=1)
    result = client("elect", "--topic", "t")
    assert (result.exit_code, lines(result)) == (0, ["PARTITION LEADER BEFORE LEADER PROBLEM", "t-0 2 1"])
    assert client("elect", "--topic", "t").stdout == "every partition is led by its preferred leader in topic t\n"
    failed = client("elect", "--json")
    assert failed.exit_code == 1
    assert rows(failed) == [
        {
            "type": "election",
            "topic": "u",
            "partition": 0,
            "leader_before": 1,
            "leader_id": 1,
            "problem": "PREFERRED_LEADER_NOT_AVAILABLE (broker 3 is not in sync)",
        }
    ]
    assert [it.election_type for it in client.brokers.requests(ElectLeadersRequest)] == [0, 0]


def test_an_unclean_election_is_for_partitions_without_a_leader_and_asks_first(client: Client) -> None:
    assert client("elect", "--unclean").stdout == "every partition has a leader\n"
    client.brokers.nodes.remove(3)
    client.brokers.has("t-0", [3, 1], [3], leader=-1)
    client.brokers.has("t-1", [2, 1], leader=1)
    refused = client("elect", "--unclean", stdin="n\n")
    assert (refused.exit_code, client.brokers.requests(ElectLeadersRequest)) == (1, [])
    assert "without a leader: t-0.\n" in refused.stdout
    assert "lost" in refused.stdout
    result = client("elect", "--unclean", "--yes")
    assert (result.exit_code, lines(result)[1:]) == (0, ["t-0 - 1"])
    (request,) = client.brokers.requests(ElectLeadersRequest)
    assert (request.election_type, request.topic_partitions[0].partitions) == (1, [0])


def test_a_broker_that_knows_no_unclean_elections_is_told(client: Client) -> None:
    client.brokers.has("t-0", [1], leader=-1)
    client.brokers.does_not_serve(ElectLeadersRequest, newest=0)
    result = client("elect", "--unclean", "--yes")
    assert result.exit_code == 1
    assert "does not serve ElectLeaders" in result.stderr


def test_an_election_that_is_refused_is_told_in_one_line(client: Client) -> None:
    client.brokers.has("t-0", [1, 2], leader=2)
    client.brokers.refuses[ElectLeadersRequest] = E.CLUSTER_AUTHORIZATION_FAILED
    assert client("elect").stderr == "Error: no leader is elected: CLUSTER_AUTHORIZATION_FAILED\n"
    assert client("elect", "--topic", "u").stderr == "Error: there is no topic 'u'\n"


# forget


def test_a_broker_is_forgotten_after_it_is_told_what_that_means(client: Client) -> None:
    client.brokers.fenced = [4]
    client.brokers.has("t-0", [1, 4], [1])
    refused = client("forget", "4", stdin="n\n")
    assert (refused.exit_code, client.brokers.fenced) == (1, [4])
    assert "Partitions that keep a replica there, and are under-replicated until moved: 1.\n" in refused.stdout
    result = client("forget", "4", stdin="y\n")
    assert (result.exit_code, client.brokers.fenced) == (0, [])
    assert result.stdout.endswith("broker 4 is forgotten\n")
    again = client("forget", "4", "--yes")
    assert again.stderr == "Error: broker 4 is not forgotten: BROKER_ID_NOT_REGISTERED\n"


def test_a_broker_that_alone_has_records_is_forgotten_only_by_force(client: Client) -> None:
    client.brokers.fenced = [4]
    client.brokers.has("t-0", [4], leader=-1)
    client.brokers.has("t-1", [1, 4], [4], leader=-1)
    client.brokers.has("t-2", [1, 4], [1])
    refused = client("forget", "4", "--yes")
    assert (refused.exit_code, client.brokers.requests(UnregisterBrokerRequest)) == (1, [])
    assert "no other broker has all records of t-0, t-1: start broker 4" in refused.stderr
    assert "--force" in refused.stderr
    asked = client("forget", "4", "--force", stdin="n\n")
    assert "they are lost with broker 4" in asked.stdout
    assert client("forget", "4", "--force", "--yes").exit_code == 0
    assert client.brokers.fenced == []


def test_a_broker_in_service_is_not_forgotten(client: Client) -> None:
    result = client("forget", "1", "--yes", "--force")
    assert (result.exit_code, client.brokers.requests(UnregisterBrokerRequest)) == (1, [])
    assert result.stderr == "Error: broker 1 is in service: stop it before it is forgotten\n"


# All


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("move", "t-0"), "by --to, or --cancel"),
        (("move", "t-0", "--to", "1", "--cancel"), "by --to, or --cancel"),
        (("move", "t-0", "--cancel", "--watch"), "leave --watch out"),
        (("move", "t-0", "--to", "1", "--throttle", "1"), "--throttle needs --watch"),
        (("move", "t-0", "--to", "1", "--watch", "--throttle", "0"), "0 is not in the range"),
        (("move", "t", "--to", "1"), "'t' is not TOPIC-PARTITION, such as orders-0"),
        (("move", "t-x", "--to", "1"), "is not TOPIC-PARTITION"),
        (("move", "t-9999999999", "--to", "1"), "is not TOPIC-PARTITION"),
        (("move", "t-0", "--to", "1,x"), "'1,x' is not a list of node ids, such as 2,3,1"),
        (("move", "t-0", "--to", ""), "is not a list of node ids"),
        (("move", "t-0", "--to", "1,2,1"), "names a broker twice"),
        (("reassignments", "--watch", "--json"), "leave it or --watch out"),
        (("elect", "--yes"), "--yes is for --unclean"),
    ],
)
def test_what_does_not_go_together_is_a_usage_error(client: Client, arguments: Sequence[str], told: str) -> None:
    result = client(*arguments)
    assert result.exit_code == click.UsageError.exit_code
    assert told in result.stderr


def test_a_cluster_that_is_not_there_is_told_in_one_line() -> None:
    nobody = f"127.0.0.1:{free_port()}"
    for command in (
        ("status",),
        ("reassignments", "--watch"),
        ("forget", "1"),
        ("elect",),
        ("move", "t-0", "--cancel"),
    ):
        result = CliRunner().invoke(main, ["cluster", *command, "--bootstrap-server", nobody])
        assert result.exit_code == 1
        assert result.stderr.startswith(f"Error: cannot reach {nobody}: Connection refused.")
        assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("size", "told"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (5 << 29, "2.5 GiB"), (3 << 50, "3,072.0 TiB")],
)
def test_sizes_are_told_in_a_unit_that_suits_them(size: int, told: str) -> None:
    assert size_text(size) == told
