"""`kwire cluster` over a cluster that is made up: its output and its changes."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from types import SimpleNamespace

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
from devtools.suite.snapshots import Snapshot
from kwire.cli import main
from kwire.cli.cluster import moves, watching
from kwire.cli.columns import size_text
from kwire.client.cluster import Cluster, TopicPartition
from testkit.cli.json_page import check_all_keys
from testkit.cli.prompt import ClusterClient, of_type
from testkit.fakes.brokers import FakeClock
from testkit.fakes.cluster_brokers import ClusterBrokers

E = ErrorCode
MIB = 1 << 20
Client = ClusterClient[ClusterBrokers]


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Client:
    return Client.of("cluster", ClusterBrokers(), monkeypatch)


# status


def test_status_as_people_see_it(client: Client, snapshot: Snapshot) -> None:
    brokers = client.brokers
    client.comment("all is well")
    brokers.has("orders-0", [1, 2])
    brokers.has("orders-1", [2, 1])
    client("status")
    client.comment("broker 3 is stopped, and the controller is no broker")
    brokers.nodes.remove(3)
    brokers.fenced.append(3)
    brokers.quorum_leader = 3000
    brokers.min_isr = "2"
    brokers.has("or\x1b[2Jders-0", [3], leader=-1)
    brokers.has("or\x1b[2Jders-1", [1, 3], [1])
    brokers.moves("mo\x1b[2Jves-0", [1], [2])
    client("status", code=1)
    client.comment("there are more partitions than names that are shown, and no controller")
    brokers.quorum_leader = -1
    for index in range(12):
        brokers.has(f"t-{index}", [1], leader=-1)
    client("status", code=1)
    client("status", "--all", code=1)
    client.comment("the brokers are too old to describe a broker that has no replica")
    brokers.controller_id = 1
    brokers.partitions.clear()
    brokers.has("t-0", [1, 3])
    for request in (DescribeQuorumRequest, ListPartitionReassignmentsRequest):
        brokers.does_not_serve(request)
    brokers.does_not_serve(DescribeClusterRequest, newest=1)
    client("status")
    snapshot("cluster-status", client.transcript)


def test_a_cluster_in_good_order_is_healthy_and_no_configuration_is_read(client: Client) -> None:
    client.brokers.has("orders-0", [1, 2])
    client.brokers.has("orders-1", [2, 1])
    whole, *nodes = client.json("status")
    assert (whole["healthy"], whole["partitions"], whole["offline"]) == (True, 2, 0)
    assert [(it["type"], it["leads"], it["replicas"]) for it in nodes] == [
        ("node", 1, 2),
        ("node", 1, 2),
        ("node", 0, 0),
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
    rows = client.json("status", code=1)
    assert [(it["rack"], it["state"]) for it in of_type("node", rows)][2:] == [(None, "fenced")]
    names = ("partition", "leader_id", "offline", "under_replicated", "below_min_isr")
    assert [[it[name] for name in names] for it in of_type("partition", rows)] == [
        [0, None, True, False, False],
        [1, 1, False, True, True],
    ]
    (request,) = client.brokers.requests(DescribeConfigsRequest)
    assert [it.resource_name for it in request.resources] == ["orders"]


def test_json_of_a_cluster_has_stable_names(client: Client) -> None:
    client.brokers.has("t-0", [1, 2], [1])
    client.brokers.moves("t-1", [1], [2])
    rows = client.json("status", code=1)
    check_all_keys("cluster status", rows)
    assert rows == [
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
    client("status")
    client.brokers.partitions[TopicPartition("t", 0)].isr = [1]
    client("status", code=1)


def test_a_reassignment_that_leaves_too_few_in_sync_to_write_is_not_well(client: Client) -> None:
    client.brokers.min_isr = "2"
    client.brokers.moves("t-0", [1], [1, 2])
    (found,) = of_type("partition", client.json("status", code=1))
    assert (found["under_replicated"], found["below_min_isr"]) == (False, True)


def test_one_replica_is_enough_for_a_topic_that_has_only_one(client: Client) -> None:
    client.brokers.min_isr = "2"
    client.brokers.has("t-0", [1])
    client("status")


def test_json_has_all_partitions_that_need_attention(client: Client) -> None:
    for index in range(12):
        client.brokers.has(f"t-{index}", [1], leader=-1)
    assert len(of_type("partition", client.json("status", code=1))) == 12


def test_brokers_that_are_too_old_are_described_as_far_as_possible(client: Client) -> None:
    client.brokers.nodes.remove(3)
    client.brokers.controller_id = 1
    client.brokers.has("t-0", [1, 3])
    for request in (DescribeQuorumRequest, ListPartitionReassignmentsRequest):
        client.brokers.does_not_serve(request)
    client.brokers.does_not_serve(DescribeClusterRequest, newest=1)
    rows = client.json("status")
    (whole,) = of_type("cluster", rows)
    assert (whole["controller_id"], whole["reassignments"]) == (1, None)
    assert [it.partition(": the broker")[0] for it in whole["notes"]] == [
        "reassignments are not known",
        "fenced brokers are listed only if they have replicas",
    ]
    names = ("node_id", "host", "state", "leads", "replicas", "controller")
    assert [[it[name] for name in names] for it in of_type("node", rows)] == [
        [1, "node", "in_service", 1, 1, True],
        [2, "node", "in_service", 0, 0, False],
        [3, None, "missing", 0, 1, False],
    ]


def test_what_a_client_may_not_see_is_noted_and_the_rest_is_shown(client: Client) -> None:
    client.brokers.has("t-0", [1, 2], [1])
    for request in (
        DescribeClusterRequest,
        DescribeConfigsRequest,
        DescribeQuorumRequest,
        ListPartitionReassignmentsRequest,
    ):
        client.brokers.refuses[request] = E.CLUSTER_AUTHORIZATION_FAILED
    rows = client.json("status", code=1)
    (whole,) = of_type("cluster", rows)
    assert [it.count("CLUSTER_AUTHORIZATION_FAILED") for it in whole["notes"]] == [1] * 4
    assert whole["controller_id"] is None
    assert [it["under_replicated"] for it in of_type("partition", rows)] == [True]


@pytest.mark.parametrize(("leader", "controller"), [(3000, 3000), (-1, None)])
def test_the_controller_is_the_leader_of_the_quorum(client: Client, leader: int, controller: int | None) -> None:
    client.brokers.quorum_leader = leader
    assert client.json("status")[0]["controller_id"] == controller


# reassignments


def test_reassignments_as_people_see_them(client: Client, snapshot: Snapshot) -> None:
    client("reassignments")
    client.brokers.moves("t-0", [1], [2, 3], n1=100 * MIB, n2=50 * MIB)
    client.brokers.moves("\x1b[2J-1", [1], [2], n2=5)
    client("reassignments")
    client.brokers.partitions.clear()
    client.brokers.copies_per_request = 50
    client.brokers.moves("\x1b[2J-0", [1], [2], n1=100)
    client("reassignments", "--watch")
    snapshot("cluster-reassignments", client.transcript)


def test_reassignments_are_listed_with_what_is_copied(client: Client) -> None:
    assert client.json("reassignments") == []
    client.brokers.moves("t-0", [1], [2, 3], n1=100 * MIB, n2=50 * MIB)
    client.brokers.moves("t-1", [1], [2], n2=5)
    rows = client.json("reassignments")
    check_all_keys("cluster reassignments", rows)
    first, second = rows
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
    assert (second["copied_bytes"], second["total_bytes"], second["percent"]) == (5, None, None)


def test_a_watch_ends_at_once_if_nothing_is_in_progress(client: Client) -> None:
    assert client("reassignments", "--watch").stdout == "no reassignment is in progress\n"


def test_a_watch_does_not_repeat_itself_while_nothing_changes(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    moving = client.brokers.moves("t-0", [1], [2], n1=100, n2=10)

    def sleep(clock: FakeClock, seconds: float) -> None:
        clock.now_s += seconds
        if clock.now_s > 60:
            moving.replicas, moving.adding, moving.removing = [1], [], []

    monkeypatch.setattr(FakeClock, "sleep", sleep)
    result = client("reassignments", "--watch", code=1)
    assert result.stdout.splitlines() == ["t-0 -> 2: 10% of 100 B copied", "t-0 -> 2: cancelled"]


def watch_bars() -> Result:
    """Bars move the cursor, so `Client` does not run them."""
    return CliRunner().invoke(main, ["cluster", "reassignments", "--watch"])


def test_on_a_terminal_a_watch_shows_bars(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # for rich this is a terminal
    client.brokers.copies_per_request = 50
    client.brokers.moves("t-0", [1], [2], n1=100)
    result = watch_bars()
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
    client.brokers.copies_per_request = 50
    client.brokers.moves("t-0", [1], [2], n1=100)
    client.brokers.moves("t-1", [1], [2], n1=400)
    result = watch_bars()
    assert result.exit_code == 0
    assert result.stdout == ("" if shared else "t-0 -> 2: complete\nt-1 -> 2: complete\n")
    bars = result.stderr.replace("t-0 -> 2: complete", "")
    assert bars.rpartition("t-0 -> 2")[2].count("t-1 -> 2") >= 3
    assert ("t-1 -> 2: complete" in result.stderr) is shared


# move


def test_a_partition_is_moved_after_the_consequences_are_shown(client: Client) -> None:
    client.brokers.has("t-0", [1, 2]).sizes = {1: 3 * MIB}
    refused = client("move", "t-0", "--to", "2,3,4", stdin="n\n", code=1)
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
    assert done.stdout.endswith("moving t-0 to 2,3,4\n")
    (request,) = client.brokers.requests(AlterPartitionReassignmentsRequest)
    assert request.topics[0].partitions[0].replicas == [2, 3, 4]
    assert client("move", "t-0", "--to", "2,3,4", "--yes").stdout == "t-0 is being moved to 2,3,4 already\n"
    assert len(client.brokers.requests(AlterPartitionReassignmentsRequest)) == 1


def test_a_move_prints_that_it_replaces_another(client: Client) -> None:
    client.brokers.moves("t-0", [1], [2], n1=1023)
    output = client("move", "t-0", "--to", "3", stdin="y\n").stdout
    assert "Its reassignment to 2 is in progress, and ends." in output
    assert "Broker 3 copies 1023 B from broker 1." in output


def test_a_move_prints_that_it_copies_nothing(client: Client) -> None:
    client.brokers.has("t-0", [1, 2])
    output = client("move", "t-0", "--to", "2,1", stdin="n\n", code=1).stdout
    assert "Nothing is copied." in output
    assert "Its preferred leader becomes broker 2." in output


def test_a_move_prints_that_the_leader_or_the_size_is_missing(client: Client) -> None:
    client.brokers.has("t-0", [1], leader=-1)
    assert "It has no leader: broker 2 cannot copy it" in client("move", "t-0", "--to", "2", stdin="n\n", code=1).stdout
    client.brokers.has("t-0", [1])
    assert "copies an unknown number of bytes" in client("move", "t-0", "--to", "2", stdin="n\n", code=1).stdout


def test_a_partition_that_is_where_it_is_to_be_is_left_alone(client: Client) -> None:
    client.brokers.has("t-0", [1, 2])
    result = client("move", "t-0", "--to", "1,2", "--yes", "--watch")
    assert result.stdout == "t-0 is on 1,2 already\n"
    assert client.brokers.requests(AlterPartitionReassignmentsRequest) == []


def test_a_move_is_watched_until_it_is_complete(client: Client) -> None:
    client.brokers.copies_per_request = 100
    client.brokers.has("t-0", [1]).sizes = {1: 100}
    client.brokers.moves("other-0", [1], [2])
    result = client("move", "t-0", "--to", "2", "--yes", "--watch")
    assert result.stdout.splitlines() == [
        "moving t-0 to 2",
        "t-0 -> 2: 0% of 100 B copied",
        "t-0 -> 2: 100% of 100 B copied",
        "t-0 -> 2: complete",
    ]


def limits(client: Client) -> dict[str, dict[str, str]]:
    return {name: known for (_, name), known in client.brokers.configs.items() if known}


def test_a_move_is_limited_until_it_is_complete(client: Client) -> None:
    client.brokers.copies_per_request = 100
    client.brokers.has("t-0", [1, 2]).sizes = {1: 100}
    client.brokers.configs[2, "t"] = {"leader.replication.throttled.replicas": "7:1"}
    seen = {}

    def log_dirs(node_id: int, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
        seen.update(deepcopy(limits(client)))
        return client.brokers._log_dirs(node_id, request)

    client.brokers.network.answers[DescribeLogDirsRequest] = log_dirs
    result = client("move", "t-0", "--to", "2,3", "--yes", "--watch", "--throttle", "2048")
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


def test_an_interrupted_watch_leaves_the_limit_and_prints_how_to_remove_it(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_cluster: Cluster, _only: object) -> None:
        raise KeyboardInterrupt

    client.brokers.has("t-0", [1]).sizes = {1: 100}
    with monkeypatch.context() as patched:
        patched.setattr(moves, "watch_until_ended", interrupted)
        result = client("move", "t-0", "--to", "2", "--yes", "--watch", "--throttle", "1", code=1)
    assert "the limit on t-0 stays. To remove it, repeat the command, or --cancel\n" in result.stderr
    assert limits(client).keys() == {"t", "1", "2"}
    output = client("move", "t-0", "--cancel", "--yes").stdout
    assert output == "cancelled the reassignment of t-0\nremoved the limit on t-0\n"
    assert limits(client) == {}


def test_a_repeated_command_removes_the_limit_of_what_is_complete(client: Client) -> None:
    client.brokers.has("t-0", [2])
    client.brokers.configs[2, "t"] = {"follower.replication.throttled.replicas": "0:2"}
    result = client("move", "t-0", "--to", "2", "--watch", "--throttle", "1")
    assert result.stdout == "t-0 is on 2 already\nremoved the limit on t-0\n"
    assert limits(client) == {}


def test_a_rate_that_other_reassignments_may_need_stays(client: Client) -> None:
    client.brokers.copies_per_request = 100
    client.brokers.has("t-0", [1]).sizes = {1: 100}
    client.brokers.moves("other-0", [1], [2])
    client("move", "t-0", "--to", "2", "--yes", "--watch", "--throttle", "1")
    assert limits(client).keys() == {"1", "2"}


def test_a_move_that_is_refused_leaves_no_limit(client: Client) -> None:
    client.brokers.has("t-0", [1])
    client.brokers.refuses[AlterPartitionReassignmentsRequest] = E.INVALID_REPLICA_ASSIGNMENT
    result = client("move", "t-0", "--to", "2", "--yes", "--watch", "--throttle", "1", code=1)
    assert result.stderr == "Error: t-0 cannot be moved: INVALID_REPLICA_ASSIGNMENT (the broker's own words)\n"
    assert limits(client) == {}


def test_a_limit_that_is_refused_begins_no_move(client: Client) -> None:
    client.brokers.has("t-0", [1])
    client.brokers.refuses[IncrementalAlterConfigsRequest] = E.CLUSTER_AUTHORIZATION_FAILED
    result = client("move", "t-0", "--to", "2", "--yes", "--watch", "--throttle", "1", code=1)
    assert result.stderr == "Error: the limit of broker 1 cannot be changed: CLUSTER_AUTHORIZATION_FAILED\n"
    assert client.brokers.requests(AlterPartitionReassignmentsRequest) == []


def test_a_move_is_cancelled(client: Client) -> None:
    client.brokers.moves("t-0", [1, 2], [2, 3])
    kept = client("move", "t-0", "--cancel", stdin="n\n", code=1)
    assert client.brokers.requests(AlterPartitionReassignmentsRequest) == []
    assert "t-0 stays on 2,1. What broker 3 copied so far is deleted.\n" in kept.stdout
    result = client("move", "t-0", "--cancel", "--yes")
    assert result.stdout == "cancelled the reassignment of t-0\n"
    again = client("move", "t-0", "--cancel", "--yes", code=1)
    assert again.stderr == "Error: the reassignment of t-0 cannot be cancelled: NO_REASSIGNMENT_IN_PROGRESS\n"


def test_a_move_that_is_refused_is_reported_in_one_line(client: Client) -> None:
    client.brokers.has("t-0", [1])
    client.brokers.refuses[AlterPartitionReassignmentsRequest] = E.INVALID_REPLICA_ASSIGNMENT
    result = client("move", "t-0", "--to", "9", "--yes", code=1)
    assert result.stderr == "Error: t-0 cannot be moved: INVALID_REPLICA_ASSIGNMENT (the broker's own words)\n"
    assert client("move", "u-0", "--to", "1", "--yes", code=1).stderr == "Error: there is no topic 'u'\n"
    assert client("move", "t-1", "--to", "1", "--yes", code=1).stderr == (
        "Error: topic 't' has no partition 1, but 1 of them, from 0\n"
    )
    client.brokers.does_not_serve(ListPartitionReassignmentsRequest)
    assert "does not serve ListPartitionReassignments" in client("reassignments", code=1).stderr


# elect


def test_elections_as_people_see_them(client: Client, snapshot: Snapshot) -> None:
    brokers = client.brokers
    brokers.has("t\x1b-0", [1, 2], leader=2)
    brokers.has("s-0", [1])
    client("elect")
    client("elect")
    client("elect", "--topic", "s")
    brokers.has("u-0", [3, 1], [1], leader=1)
    client("elect", code=1)
    client.comment("broker 3 is lost")
    brokers.nodes.remove(3)
    brokers.has("u-0", [3, 1], [3], leader=-1)
    client("elect", "--unclean", stdin="n\n", code=1)
    client("elect", "--unclean", stdin="y\n")
    client("elect", "--unclean")
    snapshot("cluster-elect", client.transcript)


def test_preferred_leaders_are_elected_where_others_lead(client: Client) -> None:
    client.brokers.has("t-0", [1, 2], leader=2)
    client.brokers.has("t-1", [2, 1])
    client.brokers.has("u-0", [3, 1], [1], leader=1)
    (elected,) = client.json("elect", "--topic", "t")
    assert (elected["partition"], elected["leader_before"], elected["leader_id"], elected["problem"]) == (0, 2, 1, None)
    assert client.json("elect", "--topic", "t") == []
    failed = client.json("elect", code=1)
    check_all_keys("cluster elect", failed)
    assert failed == [
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


def test_an_unclean_election_is_for_partitions_without_a_leader_and_needs_confirmation(client: Client) -> None:
    assert client.json("elect", "--unclean") == []
    client.brokers.nodes.remove(3)
    client.brokers.has("t-0", [3, 1], [3], leader=-1)
    client.brokers.has("t-1", [2, 1], leader=1)
    client("elect", "--unclean", stdin="n\n", code=1)
    declined = client("elect", "--unclean", "--json", stdin="n\n", code=1)
    assert (declined.stdout, "without a leader: t-0.\n" in declined.stderr) == ("", True)
    assert client.brokers.requests(ElectLeadersRequest) == []
    (elected,) = client.json("elect", "--unclean", "--yes")
    assert (elected["partition"], elected["leader_before"], elected["leader_id"]) == (0, None, 1)
    (request,) = client.brokers.requests(ElectLeadersRequest)
    assert (request.election_type, request.topic_partitions[0].partitions) == (1, [0])


def test_a_broker_without_unclean_elections_is_reported(client: Client) -> None:
    client.brokers.has("t-0", [1], leader=-1)
    client.brokers.does_not_serve(ElectLeadersRequest, newest=0)
    result = client("elect", "--unclean", "--yes", code=1)
    assert "does not serve ElectLeaders" in result.stderr


def test_an_election_that_is_refused_is_reported_in_one_line(client: Client) -> None:
    client.brokers.has("t-0", [1, 2], leader=2)
    client.brokers.refuses[ElectLeadersRequest] = E.CLUSTER_AUTHORIZATION_FAILED
    assert client("elect", code=1).stderr == "Error: no leader is elected: CLUSTER_AUTHORIZATION_FAILED\n"
    assert client("elect", "--topic", "u", code=1).stderr == "Error: there is no topic 'u'\n"


# forget


def test_a_broker_is_forgotten_after_the_consequences_are_shown(client: Client) -> None:
    client.brokers.fenced = [4]
    client.brokers.has("t-0", [1, 4], [1])
    refused = client("forget", "4", stdin="n\n", code=1)
    assert client.brokers.fenced == [4]
    assert "Partitions that keep a replica there, and are under-replicated until moved: 1.\n" in refused.stdout
    result = client("forget", "4", stdin="y\n")
    assert client.brokers.fenced == []
    assert result.stdout.endswith("broker 4 is forgotten\n")
    again = client("forget", "4", "--yes", code=1)
    assert again.stderr == "Error: broker 4 is not forgotten: BROKER_ID_NOT_REGISTERED\n"


def test_a_broker_that_alone_has_records_is_forgotten_only_by_force(client: Client) -> None:
    client.brokers.fenced = [4]
    client.brokers.has("t-0", [4], leader=-1)
    client.brokers.has("t-1", [1, 4], [4], leader=-1)
    client.brokers.has("t-2", [1, 4], [1])
    refused = client("forget", "4", "--yes", code=1)
    assert client.brokers.requests(UnregisterBrokerRequest) == []
    assert "no other broker has all records of t-0, t-1: start broker 4" in refused.stderr
    assert "--force" in refused.stderr
    declined = client("forget", "4", "--force", stdin="n\n", code=1)
    assert "they are lost with broker 4" in declined.stdout
    client("forget", "4", "--force", "--yes")
    assert client.brokers.fenced == []


def test_a_broker_in_service_is_not_forgotten(client: Client) -> None:
    result = client("forget", "1", "--yes", "--force", code=1)
    assert client.brokers.requests(UnregisterBrokerRequest) == []
    assert result.stderr == "Error: broker 1 is in service: stop it before it is forgotten\n"


# All


@pytest.mark.parametrize(
    ("arguments", "message"),
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
def test_what_does_not_go_together_is_a_usage_error(client: Client, arguments: Sequence[str], message: str) -> None:
    result = client(*arguments, code=click.UsageError.exit_code)
    assert message in result.stderr


def test_a_cluster_that_cannot_be_reached_is_reported_in_one_line() -> None:
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
    ("size", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (5 << 29, "2.5 GiB"), (3 << 50, "3,072.0 TiB")],
)
def test_sizes_are_printed_in_a_unit_that_suits_them(size: int, text: str) -> None:
    assert size_text(size) == text
