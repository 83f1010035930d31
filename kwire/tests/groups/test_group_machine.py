"""Random clients against one group machine: whatever they do, and whatever fails, the rules of a group hold."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule
from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchRequestTopics

from devtools.suite.tiers import examples
from kwire.coordinators.deadlines import PAUSES_MS
from kwire.groups.classic.group import ClassicGroup, GroupState
from kwire.groups.config import GroupConfig
from kwire.groups.shard import GroupShard
from testkit.groups.shard_driver import ShardDriver, classic_groups, subscription

GROUPS = ("g", "h")
INSTANCES = (None, None, "one", "two")
SESSION_MS = 6_000
OFFERS: tuple[dict[str, bytes], ...] = (
    {"range": subscription("t")},
    {"range": subscription("t"), "sticky": subscription("t")},
    {"sticky": subscription("t", "u"), "range": subscription("t", "u")},
    {"sticky": b"unreadable", "range": b""},
)

groups = st.sampled_from(GROUPS)
offers = st.sampled_from(OFFERS)
producers = st.sampled_from([1, 2])


def stored_groups(shard: GroupShard) -> dict[str, Any]:
    """Returns the groups that a replay must restore: those between two generations exist in memory only."""
    return {
        group.group_id: (
            group.state,
            group.generation,
            group.protocol_type,
            group.protocol_name,
            group.leader_id,
            group.topics,
            {
                member.member_id: (
                    member.group_instance_id,
                    member.client_id,
                    member.rebalance_timeout_ms,
                    member.session_timeout_ms,
                    member.protocols[group.protocol_name or ""],
                    member.assignment,
                )
                for member in group.members.values()
            },
        )
        for group in classic_groups(shard).values()
        if group.state in (GroupState.STABLE, GroupState.EMPTY)
    }


def offsets(shard: GroupShard) -> dict[tuple[str, str, int], int]:
    return {
        (group_id, topic.name, partition.partition_index): partition.committed_offset
        for group_id in GROUPS
        for topic in shard.fetch_offsets(OffsetFetchRequestGroup(group_id=group_id, topics=None)).topics
        for partition in topic.partitions
    }


def unstable(shard: GroupShard) -> set[tuple[str, int]]:
    """Returns group and partition of the topic t for which something is pending."""
    wanted = OffsetFetchRequestTopics(name="t", partition_indexes=[0, 1, 2])
    return {
        (group_id, partition.partition_index)
        for group_id in GROUPS
        for topic in shard.fetch_offsets(
            OffsetFetchRequestGroup(group_id=group_id, topics=[wanted]), require_stable=True
        ).topics
        for partition in topic.partitions
        if partition.error_code
    }


class GroupMachine(RuleBasedStateMachine):
    """Member ids, real and imagined, travel in a bundle, so that any client may use any of them at any time."""

    members = Bundle("members")

    @initialize(initial_delay_ms=st.sampled_from([0, 3_000]), max_size=st.sampled_from([2, 100]))
    def start(self, initial_delay_ms: int, max_size: int) -> None:
        self.driver = ShardDriver(
            GroupConfig(
                initial_rebalance_delay_ms=initial_delay_ms,
                max_size=max_size,
                offsets_retention_ms=40_000,
                offsets_retention_check_interval_ms=10_000,
            )
        )
        self.generations: dict[str, tuple[ClassicGroup, int]] = {}
        self.appends_have_failed = False

    # What clients do

    def generation(self, group: str) -> int:
        known = self.driver.groups.get(group)
        return 0 if known is None else known.generation

    @rule(
        target=members,
        group=groups,
        instance_id=st.sampled_from(INSTANCES),
        version=st.sampled_from([3, 8, 9]),
        protocols=offers,
    )
    def join_once_more(self, group: str, instance_id: str | None, version: int, protocols: dict[str, bytes]) -> Any:
        token = self.driver.join(
            group=group,
            instance_id=instance_id,
            version=version,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=9_000,
            protocols=protocols,
        )
        answered = self.driver.replies.get(token)
        if answered is not None:
            return (group, answered.member_id, instance_id) if answered.member_id else multiple()
        parked = [m for m in self.driver.groups[group].members.values() if m.join_token is token]
        assert len(parked) == 1, "a JoinGroup without an answer is parked"
        return group, parked[0].member_id, instance_id

    @rule(member=members, protocols=offers, with_instance=st.booleans())
    def join_again(self, member: tuple[str, str, str | None], protocols: dict[str, bytes], with_instance: bool) -> None:
        group, member_id, instance_id = member
        self.driver.join(
            member_id,
            group=group,
            instance_id=instance_id if with_instance else None,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=9_000,
            protocols=protocols,
        )

    @rule(member=members, late=st.booleans())
    def sync(self, member: tuple[str, str, str | None], late: bool) -> None:
        group, member_id, instance_id = member
        known = self.driver.groups.get(group)
        generation = self.generation(group) - late
        everybody = () if known is None else known.members
        assignments = {who: f"{who} in {generation}".encode() for who in everybody}
        self.driver.sync(member_id, generation, assignments, group=group, instance_id=instance_id)

    @rule(group=groups)
    def all_join_and_sync(self, group: str) -> None:
        """Well-behaved clients, without which a random walk would hardly ever see a stable group of several."""
        known = self.driver.groups.get(group)
        if known is None:
            return
        for member in list(known.members.values()):
            if member.join_token is None and known.state is GroupState.PREPARING_REBALANCE:
                self.driver.join(
                    member.member_id,
                    group=group,
                    instance_id=member.group_instance_id,
                    session_timeout_ms=SESSION_MS,
                    rebalance_timeout_ms=9_000,
                    protocols=member.protocols,
                )
        self.driver.advance(0)
        if known.state is GroupState.COMPLETING_REBALANCE:
            for member in list(known.members.values()):
                self.sync((group, member.member_id, member.group_instance_id), late=False)

    @rule(member=members, late=st.booleans())
    def heartbeat(self, member: tuple[str, str, str | None], late: bool) -> None:
        group, member_id, instance_id = member
        error = self.driver.heartbeat(member_id, self.generation(group) - late, group=group, instance_id=instance_id)
        if late:
            assert error is not ErrorCode.NONE

    @rule(group=groups)
    def all_send_heartbeats(self, group: str) -> None:
        known = self.driver.groups.get(group)
        for member_id in () if known is None else known.members:
            self.driver.heartbeat(member_id, self.generation(group), group=group)

    @rule(member=consumes(members), by_instance=st.booleans())
    def leave(self, member: tuple[str, str, str | None], by_instance: bool) -> None:
        group, member_id, instance_id = member
        self.driver.leave(("" if by_instance else member_id, instance_id), group=group)

    @rule(member=members, partition=st.integers(0, 2), topic=st.sampled_from(["t", "u"]), late=st.booleans())
    def commit(self, member: tuple[str, str, str | None], partition: int, topic: str, late: bool) -> None:
        group, member_id, instance_id = member
        generation = self.generation(group) - late
        before = offsets(self.driver.shard)
        offset = self.driver.now_ms + len(self.driver.log)
        (error,) = self.driver.commit(
            {(topic, partition): offset},
            group=group,
            member_id=member_id,
            generation=generation,
            instance_id=instance_id,
        )
        if error is ErrorCode.NONE:
            before[group, topic, partition] = offset
        assert offsets(self.driver.shard) == before

    @rule(group=groups, partition=st.integers(0, 2))
    def commit_without_a_group(self, group: str, partition: int) -> None:
        self.driver.commit({("u", partition): 1}, group=group)

    @rule(member=members, partition=st.integers(0, 2), producer_id=producers, late=st.booleans(), named=st.booleans())
    def commit_in_a_transaction(
        self, member: tuple[str, str, str | None], partition: int, producer_id: int, late: bool, named: bool
    ) -> None:
        group, member_id, instance_id = member
        before = offsets(self.driver.shard)
        self.driver.commit_transactional(
            {("t", partition): 1},
            producer_id=producer_id,
            group=group,
            member_id=member_id if named else "",
            generation=self.generation(group) - late if named else -1,
            instance_id=instance_id if named else None,
        )
        assert offsets(self.driver.shard) == before

    @rule(producer_id=producers, committed=st.booleans())
    def a_transaction_ends(self, producer_id: int, committed: bool) -> None:
        self.driver.end_transaction(producer_id, committed=committed)

    @rule(group=groups)
    def delete_offsets(self, group: str) -> None:
        self.driver.delete_offsets(("t", 0), ("u", 1), group=group)

    @rule(group=groups)
    def delete_group(self, group: str) -> None:
        was_empty = self.driver.state(group) == "Empty"
        (error,) = self.driver.delete_groups(group)
        if error is ErrorCode.NONE:
            assert was_empty
            assert self.driver.state(group) == "Dead"

    # What the world does

    @rule(by_ms=st.sampled_from([1, 500, 2_000, 5_999, 6_000, 20_000]))
    def time_passes(self, by_ms: int) -> None:
        self.driver.advance(by_ms)

    @rule(error=st.sampled_from([ErrorCode.NONE, ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR]))
    def the_disk_changes_its_mind(self, error: ErrorCode) -> None:
        self.driver.append_error = error
        self.appends_have_failed |= error != ErrorCode.NONE

    @rule()
    def the_broker_restarts(self) -> None:
        self.driver.append_error = ErrorCode.NONE
        self.appends_have_failed = False
        self.driver.restart()
        self.generations.clear()

    @rule()
    def the_broker_stops_and_another_takes_over(self) -> None:
        self.driver.run(self.driver.shard.unload(now=self.driver.now))
        assert set(self.driver.tokens) == set(self.driver.replies), "nobody is left waiting"
        self.the_broker_restarts()

    # What holds, always

    @invariant()
    def every_unanswered_request_is_parked_once(self) -> None:
        if not hasattr(self, "driver"):
            return
        waiting = [token for token in self.driver.tokens if token not in self.driver.replies]
        parked = [
            token
            for group in self.driver.groups.values()
            for member in group.members.values()
            for token in (member.join_token, member.sync_token)
            if token is not None
        ]
        assert sorted(map(id, waiting)) == sorted(map(id, parked))

    @invariant()
    def groups_are_consistent(self) -> None:
        if not hasattr(self, "driver"):
            return
        for group in self.driver.groups.values():
            assert bool(group.members) or group.leader_id is None
            assert group.leader_id is None or group.leader_id in group.members
            assert group.awaiting_join == sum(m.join_token is not None for m in group.members.values())
            assert group.static_members == {
                m.group_instance_id: m.member_id for m in group.members.values() if m.group_instance_id is not None
            }
            assert not set(group.pending_members) & set(group.members)
            assert group.pending_sync <= set(group.members)
            if group.members:
                assert group.supports(group.protocol_type or "", next(iter(group.members.values())).protocols)
            match group.state:
                case GroupState.EMPTY:
                    assert not group.members
                case GroupState.PREPARING_REBALANCE:
                    assert all(m.sync_token is None for m in group.members.values())
                case GroupState.COMPLETING_REBALANCE:
                    assert all(m.join_token is None and not m.is_new for m in group.members.values())
                    assert group.members
                case GroupState.STABLE:
                    assert all(m.join_token is None and m.sync_token is None for m in group.members.values())
                    assert group.members
                case GroupState.DEAD:
                    raise AssertionError("a dead group is not kept")

    @invariant()
    def members_of_a_stable_group_have_this_generations_assignment(self) -> None:
        if not hasattr(self, "driver"):
            return
        for group in self.driver.groups.values():
            if group.state is GroupState.STABLE:
                generations = {m.assignment.rpartition(b" ")[2] for m in group.members.values()}
                assert generations == {str(group.generation).encode()}

    @invariant()
    def generations_never_go_backwards(self) -> None:
        if not hasattr(self, "driver"):
            return
        for group_id, group in self.driver.groups.items():
            same, generation = self.generations.get(group_id, (group, 0))
            assert group is not same or group.generation >= generation
            self.generations[group_id] = (group, group.generation)

    @invariant()
    def every_member_has_a_deadline_that_is_honoured(self) -> None:
        if not hasattr(self, "driver"):
            return
        next_ms = self.driver.shard.next_deadline_ms()
        for group in self.driver.groups.values():
            timers = [
                *group.pending_members.values(),
                *(m.session for m in group.members.values() if not m.is_parked),
                *([group.join_timer] if group.state is GroupState.PREPARING_REBALANCE else ()),
                *([group.sync_timer] if group.pending_sync else ()),
            ]
            assert group.state is GroupState.PREPARING_REBALANCE or group.join_timer.deadline_ms is None
            assert group.pending_sync or group.sync_timer.deadline_ms is None
            for timer in timers:
                assert timer.deadline_ms is not None
                assert timer.deadline_ms >= self.driver.now_ms
                assert next_ms is not None
                # After a failed append no timer is due for a pause.
                pause_ends_ms = self.driver.now_ms + PAUSES_MS.longest if self.appends_have_failed else 0
                assert next_ms <= max(timer.deadline_ms, pause_ends_ms)

    @invariant()
    def a_replay_shows_the_same(self) -> None:
        if not hasattr(self, "driver"):
            return
        shard = self.driver.shard
        again = self.driver.replayed()
        assert offsets(again) == offsets(shard)
        assert unstable(again) == unstable(shard)
        assert {group for group, _ in unstable(shard)} <= set(shard.groups), "what is pending keeps its group"
        live = {name: stored for name, stored in stored_groups(shard).items() if name not in self.driver.unrecorded}
        assert {name: stored for name, stored in stored_groups(again).items() if name in live} == live


TestGroupMachine = GroupMachine.TestCase
TestGroupMachine.settings = settings(max_examples=examples(25), stateful_step_count=40, deadline=None)
