"""A persister between a leader and the share coordinators."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

import attrs
from kwire_protocol.errors import ErrorCode as E
from kwire_protocol.wire import Uuid
from outcome import Outcome

from kwire.coordinators.loading import Slice
from kwire.names.topic_names import SHARE_GROUP_STATE
from kwire.node.broker import Broker
from kwire.runtime.futures import Future, begun
from kwire.share.coordinator.persister import CoordinatorPersister
from kwire.share.coordinator.state import ShareState, StateBatch
from testkit.basics.futures import at_once
from testkit.cluster.connected_cluster import ConnectedCluster, FakePeers, InFlightRequest

T = TypeVar("T")


SETTINGS = (
    "share.coordinator.state.topic.replication.factor=2",
    "share.coordinator.state.topic.min.isr=1",
    "share.coordinator.state.topic.num.partitions=1",
)


BATCH = StateBatch(0, 4, 2, 1)


@attrs.define(eq=False)
class Scene:
    """Node 1 coordinates all share-partitions. Topic `t` has 20 partitions."""

    cluster: ConnectedCluster
    topic_id: Uuid

    def persister(self, node_id: int) -> CoordinatorPersister:
        found = self.cluster.brokers[node_id].persister
        assert isinstance(found, CoordinatorPersister)
        return found

    def initialize(self, *partitions: int) -> None:
        topics = {self.topic_id: [(partition, 0, 0) for partition in partitions or (0,)]}
        answer = at_once(self.persister(1).initialize("g", topics))
        assert set(answer.values()) == {E.NONE}

    def write(
        self, node_id: int, partition: int = 0, *, start_offset: int = 0, batches: Sequence[StateBatch] = (BATCH,)
    ) -> Future[Outcome[None]]:
        return begun(
            self.persister(node_id).write(
                "g",
                self.topic_id,
                partition,
                state_epoch=0,
                leader_epoch=0,
                start_offset=start_offset,
                delivery_complete_count=3,
                batches=batches,
            )
        )

    def read(self, node_id: int, partition: int = 0, leader_epoch: int = 0) -> Future[Outcome[ShareState]]:
        return begun(self.persister(node_id).read("g", self.topic_id, partition, leader_epoch))

    def run(self, node_id: int, coroutine: Coroutine[Any, None, T]) -> T:
        """Runs a call of the persister, and delivers its requests."""
        future = begun(coroutine)
        self.cluster.deliver_all()
        assert future.is_set
        return future.value.unwrap()

    def partitions_of(self, sent: InFlightRequest) -> list[int]:
        (topic,) = sent.request.topics
        return [data.partition for data in topic.partitions]

    def pass_pause(self) -> None:
        (pause,) = self.cluster.pauses
        self.cluster.pauses.clear()
        pause.set(None)

    def move_coordinator(self, leader: int) -> None:
        """The state of the log goes along."""
        self.cluster.replicate(SHARE_GROUP_STATE, 0, source=3 - leader, target=leader)
        self.cluster.elect(SHARE_GROUP_STATE, 0, leader)
        self.settle()

    def settle(self) -> None:
        """Runs the tasks of the runtimes."""
        for broker in self.cluster.brokers.values():
            runtime = broker.share_state.runtime
            runtime.settle()
            runtime._advance(0, Slice(broker.clock, 1_000))


def started(cluster: ConnectedCluster, node_id: int) -> Broker:
    broker = cluster.start(node_id, *SETTINGS)
    assert isinstance(broker.persister, CoordinatorPersister)
    peers: Any = FakePeers(cluster)
    broker.persister._peers = broker.persister._sender.peers = peers
    return broker
