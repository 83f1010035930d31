"""Kafka's own tools for groups, on streams groups: kafka-streams-groups, kafka-groups and kafka-consumer-groups.

The member is a test's own, so that its group has offsets and tasks of the test's choice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from kwire_protocol.errors import ErrorCode

from testkit.basics.values import numbered
from testkit.basics.waiting import eventually
from testkit.clients.confluent import fill
from testkit.clients.group_requests import commit
from testkit.java import java_host as tools
from testkit.java.java_host import JavaHost
from testkit.raw import topics
from testkit.raw.streams_members import JOINS, Member, coordinator, endpoint, internal, topology
from testkit.servers.brokers import Broker

Lines = Callable[..., list[list[str]]]


@pytest.fixture
def lines(broker: Broker, java: JavaHost) -> Lines:
    """Runs a tool, which must end with 0, and splits the lines of its output into words."""

    def run(*arguments: str, tool: str = tools.STREAMS_GROUPS) -> list[list[str]]:
        at = ("--bootstrap-server", broker.bootstrap)
        return [line.split() for line in java.succeed(tool, *at, *arguments).lines]

    return run


@pytest.fixture
def member(broker: Broker, group: str, unique: Callable[[str], str], new_topic: Callable[..., str]) -> Iterator[Member]:
    """The only member of a group, with the tasks of both partitions of a topic, 10 records in each.

    It has committed 4 for one partition and 10 for the other, and has a changelog and a repartition topic.
    """
    topic = new_topic(partitions=2)
    for partition in (0, 1):
        fill(broker.bootstrap, topic, numbered(10), partition=partition)
    with coordinator(broker.bootstrap, group) as client:
        changelog, repartition = f"{group}-store-changelog", f"{group}-store-repartition"
        more = {
            "state_changelog_topics": [internal(changelog, cleanup_policy="compact")],
            "repartition_source_topics": [internal(repartition)],
            "repartition_sink_topics": [repartition],
        }
        member = Member(client, group, "member-a", topology(topic, epoch=3, **more))
        member.join()
        member.settle(2)
        member.beat(user_endpoint=endpoint("host", 1))
        member.settle(2)
        for partition, offset in ((0, 4), (1, 10)):
            error = commit(client, 9, group, member.member_id, member.epoch, topic, partition, offset)
            assert error == ErrorCode.NONE
        yield member
        if member.epoch > JOINS:
            member.leave()


def source(member: Member) -> str:
    (part,) = member.topology.subtopologies
    return part.source_topics[0]


def test_streams_groups_are_listed_and_described(lines: Lines, member: Member) -> None:
    group, topic, epoch = member.group, source(member), str(member.epoch)

    def about(*arguments: str) -> list[list[str]]:
        """Rows below the heads of columns."""
        return [row for row in lines("--describe", "--group", group, *arguments) if row[0] == group]

    assert [group] in lines("--list")
    assert [group, "Stable"] in lines("--list", "--state")
    assert [group, "Stable"] in lines("--list", "--state", "stable,empty")
    assert [group, "Stable"] not in lines("--list", "--state", "Empty")
    ((*_, state, members),) = about("--state")
    assert (state, members) == ("Stable", "1")
    assert [row[-4:] for row in about("--state", "--verbose")] == [["Stable", epoch, epoch, "1"]]
    assert about("--members") == [[group, "member-a", "of-member-a", "raw", "ACTIVE:", "0:[0,1];"]]
    ((*row, active, tasks, target, of_target),) = about("--members", "--verbose")
    assert row == [group, epoch, "3", "member-a", "streams", epoch, "of-member-a", "raw"]
    assert (active, tasks, target, of_target) == ("ACTIVE:", "0:[0,1];", "TARGET-ACTIVE:", "0:[0,1];")
    repartition = f"{group}-store-repartition"
    lags = [[topic, "0", "6"], [topic, "1", "0"], [repartition, "0", "0"], [repartition, "1", "0"]]
    for which in ((), ("--offsets",)):
        assert sorted(row[1:] for row in about(*which)) == sorted(lags)
    offsets = [row[1:] for row in about("--offsets", "--verbose") if row[1] == topic]
    assert sorted(offsets) == [[topic, "0", "4", "-", "10", "6"], [topic, "1", "10", "-", "10", "0"]]


def test_a_streams_group_is_one_for_all_tools(lines: Lines, broker: Broker, java: JavaHost, member: Member) -> None:
    group = member.group
    at = ("--bootstrap-server", broker.bootstrap)
    row = [group, "Streams", "streams"]
    assert row in lines("--list", tool=tools.ALL_GROUPS)
    assert row in lines("--list", "--streams", tool=tools.ALL_GROUPS)
    assert row in lines("--list", "--group-type", "streams", "--protocol", "streams", tool=tools.ALL_GROUPS)
    for other in (("--consumer",), ("--share",), ("--group-type", "classic")):
        assert row not in lines("--list", *other, tool=tools.ALL_GROUPS)
    assert group not in java.succeed(tools.GROUPS, *at, "--list").out
    refused = java.run(tools.GROUPS, *at, "--describe", "--group", group)
    assert f"Group {group} is not a consumer group." in (refused.out + refused.err).replace("'", "")
    missing = java.run(tools.STREAMS_GROUPS, *at, "--describe", "--group", "there-is-no-such-group")
    assert missing.code == 1
    assert "GroupIdNotFoundException" in missing.out + missing.err


def test_offsets_of_streams_groups_are_reset_and_deleted_and_so_are_groups(
    lines: Lines, broker: Broker, java: JavaHost, member: Member
) -> None:
    group, topic = member.group, source(member)

    def output(*arguments: str) -> str:
        ended = java.succeed(tools.STREAMS_GROUPS, "--bootstrap-server", broker.bootstrap, "--group", group, *arguments)
        return ended.out + ended.err

    def reset(*arguments: str) -> list[list[str]]:
        """Returns topic, partition and new offset."""
        return sorted(row[1:] for row in lines("--reset-offsets", "--group", group, *arguments) if row[0] == group)

    one, everything = ("--input-topic", topic), "--all-input-topics"
    assert "the current state is Stable" in output("--reset-offsets", "--to-earliest", everything, "--execute")
    assert "GroupNotEmptyException" in output("--delete")
    assert "GroupSubscribedToTopicException" in output("--delete-offsets", *one)
    member.leave()
    assert reset("--to-offset", "2", *one, "--dry-run") == [[topic, "0", "2"], [topic, "1", "2"]]
    assert reset("--shift-by", "-1", everything, "--execute") == [[topic, "0", "3"], [topic, "1", "9"]]
    assert reset("--to-earliest", "--input-topic", f"{topic}:1", "--execute") == [[topic, "1", "0"]]
    assert reset("--to-current", everything, "--dry-run") == [[topic, "0", "3"], [topic, "1", "0"]]
    assert [row for row in lines("--list", "--state") if row[0] == group] == [[group, "Empty"]]
    assert [row[-1] for row in lines("--delete-offsets", "--group", group, *one) if row[0] == topic] == [
        "Successful",
        "Successful",
    ]
    internal_topics = {f"{group}-store-changelog", f"{group}-store-repartition"}
    assert internal_topics < topics.names(broker.bootstrap)
    assert "successful" in output("--delete", "--delete-all-internal-topics")
    assert [group] not in lines("--list")
    eventually(lambda: not internal_topics & topics.names(broker.bootstrap), "its internal topics are gone")
