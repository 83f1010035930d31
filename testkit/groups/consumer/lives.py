"""Random lives of consumer groups, checked against a model."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from kwire_protocol.errors import ErrorCode

from kwire.coordinators.internal_topic import LoggedRecord
from kwire.groups.classic.group import ClassicGroup
from kwire.groups.config import ConsumerGroupSettings, GroupConfig, MigrationPolicy
from kwire.groups.consumer.group import ConsumerGroup
from kwire.groups.consumer.member import MemberState
from kwire.groups.consumer.regexes import REFRESH_MIN_INTERVAL_MS
from kwire.groups.shard import GroupShard
from testkit.groups.consumer.clients import (
    LEAVING,
    REBALANCE_TIMEOUT_MS,
    STATIC_LEAVING,
    ClassicClient,
    Client,
    TopicIdPartition,
    heartbeat,
    settle,
)
from testkit.groups.shard_driver import GROUP, ShardDriver
from testkit.groups.topics import FakeTopics

NAMES = ("a", "b", "c", "d", "e")


CLASSIC_NAMES = ("x", "y")
"""Clients of the classic protocol."""


INSTANCES = {"a": "first", "b": "second"}
"""The static members among them."""


TOPICS = ("t", "t2", "u")


SUBSCRIPTIONS: tuple[tuple[frozenset[str], str | None], ...] = (
    (frozenset({"t"}), None),
    (frozenset({"t", "u"}), None),
    (frozenset({"u"}), None),
    (frozenset(), None),
    (frozenset(), "t.*"),
    (frozenset({"u"}), "t.*"),
    (frozenset({"u"}), "x"),
)


SESSION_MS = 45_000


names = st.sampled_from(NAMES)


def stored(group: ConsumerGroup) -> dict[str, Any]:
    """The state of a group in the log, and what follows from it."""
    return {
        name: getattr(group, name)
        for name in (
            "epoch",
            "metadata_hash",
            "assignment_epoch",
            "assignment_timestamp_ms",
            "members",
            "current",
            "targets",
            "regexes",
            "static_members",
            "owners",
            "topic_subscribers",
            "regex_subscribers",
            "classic_protocols",
            "classic_members",
            "state",
        )
    }


def consumer_groups(shard: GroupShard) -> dict[str, dict[str, Any]]:
    return {name: stored(group) for name, group in shard.groups.items() if isinstance(group, ConsumerGroup)}


def compacted(log: list[Any]) -> list[Any]:
    """The last record of each key, where it stood."""
    last = {record.key: number for number, record in enumerate(log) if isinstance(record, LoggedRecord)}
    return [record for number, record in enumerate(log) if last.get(record.key) == number]


class GroupLives(RuleBasedStateMachine):
    @initialize(
        interval_ms=st.sampled_from([0, 10_000]),
        max_size=st.sampled_from([3, 100]),
        subscriptions=st.lists(st.sampled_from(SUBSCRIPTIONS), min_size=len(NAMES), max_size=len(NAMES)),
        policy=st.sampled_from([*MigrationPolicy, MigrationPolicy.BIDIRECTIONAL]),
    )
    def start(
        self,
        interval_ms: int,
        max_size: int,
        subscriptions: list[tuple[frozenset[str], str | None]],
        policy: MigrationPolicy,
    ) -> None:
        self.topics = FakeTopics(t=3, u=2)
        self.driver = ShardDriver(
            GroupConfig(consumer_max_size=max_size, consumer_migration_policy=policy), self.topics
        )
        self.driver.settings = ConsumerGroupSettings(SESSION_MS, 5_000, interval_ms)
        self.driver.wall_ahead_ms = 1_700_000_000_000
        self.driver.restart()
        self.clients = {
            name: Client(self.driver, name, *subscription, instance_id=INSTANCES.get(name))
            for name, subscription in zip(NAMES, subscriptions, strict=True)
        }
        self.classic = {name: ClassicClient(self.driver, name) for name in CLASSIC_NAMES}
        self.lives = dict.fromkeys(INSTANCES, 0)
        self.epochs: tuple[int, int, dict[str, int]] = (0, 0, {})
        self.seen: ConsumerGroup | None = None
        """The group of these epochs: a group that is created again starts over."""

    @property
    def group(self) -> ConsumerGroup | None:
        group = self.driver.shard.groups.get(GROUP)
        return group if isinstance(group, ConsumerGroup) else None

    def members(self) -> list[Client | ClassicClient]:
        """The clients that are members on both sides."""
        return [*self.consumers(), *(it for it in self.classic.values() if self._is_member(it))]

    def consumers(self) -> list[Client]:
        return [it for it in self.clients.values() if self._is_member(it)]

    def _is_member(self, client: Client | ClassicClient) -> bool:
        group = self.driver.shard.groups.get(GROUP)
        return client.is_in and isinstance(group, (ClassicGroup, ConsumerGroup)) and client.member_id in group.members

    # What clients do

    @rule(name=names, is_lost=st.booleans())
    def a_client_heartbeats(self, name: str, is_lost: bool) -> None:
        client = self.clients[name]
        error = client.heartbeat(is_lost=is_lost)
        if error is ErrorCode.NONE and not is_lost:
            self._has_only_what_it_subscribes_to(client)

    def _has_only_what_it_subscribes_to(self, client: Client) -> None:
        group = self.group
        assert group is not None
        for topic_id in group.current[client.member_id].assigned:
            topic = self.topics.name_of(topic_id)
            assert topic is None or topic in self._subscribed(client)

    @rule(name=names)
    def a_client_sends_what_is_no_expression(self, name: str) -> None:
        client, group = self.clients[name], self.group
        before = None if group is None else stored(group)
        request = client.request()
        request.subscribed_topic_regex = "("
        response = heartbeat(self.driver, request)
        assert response.error_code != ErrorCode.NONE
        assert (self.group is None) if before is None or group is None else (stored(group) == before)

    @precondition(lambda self: self.driver.append_error is ErrorCode.NONE)
    @rule()
    def everybody_is_heard_from_for_a_minute(self) -> None:
        members = self.consumers()
        for _ in range(3):
            for client in members:
                client.heartbeat()
                while client.give_up():
                    client.heartbeat()
            self.driver.advance(20_000)
        assert set(members) <= set(self.members()), "a member that sends heartbeats stays"

    @rule()
    def everybody_heartbeats(self) -> None:
        for client in self.consumers():
            if client.heartbeat() is ErrorCode.NONE:
                self._has_only_what_it_subscribes_to(client)

    @rule(name=names)
    def a_client_gives_up_or_takes(self, name: str) -> None:
        self.clients[name].give_up()

    @rule(name=names, subscription=st.sampled_from(SUBSCRIPTIONS), at_once=st.booleans())
    def a_client_subscribes(self, name: str, subscription: tuple[frozenset[str], str | None], at_once: bool) -> None:
        self.clients[name].subscribe(*subscription)
        if at_once:
            self.a_client_heartbeats(name, is_lost=False)

    @rule(name=names, assignor=st.sampled_from([None, "range", "uniform"]))
    def a_client_wants_an_assignor(self, name: str, assignor: str | None) -> None:
        self.clients[name].assignor = assignor
        self.clients[name].is_unsure = True

    @rule(name=names)
    def a_client_leaves(self, name: str) -> None:
        self.clients[name].leave(LEAVING)

    @rule(name=st.sampled_from(sorted(INSTANCES)), forgets_its_member_id=st.booleans())
    def a_static_client_restarts(self, name: str, forgets_its_member_id: bool) -> None:
        client = self.clients[name]
        client.leave(STATIC_LEAVING)
        if forgets_its_member_id:
            self.lives[name] += 1
            client.member_id = f"{name}{self.lives[name]}"

    @rule(name=names)
    def a_client_is_killed_and_comes_back_under_another_id(self, name: str) -> None:
        client = self.clients[name]
        client.be_out()
        if client.instance_id is None:
            client.member_id += "'"

    @rule(name=names, other=names, behind=st.sampled_from([0, 0, 1, 2, -1]))
    def a_client_commits(self, name: str, other: str, behind: int) -> None:
        """Commits in its own epoch for any partition, in an earlier one for the partitions of then."""
        client, owner = self.clients[name], self.clients[other]
        epoch = client.epoch - behind
        if client.epoch <= 0 or not owner.owned or epoch < 0:
            return
        topic_id, partition = min(owner.owned)
        topic = self.topics.name_of(topic_id)
        if topic is None:
            return
        (error,) = self.driver.commit(
            {(topic, partition): 1}, member_id=client.member_id, generation=epoch, topic_id=topic_id
        )
        group = self.group
        if client not in self.members() or self.driver.append_error:
            assert error is not ErrorCode.NONE
            return
        assert group is not None
        has = group.current[client.member_id]
        had_since = has.assignment_epoch(topic_id, partition)
        is_fine = epoch == has.epoch or (epoch < has.epoch and had_since is not None and had_since <= epoch)
        assert (error is ErrorCode.NONE) == is_fine
        if name == other and not behind and client.assigned is None:
            assert is_fine, "what a client uses it may commit"

    # What clients of the classic protocol do

    @rule(name=st.sampled_from(CLASSIC_NAMES))
    def a_classic_client_acts(self, name: str) -> None:
        self.classic[name].act()

    @rule()
    def all_classic_clients_act(self) -> None:
        for _ in range(6):
            for client in self.classic.values():
                client.act()

    @rule(name=st.sampled_from(CLASSIC_NAMES), is_killed=st.booleans())
    def a_classic_client_goes(self, name: str, is_killed: bool) -> None:
        client = self.classic[name]
        if is_killed:
            client.be_out()
        else:
            client.leave()

    # What happens around them

    @rule(topic=st.sampled_from(TOPICS), partitions=st.integers(1, 4))
    def a_topic_comes_or_grows(self, topic: str, partitions: int) -> None:
        known = self.topics.find(topic)
        if known is None or known.spec.partition_count < partitions:
            self.topics.create(topic, partitions)

    @rule(topic=st.sampled_from(TOPICS))
    def a_topic_goes(self, topic: str) -> None:
        if self.topics.find(topic) is not None:
            self.topics.delete(topic)

    @rule(by_ms=st.sampled_from([1, 999, 5_000, REBALANCE_TIMEOUT_MS, SESSION_MS]))
    def time_passes(self, by_ms: int) -> None:
        self.driver.advance(by_ms)

    @rule(error=st.sampled_from([ErrorCode.NONE, ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR]))
    def appends_fail_or_succeed_again(self, error: ErrorCode) -> None:
        self.driver.append_error = error

    @rule()
    def the_coordinator_changes(self) -> None:
        is_same = self.group is self.seen
        self.driver.restart()
        if is_same:
            self.seen = self.group
        for client in self.classic.values():
            client.forget_requests()

    @rule()
    def the_log_is_compacted(self) -> None:
        self.driver.log = compacted(self.driver.log)

    # What holds at the end

    @precondition(lambda self: self.driver.append_error is ErrorCode.NONE)
    @rule()
    def everybody_settles(self) -> None:
        """Settles all clients, with enough time for every interval, and for the sessions of members that are gone."""
        for _ in range(8):
            clients = [client for client in self.clients.values() if self._may_join(client)]
            self.driver.advance(max(self.driver.settings.assignment_interval_ms, REFRESH_MIN_INTERVAL_MS))
            for _ in range(2):
                settle(clients, rounds=2)
                self.all_classic_clients_act()
            settle(clients, rounds=2)
        self.an_instance_id_has_one_member()
        group = self.driver.shard.groups.get(GROUP)
        members = self.members()
        if group is None or not members:
            return
        assert isinstance(group, (ClassicGroup, ConsumerGroup))
        if group.members.keys() != {client.member_id for client in members}:
            return  # the sessions of those who are gone have to end first
        assert group.listed().group_state == "Stable", "reconciliation ends"
        subscribers: dict[TopicIdPartition, set[str]] = {}
        for client in members:
            for name in self._subscribed(client):
                topic = self.topics.find(name)
                for partition in range(0 if topic is None else topic.spec.partition_count):
                    assert topic is not None
                    subscribers.setdefault((topic.topic_id, partition), set()).add(client.member_id)
        owners = {tp: client.member_id for client in members for tp in self._uses(client)}
        if isinstance(group, ClassicGroup):
            # Its leader does not notice here that topics change.
            return
        assert owners.keys() == subscribers.keys(), "every partition has an owner, and no other is owned"
        for tp, owner in owners.items():
            assert owner in subscribers[tp], "who owns a partition subscribes to it"
        for client in members:
            has = {
                (topic, it) for topic, of_topic in group.targets.get(client.member_id, {}).items() for it in of_topic
            }
            assert self._uses(client) == has, "everybody has their target, and no more"

    def _may_join(self, client: Client) -> bool:
        group = self.group
        return client.is_in or group is None or len(group.members) < self.driver.config.consumer_max_size

    def _subscribed(self, client: Client | ClassicClient) -> set[str]:
        names = set(client.topics)
        if isinstance(client, Client) and client.regex == "t.*":
            names |= {name for name in self.topics.names() if name.startswith("t")}
        return names

    def _uses(self, client: Client | ClassicClient) -> set[TopicIdPartition]:
        """The partitions that it owns, without a classic client's partitions of deleted topics.

        An upgrade of the group leaves them out, as in Kafka. The client learns from metadata that they are gone, which
        is not played here.
        """
        if isinstance(client, Client):
            return client.owned
        return {tp for tp in client.owned if self.topics.name_of(tp[0]) is not None}

    def teardown(self) -> None:
        if hasattr(self, "driver"):
            self.driver.append_error = ErrorCode.NONE
            self.everybody_settles()

    # What always holds

    @invariant()
    def a_partition_has_one_owner_at_a_time(self) -> None:
        if not hasattr(self, "driver"):
            return
        group = self.group
        used: dict[TopicIdPartition, str] = {}
        for client in self.members():
            for tp in self._uses(client):
                assert used.setdefault(tp, client.member_id) == client.member_id, "two use a partition"
                assert group is None or not group.is_free(*tp, "nobody"), "a partition in use is free"
        if group is None:
            return
        had: dict[TopicIdPartition, str] = {}
        for member_id, has in group.current.items():
            for partitions in (has.assigned, has.pending_revocation):
                for topic_id, of_topic in partitions.items():
                    for partition in of_topic:
                        assert had.setdefault((topic_id, partition), member_id) == member_id

    @invariant()
    def an_instance_id_has_one_member(self) -> None:
        group = self.group
        if group is not None:
            instances = {it.instance_id: it.member_id for it in group.members.values() if it.instance_id is not None}
            assert instances == group.static_members
            assert len(instances) == sum(it.instance_id is not None for it in group.members.values())

    @invariant()
    def epochs_never_go_back(self) -> None:
        group = self.group
        if group is None:
            return
        members = {member_id: has.epoch for member_id, has in group.current.items() if has.epoch > 0}
        epoch, assignment_epoch, before = self.epochs if group is self.seen else (0, 0, {})
        assert group.epoch >= epoch
        assert group.assignment_epoch >= assignment_epoch
        assert group.epoch >= group.assignment_epoch
        for member_id, member_epoch in members.items():
            assert member_epoch >= before.get(member_id, 0)
            assert member_epoch <= group.assignment_epoch
        self.epochs, self.seen = (group.epoch, group.assignment_epoch, members), group

    @invariant()
    def every_member_can_fall_silent(self) -> None:
        """Checks that every member has a session timer, and a revocation timer if it has to give something up."""
        group = self.group
        for member_id in () if group is None else group.members:
            assert group is not None
            timers = group.timers[member_id]
            assert timers.session.deadline_ms is not None
            revokes = group.assignment_of(member_id).state is MemberState.UNREVOKED_PARTITIONS
            is_classic = group.members[member_id].classic is not None
            assert is_classic or (timers.rebalance.deadline_ms is not None) == revokes
        if group is not None:
            assert group.timers.keys() == group.members.keys()

    @invariant()
    def a_replay_is_the_same_group(self) -> None:
        if not hasattr(self, "driver"):
            return
        live = consumer_groups(self.driver.shard)
        again = self.driver.replayed()
        assert {name: it.type for name, it in again.groups.items()} == {
            name: it.type for name, it in self.driver.shard.groups.items()
        }
        assert consumer_groups(again) == live
        assert consumer_groups(self.driver.replayed(compacted(self.driver.log))) == live
