"""The load of share groups: it takes every record once, and raises an error when it did not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest
from kwire_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic

from benchmarks.load.answers import BadAnswer, check_produce
from benchmarks.load.connection import Connection
from benchmarks.load.members import wait_for_coordinator
from benchmarks.load.replay import Replayer, connect
from benchmarks.load.requests import numbered, produce, value_batch
from benchmarks.load.share_members import ShareGroup
from kwire.testing import Broker

PARTITIONS, MEMBERS = 2, 3


@pytest.fixture
def group() -> Iterator[ShareGroup]:
    """A group that has joined, with a topic of ten records a partition."""
    with Broker() as broker, ExitStack() as stack:
        with Connection(broker.port) as connection:
            connection.create({"t": PARTITIONS})
            (topic,) = connection.request(MetadataRequest([MetadataRequestTopic(name="t")])).topics
        wait_for_coordinator(broker.port, "g")
        sockets = [stack.enter_context(sock) for sock in connect(broker.port, MEMBERS + 1)]
        group = ShareGroup("g", "t", topic.topic_id, sockets[1:])
        group.join(PARTITIONS)
        frame = produce("t", range(PARTITIONS), value_batch(10, 10))
        with closing(Replayer(sockets[:1], numbered([frame]), check_produce("t", PARTITIONS), depth=1)) as replayer:
            replayer.send(1)
        yield group


def test_members_consume_all_records_and_leave_none_in_flight(group: ShareGroup) -> None:
    group.consume(10 * PARTITIONS)
    assert not any(member.fetched for member in group.members)
    assert [group.fetch(member, wait_ms=0) for member in group.members] == [0] * MEMBERS


def test_more_records_than_were_expected_are_reported(group: ShareGroup) -> None:
    with pytest.raises(BadAnswer, match="more than once"):
        group.consume(10 * PARTITIONS - 1)
