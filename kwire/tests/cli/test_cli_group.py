"""`kwire group` over a cluster that is made up: its output and its changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click
import pytest
from click.testing import CliRunner
from kwire_protocol.messages import streams_group_describe as streams
from kwire_protocol.messages.alter_share_group_offsets import AlterShareGroupOffsetsRequest
from kwire_protocol.messages.delete_groups import DeleteGroupsRequest
from kwire_protocol.messages.delete_share_group_offsets import DeleteShareGroupOffsetsRequest
from kwire_protocol.messages.describe_share_group_offsets import DescribeShareGroupOffsetsRequest
from kwire_protocol.messages.offset_commit import OffsetCommitRequest
from kwire_protocol.messages.offset_delete import OffsetDeleteRequest
from kwire_protocol.messages.share_group_describe import ShareGroupDescribeRequest

from devtools.ports import free_port
from devtools.suite.snapshots import Snapshot
from kwire.admin.groups import KINDS, STATES
from kwire.cli import main
from kwire.cli.group import group, resetting
from kwire.cli.group.arguments import parse_duration_ms, parse_scope
from kwire.client.cluster import TopicPartition
from testkit.cli.json_page import check_all_keys
from testkit.cli.prompt import ClusterClient, of_type
from testkit.fakes.group_brokers import Group, GroupBrokers, classic_member, consumer_member, share_member

NOW_MS = 10_000_000
P0, P1, P2 = (TopicPartition("orders", index) for index in range(3))


Client = ClusterClient[GroupBrokers]


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Client:
    """A client whose commands run at NOW_MS."""

    class Clock:
        def now_ms(self) -> int:
            return NOW_MS

    monkeypatch.setattr(resetting, "SystemClock", Clock)
    return Client.of("group", GroupBrokers(), monkeypatch)


# Shown


def test_lists_of_groups_as_people_see_them(client: Client, snapshot: Snapshot) -> None:
    client("list")
    client.brokers.groups = {"b": Group(protocol_type=""), "a\x1b[2J": Group("consumer", "Empty", node_id=2)}
    client("list")
    client("list", "--type", "share")
    snapshot("group-list", client.transcript)


def test_groups_are_listed_by_kind_and_state(client: Client) -> None:
    assert client.json("list") == []
    client.brokers.groups = {"b": Group(protocol_type=""), "a": Group("consumer", "Empty", node_id=2)}
    assert [(it["group_id"], it["coordinator_id"]) for it in client.json("list")] == [("a", 2), ("b", 1)]
    chosen = client.json("list", "--type", "Classic", "--state", "stable")
    check_all_keys("group list", chosen)
    assert chosen == [
        {
            "type": "group",
            "group_id": "b",
            "kind": "classic",
            "state": "Stable",
            "protocol_type": "",
            "coordinator_id": 1,
        }
    ]


def test_the_kinds_and_states_to_choose_from_are_those_that_there_are() -> None:
    options = {it.name: it.type for it in group.commands["list"].params}
    for name, known in (("kinds", KINDS), ("states", STATES)):
        choice = options[name]
        assert isinstance(choice, click.Choice)
        assert tuple(choice.choices) == known


def test_groups_as_people_see_them(client: Client, snapshot: Snapshot) -> None:
    brokers = client.brokers
    brokers.has_topic("orders", (0, 9), (0, 9), (0, 9))
    members = [classic_member("m", ["orders"], {"orders": [0, 1]}), classic_member("id\x1ble", ["orders"], {})]
    brokers.groups["g"] = Group(members=members, offsets={P0: 5, P2: 1})
    client("describe", "g")
    client.comment("partitions of a share group may have several owners")
    owners = [share_member(name, ["orders"], {"orders": [0]}) for name in ("a", "b")]
    brokers.groups["s"] = Group("share", members=owners, offsets={P0: 5}, lags={P0: 2})
    client("describe", "s")
    client.comment("a topic was deleted")
    brokers.groups["h"] = Group(state="Empty", offsets={TopicPartition("gone", 0): 5})
    client("describe", "h")
    brokers.groups["i"] = Group(state="Empty")
    client("describe", "i")
    brokers.groups["t"] = Group("streams", description=TOPOLOGY)
    client("describe", "t", "--topology")
    snapshot("group-describe", client.transcript)


def test_a_group_is_described_with_its_lag_and_with_members_that_own_nothing(client: Client) -> None:
    members = [classic_member("m", ["orders"], {"orders": [0, 1]}), classic_member("idle", ["orders"], {})]
    client.brokers.groups["g"] = Group(members=members, offsets={P0: 5, P2: 1})
    client.brokers.has_topic("orders", (0, 9), (0, 9), (0, 9))
    described = client.json("describe", "g")
    assert described[0] == {
        "type": "group",
        "group_id": "g",
        "kind": "classic",
        "state": "Stable",
        "protocol_type": "consumer",
        "assignor": "range",
        "epoch": None,
        "assignment_epoch": None,
        "coordinator_id": 1,
        "members": 2,
    }
    assert described[1] == {
        "type": "partition",
        "topic": "orders",
        "partition": 0,
        "offset": 5,
        "log_end": 9,
        "lag": 4,
        "member_ids": ["m"],
    }
    partitions = of_type("partition", described)
    assert [(it["offset"], it["lag"], it["member_ids"]) for it in partitions[1:]] == [(None, None, ["m"]), (1, 8, [])]
    assert [(it["member_id"], len(it["partitions"])) for it in of_type("member", described)] == [("idle", 0), ("m", 2)]
    assert len(described) == 1 + 3 + 2


def test_a_share_groups_partition_may_have_several_owners(client: Client) -> None:
    members = [share_member(name, ["orders"], {"orders": [0]}) for name in ("a", "b")]
    client.brokers.groups["g"] = Group("share", members=members, offsets={P0: 5}, lags={P0: 2})
    client.brokers.has_topic("orders", (0, 9))
    group, partition, *_ = client.json("describe", "g")
    assert group["epoch"] == 3
    assert (partition["offset"], partition["lag"], partition["member_ids"]) == (5, 2, ["a", "b"])


def test_what_is_not_known_is_noted_beside_what_is(client: Client) -> None:
    client.brokers.groups["g"] = Group(state="Empty", offsets={P0: 5})
    (partition,) = of_type("partition", client.json("describe", "g"))
    assert (partition["offset"], partition["log_end"], partition["lag"]) == (5, None, None)
    assert client.stderr == "note: there is no topic 'orders'\n"


def streams_group(client: Client) -> None:
    has = streams.Assignment([streams.TaskIds("1", [0]), streams.TaskIds("0", [1, 0])], [streams.TaskIds("1", [1])])
    target = streams.Assignment([streams.TaskIds("0", [0])])
    members = [
        streams.Member("a", 4, client_id="client-a", process_id="p", assignment=has, target_assignment=target),
        streams.Member("b", 4, client_id="client-b"),
    ]
    client.brokers.groups["s"] = Group("streams", "Reconciling", members, protocol_type="streams")
    client.brokers.has_topic("orders", (0, 10), (0, 10))


def test_members_of_streams_groups_have_tasks(client: Client) -> None:
    streams_group(client)
    first, second = client.json("members", "s")
    assert first["process_id"] == "p"
    assert first["tasks"] == {"active": {"0": [0, 1], "1": [0]}, "standby": {"1": [1]}, "warmup": {}}
    assert first["target_tasks"] == {"active": {"0": [0]}, "standby": {}, "warmup": {}}
    assert first["partitions"] == [{"topic": "orders", "partition": 0}, {"topic": "orders", "partition": 1}]
    assert second["tasks"] == {"active": {}, "standby": {}, "warmup": {}}
    described = client.json("describe", "s")
    assert (described[0]["members"], of_type("member", described)) == (2, [first, second])


def node(name: str, kind: int, *successors: str, **more: Any) -> streams.TopologyDescriptionNode:
    return streams.TopologyDescriptionNode(name, kind, successors=[*successors], **more)


_NODES = [
    node("in", 1, "join", "count", source_topics=["orders", "clicks"]),
    node("count", 2, "out", "any", stores=["counts"]),
    node("join", 2),
    node("out", 3, sink_topic="counted"),
    node("any", 3),
]
_NAMES = streams.TopologyDescriptionGlobalStore(
    node("names-in", 1, "names", source_topics=["na\x1bmes"]), node("names", 2, stores=["all-names"])
)
TOPOLOGY = streams.TopologyDescription([streams.TopologyDescriptionSubtopology("0", _NODES)], [_NAMES])


def topology(client: Client) -> list[Any]:
    client.brokers.groups["t"] = Group("streams", description=TOPOLOGY)
    return client.json("describe", "t", "--topology")


def test_a_topology_has_an_object_for_each_node(client: Client) -> None:
    shown = topology(client)
    assert [(it["subtopology_id"], it["is_global"], it["name"]) for it in shown[-2:]] == [
        ("1", True, "names-in"),
        ("1", True, "names"),
    ]
    assert shown[1] == {
        "type": "node",
        "subtopology_id": "0",
        "is_global": False,
        "name": "count",
        "kind": "processor",
        "topics": [],
        "stores": ["counts"],
        "successors": ["any", "out"],
        "predecessors": ["in"],
    }
    assert [(it["name"], it["kind"], it["topics"]) for it in shown[:1] + shown[3:5]] == [
        ("in", "source", ["clicks", "orders"]),
        ("out", "sink", ["counted"]),
        ("any", "sink", []),
    ]


def test_the_reason_for_a_missing_topology_is_printed(client: Client) -> None:
    client.brokers.groups["s"] = Group("streams")
    client.brokers.groups["g"] = Group("consumer")
    errors = client("describe", "s", "--topology", code=1).stderr
    assert "the topology of group 's' is not described" in errors
    assert "group.streams.topology.description.plugin.class" in errors
    assert "Group g is not a streams group." in client("describe", "g", "--topology", code=1).stderr
    client.brokers.network.newest[streams.StreamsGroupDescribeRequest.api_key] = 0
    assert "StreamsGroupDescribe" in client("describe", "s", "--topology", code=1).stderr


def moving_member() -> Any:
    moving = consumer_member("b", ["orders"], {"orders": [0, 1]}, {"orders": [0], "clicks": [2]})
    moving.instance_id = "till-1"
    moving.subscribed_topic_regex = "cl.*"
    return moving


def test_members_as_people_see_them(client: Client, snapshot: Snapshot) -> None:
    client.comment("a target is shown where it differs")
    members = [moving_member(), consumer_member("a", ["ord\x1bers"], {"ord\x1bers": [2]})]
    client.brokers.groups["g"] = Group("consumer", members=members)
    client("members", "g")
    client.comment("columns that all members lack are left out")
    client.brokers.groups["h"] = Group(members=[classic_member("m", ["orders"], {})])
    client("members", "h")
    streams_group(client)
    client("members", "s")
    client.brokers.groups["i"] = Group(state="Empty")
    client("members", "i")
    snapshot("group-members", client.transcript)


def test_members_have_what_they_own_and_what_they_are_to_own(client: Client) -> None:
    client.brokers.groups["g"] = Group("consumer", members=[moving_member(), consumer_member("a", ["orders"], {})])
    (first, second) = client.json("members", "g")
    assert (first["member_id"], first["target"]) == ("a", [])
    assert second == {
        "type": "member",
        "member_id": "b",
        "instance_id": "till-1",
        "client_id": "client-b",
        "host": "127.0.0.1",
        "rack_id": None,
        "epoch": 6,
        "protocol": "consumer",
        "topics": ["orders"],
        "regex": "cl.*",
        "partitions": [{"topic": "orders", "partition": 0}, {"topic": "orders", "partition": 1}],
        "target": [{"topic": "clicks", "partition": 2}, {"topic": "orders", "partition": 0}],
    }
    streams_group(client)
    check_all_keys("group members", [second, *client.json("members", "s")])
    check_all_keys("group describe", [*client.json("describe", "g"), *client.json("describe", "s"), *topology(client)])
    client.brokers.groups["h"] = Group(state="Empty")
    assert client.json("members", "h") == []


# Reset


def idle(client: Client, kind: str = "classic") -> None:
    client.brokers.groups["g"] = Group(kind, "Empty", offsets={P0: 5, P1: 8})
    client.brokers.has_topic("orders", (2, 10), (2, 10), (2, 10))


def test_resets_as_people_see_them(client: Client, snapshot: Snapshot) -> None:
    idle(client)
    client("reset", "g", "--all-topics", "--to-earliest")
    client("reset", "g", "--topic", "orders:1,2", "--to-offset", "12", "--execute")
    client("reset", "new", "--topic", "orders:0", "--to-latest", "--execute")
    snapshot("group-reset", client.transcript)


def test_a_reset_is_done_only_with_execute(client: Client) -> None:
    idle(client)
    planned = client.json("reset", "g", "--all-topics", "--to-earliest")
    check_all_keys("group reset", planned)
    names = ("partition", "before", "after", "executed")
    assert [[it[name] for name in names] for it in planned] == [[0, 5, 2, False], [1, 8, 2, False]]
    assert client.brokers.requests(OffsetCommitRequest) == []
    assert client.json("reset", "g", "--topic", "orders:1,2", "--to-offset", "7", "--execute") == [
        {
            "type": "reset",
            "group_id": "g",
            "topic": "orders",
            "partition": index,
            "before": before,
            "after": 7,
            "executed": True,
        }
        for index, before in ((1, 8), (2, None))
    ]
    assert client.brokers.groups["g"].offsets == {P0: 5, P1: 7, P2: 7}


@pytest.mark.parametrize(
    ("target", "after"),
    [
        (("--to-latest",), 10),
        (("--to-offset", "3"), 3),
        (("--shift-by", "-1"), 4),
        (("--to-datetime", "1970-01-01T02:45:00Z"), 6),
        (("--to-datetime", "1970-01-01T02:45:00.001"), 7),
        (("--by-duration", "PT1M40S"), 6),
        (("--by-duration", "99s"), 7),
        (("--by-duration", "P9999D"), 2),
    ],
)
def test_a_reset_sets_the_offset_that_its_option_names(client: Client, target: Sequence[str], after: int) -> None:
    idle(client)
    client.brokers.times[P0] = {2: 1, 6: NOW_MS - 100_000, 7: NOW_MS}
    (row,) = client.json("reset", "g", "--topic", "orders:0", *target, "--execute")
    assert (row["before"], row["after"]) == (5, after)
    assert client.brokers.groups["g"].offsets[P0] == after


def test_an_offset_outside_of_the_log_is_reported(client: Client) -> None:
    idle(client)
    result = client("reset", "g", "--topic", "orders:0", "--shift-by", "-9")
    assert result.stderr == "note: orders-0: -4 is not in the log, 2 is nearest\n"


def test_a_group_with_members_is_not_reset(client: Client) -> None:
    idle(client)
    client.brokers.groups["g"] = Group(members=[classic_member("m", ["orders"], {})], offsets={P0: 5})
    for more in ((), ("--execute",)):
        result = client("reset", "g", "--all-topics", "--to-earliest", *more, code=1)
        assert result.stderr == (
            "Error: group 'g' is active (state Stable, members: 1): "
            "offsets can be reset only while it has no members, so stop them first\n"
        )
    assert client.brokers.groups["g"].offsets == {P0: 5}


def test_a_group_that_is_new_gets_its_offsets_and_one_without_any_is_rejected(client: Client) -> None:
    client.brokers.has_topic("orders", (2, 10))
    result = client("reset", "new", "--topic", "orders", "--to-latest", "--execute")
    assert result.stderr == "note: group 'new' not found: --execute creates it\n"
    assert client.brokers.groups["new"].offsets == {P0: 10}
    result = client("reset", "g", "--all-topics", "--to-latest", code=1)
    assert result.stderr == "Error: group 'g' not found\n"
    client.brokers.groups["g"] = Group(state="Empty")
    assert "name topics with --topic" in client("reset", "g", "--all-topics", "--to-latest", code=1).stderr


# Deleted


def test_deletions_as_people_see_them(client: Client, snapshot: Snapshot) -> None:
    idle(client)
    client.brokers.groups["busy"] = Group(members=[classic_member("m", [], {})])
    client("delete", "g", "busy", stdin="n\n", code=1)
    client("delete", "g", "busy", "none", "g", stdin="y\n", code=1)
    snapshot("group-delete", client.transcript)


def test_groups_are_deleted_each_for_itself(client: Client) -> None:
    idle(client)
    client.brokers.groups["busy"] = Group(members=[classic_member("m", [], {})])
    rows = client.json("delete", "g", "busy", "none", "g", "--yes", code=1)
    check_all_keys("group delete", rows)
    assert [(it["group_id"], it["deleted"], it["problem"]) for it in rows] == [
        ("g", True, None),
        ("busy", False, "group 'busy' is not deleted: it has members (NON_EMPTY_GROUP)"),
        ("none", False, "group 'none' not found"),
    ]
    assert [*client.brokers.groups] == ["busy"]
    idle(client)
    client("delete", "g", "--yes")


def test_nothing_is_deleted_without_a_yes(client: Client) -> None:
    idle(client)
    for command in (("delete", "g"), ("delete-offsets", "g", "--topic", "orders")):
        client(*command, stdin="n\n", code=1)
        declined = client(*command, "--json", stdin="n\n", code=1)
        assert (declined.stdout, declined.stderr[:7]) == ("", "delete ")
    assert client.brokers.requests(DeleteGroupsRequest) + client.brokers.requests(OffsetDeleteRequest) == []
    client("delete-offsets", "g", "--topic", "orders:1", stdin="y\n")
    assert client.brokers.groups["g"].offsets == {P0: 5}
    client("delete", "g", stdin="y\n")
    assert client.brokers.groups == {}


def test_deletions_of_offsets_as_people_see_them(client: Client, snapshot: Snapshot) -> None:
    idle(client)
    client.brokers.groups["g"].offsets[TopicPartition("clicks", 0)] = 1
    client.brokers.subscribed = {"clicks"}
    client("delete-offsets", "g", "--topic", "orders", stdin="n\n", code=1)
    client("delete-offsets", "g", "--topic", "orders:1", "--topic", "clicks", stdin="y\n", code=1)
    idle(client, "share")
    client("delete-offsets", "g", "--topic", "orders", "--yes")
    snapshot("group-delete-offsets", client.transcript)


def test_offsets_are_deleted_by_topic_and_partition(client: Client) -> None:
    idle(client)
    client.brokers.groups["g"].offsets[TopicPartition("clicks", 0)] = 1
    client.brokers.subscribed = {"clicks"}
    rows = client.json("delete-offsets", "g", "--topic", "orders:1", "--topic", "clicks", "--yes", code=1)
    check_all_keys("group delete-offsets", rows)
    assert [(it["topic"], it["partition"], it["deleted"], it["problem"]) for it in rows] == [
        ("clicks", 0, False, "a member subscribes to the topic (GROUP_SUBSCRIBED_TO_TOPIC)"),
        ("orders", 1, True, None),
    ]
    assert client.brokers.groups["g"].offsets == {P0: 5, TopicPartition("clicks", 0): 1}
    assert client.json("delete-offsets", "g", "--topic", "orders", "--yes") == [
        {
            "type": "offset_deletion",
            "group_id": "g",
            "topic": "orders",
            "partition": 0,
            "deleted": True,
            "problem": None,
        }
    ]


def test_missing_offsets_are_reported_and_nothing_is_deleted(client: Client) -> None:
    idle(client)
    for topic, missing in (("clicks", "none in clicks;"), ("orders:0,2", "none in orders:2;")):
        result = client("delete-offsets", "g", "--topic", topic, "--yes", code=1)
        assert f"offset not found: group 'g' has {missing} nothing was deleted" in result.stderr
    assert "group 'x' not found" in client("delete-offsets", "x", "--topic", "orders", "--yes", code=1).stderr
    assert len(client.brokers.groups["g"].offsets) == 2


def test_a_share_groups_offsets_are_deleted_by_whole_topics(client: Client) -> None:
    idle(client, "share")
    assert "by whole topics only" in client("delete-offsets", "g", "--topic", "orders:1", "--yes", code=1).stderr
    (row,) = client.json("delete-offsets", "g", "--topic", "orders", "--yes")
    assert (row["topic"], row["partition"], row["deleted"]) == ("orders", None, True)
    assert client.brokers.groups["g"].offsets == {}


# Wrong


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("list", "--type", "modern"), "'modern' is not one of"),
        (("list", "--state", "Sleeping"), "'Sleeping' is not one of"),
        (("reset", "g", "--to-latest"), "by --topic, or by --all-topics"),
        (("reset", "g", "--to-latest", "--all-topics", "--topic", "t"), "by --topic, or by --all-topics"),
        (("reset", "g", "--topic", "t"), "say where to: one of --to-earliest"),
        (("reset", "g", "--topic", "t", "--to-latest", "--to-offset", "0"), "say where to: one of"),
        (("reset", "g", "--topic", "t:", "--to-latest"), "'t:' is not TOPIC or TOPIC:PARTITIONS"),
        (("reset", "g", "--topic", ":0", "--to-latest"), "':0' names no topic"),
        (("reset", "g", "--topic", "t", "--to-offset", "-1"), "not in the range"),
        (("reset", "g", "--topic", "t", "--to-datetime", "soon"), "'soon' is no moment"),
        (("reset", "g", "--topic", "t", "--by-duration", "PT"), "'PT' is no duration"),
        (("delete-offsets", "g"), "by --topic"),
        (("delete",), "GROUP"),
    ],
)
def test_what_does_not_go_together_is_a_usage_error(client: Client, arguments: Sequence[str], message: str) -> None:
    assert message in client(*arguments, code=click.UsageError.exit_code).stderr


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("PT2H", 7_200_000),
        ("P1DT12H", 129_600_000),
        ("p2d", 172_800_000),
        ("PT1M30.5S", 90_500),
        ("PT0S", 0),
        ("90m", 5_400_000),
        ("7d", 604_800_000),
    ],
)
def test_durations_are_read_as_kafkas_tools_and_people_write_them(text: str, ms: int) -> None:
    assert parse_duration_ms(text) == ms


@pytest.mark.parametrize("text", ["", "P", "PT", "P1DT", "P1Y", "1h30m", "-PT1H", "12", "PT1.5H"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is no duration"):
        parse_duration_ms(text)


def test_a_topic_may_be_named_again_with_more_partitions() -> None:
    assert parse_scope(["a:1", "b", "a:0,1", "c:2", "c", "c:3"]) == {"a": [0, 1], "b": None, "c": None}


@pytest.mark.parametrize(
    ("request_class", "arguments", "api"),
    [
        (ShareGroupDescribeRequest, ("describe", "g"), "ShareGroupDescribe"),
        (DescribeShareGroupOffsetsRequest, ("describe", "g"), "DescribeShareGroupOffsets"),
        (AlterShareGroupOffsetsRequest, ("reset", "g", "--all-topics", "--to-latest", "--execute"), "AlterShareGroup"),
        (DeleteShareGroupOffsetsRequest, ("delete-offsets", "g", "--topic", "orders", "--yes"), "DeleteShareGroup"),
    ],
)
def test_what_a_broker_does_not_serve_is_reported_in_one_line(
    client: Client, request_class: Any, arguments: Sequence[str], api: str
) -> None:
    idle(client, "share")
    client.brokers.network.newest[request_class.api_key] = -1
    result = client(*arguments, code=1)
    assert result.stderr.startswith(f"Error: the broker at node:1 does not serve {api}")
    assert result.stderr.count("\n") == 1


def test_a_cluster_that_cannot_be_reached_is_reported_in_one_line() -> None:
    nobody = f"127.0.0.1:{free_port()}"
    result = CliRunner().invoke(main, ["group", "list", "--bootstrap-server", nobody])
    hint = "--bootstrap-server names the broker to connect to"
    assert (result.exit_code, result.stderr) == (1, f"Error: cannot reach {nobody}: Connection refused. {hint}\n")
