"""Two nodes' metadata services over a log in ZooKeeper, with connections that are lost now and then."""

from __future__ import annotations

import pytest
from kwire_protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest

from kwire.cluster.zookeeper.metadata_log import ZooKeeperLog
from kwire.config.server import ServerConfig
from kwire.metadata.bootstrap import register_alone
from kwire.metadata.controller.topics.topic_creation import create_topics
from kwire.metadata.service import MetadataService
from testkit.basics.futures import at_once
from testkit.cluster.comparing import EACH_CHANGE, comparable
from testkit.fakes.keeper import FakeKeeper, FakeZooKeeper, Loss, losing
from testkit.metadata.harness import CLUSTER_ID, NOW_MS, FakeClock


class Node:
    def __init__(self, server: FakeZooKeeper, node_id: int) -> None:
        clock = FakeClock(ids=node_id << 32)
        self.keeper = FakeKeeper(server, session_id=node_id)
        self.log = ZooKeeperLog.open(self.keeper, lambda: NOW_MS, clock.uuid)
        config = ServerConfig.from_properties({"node.id": str(node_id), **EACH_CHANGE})
        self.service = MetadataService.open(config, cluster_id=CLUSTER_ID, log=self.log, clock=clock)
        at_once(self.service.change(register_alone, [bytes([node_id]) * 16]))

    def create(self, *names: str) -> list[int]:
        request = CreateTopicsRequest([CreatableTopic(name, 2, 1) for name in names])
        return [it.error_code for it in at_once(self.service.change(create_topics, request)).topics]


@pytest.mark.parametrize("writes_snapshots", [False, True])
@pytest.mark.parametrize("loss", [None, Loss.BEFORE, Loss.AFTER])
def test_each_topic_is_created_once_whatever_is_lost(loss: Loss | None, writes_snapshots: bool) -> None:
    server = FakeZooKeeper()
    one, other = Node(server, 1), Node(server, 2)
    for node in (one, other):
        node.service.writes_snapshots = writes_snapshots
    for number in range(6):
        node = (one, other)[number % 2]
        node.keeper.loses = losing("Create /kwire/log/", loss)
        assert node.create("t", f"t{number}") == [0 if number == 0 else 36, 0]  # TOPIC_ALREADY_EXISTS
    for node in (one, other, later := Node(server, 3)):
        at_once(node.log.refresh())
        assert sorted(node.service.image.topics) == ["t", "t0", "t1", "t2", "t3", "t4", "t5"]
    assert comparable(one.service.image) == comparable(other.service.image) == comparable(later.service.image)


def test_a_node_that_cannot_read_the_log_waits_for_its_connection(caplog: pytest.LogCaptureFixture) -> None:
    server = FakeZooKeeper()
    one, other = Node(server, 1), Node(server, 2)
    assert other.create("t") == [0]
    one.keeper.loses = lambda _: Loss.BEFORE
    one.log.ends_at(other.log.end_offset)
    assert [it.rpartition(": ")[2] for it in caplog.messages] == ["timed out"]
    assert list(one.service.image.topics) == []
    one.keeper.loses = lambda _: None
    one.log.notify_watchers()
    assert list(one.service.image.topics) == ["t"]
