"""Share coordinators in a cluster of three brokers, over real connections, while one of the brokers goes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kwire_protocol.errors import ErrorCode as E
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kwire_protocol.wire import Uuid

from kwire.names.topic_names import SHARE_GROUP_STATE
from kwire.runtime.futures import begun
from kwire.share.coordinator.kinds import Kind
from kwire.share.coordinator.persister import Persister
from kwire.share.coordinator.state import SharePartitionKey, ShareState, StateBatch
from testkit.basics.waiting import eventually
from testkit.cluster.open_cluster import SETTINGS, OpenCluster
from testkit.raw.client import RawClient

NODES = (1, 2, 3)
PARTITIONS = 12


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[OpenCluster]:
    cluster = OpenCluster(tmp_path, SETTINGS)
    try:
        for node_id in NODES:
            cluster.start(node_id)
        eventually(lambda: all(cluster.in_service(it) == list(NODES) for it in NODES), "all nodes are in service")
        with RawClient(cluster.nodes[1].address) as client:
            answer = client.call(CreateTopicsRequest([CreatableTopic("t", PARTITIONS, 1)]), 7)
            assert answer.topics[0].error_code == 0
        eventually(lambda: all(len(cluster.leaders(it, "t")) == PARTITIONS for it in NODES), "they know the topic")
        yield cluster
    finally:
        for node_id in list(cluster.nodes):
            cluster.stop(node_id)


def coordinator_of(cluster: OpenCluster, key: SharePartitionKey, node_id: int) -> int:
    runtime = cluster.node(node_id).inner.share_state.runtime

    async def find(_: Persister) -> int:
        return runtime.topic.role(await runtime.partition_of(key.text)).leader_id

    return cluster.node(node_id).run(find)


def test_what_several_partitions_write_at_once_is_one_request_for_each_coordinator(
    cluster: OpenCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic_id: Uuid = cluster.node(1).inner.metadata.image.topics["t"].topic_id
    partitions = range(PARTITIONS)
    cluster.node(1).run(lambda it: it.initialize("g", {topic_id: [(index, 0, 0) for index in partitions]}))
    requests: list[tuple[int, int]] = []
    """Node, and the number of partitions in its request."""
    for node_id in NODES:
        service = cluster.node(node_id).inner.share_state

        async def counted(kind: Kind, request: Any, *, at: int = node_id, answer: Any = service.answer) -> Any:
            requests.append((at, sum(len(topic.partitions) for topic in request.topics)))
            return await answer(kind, request)

        monkeypatch.setattr(service, "answer", counted)

    async def write_all(persister: Persister) -> None:
        futures = [
            begun(
                persister.write(
                    "g",
                    topic_id,
                    index,
                    state_epoch=0,
                    leader_epoch=0,
                    start_offset=9,
                    delivery_complete_count=0,
                    batches=[],
                )
            )
            for index in partitions
        ]
        for future in futures:
            (await future).unwrap()

    cluster.node(1).run(write_all)
    keys = [SharePartitionKey("g", topic_id, index) for index in partitions]
    elsewhere = Counter(it for key in keys if (it := coordinator_of(cluster, key, 1)) != 1)
    assert len(elsewhere) == 2
    assert sorted(requests) == sorted(elsewhere.items())


def test_every_broker_reaches_every_coordinator_also_when_one_goes(cluster: OpenCluster) -> None:
    topic_id: Uuid = cluster.node(1).inner.metadata.image.topics["t"].topic_id
    partitions = range(PARTITIONS)
    answers = cluster.node(1).run(lambda it: it.initialize("g", {topic_id: [(index, 0, 0) for index in partitions]}))
    assert answers == {(topic_id, index): E.NONE for index in partitions}
    keys = [SharePartitionKey("g", topic_id, index) for index in partitions]
    coordinators = {key: coordinator_of(cluster, key, 1) for key in keys}
    assert set(coordinators.values()) == set(NODES)

    def write(node_id: int, index: int, number: int) -> None:
        cluster.node(node_id).run(
            lambda it: it.write(
                "g",
                topic_id,
                index,
                state_epoch=0,
                leader_epoch=0,
                start_offset=-1,
                delivery_complete_count=number,
                batches=[StateBatch(2 * number, 2 * number, 2, 1)],
            )
        )

    def read(node_id: int, index: int, leader_epoch: int = -1) -> ShareState:
        return cluster.node(node_id).run(lambda it: it.read("g", topic_id, index, leader_epoch))

    for number in range(6):
        for index in partitions:
            write(NODES[(number + index) % 3], index, number)
    written = tuple(StateBatch(2 * number, 2 * number, 2, 1) for number in range(6))
    for node_id in NODES:
        assert [read(node_id, index) for index in partitions] == [ShareState(0, 0, written)] * PARTITIONS

    cluster.stop(3)
    for index in partitions:
        write(1 + index % 2, index, 6)
    written = (*written, StateBatch(12, 12, 2, 1))
    assert [read(1, index, leader_epoch=4) for index in partitions] == [ShareState(0, 0, written)] * PARTITIONS
    for index in partitions:
        with pytest.raises(KafkaError) as raised:
            read(2, index, leader_epoch=3)
        assert raised.value.code is E.FENCED_LEADER_EPOCH
    assert {coordinator_of(cluster, key, 1) for key in keys} == {1, 2}

    cluster.start(3)
    eventually(lambda: cluster.in_service(3) == list(NODES), "it is back")
    summaries = cluster.node(3).run(lambda it: it.read_summary("g", {topic_id: [(index, 0) for index in partitions]}))
    assert {(it.leader_epoch, it.delivery_complete_count) for it in summaries.values()} == {(4, 6)}

    # All replicas have the same records.
    def ends(node_id: int) -> list[int]:
        table = cluster.node(node_id).inner.partitions
        return [table.find(SHARE_GROUP_STATE, index).log_end_offset for index in range(6)]

    eventually(lambda: ends(1) == ends(2) == ends(3), "the replicas have caught up")
    deleted = cluster.node(3).run(lambda it: it.delete("g", {topic_id: list(partitions)}))
    assert set(deleted.values()) == {E.NONE}
    with pytest.raises(KafkaError) as raised:
        read(1, 0)
    assert raised.value.code is E.INVALID_REQUEST
