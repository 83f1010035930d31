"""A replica leaves a node, or its topic is deleted: its users stop before its log is removed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import pytest
from kwire_protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from kwire_protocol.messages.delete_topics import DeleteTopicsRequest
from outcome import Outcome, capture

from kwire.coordinators.runtime import CoordinatorRuntime
from kwire.metadata.controller.partitions.reassignments import reassign_partitions
from kwire.metadata.controller.topics.topic_deletion import delete_topics
from kwire.names.topic_names import CONSUMER_OFFSETS, TRANSACTION_STATE
from kwire.node.broker import Broker
from kwire.runtime.futures import Future, drive
from kwire.runtime.loop import Loop
from kwire.runtime.workers import Worker
from testkit.basics.futures import at_once
from testkit.cluster.scripted_cluster import ScriptedCluster, create

T = TypeVar("T")

SETTINGS = [
    f"{prefix}.{name}"
    for prefix in ("offsets.topic", "transaction.state.log")
    for name in ("num.partitions=1", "replication.factor=2")
]


class HeldLoop(Loop):
    """A loop whose threads start no work before `resume`."""

    def __init__(self) -> None:
        super().__init__()
        self.held: list[Callable[[], None]] = []

    def in_worker(self, worker: Worker, work: Callable[[], T]) -> Future[Outcome[T]]:
        future: Future[Outcome[T]] = Future()
        self.held.append(lambda: future.set(capture(work)))
        return future

    def resume(self) -> None:
        held, self.held = self.held, []
        for work in held:
            work()


@pytest.mark.parametrize("topic", [CONSUMER_OFFSETS, TRANSACTION_STATE])
@pytest.mark.parametrize("is_deleted", [False, True])
def test_there_is_no_coordinator_from_the_turn_on_in_which_its_replica_goes(topic: str, is_deleted: bool) -> None:
    cluster = ScriptedCluster()
    for node_id in (1, 2):
        cluster.open(node_id, *SETTINGS)
    at_once(_runtime(cluster.brokers[1], topic).partition_of("name"))
    leader_id = cluster.brokers[1].metadata.image.topics[topic].partitions[0].leader
    other_id = 3 - leader_id
    coordinator, other = cluster.brokers[leader_id], cluster.brokers[other_id]
    runtime = _runtime(coordinator, topic)
    runtime.start()
    assert runtime.shard_at(0) is not None
    held = coordinator.partitions.loop = HeldLoop()
    if is_deleted:
        drive(other.metadata.change(delete_topics, DeleteTopicsRequest(topic_names=[topic]), version=5))
    else:
        drive(other.metadata.change(reassign_partitions, _leaves_to(other_id, topic)))
    assert held.held, "the log is about to be removed"
    assert runtime.shard_at(0) is None
    runtime.settle()
    held.resume()
    assert runtime.in_service() == []


@pytest.mark.parametrize("is_deleted", [False, True])
def test_a_replica_is_not_moved_to_another_log_dir_any_more_when_it_leaves_the_node(is_deleted: bool) -> None:
    cluster = ScriptedCluster()
    broker = cluster.open(1, log_dirs=2)
    cluster.open(2)
    create(broker, "t", 1, 2)
    source = broker.partitions.folder_of(broker.partitions.find("t", 0))
    target = next(it for it in broker.log_dirs.dirs if it is not source)
    broker.moves.request("t", 0, target.path)
    assert target.futures
    if is_deleted:
        at_once(broker.metadata.change(delete_topics, DeleteTopicsRequest(topic_names=["t"]), version=5))
    else:
        at_once(broker.metadata.change(reassign_partitions, _leaves_to(2, "t")))
    assert broker.moves.moves == []
    broker.moves.close()
    assert not target.futures
    assert [it.failed for it in broker.log_dirs.dirs] == [None, None]


def _leaves_to(node_id: int, topic: str) -> AlterPartitionReassignmentsRequest:
    return AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(topic, [ReassignablePartition(0, [node_id])])])


def _runtime(broker: Broker, topic: str) -> CoordinatorRuntime[Any]:
    return broker.groups.runtime if topic == CONSUMER_OFFSETS else broker.transactions.runtime
