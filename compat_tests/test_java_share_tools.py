"""Kafka's own command line tools for share groups (KIP-932), unmodified."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from testkit.basics.values import numbered
from testkit.basics.waiting import eventually
from testkit.clients.confluent import fill
from testkit.clients.share_consumers import commit, ended, get, make, sharing
from testkit.java import java_host as tools
from testkit.java.java_host import JavaHost
from testkit.servers.brokers import Broker

SHOWN = ("--formatter-property", "print.offset=true", "--formatter-property", "print.delivery=true")
PATIENT = ("--timeout-ms", "20000")


@pytest.fixture
def at(broker: Broker) -> tuple[str, str]:
    return ("--bootstrap-server", broker.bootstrap)


@pytest.fixture
def group(broker: Broker, group: str) -> str:
    """A share group that begins at the earliest offset."""
    return make(broker.bootstrap, group)


class ShareGroups:
    """kafka-share-groups about one group."""

    def __init__(self, java: JavaHost, at: tuple[str, str], group: str) -> None:
        self._java = java
        self._at = at
        self.group = group

    def lines(self, *arguments: str, tool: str = tools.SHARE_GROUPS) -> list[list[str]]:
        """Runs a tool, and returns the words of each line of its output."""
        return [line.split() for line in self._java.succeed(tool, *self._at, *arguments).lines]

    def rows(self, *arguments: str) -> list[list[str]]:
        """Returns the rows of the group, without its name: of `--describe`, and of changes of offsets."""
        return sorted(it[1:] for it in self.lines("--group", self.group, *arguments) if it[0] == self.group)

    def listed(self, *arguments: str, tool: str = tools.SHARE_GROUPS) -> list[list[str]]:
        return [it for it in self.lines("--list", *arguments, tool=tool) if it[0] == self.group]

    def ended(self, *arguments: str) -> str:
        """Returns all output, whatever the exit code."""
        done = self._java.run(tools.SHARE_GROUPS, *self._at, "--group", self.group, *arguments)
        return done.out + done.err


@pytest.fixture
def share_groups(java: JavaHost, at: tuple[str, str], group: str) -> ShareGroups:
    return ShareGroups(java, at, group)


def test_share_groups_are_listed_and_described(
    broker: Broker, share_groups: ShareGroups, new_topic: Callable[..., str]
) -> None:
    topic, group = new_topic(partitions=2), share_groups.group
    fill(broker.bootstrap, topic, numbered(4), partition=0)
    with sharing(broker.bootstrap, group, topic, **{"client.id": "a-client"}) as consumer:
        get(consumer, 4)
        assert commit(consumer) == {0: None}
        assert share_groups.listed() == [[group]]
        assert share_groups.listed("--state") == [[group, "Stable"]]
        assert share_groups.listed("--state", "empty") == []
        assert share_groups.listed(tool=tools.ALL_GROUPS) == [[group, "Share", "share"]]
        assert share_groups.listed("--share", tool=tools.ALL_GROUPS) == [[group, "Share", "share"]]
        assert share_groups.listed("--group-type", "classic", tool=tools.ALL_GROUPS) == []
        # Records that are accepted do not count as lag, though the start offset moves only with the next write. The
        # other partition may not have begun.
        (_, _, start_offset, lag), other = share_groups.rows("--describe")
        assert (lag, other[:2]) == ("0", [topic, "1"])
        assert share_groups.rows("--describe", "--offsets")[0] == [topic, "0", start_offset, "0"]
        assert share_groups.rows("--describe", "--offsets", "--verbose")[0] == [topic, "0", "0", start_offset, "0"]
        fill(broker.bootstrap, topic, numbered(6), partition=0)
        eventually(lambda: share_groups.rows("--describe")[0][-1] == "6", "a lag of six records")
        ((_, _, state, members),) = share_groups.rows("--describe", "--state")
        assert (state, members) == ("Stable", "1")
        ((*_, group_epoch, assignment_epoch, members),) = share_groups.rows("--describe", "--state", "--verbose")
        assert (group_epoch, members) == (assignment_epoch, "1")
        ((_, host, client, count, assigned),) = share_groups.rows("--describe", "--members")
        assert (host, client, count, assigned) == ("/127.0.0.1", "a-client", "2", f"{topic}:0,1")
        ((*_, epoch, assigned),) = share_groups.rows("--describe", "--members", "--verbose")
        assert (epoch, assigned) == (group_epoch, f"{topic}:0,1")
        get(consumer, 6)
        assert commit(consumer) == {0: None}
        assert share_groups.rows("--describe")[0][-1] == "0"
    assert share_groups.rows("--describe", "--state")[0][-2:] == ["Empty", "0"]


def test_offsets_of_share_groups_are_reset_and_deleted(broker: Broker, share_groups: ShareGroups, topic: str) -> None:
    fill(broker.bootstrap, topic, numbered(10), timestamp=1_700_000_000_000)
    reset, delete = ("--reset-offsets", "--topic", topic), ("--delete-offsets", "--topic", topic)
    with sharing(broker.bootstrap, share_groups.group, topic) as consumer:
        get(consumer, 10)
        assert commit(consumer) == {0: None}
        assert "is not empty" in share_groups.ended(*reset, "--to-earliest", "--execute")
        assert "The group is not empty." in share_groups.ended(*delete)
        assert "GroupNotEmptyException" in share_groups.ended("--delete")
    described = share_groups.rows("--describe")
    assert described[0][-1] == "0"
    assert share_groups.rows(*reset, "--to-earliest", "--dry-run") == [[topic, "0", "0"]]
    assert share_groups.rows("--describe") == described
    for how, offset in (
        (("--to-earliest",), 0),
        (("--to-latest",), 10),
        (("--to-datetime", "2023-11-14T22:13:20.000"), 0),
    ):
        assert share_groups.rows(*reset, *how, "--execute") == [[topic, "0", str(offset)]]
        assert share_groups.rows("--describe") == [[topic, "0", str(offset), str(10 - offset)]]
    with sharing(broker.bootstrap, share_groups.group, topic) as consumer:
        get(consumer, 10)  # again, from where it was reset to
        assert commit(consumer) == {0: None}
    assert share_groups.lines("--group", share_groups.group, *delete)[-1] == [topic, "Successful"]
    assert "has no offset information" in share_groups.ended("--describe")
    assert "was successful" in share_groups.ended("--delete")
    assert share_groups.listed() == []
    assert "GroupIdNotFoundException" in share_groups.ended("--describe")


def test_the_console_share_consumer_accepts_releases_and_rejects(
    broker: Broker, java: JavaHost, at: tuple[str, str], group: str, topic: str
) -> None:
    fill(broker.bootstrap, topic, numbered(9))

    def consumed(count: int, *how: str) -> list[str]:
        some = ("--topic", topic, "--group", group, "--max-messages", str(count), *PATIENT)
        return java.succeed(tools.CONSOLE_SHARE_CONSUMER, *at, *some, *SHOWN, *how).lines

    def lines(count: int, *offsets: int) -> list[str]:
        return [f"Offset:{it}\tDelivery:{count}\t{numbered(9)[it].decode()}" for it in offsets]

    assert consumed(3) == lines(1, 0, 1, 2)
    # It got all, and gave back the rest when it ended.
    assert consumed(3, "--release") == lines(2, 3, 4, 5)
    assert consumed(3, "--reject") == lines(3, 3, 4, 5)
    assert consumed(3) == lines(4, 6, 7, 8)
    assert ended(broker.bootstrap, group, topic) == 9


def test_the_verifiable_share_consumer_acknowledges_what_it_consumes(
    broker: Broker, java: JavaHost, at: tuple[str, str], group: str, topic: str
) -> None:
    fill(broker.bootstrap, topic, numbered(20))
    options = ("--topic", topic, "--group-id", group, "--max-messages", "20", "--acknowledgement-mode", "sync")
    result = java.succeed(tools.VERIFIABLE_SHARE_CONSUMER, *at, *options, "--offset-reset-strategy", "earliest")
    events = [json.loads(line) for line in result.lines]
    assert {it["name"] for it in events} >= {"startup_complete", "records_consumed", "offsets_acknowledged"}
    for name in ("records_consumed", "offsets_acknowledged"):
        offsets = [offset for it in events if it["name"] == name for of in it["partitions"] for offset in of["offsets"]]
        assert sorted(offsets) == list(range(20))
    assert all(it["success"] for it in events if it["name"] == "offsets_acknowledged")
    assert ended(broker.bootstrap, group, topic) == 20


def test_the_performance_of_a_share_group_is_measured(
    broker: Broker, java: JavaHost, at: tuple[str, str], group: str, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(partitions=3)
    fill(broker.bootstrap, topic, numbered(600))
    options = ("--topic", topic, "--group", group, "--num-records", "600", "--timeout", "20000")
    measured = java.succeed(tools.SHARE_CONSUMER_PERFORMANCE, *at, *options, "--threads", "3", "--hide-header")
    assert measured.lines[-1].split(", ")[5] == "600"
    counts = [ended(broker.bootstrap, group, topic, partition) for partition in range(3)]
    assert sum(max(it, 0) for it in counts) == 600
