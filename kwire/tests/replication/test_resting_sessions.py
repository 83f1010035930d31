"""Sessions of followers and consumers that read only what has changed, and what they must still notice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from kwire_protocol.errors import ErrorCode
from kwire_protocol.internal.metadata_topics import PartitionChangeRecord
from kwire_protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData

from kwire.handlers import fetch
from kwire.handlers.apis import bound
from kwire.handlers.context import Context
from kwire.metadata.controller.deciding import ClusterState, Records
from kwire.replicas.partition import Partition
from kwire.replicas.roles import Follower, Leader
from kwire.runtime.futures import at_once
from kwire.security.authorizer import CLUSTER_NAME, Operation, ResourceType
from testkit.scenes.partition_files import log_files
from testkit.security.requests import Denier
from testkit.worlds.replication.resting import (
    a_follower_that_fetches_no_more_is_behind_from_its_last_fetch_on,
    followers_of,
    leader_of,
    look,
)
from testkit.worlds.replication.world import NODES, SETTINGS, TOPIC, World

LAG_MS = 30_000


@pytest.fixture
def world() -> World:
    """All replicas have five records, and rest in their sessions."""
    made = World()
    made.settle()
    for number in range(5):
        made.produce(leader_of(made), b"%d" % number)
    made.settle()
    return made


def led(world: World) -> Partition:
    return world.partition(leader_of(world))


def test_a_follower_that_fetches_no_more_is_behind_from_its_last_fetch_on(world: World) -> None:
    a_follower_that_fetches_no_more_is_behind_from_its_last_fetch_on(world)


def test_a_quiet_follower_is_not_read_again_and_counts_as_alive(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(Partition, "note_fetch", None)
        for _ in range(100):
            world.clock.time_ms += 500
            for follower in followers_of(world):
                world.fetch(follower)
    world.produce(leader_of(world), b"after a long time", acks=1)
    look(world)
    assert set(world.registered.isr) == set(NODES)
    world.clock.time_ms += LAG_MS
    look(world)
    assert set(world.registered.isr) == set(NODES)
    world.clock.time_ms += 1
    look(world)
    assert world.registered.isr == (leader_of(world),), "nobody has fetched since the record was appended"


def test_a_quiet_follower_that_left_the_isr_is_considered_at_each_fetch_for_joining_it(world: World) -> None:
    follower, leader = followers_of(world)[0], leader_of(world)
    world.slow[leader].is_slow = True
    world.clock.time_ms += 2 * LAG_MS
    world.produce(leader, b"missed", acks=1)
    look(world)
    world.slow[leader].decide()
    assert world.registered.isr == (leader,)
    for _ in range(4):
        world.fetch(follower)
    assert set(world.registered.isr) == {leader, follower}


def test_a_caught_up_follower_outside_the_isr_is_looked_at_at_each_fetch(world: World) -> None:
    follower, partition = followers_of(world)[0], led(world)
    fetched_by: list[int] = []

    class Counting:
        def fetched(self, _partition: Partition, _role: Leader, replica_id: int, _now_ms: int) -> None:
            fetched_by.append(replica_id)

        def is_alive(self, _node_id: int) -> bool:
            return True

    partition.isr_driver = Counting()
    role = partition.leader()
    partition.take_role(Leader(role.leader_id, role.leader_epoch, role.replicas, (role.leader_id,)))
    for _ in range(3):
        world.fetch(follower)
    assert fetched_by == [follower] * 3


def test_a_follower_learns_the_high_watermark_although_an_answer_came_in_another_leader_epoch(world: World) -> None:
    first, second = followers_of(world)
    leader = leader_of(world)
    world.produce(leader, b"committed while leaders change")
    for follower in (first, second, first):
        world.fetch(follower)
    fetcher = world.fetcher(second)
    assert fetcher is not None
    answer = world.answer(fetcher)
    assert answer is not None
    assert led(world).high_watermark == 6

    def same_leader_again(state: ClusterState) -> tuple[Records, None]:
        return [PartitionChangeRecord(0, state.image.topics[TOPIC].topic_id, leader=leader)], None

    at_once(world.brokers[leader].metadata.change(same_leader_again))
    assert world.fetcher(second) is fetcher, "it follows the same leader, in another epoch"
    fetcher.received(answer, world.clock.now_ms())
    assert world.partition(second).high_watermark == 5, "the answer is of the earlier epoch"
    world.settle()
    assert world.partition(second).high_watermark == 6


def test_a_follower_that_rests_gets_an_error_when_it_may_not_fetch_any_more(world: World) -> None:
    fetcher, leader = world.fetcher(followers_of(world)[0]), world.brokers[leader_of(world)]
    assert fetcher is not None

    def errors() -> list[int]:
        """Returns the errors in the next answer."""
        answer = world.answer(fetcher)
        assert isinstance(answer, FetchResponse)
        fetcher.received(answer, world.clock.now_ms())
        world.clock.time_ms += SETTINGS.backoff_ms
        return [partition.error_code for topic in answer.responses for partition in topic.partitions]

    assert errors() == []
    leader.authorization.authorizer = Denier()
    assert errors() == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    leader.authorization.authorizer = Denier({(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)})
    assert errors() == [0]


class Session:
    """A consumer's session, which reads from one node."""

    def __init__(self, world: World, node_id: int, offset: int, *, isolation_level: int = 0) -> None:
        self.world, self.node_id, self.isolation_level = world, node_id, isolation_level
        topic_id = world.brokers[node_id].metadata.image.topics[TOPIC].topic_id
        role = world.partition(node_id).role
        wanted = FetchPartition(0, role.leader_epoch, offset, partition_max_bytes=1000)
        self.session_id, self.epoch = 0, 0
        self.session_id = self._fetch([FetchTopic(topic_id=topic_id, partitions=[wanted])]).session_id

    def _fetch(self, topics: list[FetchTopic]) -> FetchResponse:
        request = FetchRequest(
            session_id=self.session_id,
            session_epoch=self.epoch,
            isolation_level=self.isolation_level,
            max_wait_ms=0,
            topics=topics,
        )
        context = Context("client", "127.0.0.1", 9092, api_version=13)
        response = bound(fetch.handle, self.world.brokers[self.node_id])(request, context)
        assert isinstance(response, FetchResponse)
        self.epoch += 1
        return response

    def news(self) -> PartitionData | None:
        """Returns the partition's data in the next answer."""
        topics = self._fetch([]).responses
        return topics[0].partitions[0] if topics else None


def deleted(world: World) -> None:
    led(world).delete_records_before(3, now_ms=0)


def appended(world: World) -> None:
    world.produce(leader_of(world), b"more")
    for follower in followers_of(world):
        world.fetch(follower)
        world.fetch(follower)


@pytest.mark.parametrize(
    ("change", "has_change"),
    [
        (appended, lambda it: bool(it.records) and it.high_watermark == 6),
        (deleted, lambda it: it.log_start_offset == 3),
        (
            lambda world: led(world).take_role(Follower(2, 99)),
            lambda it: it.error_code == ErrorCode.FENCED_LEADER_EPOCH,
        ),
        (lambda world: led(world).close(), lambda it: it.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (lambda world: led(world).take_offline(), lambda it: it.error_code == ErrorCode.KAFKA_STORAGE_ERROR),
    ],
)
def test_a_consumer_that_rests_receives_what_changes(
    world: World, change: Callable[[World], object], has_change: Callable[[PartitionData], bool]
) -> None:
    session = Session(world, leader_of(world), 5)
    assert session.news() is None
    change(world)
    news = session.news()
    assert news is not None
    assert has_change(news)


def test_a_consumer_that_rests_receives_the_log_start_after_retention(world: World) -> None:
    session, partition = Session(world, leader_of(world), 5), led(world)
    config: Any = partition.log.config
    log_files(partition).roll(0)
    partition.configure(partition.rules, type(config)(retention_bytes=0))
    while partition.maintain(world.clock.now_ms()):
        pass
    news = session.news()
    assert news is not None
    assert news.log_start_offset == partition.log_start_offset == 5


def test_a_consumer_that_rests_at_a_follower_receives_its_high_watermark_and_a_cut(world: World) -> None:
    follower = followers_of(world)[0]
    session = Session(world, follower, 5)
    assert session.news() is None
    appended(world)
    world.fetch(follower)
    news = session.news()
    assert news is not None
    assert news.records
    resting = Session(world, follower, 6)
    partition = world.partition(follower)
    role = partition.role
    assert not isinstance(role, Leader)
    partition.truncate(4, leader_epoch=role.leader_epoch, now_ms=0)
    news = resting.news()
    assert news is not None
    assert news.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
