"""Whole brokers that are a cluster over a real ZooKeeper."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest
from kwire_protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kwire_protocol.messages.describe_cluster import DescribeClusterRequest
from kwire_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic

from kwire.node.running import StartError
from kwire.testing import Broker
from testkit.basics.waiting import eventually
from testkit.cluster.zookeeper_nodes import SESSION_TIMEOUT_MS, SHORT_SESSION_TIMEOUT_MS
from testkit.raw.client import RawClient
from testkit.servers.broker_process import BrokerProcess


def settings(connect: str, node_id: int, session_timeout_ms: int = SESSION_TIMEOUT_MS) -> dict[str, str]:
    return {
        "node.id": str(node_id),
        "zookeeper.connect": connect,
        "zookeeper.session.timeout.ms": str(session_timeout_ms),
    }


def in_service(address: str) -> list[int]:
    with RawClient(address) as client:
        return sorted(it.broker_id for it in client.call(DescribeClusterRequest(), 1).brokers)


def leaders(address: str, topic: str) -> list[int]:
    with RawClient(address) as client:
        (described,) = client.call(MetadataRequest([MetadataRequestTopic(name=topic)]), 12).topics
    return [it.leader_id for it in sorted(described.partitions, key=lambda it: it.partition_index)]


def test_a_topic_is_spread_over_the_brokers_and_a_killed_one_leads_nothing(tmp_path: Path, connect: str) -> None:
    with ExitStack() as ended:
        given = [f"{name}={value}" for name, value in settings(connect, 3, SHORT_SESSION_TIMEOUT_MS).items()]
        third = ended.enter_context(BrokerProcess(tmp_path, given))
        one, two = (ended.enter_context(Broker(settings=settings(connect, node_id))) for node_id in (1, 2))
        eventually(lambda: in_service(one.address) == in_service(third.address) == [1, 2, 3], "all are in service")
        with RawClient(two.address) as client:
            answer = client.call(CreateTopicsRequest([CreatableTopic("t", 6, 1)]), 7)
            assert answer.topics[0].error_code == 0
        assert sorted(leaders(two.address, "t")) == [1, 1, 2, 2, 3, 3]
        eventually(lambda: leaders(one.address, "t") == leaders(two.address, "t"), "all know the topic")
        third.kill()
        eventually(lambda: sorted(leaders(one.address, "t")) == [-1, -1, 1, 1, 2, 2], "its session has ended")
        eventually(lambda: in_service(two.address) == [1, 2], "all know it")
        two.stop()
        eventually(lambda: in_service(one.address) == [1], "it has handed over")


@pytest.mark.usefixtures("brief_wait")
def test_a_node_id_that_is_taken_is_refused(connect: str) -> None:
    with (
        Broker(settings=settings(connect, 1)),
        pytest.raises(StartError, match="node 1 of this cluster is running already"),
    ):
        Broker(settings=settings(connect, 1)).start()


def test_a_broker_that_cannot_reach_zookeeper_does_not_start() -> None:
    nowhere = {**settings("127.0.0.1:1", 1), "zookeeper.connection.timeout.ms": "100"}
    with pytest.raises(
        StartError, match="cannot join the cluster at 127.0.0.1:1: cannot reach ZooKeeper at 127.0.0.1:1"
    ):
        Broker(settings=nowhere).start()


def test_a_node_has_one_cluster(tmp_path: Path) -> None:
    both = {**settings("127.0.0.1:1", 1), "kwire.cluster.dir": str(tmp_path)}
    with pytest.raises(StartError, match=r"kwire\.cluster\.dir and zookeeper\.connect are both set"):
        Broker(settings=both).start()
