"""Two brokers: one leads the partition, the other one coordinates its state, or they change places."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import attrs
import pytest
from kwire_protocol.errors import ErrorCode as E
from kwire_protocol.messages.share_acknowledge import ShareAcknowledgeRequest
from kwire_protocol.records import Record, build_batch, read_header
from kwire_protocol.wire import ApiMessage, Uuid

from kwire.handlers import share_acknowledge, share_fetch
from kwire.handlers.apis import bound
from kwire.runtime.futures import Future, begun
from testkit.cluster.connected_cluster import ConnectedCluster
from testkit.cluster.scripted_cluster import create
from testkit.metadata.harness import context
from testkit.raw.share_requests import ACCEPT, ShareRequests, acquired, partition_of
from testkit.share.coordinator.persister_scene import Scene, started


@attrs.define(eq=False)
class Member(ShareRequests):
    """A member with a connection to each broker, and a session there."""

    cluster: ConnectedCluster = attrs.field(factory=ConnectedCluster)
    connections: dict[int, Any] = attrs.field(factory=dict)

    def call(self, node_id: int, request: ApiMessage) -> Any:
        """Returns the response, after all requests between the brokers for it."""
        answer = self.begin(node_id, request)
        self.cluster.deliver_all()
        assert answer.is_set
        return answer.value.unwrap()

    def begin(self, node_id: int, request: ApiMessage) -> Future[Any]:
        """Returns a future of the response, set after the requests between the brokers."""
        handler = share_acknowledge if isinstance(request, ShareAcknowledgeRequest) else share_fetch
        connection = self.connections.setdefault(node_id, context(self.version))
        answer: Future[Any] = begun(bound(handler.handle, self.cluster.brokers[node_id])(request, connection))
        self.epoch += 1
        return answer

    def hang_up(self, node_id: int) -> None:
        self.connections.pop(node_id).on_closed()

    def fetch(self, node_id: int) -> Any:
        return self.call(node_id, self.fetch_request())


@pytest.fixture
def scene() -> Iterator[Scene]:
    """Node 1 coordinates all states, and node 2 leads partition 0 of `t`, which has two records."""
    cluster = ConnectedCluster()
    started(cluster, 1)
    broker = started(cluster, 2)
    create(broker, "t", 1, 2)
    scene = Scene(cluster, broker.metadata.image.topics["t"].topic_id)
    cluster.elect("t", 0, 2)
    topic = cluster.brokers[2].share_state.runtime.topic
    begun(topic.ensure())
    cluster.elect(topic.name, 0, 1)
    scene.settle()
    batch = memoryview(bytearray(build_batch([Record(value=b"a"), Record(value=b"b")])))
    cluster.led("t", 0, 2).append(batch, read_header(batch), acks=1, now_ms=0)
    scene.initialize()
    yield scene
    for each in cluster.brokers.values():
        each.close()


def member(scene: Scene, name: str = "a") -> Member:
    return Member(name, Uuid(scene.topic_id), cluster=scene.cluster)


def test_a_leader_reads_and_writes_the_state_at_another_broker(scene: Scene) -> None:
    consumer = member(scene)
    # The state is still on its way when the first fetch has no time left.
    assert acquired(consumer.fetch(2)) == []
    assert acquired(consumer.fetch(2)) == [(0, 1, 1)]
    answer = consumer.call(2, consumer.acknowledge_request((0, 0, ACCEPT)))
    assert partition_of(answer).error_code == E.NONE
    state = scene.run(2, scene.persister(2).read("g", scene.topic_id, 0, 100))
    assert state.batches == ((0, 0, 2, 1),)


def test_the_next_leader_continues_and_the_one_before_returns_where_it_is(scene: Scene) -> None:
    consumer = member(scene)
    consumer.fetch(2)
    assert acquired(consumer.fetch(2)) == [(0, 1, 1)]
    assert partition_of(consumer.call(2, consumer.acknowledge_request((0, 0, ACCEPT)))).error_code == E.NONE
    scene.cluster.replicate("t", 0, source=2, target=1)
    scene.cluster.elect("t", 0, 1)
    assert len(scene.cluster.brokers[2].sharing) == 0
    for answer in (consumer.fetch(2), consumer.call(2, consumer.acknowledge_request((1, 1, ACCEPT)))):
        data = partition_of(answer)
        assert data.error_code == E.NOT_LEADER_OR_FOLLOWER
        image = scene.cluster.brokers[1].metadata.image.topics["t"].partitions[0]
        assert (data.current_leader.leader_id, data.current_leader.leader_epoch) == (1, image.leader_epoch)
        assert {it.node_id for it in answer.node_endpoints} == {1, 2}
    consumer.epoch = 0
    assert acquired(consumer.fetch(1)) == [(1, 1, 1)]


def test_a_write_of_a_leader_that_does_not_know_of_its_successor_is_fenced(scene: Scene) -> None:
    consumer = member(scene)
    consumer.fetch(2)
    assert acquired(consumer.fetch(2)) == [(0, 1, 1)]
    scene.run(1, scene.persister(1).read("g", scene.topic_id, 0, 100))
    answer = consumer.call(2, consumer.acknowledge_request((0, 1, ACCEPT)))
    assert partition_of(answer).error_code == E.NOT_LEADER_OR_FOLLOWER
    assert len(scene.cluster.brokers[2].sharing) == 0


def test_a_fetch_that_waits_resumes_when_the_state_has_come(scene: Scene) -> None:
    consumer = member(scene)
    assert acquired(consumer.call(2, consumer.fetch_request(max_wait_ms=60_000))) == [(0, 1, 1)]


def test_a_state_that_comes_after_the_leader_has_changed_is_dropped(scene: Scene) -> None:
    consumer = member(scene)
    answer = consumer.begin(2, consumer.fetch_request(max_wait_ms=60_000))
    assert not answer.is_set
    scene.cluster.replicate("t", 0, source=2, target=1)
    scene.cluster.elect("t", 0, 1)
    assert partition_of(answer.value.unwrap()).error_code == E.NOT_LEADER_OR_FOLLOWER
    scene.cluster.deliver_all()
    assert len(scene.cluster.brokers[2].sharing) == 0
    assert acquired(consumer.call(1, attrs.evolve(consumer, epoch=0).fetch_request())) == [(0, 1, 1)]


def test_a_group_without_sessions_is_forgotten_when_its_last_write_is_done(scene: Scene) -> None:
    sharing = scene.cluster.brokers[2].sharing
    consumer = member(scene)
    consumer.fetch(2)
    assert acquired(consumer.fetch(2)) == [(0, 1, 1)]
    consumer.hang_up(2)
    assert len(sharing) == 1  # the release is on its way
    scene.cluster.deliver_all()
    assert len(sharing) == 0


def test_a_group_that_comes_back_during_its_last_write_continues(scene: Scene) -> None:
    sharing = scene.cluster.brokers[2].sharing
    consumer = member(scene)
    consumer.fetch(2)
    assert acquired(consumer.fetch(2)) == [(0, 1, 1)]
    consumer.hang_up(2)
    other = member(scene, "b")
    answer = other.begin(2, other.fetch_request(max_wait_ms=60_000))
    scene.cluster.deliver_all()
    assert acquired(answer.value.unwrap()) == [(0, 1, 2)]
    assert len(sharing) == 1
