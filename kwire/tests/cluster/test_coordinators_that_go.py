"""A partition of an internal topic leaves a node, or goes for good, while its log is removed beside the loop."""

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

from kwire.beside import Beside
from kwire.broker import Broker
from kwire.coordinators.runtime import CoordinatorRuntime
from kwire.tests.cluster.told_cluster import ToldCluster
from kwire.tests.slots import at_once
from kwire.topic_names import CONSUMER_OFFSETS, TRANSACTION_STATE
from kwire.waits import Slot, drive
from kwire.workers import Worker

T = TypeVar("T")

SETTINGS = [
    f"{prefix}.{name}"
    for prefix in ("offsets.topic", "transaction.state.log")
    for name in ("num.partitions=1", "replication.factor=2")
]


class HeldBeside(Beside):
    """The threads do not get to their work before `go_on`."""

    def __init__(self) -> None:
        super().__init__()
        self.held: list[Callable[[], None]] = []

    def in_worker(self, worker: Worker, work: Callable[[], T]) -> Slot[Outcome[T]]:
        slot: Slot[Outcome[T]] = Slot()
        self.held.append(lambda: slot.set(capture(work)))
        return slot

    def go_on(self) -> None:
        held, self.held = self.held, []
        for work in held:
            work()


@pytest.mark.parametrize("topic", [CONSUMER_OFFSETS, TRANSACTION_STATE])
@pytest.mark.parametrize("is_deleted", [False, True])
def test_there_is_no_coordinator_from_the_turn_on_in_which_its_replica_goes(topic: str, is_deleted: bool) -> None:
    cluster = ToldCluster()
    for node_id in (1, 2):
        cluster.open(node_id, *SETTINGS)
    at_once(_runtime(cluster.brokers[1], topic).partition_of("name"))
    leader_id = cluster.brokers[1].metadata.image.topics[topic].partitions[0].leader
    other_id = 3 - leader_id
    coordinator, other = cluster.brokers[leader_id], cluster.brokers[other_id]
    runtime = _runtime(coordinator, topic)
    runtime.start()
    assert runtime.shard_at(0) is not None
    held = coordinator.partitions.beside = HeldBeside()
    if is_deleted:
        drive(other.metadata.delete_topics(DeleteTopicsRequest(topic_names=[topic]), version=5))
    else:
        moved = ReassignableTopic(topic, [ReassignablePartition(0, [other_id])])
        drive(other.metadata.reassign_partitions(AlterPartitionReassignmentsRequest(topics=[moved])))
    assert held.held, "the log is about to be removed"
    assert runtime.shard_at(0) is None
    runtime.settle()
    held.go_on()
    assert runtime.in_service() == []


def _runtime(broker: Broker, topic: str) -> CoordinatorRuntime[Any]:
    return broker.groups.runtime if topic == CONSUMER_OFFSETS else broker.transactions.runtime
