"""A large group: a thousand members, and two thousand topics that a regular expression finds.

What holds for a few members must hold for these as well, and a heartbeat without news must not look at all of that
again. The figures are in benchmarks/README.md: tests do not measure times.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import count

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kwire_protocol.wire import Uuid

from devtools.suite.tiers import small_and_full
from kwire.groups.config import ConsumerGroupSettings
from kwire.groups.consumer.assigning import INTERVAL_MS_PER_MEMBER, LARGE_GROUP_MEMBERS
from kwire.groups.consumer.group import ConsumerGroup, GroupState
from kwire.groups.shard import GroupShard
from kwire.groups.topics import Topic, metadata_hash
from testkit.groups.consumer.clients import Client, TopicIdPartition, heartbeat
from testkit.groups.shard_driver import GROUP, ShardDriver, subscription
from testkit.groups.topics import FakeTopics

ASSIGNMENT_INTERVAL_MS = 1_000
HEARTBEAT_INTERVAL_MS = 5_000
SESSION_MS = 45_000
CLASSIC_SESSION_MS = 10_000


class ManyTopics(FakeTopics):
    """Topics found by id as quickly as by name, with a count of look-ups."""

    def __init__(self) -> None:
        super().__init__()
        self.looks = 0
        self._names: dict[Uuid, str] = {}

    def create(self, name: str, partition_count: int, racks: Sequence[frozenset[str]] = ()) -> Uuid:
        topic_id = super().create(name, partition_count, racks)
        self._names[topic_id] = name
        return topic_id

    def delete(self, name: str) -> None:
        topic = self.find(name)
        assert topic is not None
        del self._names[topic.topic_id]
        super().delete(name)

    def find(self, name: str) -> Topic | None:
        self.looks += 1
        return super().find(name)

    def name_of(self, uuid: Uuid) -> str | None:
        self.looks += 1
        return self._names.get(uuid)

    def names(self) -> Iterable[str]:
        self.looks += 1
        return super().names()


class LargeGroup:
    """Clients that subscribe to all topics whose names begin with `orders`, and a topic that none of them reads."""

    def __init__(self, *, members: int, topics: int, partitions_of_topic: int = 1) -> None:
        self.topics = ManyTopics()
        self.topics.create("other", 10)
        self.create_topics(range(topics), partitions_of_topic)
        self.driver = ShardDriver(topics=self.topics)
        self.driver.settings = ConsumerGroupSettings(SESSION_MS, HEARTBEAT_INTERVAL_MS, ASSIGNMENT_INTERVAL_MS)
        self.driver.wall_ahead_ms = 1_700_000_000_000
        self.clients: list[Client] = []
        self._numbers = count()
        self.join(members)

    @property
    def state(self) -> ConsumerGroup:
        group = self.driver.shard.groups[GROUP]
        assert isinstance(group, ConsumerGroup)
        return group

    def create_topics(self, numbers: range, partitions: int) -> None:
        for number in numbers:
            self.topics.create(f"orders-{number}", partitions)

    def join(self, members: int) -> None:
        for _ in range(members):
            self.clients.append(Client(self.driver, f"member-{next(self._numbers):04}", frozenset(), "orders-.*"))

    def all_send_heartbeats(self) -> None:
        """Sends heartbeats once, and again while there is something to give up or to take; an interval later."""
        self.driver.advance(HEARTBEAT_INTERVAL_MS)
        for client in self.clients:
            assert client.heartbeat() is ErrorCode.NONE
            while client.give_up():
                assert client.heartbeat() is ErrorCode.NONE
        owned = [partition for client in self.clients for partition in client.owned]
        assert len(owned) == len(set(owned)), "a partition has one owner"

    def settle(self) -> None:
        """Checks the promises once all members have done what they are assigned."""
        for _ in range(10):
            self.all_send_heartbeats()
            if self.state.state is GroupState.STABLE:
                break
        assert self.state.state is GroupState.STABLE
        assert {client.epoch for client in self.clients} == {self.state.epoch}
        owned = {partition for client in self.clients for partition in client.owned}
        assert owned == self.partitions(), "every partition has an owner"
        loads = [len(client.owned) for client in self.clients]
        assert max(loads) - min(loads) <= 1

    def partitions(self) -> set[TopicIdPartition]:
        found = [topic for name in self.topics.names() if (topic := self.topics.find(name)) is not None]
        return {
            (it.topic_id, n) for it in found if it.name.startswith("orders") for n in range(it.spec.partition_count)
        }

    def owned(self) -> dict[str, set[TopicIdPartition]]:
        return {client.member_id: set(client.owned) for client in self.clients}


def stored(shard: GroupShard) -> dict[str, object]:
    group = shard.groups[GROUP]
    assert isinstance(group, ConsumerGroup)
    names = ("epoch", "assignment_epoch", "metadata_hash", "members", "current", "targets", "regexes", "owners")
    return {name: getattr(group, name) for name in names}


@small_and_full
def test_a_large_group_settles_and_follows_every_change(*, full: bool) -> None:
    members, topics, partitions = (5_000, 2_000, 5) if full else (1_000, 2_000, 1)
    group = LargeGroup(members=members, topics=topics, partitions_of_topic=partitions)
    group.settle()

    group.create_topics(range(topics, topics + 100), 2)
    group.topics.create("another", 3)
    group.settle()

    group.create_topics(range(topics - 10, topics), partitions + 1)
    group.settle()

    for number in range(100):
        group.topics.delete(f"orders-{number}")
    group.settle()

    before = group.owned()
    leaving, group.clients = group.clients[:10], group.clients[10:]
    for client in leaving:
        assert client.leave() is ErrorCode.NONE
    group.settle()
    assert all(before[client.member_id] <= client.owned for client in group.clients), "nobody loses what it had"

    group.join(20)
    group.settle()

    silent = group.clients.pop()
    for _ in range(SESSION_MS // HEARTBEAT_INTERVAL_MS):
        group.all_send_heartbeats()
    assert silent.member_id not in group.state.members
    group.settle()
    assert stored(group.driver.replayed()) == stored(group.driver.shard)


def test_heartbeats_without_news_write_nothing_and_look_at_no_topic() -> None:
    group = LargeGroup(members=10, topics=200)
    group.settle()
    written, group.topics.looks = len(group.driver.log), 0
    group.all_send_heartbeats()
    assert (len(group.driver.log), group.topics.looks) == (written, 0)


def test_topics_are_not_looked_at_again_for_each_member_that_subscribes_to_the_same() -> None:
    group = LargeGroup(members=50, topics=200)
    group.clients[0].heartbeat()
    group.topics.looks = 0
    for client in group.clients[1:]:
        client.heartbeat()
    assert group.topics.looks == 0
    group.clients[0].subscribe(["other"])
    group.clients[0].heartbeat()
    assert group.state.metadata_hash == metadata_hash(group.topics, group.topics.names())


def test_members_that_name_the_same_topics_share_their_names() -> None:
    group = LargeGroup(members=2, topics=10)
    for client in group.clients:
        client.subscribe([f"orders-{number}" for number in range(10)])
        client.heartbeat()
    for shard in (group.driver.shard, group.driver.replayed()):
        state = shard.groups[GROUP]
        assert isinstance(state, ConsumerGroup)
        first, second = (member.subscribed_topic_names for member in state.members.values())
        assert first is second


def test_an_assignment_is_computed_at_most_once_in_an_interval() -> None:
    """Else a thousand members that join at once would have as many assignments."""
    group = LargeGroup(members=50, topics=100)
    for client in group.clients:
        client.heartbeat()
    assert (group.state.epoch, group.state.assignment_epoch) == (51, 2)
    group.driver.advance(ASSIGNMENT_INTERVAL_MS)
    group.clients[0].heartbeat()
    assert (group.state.epoch, group.state.assignment_epoch) == (51, 51)


def test_a_large_group_has_a_least_interval_even_if_none_is_configured() -> None:
    group = LargeGroup(members=2 * LARGE_GROUP_MEMBERS, topics=100)
    group.driver.settings = ConsumerGroupSettings(SESSION_MS, HEARTBEAT_INTERVAL_MS, assignment_interval_ms=0)
    for client in group.clients:
        client.heartbeat()
    assert (group.state.epoch, group.state.assignment_epoch) == (len(group.clients) + 1, LARGE_GROUP_MEMBERS)
    group.driver.advance(int(len(group.clients) * INTERVAL_MS_PER_MEMBER) - 1)
    group.clients[0].heartbeat()
    assert group.state.assignment_epoch == LARGE_GROUP_MEMBERS
    group.driver.advance(1)
    group.clients[0].heartbeat()
    assert group.state.assignment_epoch == group.state.epoch
    group.settle()


# A request without news, from a member that is not the same for all that


def test_a_member_with_another_client_id_is_recorded() -> None:
    group = LargeGroup(members=1, topics=1)
    group.settle()
    [client] = group.clients
    response = heartbeat(group.driver, client.request(), client_id="renamed")
    assert (response.error_code, response.member_epoch) == (ErrorCode.NONE, client.epoch)
    assert group.state.members[client.member_id].client_id == "renamed"
    assert stored(group.driver.replayed()) == stored(group.driver.shard)


def test_a_member_of_the_classic_protocol_that_sends_a_heartbeat_of_the_new_one_has_changed_over() -> None:
    group = LargeGroup(members=1, topics=1)
    group.settle()
    token = group.driver.join(
        version=3, session_timeout_ms=CLASSIC_SESSION_MS, protocols={"range": subscription("orders-0")}
    )
    group.clients[0].heartbeat()
    joined = group.driver.joined(token)
    member = group.state.members[joined.member_id]
    assert member.classic is not None
    response = heartbeat(group.driver, ConsumerGroupHeartbeatRequest(GROUP, joined.member_id, joined.generation_id))
    assert response.error_code == ErrorCode.NONE
    assert group.state.members[joined.member_id] == attrs.evolve(member, classic=None)
