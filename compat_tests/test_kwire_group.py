"""`kwire group`: it shows what Kafka's own tool shows, and its changes take effect for clients."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from testkit.basics.values import numbered
from testkit.basics.waiting import eventually
from testkit.cli.log_dirs import kwire
from testkit.clients.confluent import fill, quiet, take
from testkit.java import java_host as tools
from testkit.java.java_host import JavaHost
from testkit.raw import streams_members
from testkit.servers.brokers import NODES, Broker

PARTITIONS = 3
SHARE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleShareConsumer"

Groups = Callable[..., str]


@pytest.fixture
def run(broker: Broker) -> Groups:
    """Runs a subcommand, which must end with `code`, and returns its output."""

    def run(*arguments: str, code: int = 0) -> str:
        ran = kwire("group", *arguments, "--bootstrap-server", broker.bootstrap)
        assert ran.exit_code == code, ran.output
        return ran.stdout or ran.stderr

    return run


@contextmanager
def member(broker: Broker, group: str, topic: str, protocol: str) -> Iterator[Consumer]:
    """A consumer of the classic or the consumer protocol. The latter leaves heartbeats to the broker."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": group,
            "group.protocol": protocol,
            "client.id": "a-client",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **({"heartbeat.interval.ms": 200} if protocol == "classic" else {}),
        },
        logger=quiet,
    )
    try:
        consumer.subscribe([topic])
        yield consumer
    finally:
        consumer.close()


def rows(output: str, kind: str) -> list[dict[str, Any]]:
    return [row for row in map(json.loads, output.splitlines()) if row["type"] == kind]


def commit(consumer: Consumer, topic: str, *offsets: int) -> None:
    consumer.commit(
        offsets=[TopicPartition(topic, index, offset) for index, offset in enumerate(offsets)], asynchronous=False
    )


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_is_shown_as_kafkas_own_tool_shows_it(
    broker: Broker, java: JavaHost, run: Groups, new_topic: Callable[..., str], group: str, protocol: str
) -> None:
    topic = new_topic(partitions=PARTITIONS)
    for index in range(PARTITIONS):
        fill(broker.bootstrap, topic, numbered(4), partition=index)
    with member(broker, group, topic, protocol) as consumer:
        take(consumer, 4 * PARTITIONS)
        commit(consumer, topic, 1, 2, 3)
        eventually(lambda: rows(run("describe", group, "--json"), "group")[0]["state"] == "Stable", "a stable group")
        described = run("describe", group, "--json")
        (header,), (only,) = rows(described, "group"), rows(described, "member")
        assert (header["kind"], header["members"], header["protocol_type"]) == (protocol, 1, "consumer")
        assert header["coordinator_id"] in NODES
        assert header["assignor"]
        assert (only["client_id"], only["host"], only["topics"]) == ("a-client", "127.0.0.1", [topic])
        assert only["partitions"] == [{"topic": topic, "partition": index} for index in range(PARTITIONS)]
        assert (only["protocol"], only["epoch"] == header["epoch"]) == (protocol, True)
        assert rows(run("members", group, "--json"), "member") == [only]
        numbers = ("partition", "offset", "log_end", "lag")
        shown = [
            [group, row["topic"], *(str(row[name]) for name in numbers), *row["member_ids"], "/127.0.0.1", "a-client"]
            for row in rows(described, "partition")
        ]
        of_group = ("--bootstrap-server", broker.bootstrap, "--group", group, "--describe")
        lines = java.succeed(tools.GROUPS, *of_group).lines
        assert shown == sorted(line.split() for line in lines if line.split()[0] == group)
        for chosen in ([], ["--type", protocol, "--state", "Stable"]):
            (row,) = [row for row in rows(run("list", "--json", *chosen), "group") if row["group_id"] == group]
            assert (row["kind"], row["state"], row["coordinator_id"]) == (protocol, "Stable", header["coordinator_id"])
        for other in (["--type", "share"], ["--state", "Empty"]):
            assert group not in run("list", *other)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_member_without_partitions_is_shown(
    broker: Broker, run: Groups, topic: str, group: str, protocol: str
) -> None:
    with ExitStack() as stack:
        consumers = [stack.enter_context(member(broker, group, topic, protocol)) for _ in range(2)]

        def owned() -> list[int]:
            for consumer in consumers:
                consumer.poll(0.05)
            described = run("describe", group, "--json") if group in run("list") else ""
            return sorted(len(it["partitions"]) for it in rows(described, "member"))

        eventually(lambda: owned() == [0, 1], "one of two members owns the partition")
        (idle,) = [it["member_id"] for it in rows(run("members", group, "--json"), "member") if not it["partitions"]]
        lines = [line.split() for line in run("describe", group).splitlines()]
        assert ["-", "-", "-", "-", "-", idle, "a-client", "127.0.0.1"] in lines


def test_members_of_both_protocols_are_shown_with_their_protocol(
    broker: Broker, run: Groups, new_topic: Callable[..., str], group: str
) -> None:
    topic = new_topic(partitions=2)
    with ExitStack() as stack:
        consumers = [stack.enter_context(member(broker, group, topic, "consumer"))]

        def owned() -> list[tuple[str, int]]:
            for consumer in consumers:
                consumer.poll(0.05)
            described = run("describe", group, "--json") if group in run("list", "--type", "consumer") else ""
            return sorted((it["protocol"], len(it["partitions"])) for it in rows(described, "member"))

        eventually(lambda: owned() == [("consumer", 2)], "the first member owns all")
        consumers.append(stack.enter_context(member(broker, group, topic, "classic")))
        eventually(lambda: owned() == [("classic", 1), ("consumer", 1)], "each owns one")


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_offsets_are_reset_and_deleted_when_the_members_are_gone(
    broker: Broker, java: JavaHost, run: Groups, new_topic: Callable[..., str], group: str, protocol: str
) -> None:
    topic = new_topic(partitions=PARTITIONS)
    for index in range(PARTITIONS):
        fill(broker.bootstrap, topic, numbered(4), partition=index, timestamp=1_700_000_000_000)

    def offsets() -> list[int | None]:
        return [row["offset"] for row in rows(run("describe", group, "--json"), "partition")]

    def planned_by_kafka(*target: str) -> list[int]:
        at = ("--bootstrap-server", broker.bootstrap, "--group", group)
        lines = java.succeed(tools.GROUPS, *at, "--reset-offsets", "--all-topics", *target, "--dry-run").lines
        found = sorted(line.split() for line in lines if line.split()[0] == group)
        return [int(offset) for _, _, _, offset in found]

    with member(broker, group, topic, protocol) as consumer:
        take(consumer, 4 * PARTITIONS)
        commit(consumer, topic, 1, 2, 3)
        assert f"group '{group}' is active" in run("reset", group, "--all-topics", "--to-latest", "--execute", code=1)
        assert "it has members" in run("delete", group, "--yes", code=1)
        assert "a member subscribes" in run("delete-offsets", group, "--topic", topic, "--yes", code=1)
        assert offsets() == [1, 2, 3]
    eventually(lambda: rows(run("describe", group, "--json"), "group")[0]["state"] == "Empty", "an empty group")
    for target, expected in (
        (("--to-latest",), [4, 4, 4]),
        (("--to-earliest",), [0, 0, 0]),
        (("--to-offset", "2"), [2, 2, 2]),
        (("--shift-by", "-1"), [1, 1, 1]),
        (("--shift-by", "99"), [4, 4, 4]),
        (("--to-datetime", "2023-11-14T22:13:20.000Z"), [0, 0, 0]),
        (("--to-datetime", "2023-11-14T22:13:20.001"), [4, 4, 4]),
        (("--by-duration", "P9999D"), [0, 0, 0]),
        (("--by-duration", "PT1H"), [4, 4, 4]),
    ):
        before = offsets()
        planned = rows(run("reset", group, "--all-topics", *target, "--json"), "reset")
        assert ([it["before"] for it in planned], [it["after"] for it in planned]) == (before, expected)
        assert planned_by_kafka(*target) == expected
        assert offsets() == before
        run("reset", group, "--all-topics", *target, "--execute")
        assert offsets() == expected
    run("reset", group, "--topic", f"{topic}:0,2", "--to-offset", "3", "--execute")
    assert offsets() == [3, 4, 3]
    with member(broker, group, topic, protocol) as consumer:
        assert sorted((it.partition(), it.offset()) for it in take(consumer, 2)) == [(0, 3), (2, 3)]
    eventually(lambda: rows(run("describe", group, "--json"), "group")[0]["state"] == "Empty", "an empty group")
    run("delete-offsets", group, "--topic", f"{topic}:1", "--yes")
    assert offsets() == [3, 3]
    assert "offset not found" in run("delete-offsets", group, "--topic", f"{topic}:1", "--yes", code=1)
    assert f"group '{group}-2' not found" in run("delete", group, f"{group}-2", "--yes", code=1)
    for command in ("describe", "members"):
        assert f"group '{group}' not found" in run(command, group, code=1)
    assert f"group '{group}' not found" in run("reset", group, "--all-topics", "--to-latest", code=1)


def test_a_group_that_nobody_has_used_starts_at_the_offset_it_was_reset_to(
    broker: Broker, run: Groups, topic: str, group: str
) -> None:
    fill(broker.bootstrap, topic, numbered(4))
    run("reset", group, "--topic", topic, "--to-offset", "3", "--execute")
    (row,) = [row for row in rows(run("list", "--json"), "group") if row["group_id"] == group]
    assert (row["kind"], row["state"], row["protocol_type"]) == ("classic", "Empty", "")
    with member(broker, group, topic, "consumer") as consumer:
        assert [it.offset() for it in take(consumer, 1)] == [3]
    assert f"there is no topic '{topic}-2'" in run("reset", group, "--topic", f"{topic}-2", "--to-latest", code=1)


def test_a_share_group_is_shown_reset_and_deleted(
    broker: Broker, java: JavaHost, run: Groups, topic: str, group: str
) -> None:
    at = ("--bootstrap-server", broker.bootstrap)
    from_the_start = ("--entity-type", "groups", "--entity-name", group, "--alter", "--add-config")
    java.succeed(tools.CONFIGS, *at, *from_the_start, "share.auto.offset.reset=earliest")
    fill(broker.bootstrap, topic, numbered(4))
    read = java.succeed(SHARE_CONSUMER, *at, "--topic", topic, "--group", group, "--max-messages", "4")
    assert len([line for line in read.lines if line.startswith("00")]) == 4

    def described(kind: str) -> list[dict[str, Any]]:
        return rows(run("describe", group, "--json"), kind)

    eventually(lambda: described("group")[0]["state"] == "Empty", "an empty group")
    assert described("group")[0]["kind"] == "share"
    eventually(lambda: described("partition")[0]["lag"] == 0, "a lag of nothing")
    (row,) = [row for row in rows(run("list", "--json", "--type", "share"), "group") if row["group_id"] == group]
    assert row["state"] == "Empty"
    run("reset", group, "--topic", topic, "--to-offset", "1", "--execute")
    (partition,) = described("partition")
    assert (partition["offset"], partition["log_end"], partition["lag"]) == (1, 4, 3)
    assert "whole topics only" in run("delete-offsets", group, "--topic", f"{topic}:0", "--yes", code=1)
    run("delete-offsets", group, "--topic", topic, "--yes")
    assert described("partition") == []
    run("delete", group, "--yes")
    assert f"group '{group}' not found" in run("describe", group, code=1)


def test_members_of_a_streams_group_are_shown_with_their_tasks(
    broker: Broker, run: Groups, new_topic: Callable[..., str], group: str
) -> None:
    topic = new_topic(partitions=PARTITIONS)
    every_task = {"0": [*range(PARTITIONS)]}
    with streams_members.coordinator(broker.bootstrap, group) as there:
        member = streams_members.Member(there, group, "m", streams_members.topology(topic))
        endpoint = streams_members.endpoint("host", 1)
        # Apache Kafka cannot list the partitions of an endpoint until its coordinator has the topic.
        eventually(lambda: not member.send_join(user_endpoint=endpoint).error_code, "a member")
        member.join(user_endpoint=endpoint)
        member.settle(PARTITIONS)
        (row,) = rows(run("members", group, "--json"), "member")
        assert (row["member_id"], row["process_id"], row["epoch"]) == ("m", "of-m", member.epoch)
        assert row["tasks"] == row["target_tasks"] == {"active": every_task, "standby": {}, "warmup": {}}
        assert "active 0:0,1,2" in run("members", group)
        described = run("describe", group, "--json")
        (found,) = rows(described, "group")
        assert (found["kind"], found["state"], found["members"]) == ("streams", "Stable", 1)
        owned = {(it["topic"], it["partition"]): it["member_ids"] for it in rows(described, "partition")}
        assert owned == {(topic, partition): ["m"] for partition in range(PARTITIONS)}
        assert "it has members (NON_EMPTY_GROUP)" in run("delete", group, "--yes", code=1)
        member.leave()
    run("delete", group, "--yes")
