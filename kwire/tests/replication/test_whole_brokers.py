"""Whole brokers over real sockets: acks=all with three replicas, a leader that goes, and one that comes back."""

from __future__ import annotations

from pathlib import Path

from kwire_protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kwire_protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kwire_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from kwire_protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kwire_protocol.records import Record, build_batch

from testkit.basics.waiting import eventually
from testkit.cluster.local_cluster import ALONE, LocalCluster, local_cluster
from testkit.raw.client import RawClient
from testkit.servers.broker_process import BrokerProcess

NODES = (1, 2, 3)
SETTINGS = {**ALONE, "replica.fetch.backoff.ms": "100", "replica.fetch.wait.max.ms": "100"}


def isr(cluster: LocalCluster, node_id: int) -> set[int]:
    with RawClient(cluster.nodes[node_id].address) as client:
        described = client.call(MetadataRequest([MetadataRequestTopic(name="t")]), 12).topics[0]
    return set(described.partitions[0].isr_nodes)


def produce(cluster: LocalCluster, node_id: int, value: bytes) -> int:
    return produce_to(cluster.nodes[node_id].address, 0, value)


def produce_to(address: str, index: int, value: bytes = b"v") -> int:
    """Returns the error code of acks=all."""
    data = TopicProduceData("t", partition_data=[PartitionProduceData(index, build_batch([Record(value=value)]))])
    with RawClient(address) as client:
        answer = client.call(ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[data]), 9)
    return int(answer.responses[0].partition_responses[0].error_code)


def high_watermark(cluster: LocalCluster, node_id: int) -> int:
    request = FetchRequest(max_wait_ms=0, topics=[FetchTopic("t", partitions=[FetchPartition(0)])])
    with RawClient(cluster.nodes[node_id].address) as client:
        return int(client.call(request, 12).responses[0].partitions[0].high_watermark)


def create(cluster: LocalCluster) -> None:
    eventually(lambda: cluster.in_service(1) == list(NODES), "all nodes are in service")
    with RawClient(cluster.nodes[1].address) as client:
        assert client.call(CreateTopicsRequest([CreatableTopic("t", 1, 3)]), 7).topics[0].error_code == 0


def logs(folder: Path) -> list[bytes]:
    return [(folder / f"node-{it}" / "t-0" / "00000000000000000000.log").read_bytes() for it in NODES]


def test_the_replicas_are_the_same_after_the_leader_has_stopped_and_come_back(tmp_path: Path) -> None:
    with local_cluster(tmp_path, *NODES, settings=SETTINGS) as cluster:
        create(cluster)
        first = cluster.leaders(1, "t")[0]
        assert [produce(cluster, first, b"a%d" % number) for number in range(5)] == [0] * 5
        cluster.stop(first)
        other = next(iter(cluster.nodes))
        eventually(lambda: cluster.leaders(other, "t")[0] not in (first, -1), "another node leads")
        second = cluster.leaders(other, "t")[0]
        eventually(lambda: produce(cluster, second, b"b") == 0, "it knows that it leads")
        assert high_watermark(cluster, second) >= 6
        cluster.start(first)
        eventually(lambda: isr(cluster, second) == set(NODES), "the first node is in sync again")
        assert produce(cluster, second, b"c") == 0
    first_log, *others = logs(tmp_path)
    assert first_log
    assert all(it == first_log for it in others)


def test_nothing_is_lost_when_the_process_of_the_leader_is_killed(tmp_path: Path) -> None:
    (tmp_path / "killed").mkdir()
    settings = [
        "node.id=7",
        f"kwire.cluster.dir={tmp_path / 'cluster'}",
        *(f"{name}={value}" for name, value in SETTINGS.items()),
    ]
    with BrokerProcess(tmp_path / "killed", settings) as killed, local_cluster(tmp_path, 1, 2, settings=SETTINGS) as c:
        eventually(lambda: c.in_service(1) == [1, 2, 7], "all nodes are in service")
        with RawClient(c.nodes[1].address) as client:
            assert client.call(CreateTopicsRequest([CreatableTopic("t", 3, 3)]), 7).topics[0].error_code == 0
        led = c.leaders(1, "t").index(7)
        eventually(lambda: produce_to(killed.address, led) == 0, "node 7 knows that it leads")
        killed.kill()
        eventually(lambda: c.leaders(1, "t")[led] in (1, 2), "another node leads")
        leader = c.leaders(1, "t")[led]
        request = FetchRequest(max_wait_ms=0, topics=[FetchTopic("t", partitions=[FetchPartition(led)])])

        def size() -> int:
            with RawClient(c.nodes[leader].address) as client:
                return len(client.call(request, 12).responses[0].partitions[0].records or b"")

        eventually(lambda: size() > 0, "the record is there")
