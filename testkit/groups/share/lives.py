"""Random lives of share groups, checked against a model."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from kwire_protocol.wire import Uuid

from kwire.coordinators.internal_topic import LoggedRecord
from kwire.groups.config import GroupConfig, ShareGroupSettings
from kwire.groups.shard import GroupShard
from kwire.groups.share.group import ShareGroup
from testkit.groups.shard_driver import GROUP, ShardDriver
from testkit.groups.share.clients import JOINING, Client, Keeper, TopicIdPartition, heartbeat
from testkit.groups.topics import FakeTopics

NAMES = ("a", "b", "c", "d", "e")


TOPICS = ("t", "t2", "u")


SUBSCRIPTIONS = (frozenset({"t"}), frozenset({"t", "u"}), frozenset({"u"}), frozenset({"t", "t2"}))


SESSION_MS = 45_000


RETRY_MS = 30_000


names = st.sampled_from(NAMES)


def stored(group: ShareGroup) -> dict[str, Any]:
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
            "states",
            "topic_subscribers",
            "state",
        )
    }


def share_groups(shard: GroupShard) -> dict[str, dict[str, Any]]:
    return {name: stored(group) for name, group in shard.groups.items() if isinstance(group, ShareGroup)}


def compacted(log: list[Any]) -> list[Any]:
    """The last record of each key, where it stood."""
    last = {record.key: number for number, record in enumerate(log) if isinstance(record, LoggedRecord)}
    return [record for number, record in enumerate(log) if last.get(record.key) == number]


class ShareLives(RuleBasedStateMachine):
    @initialize(
        interval_ms=st.sampled_from([0, 10_000]),
        max_size=st.sampled_from([3, 100]),
        subscriptions=st.lists(st.sampled_from(SUBSCRIPTIONS), min_size=len(NAMES), max_size=len(NAMES)),
    )
    def start(self, interval_ms: int, max_size: int, subscriptions: list[frozenset[str]]) -> None:
        self.topics = FakeTopics(t=3, u=2)
        config = GroupConfig(share_max_size=max_size, share_initialize_retry_interval_ms=RETRY_MS)
        self.driver = ShardDriver(config, self.topics)
        self.driver.share_settings = ShareGroupSettings(SESSION_MS, 5_000, interval_ms)
        self.driver.wall_ahead_ms = 1_700_000_000_000
        self.driver.restart()
        self.keeper = Keeper(self.driver)
        self.clients = {
            name: Client(self.driver, name, topics) for name, topics in zip(NAMES, subscriptions, strict=True)
        }
        self.epochs: tuple[int, int, dict[str, int]] = (0, 0, {})
        self.unknown: set[TopicIdPartition] = set()
        """States that the group does not have, as in Kafka, until it requests them again for a member that subscribes
        to them.

        They had no mark any more when their answer came: the topic was gone, or an earlier request had failed. Or the
        group could not be deleted, members came again, and the request for them failed. Or a topic's offsets were
        deleted while some of its states were being initialized, or altered in part when they could not be deleted.
        """
        self.altered: set[TopicIdPartition] = set()
        """Partitions whose states are initialized again, so they may be both initialized and initializing."""
        self.deleted_meanwhile: set[Uuid] = set()
        """Topics whose offsets were deleted while some of their states were being initialized."""

    @property
    def group(self) -> ShareGroup | None:
        group = self.driver.shard.groups.get(GROUP)
        assert group is None or isinstance(group, ShareGroup)
        return group

    def members(self) -> list[Client]:
        group = self.group
        if group is None:
            return []
        return [it for it in self.clients.values() if it.is_in and it.member_id in group.members]

    # What clients do

    @rule(name=names, is_lost=st.booleans())
    def a_client_heartbeats(self, name: str, is_lost: bool) -> None:
        client, group = self.clients[name], self.group
        joins, epoch = client.epoch == JOINING, client.epoch
        size = 0 if group is None else len(group.members)
        had = None if group is None else group.current.get(client.member_id)
        known = group is not None and client.member_id in group.members
        error = client.heartbeat(is_lost=is_lost)
        if is_lost or self.driver.append_error:
            return
        if not known and not joins:
            assert error in (
                ErrorCode.GROUP_ID_NOT_FOUND,
                ErrorCode.UNKNOWN_MEMBER_ID,
                ErrorCode.GROUP_MAX_SIZE_REACHED,
            )
        elif not known and size >= self.driver.config.share_max_size:
            assert error is ErrorCode.GROUP_MAX_SIZE_REACHED
        elif joins or (had is not None and epoch in (had.epoch, had.previous_epoch)):
            assert error is ErrorCode.NONE
            self._check_part(client)
        else:
            assert error is ErrorCode.FENCED_MEMBER_EPOCH

    def _check_part(self, client: Client) -> None:
        group = self.group
        assert group is not None
        if client.epoch == group.assignment_epoch == group.epoch:
            target = {(topic_id, it) for topic_id, of in group.targets[client.member_id].items() for it in of}
            assert {it for it in client.assigned if self.topics.name_of(it[0])} == {
                it for it in target if self.topics.name_of(it[0]) in client.topics
            }
        for topic_id, partition in client.assigned:
            topic = self.topics.name_of(topic_id)
            assert topic is None or topic in client.topics, "nobody has what it does not subscribe to"
            assert topic is None or (GROUP, (topic_id, partition)) in self.keeper.states, (
                "nobody fetches without a state"
            )

    @rule(name=names, epoch=st.sampled_from([1, 2, 5, 1000]))
    def a_stranger_heartbeats(self, name: str, epoch: int) -> None:
        """Sends a heartbeat with a member's id, in any epoch."""
        group = self.group
        before = None if group is None else stored(group)
        has = None if group is None else group.current.get(name)
        response = heartbeat(self.driver, ShareGroupHeartbeatRequest(GROUP, name, epoch))
        if has is None or epoch not in (has.epoch, has.previous_epoch):
            assert response.error_code != ErrorCode.NONE
            assert (self.group is None) if before is None else (group is not None and stored(group) == before)
        else:
            # The stranger may have received the response that was due to the member.
            for client in self.clients.values():
                client.names_topics |= client.member_id == name

    @rule(name=names, topics=st.sampled_from(SUBSCRIPTIONS), at_once=st.booleans())
    def a_client_subscribes(self, name: str, topics: frozenset[str], at_once: bool) -> None:
        self.clients[name].subscribe(topics)
        if at_once:
            self.a_client_heartbeats(name, is_lost=False)

    @rule(name=names, changes=st.lists(st.sampled_from(SUBSCRIPTIONS), min_size=2, max_size=3))
    def a_client_changes_its_mind(self, name: str, changes: list[frozenset[str]]) -> None:
        """More often than there are new assignments."""
        for topics in changes:
            self.a_client_subscribes(name, topics, at_once=True)

    @rule(name=names)
    def a_client_leaves(self, name: str) -> None:
        group = self.group
        member_id = self.clients[name].member_id
        known = group is not None and member_id in group.members
        error = self.clients[name].leave()
        if not self.driver.append_error:
            assert (error is ErrorCode.NONE) == known
            assert self.group is None or member_id not in self.group.members

    @rule(name=names)
    def a_client_is_killed_and_comes_back_under_another_id(self, name: str) -> None:
        self.clients[name].be_out()
        self.clients[name].member_id += "'"

    @precondition(lambda self: self.driver.append_error is ErrorCode.NONE)
    @rule()
    def everybody_is_heard_from_for_a_minute(self) -> None:
        members = self.members()
        for _ in range(3):
            for client in members:
                client.heartbeat()
            self.driver.advance(20_000)
        assert set(members) <= set(self.members()), "a member that sends heartbeats stays"

    @rule()
    def a_group_of_another_kind_is_no_share_group(self) -> None:
        self.driver.commit({("t", 0): 1}, group="simple")
        if "simple" in self.driver.shard.groups:
            request = ShareGroupHeartbeatRequest("simple", "a", JOINING, subscribed_topic_names=["t"])
            assert heartbeat(self.driver, request).error_code == ErrorCode.GROUP_ID_NOT_FOUND

    # What the share coordinators do

    @precondition(lambda self: self.driver.to_initialize)
    @rule(
        errors=st.sampled_from(
            [(), (), (ErrorCode.COORDINATOR_NOT_AVAILABLE,), (ErrorCode.NONE, ErrorCode.FENCED_STATE_EPOCH)]
        )
    )
    def states_are_initialized(self, errors: tuple[ErrorCode, ...]) -> None:
        self._answer(*errors)

    def _answer(self, *errors: ErrorCode) -> None:
        marked = self._marked()
        answered = self.keeper.answer(*errors)
        failed = {tp for tp, error in answered.items() if error}
        made = answered.keys() - failed
        self.unknown |= made | {tp for tp in failed if (GROUP, tp) in self.keeper.states}
        self.unknown -= made & marked
        if not self.driver.append_error:
            assert not failed & self._marked(), "the next heartbeat requests the failed initializations again"

    def _marked(self) -> set[TopicIdPartition]:
        """The partitions that the group is initializing at the share coordinator."""
        marked = {} if self.group is None else self.group.states.initializing
        return {(topic_id, partition) for topic_id, it in marked.items() for partition in it.partitions}

    @precondition(lambda self: self.driver.to_initialize)
    @rule()
    def an_answer_is_lost(self) -> None:
        self.driver.to_initialize.pop(0)

    @rule(fails=st.booleans())
    def the_group_is_deleted(self, fails: bool) -> None:
        group = self.group
        was_empty = group is not None and group.is_empty
        waits = bool(self.driver.to_initialize)
        error = self.keeper.delete_group(fails=fails)
        if self.driver.append_error:
            assert error is not ErrorCode.NONE
        elif group is None:
            assert error is ErrorCode.GROUP_ID_NOT_FOUND or fails
        elif not was_empty:
            assert error is ErrorCode.NON_EMPTY_GROUP
            assert self.group is group
        elif not fails:
            assert error is ErrorCode.NONE
            assert self.group is None
            assert waits or {tp for of_group, tp in self.keeper.states if of_group == GROUP} <= self.unknown, (
                "no state is left behind"
            )
            # A late answer makes a state that is in no group: as in Kafka, it stays.
            self.driver.to_initialize.clear()
            self.keeper.states.clear()

    # What administrators do

    @rule(topic=st.sampled_from(TOPICS), partitions=st.sets(st.integers(0, 3), min_size=1), offset=st.integers(0, 9))
    def offsets_are_altered(self, topic: str, partitions: set[int], offset: int) -> None:
        group, found = self.group, self.topics.find(topic)
        was_deleting = group is not None and found is not None and found.topic_id in group.states.deleting
        begun = self.keeper.alter(topic, dict.fromkeys(partitions, offset))
        if group is not None and group.members:
            assert isinstance(begun, KafkaError)
            assert begun.code is ErrorCode.NON_EMPTY_GROUP
            return
        there = {it for it in partitions if found is not None and it < found.spec.partition_count}
        if isinstance(begun, KafkaError):
            assert self.driver.append_error
            assert self.group is group
            return
        (answer,) = begun.answers
        assert {it.partition_index for it in answer.partitions if not it.error_code} == there
        assert all(it.error_message for it in answer.partitions if it.error_code)
        if found is None or not there:
            assert self.group is group, "a refusal makes no group"
            return
        tps = {(found.topic_id, partition) for partition in there}
        self.altered |= tps
        if was_deleting:
            self._may_have_forgotten(found.topic_id)
        assert tps <= self._marked(), "the next coordinator of the group has the states"

    @rule(chosen=st.sets(st.sampled_from(TOPICS), min_size=1), all_leave=st.booleans(), fails=st.booleans())
    def offsets_are_deleted(self, chosen: set[str], all_leave: bool, fails: bool) -> None:
        for client in self.members() if all_leave else ():
            client.leave()
        group = self.group
        ids = {name: topic.topic_id for name in chosen if (topic := self.topics.find(name)) is not None}
        before = None if group is None else group.states
        answer = self.keeper.delete_offsets(*sorted(chosen), fails=fails)
        if group is None or group.members:
            assert isinstance(answer, KafkaError)
            assert answer.code is (ErrorCode.GROUP_ID_NOT_FOUND if group is None else ErrorCode.NON_EMPTY_GROUP)
            return
        if isinstance(answer, KafkaError):
            assert self.driver.append_error
            return
        assert before is not None
        had = {name for name, it in ids.items() if it in before.initialized or it in before.deleting}
        assert {name for name, error in answer.items() if error is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION} == had
        self.deleted_meanwhile |= {ids[name] for name in had if ids[name] in before.initializing}
        for topic_id in (ids[name] for name in had):
            assert topic_id not in group.states.initialized
            if not fails:
                assert topic_id not in group.states.deleting, "what is deleted is forgotten"
                self._may_have_forgotten(topic_id)

    def _may_have_forgotten(self, topic_id: Uuid) -> None:
        self.unknown |= {tp for of_group, tp in self.keeper.states if tp[0] == topic_id}

    # What happens around them

    @rule(topic=st.sampled_from(TOPICS), partitions=st.integers(1, 4))
    def a_topic_comes_or_grows(self, topic: str, partitions: int) -> None:
        known = self.topics.find(topic)
        if known is None or known.spec.partition_count < partitions:
            self.topics.create(topic, partitions)

    @rule(topic=st.sampled_from(TOPICS))
    def a_topic_goes(self, topic: str) -> None:
        found = self.topics.find(topic)
        if found is not None:
            self.topics.delete(topic)
            self.driver.run(self.driver.shard.topics_deleted({topic: found.topic_id}, now=self.driver.now))
            if not self.driver.append_error:
                self.keeper.delete_topic(found.topic_id)
                states = None if self.group is None else self.group.states
                for topics in () if states is None else (states.initializing, states.initialized, states.deleting):
                    assert found.topic_id not in topics, "deleted topics are forgotten"

    @rule(by_ms=st.sampled_from([1, 999, 5_000, RETRY_MS, SESSION_MS]))
    def time_passes(self, by_ms: int) -> None:
        self.driver.advance(by_ms)

    @rule(error=st.sampled_from([ErrorCode.NONE, ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR]))
    def appends_fail_or_succeed_again(self, error: ErrorCode) -> None:
        self.driver.append_error = error

    @rule()
    def the_coordinator_changes(self) -> None:
        self.driver.restart()

    @rule()
    def the_log_is_compacted(self) -> None:
        self.driver.log = compacted(self.driver.log)

    @precondition(lambda self: self.driver.append_error is ErrorCode.NONE)
    @rule()
    def offsets_expire(self) -> None:
        group = self.group
        for client in self.members():
            client.leave()
        self.driver.advance(self.driver.config.offsets_retention_ms)
        assert self.group is group, "a share group stays without offsets and members"

    # What holds at the end

    @precondition(lambda self: self.driver.append_error is ErrorCode.NONE)
    @rule()
    def everybody_settles(self) -> None:
        """Settles all clients, with enough time for every interval, while no session ends."""
        clients = [client for client in self.clients.values() if self._may_join(client)]
        for _ in range(4):
            for _ in range(2):
                for client in clients:
                    client.heartbeat()
                while self.driver.to_initialize:
                    self._answer()
            self.driver.advance(RETRY_MS // 2)
        for _ in range(2):
            for client in clients:
                client.heartbeat()
        group, members = self.group, self.members()
        if group is None or group.members.keys() != {client.member_id for client in members}:
            return  # the sessions of those who are gone have to end first
        holders: dict[TopicIdPartition, set[str]] = {}
        for client in members:
            assert client.epoch == group.epoch == group.assignment_epoch, "everybody is up to date"
            for tp in client.assigned:
                assert self.topics.name_of(tp[0]) is not None, "no group keeps a topic that is gone"
                holders.setdefault(tp, set()).add(client.member_id)
        for client in members:
            for name in client.topics:
                topic = self.topics.find(name)
                for partition in range(0 if topic is None else topic.spec.partition_count):
                    assert topic is not None
                    assert holders.get((topic.topic_id, partition)), "every partition has a member"
        for topic_id, it in group.states.initialized.items():
            if it.name in group.topic_subscribers:
                assert self.topics.name_of(topic_id) in (it.name, None)

    def _may_join(self, client: Client) -> bool:
        group = self.group
        return client.is_in or group is None or len(group.members) < self.driver.config.share_max_size

    def teardown(self) -> None:
        if hasattr(self, "driver"):
            self.driver.append_error = ErrorCode.NONE
            self.everybody_settles()

    # What always holds

    @invariant()
    def what_is_assigned_is_initialized(self) -> None:
        group = self.group if hasattr(self, "driver") else None
        if group is None:
            return
        for targets in (group.targets.values(), (has.assigned for has in group.current.values())):
            for target in targets:
                for topic_id, partitions in target.items():
                    for partition in partitions:
                        if self.topics.name_of(topic_id) is not None:
                            assert (GROUP, (topic_id, partition)) in self.keeper.states

    @invariant()
    def a_partition_is_in_one_state(self) -> None:
        group = self.group if hasattr(self, "driver") else None
        if group is None:
            return
        states = group.states
        for topic_id, it in states.initializing.items():
            assert it.partitions
            assert topic_id not in states.deleting or topic_id in self.deleted_meanwhile
            if topic_id in states.initialized:
                both = it.partitions & states.initialized[topic_id].partitions
                assert {(topic_id, partition) for partition in both} <= self.altered
        for topic_id, it in states.initialized.items():
            assert it.partitions
            for partition in it.partitions:
                if self.topics.name_of(topic_id) is not None:
                    assert (GROUP, (topic_id, partition)) in self.keeper.states, "what is initialized has a state"
        for topic_id, topic in ((tp[0], tp) for of_group, tp in self.keeper.states if of_group == GROUP):
            if self.topics.name_of(topic_id) is None:
                continue
            known = [
                of_topic.partitions
                for topics in (states.initializing, states.initialized)
                if (of_topic := topics.get(topic_id)) is not None
            ]
            assert (
                topic_id in states.deleting
                or any(topic[1] in partitions for partitions in known)
                or self._is_requested(topic)
                or topic in self.unknown
            ), "the group has every state in its metadata"

    def _is_requested(self, tp: TopicIdPartition) -> bool:
        return any(tp[1] in requested.start_offsets.get(tp[0], {}) for requested in self.driver.to_initialize)

    @invariant()
    def epochs_never_go_back(self) -> None:
        group = self.group if hasattr(self, "driver") else None
        if group is None:
            if hasattr(self, "driver"):
                self.epochs = (0, 0, {})
            return
        members = {member_id: has.epoch for member_id, has in group.current.items()}
        epoch, assignment_epoch, before = self.epochs
        assert group.epoch >= epoch
        assert group.assignment_epoch >= assignment_epoch
        assert group.epoch >= group.assignment_epoch
        for member_id, member_epoch in members.items():
            assert member_epoch >= before.get(member_id, 0)
            assert member_epoch <= group.assignment_epoch
        assert group.current.keys() <= group.members.keys()
        assert group.targets.keys() <= group.members.keys()
        self.epochs = (group.epoch, group.assignment_epoch, members)

    @invariant()
    def every_member_can_fall_silent(self) -> None:
        group = self.group if hasattr(self, "driver") else None
        if group is not None:
            assert group.timers.keys() == group.members.keys()
            assert all(timers.session.deadline_ms is not None for timers in group.timers.values())

    @invariant()
    def a_replay_is_the_same_group(self) -> None:
        if not hasattr(self, "driver"):
            return
        live = share_groups(self.driver.shard)
        again = self.driver.replayed()
        assert share_groups(again) == live
        assert share_groups(self.driver.replayed(compacted(self.driver.log))) == live
