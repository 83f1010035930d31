"""The load of consumer groups: it reports that a group has settled when it has, and not before."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager

import pytest

from benchmarks.brokers.single import Spec
from benchmarks.load.answers import BadAnswer, check_consumer_heartbeat
from benchmarks.load.connection import Connection
from benchmarks.load.consumer_members import ConsumerGroup, Subscription
from benchmarks.load.members import wait_for_coordinator
from benchmarks.load.replay import Replayer, connect
from benchmarks.load.requests import encode, numbered
from benchmarks.scenarios.consumer_groups import SHORT_INTERVAL
from kwire.testing import Broker

PARTITIONS = 6


@pytest.fixture
def port() -> Iterator[int]:
    """The port of a broker with a topic."""
    with Broker(settings=SHORT_INTERVAL) as broker:
        with Connection(broker.port) as connection:
            connection.create({"t": PARTITIONS})
        wait_for_coordinator(broker.port, "readers")
        yield broker.port


@contextmanager
def connected(port: int, count: int) -> Iterator[list[socket.socket]]:
    with ExitStack() as stack:
        yield [stack.enter_context(sock) for sock in connect(port, count)]


@pytest.mark.parametrize("subscription", [Subscription(PARTITIONS, ["t"]), Subscription(PARTITIONS, regex="t.*")])
def test_a_group_settles_when_members_come_and_go(port: int, subscription: Subscription) -> None:
    with connected(port, 2) as sockets, ConsumerGroup("readers", subscription, sockets) as group:
        group.join(3)
        assert sorted(len(member.owned) for member in group.members) == [2, 2, 2]
        group.leave(2)
        assert [len(member.owned) for member in group.members] == [PARTITIONS]
        group.join(1)
        assert [len(member.owned) for member in group.members] == [3, 3]


def test_a_steady_heartbeat_can_be_replayed_and_one_of_an_old_epoch_is_seen(port: int) -> None:
    subscription = Subscription(PARTITIONS, ["t"])
    with connected(port, 2) as sockets, ConsumerGroup("readers", subscription, sockets) as group:
        group.join(2)
        requests = group.steady_requests()
        check = check_consumer_heartbeat(group.members[0].member_id)
    with connected(port, 1) as sockets:
        with closing(Replayer(sockets, numbered(map(encode, requests)), check, depth=2)) as replayer:
            replayer.send(10)
        requests[1].member_epoch += 1
        replayer = Replayer(sockets, numbered(map(encode, requests)), check, depth=2)
        with closing(replayer), pytest.raises(BadAnswer):
            replayer.send(10)


def test_settings_of_a_scenario_give_way_to_those_of_the_command_line() -> None:
    assert Spec.parse("kwire").with_defaults({"a": "1"}).settings == {"a": "1"}
    mine = Spec.parse("mine=kafka:a=2,b=3").with_defaults({"a": "1", "c": "4"})
    assert (mine.name, mine.kind, mine.settings) == ("mine", "kafka", {"a": "2", "b": "3", "c": "4"})
    other = Spec.parse("other='serve {port}'")
    assert other.with_defaults({"a": "1"}) == other
