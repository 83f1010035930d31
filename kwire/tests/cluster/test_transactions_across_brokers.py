"""Transactions in a cluster of three brokers: coordinator, partitions and groups are on different nodes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer as ConfluentProducer
from kwire_protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kwire_protocol.messages.describe_transactions import DescribeTransactionsRequest
from kwire_protocol.records import Record

from kwire.client.cluster import Cluster, CoordinatorKind, TopicPartition
from kwire.client.fetching import PartitionReader
from kwire.client.groups import CommittedOffset, fetch_offsets
from kwire.client.offsets import LATEST, IsolationLevel, list_offsets
from kwire.client.producing import Producer
from testkit.basics.waiting import eventually
from testkit.cluster.local_cluster import LocalCluster, local_cluster
from testkit.raw.client import RawClient

NODES = (1, 2, 3)
COMMITTED = IsolationLevel.READ_COMMITTED
PARTITIONS = [TopicPartition("t", index) for index in range(6)]


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with three_nodes(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@contextmanager
def three_nodes(folder: Path) -> Iterator[LocalCluster]:
    with local_cluster(folder, *NODES) as cluster:
        eventually(lambda: all(cluster.in_service(it) == list(NODES) for it in NODES), "all nodes are in service")
        with RawClient(cluster.nodes[1].address) as client:
            answer = client.call(CreateTopicsRequest([CreatableTopic("t", len(PARTITIONS), 1)]), 7)
            assert answer.topics[0].error_code == 0
        eventually(lambda: all(len(cluster.leaders(it, "t")) == len(PARTITIONS) for it in NODES), "they know the topic")
        yield cluster


@pytest.fixture
def cluster(nodes: LocalCluster) -> Iterator[Cluster]:
    with Cluster(bootstrap(nodes), timeout_s=30) as client:
        assert {client.leader(at) for at in PARTITIONS} == set(NODES)
        yield client


def bootstrap(nodes: LocalCluster) -> str:
    return ",".join(node.address for node in nodes.nodes.values())


def id_on(cluster: Cluster, node_id: int, what: str) -> str:
    """Returns a transactional id that this node coordinates."""
    return next(
        name
        for name in (f"{what}-{number}" for number in range(1000))
        if coordinator_of(cluster, CoordinatorKind.TRANSACTION, name) == node_id
    )


def coordinator_of(cluster: Cluster, kind: CoordinatorKind, key: str) -> int:
    """Waits for a coordinator: nodes are in service a moment before their partitions are led."""
    return cluster.until_done(lambda: cluster.coordinator(kind, key))


def contents(cluster: Cluster) -> dict[int, list[bytes | None]]:
    """Returns each partition's committed records, once no transaction is open."""

    def stable() -> dict[int, int] | None:
        offsets = list_offsets(cluster, "t", LATEST, isolation_level=COMMITTED)
        return offsets if offsets == list_offsets(cluster, "t", LATEST) else None

    latest = eventually(stable, "all transactions have ended")
    assert latest is not None
    found: dict[int, list[bytes | None]] = {}
    for at in PARTITIONS:
        with PartitionReader(cluster, at, 0, latest[at.partition], isolation_level=COMMITTED) as reader:
            found[at.partition] = [record.value for record in reader.records()]
    return found


def write_everywhere(producer: Producer, value: bytes) -> None:
    producer.produce({at: [Record(timestamp=1, value=value)] for at in PARTITIONS})


def state_of(nodes: LocalCluster, node_id: int, transactional_id: str, *, loading: bool = False) -> str:
    """Returns the state; with `loading` it is empty while the coordinator is not ready."""
    with RawClient(nodes.nodes[node_id].address) as client:
        (described,) = client.call(DescribeTransactionsRequest([transactional_id]), 0).transaction_states
        assert loading or described.error_code == 0
        state: str = described.transaction_state
        return state


@pytest.mark.parametrize("coordinator", NODES)
@pytest.mark.parametrize("version", [2, 0])
def test_a_transaction_over_all_brokers_is_committed_or_aborted_as_one(
    nodes: LocalCluster, cluster: Cluster, coordinator: int, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kwire.client.producing._EPOCH_PER_TRANSACTION", 2 if version == 2 else 3)
    name = id_on(cluster, coordinator, f"of-version-{version}")
    producer = Producer(cluster, transactional_id=name)
    producer.init()
    for round_number, commits in enumerate([True, False, True, True, False]):
        value = b"%d-%d-%d" % (coordinator, version, round_number)
        producer.begin()
        assert producer.gives_epochs == (version == 2)
        write_everywhere(producer, value)
        write_everywhere(producer, value)
        if commits:
            producer.commit()
        else:
            producer.abort()
    found = contents(cluster)
    for values in found.values():
        assert [it for it in values if it and it.startswith(b"%d-%d-" % (coordinator, version))] == [
            b"%d-%d-%d" % (coordinator, version, number) for number in (0, 0, 2, 2, 3, 3)
        ]
    eventually(lambda: state_of(nodes, coordinator, name).startswith("Complete"), "all markers are written")


def test_confluents_producer_commits_and_aborts_over_all_brokers(nodes: LocalCluster, cluster: Cluster) -> None:
    producer = ConfluentProducer({"bootstrap.servers": bootstrap(nodes), "transactional.id": "confluent"})
    producer.init_transactions(30)
    for number in range(4):
        producer.begin_transaction()
        for at in PARTITIONS:
            producer.produce("t", b"confluent %d" % number, partition=at.partition)
        if number % 2:
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
    for values in contents(cluster).values():
        assert [it for it in values if it and it.startswith(b"confluent")] == [b"confluent 0", b"confluent 2"]


@pytest.mark.parametrize("coordinator", NODES)
@pytest.mark.parametrize("group_coordinator", NODES)
def test_offsets_of_a_group_on_any_broker_are_handed_over_with_the_transaction(
    cluster: Cluster, coordinator: int, group_coordinator: int
) -> None:
    group = next(
        it
        for it in (f"group-{coordinator}-{number}" for number in range(1000))
        if coordinator_of(cluster, CoordinatorKind.GROUP, it) == group_coordinator
    )
    producer = Producer(cluster, transactional_id=id_on(cluster, coordinator, f"hands-over-{group}"))
    producer.init()
    at = PARTITIONS[0]
    for offset in range(1, 6):
        producer.begin()
        write_everywhere(producer, b"handed over")
        producer.add_offsets(group, {at: offset})
        if offset % 2:
            producer.commit()
        else:
            producer.abort()
        settled = offset if offset % 2 else offset - 1
        assert fetch_offsets(cluster, group, [at], require_stable=True)[at] == CommittedOffset(settled)


def test_a_broker_that_is_away_when_a_transaction_ends_gets_its_markers_when_it_is_back(tmp_path: Path) -> None:
    with three_nodes(tmp_path) as nodes, Cluster(bootstrap(nodes), timeout_s=30) as cluster:
        name = id_on(cluster, 1, "waits")
        producer = Producer(cluster, transactional_id=name)
        producer.init()
        producer.begin()
        write_everywhere(producer, b"v")
        nodes.stop(3)
        producer.commit()
        assert state_of(nodes, 1, name) == "PrepareCommit"
        nodes.start(3)
        eventually(lambda: state_of(nodes, 1, name) == "CompleteCommit", "node 3 has its markers")
    with local_cluster(tmp_path, *NODES) as nodes:
        eventually(lambda: all(nodes.in_service(it) == list(NODES) for it in NODES), "all nodes are in service")
        eventually(lambda: -1 not in nodes.leaders(1, "t"), "all partitions are led")
        with Cluster(bootstrap(nodes), timeout_s=30) as cluster:
            assert contents(cluster) == {key: [b"v"] for key in range(len(PARTITIONS))}


def test_a_coordinator_that_comes_back_completes_what_it_had_decided(tmp_path: Path) -> None:
    with three_nodes(tmp_path) as nodes, Cluster(bootstrap(nodes), timeout_s=30) as cluster:
        name = id_on(cluster, 2, "waits")
        producer = Producer(cluster, transactional_id=name)
        producer.init()
        producer.begin()
        write_everywhere(producer, b"v")
        nodes.stop(3)
        producer.commit()
        assert state_of(nodes, 2, name) == "PrepareCommit"
        nodes.stop(2)
        nodes.start(3)
        nodes.start(2)
        eventually(lambda: nodes.in_service(2) == list(NODES), "all nodes are in service")
        with Cluster(bootstrap(nodes), timeout_s=30) as again:
            assert coordinator_of(again, CoordinatorKind.TRANSACTION, name) == 2
            eventually(lambda: state_of(nodes, 2, name, loading=True) == "CompleteCommit", "all markers are written")
            assert contents(again) == {key: [b"v"] for key in range(len(PARTITIONS))}
