"""Moves a group from one generation to the next. No other module changes a group's state.

* `prepare`: all members have to rejoin. The phase ends when all have rejoined, or after the longest rebalance timeout
  among the members. The first rebalance of an empty group waits for the initial delay instead, and again while new
  members keep joining, within the rebalance timeout.
* `complete_join`: members that have not rejoined are removed (static members stay: they may only be restarting), the
  protocol is chosen, every parked JoinGroup is answered, and all members get the rebalance timeout again to send
  SyncGroup.
* `install_assignment`: the leader's assignment is recorded, and every parked SyncGroup is answered.
* `refuse_assignment`: the assignment could not be recorded. As in Kafka, every parked SyncGroup is answered with the
  error, and all members have to rejoin. If the next assignment cannot be recorded either, the members would rejoin in
  vain, so before each further try they stay parked in JoinGroup for a growing pause (`kwire.backoff`).

A member's session timeout applies while none of its requests is parked here. A session that expires while a request is
parked is ignored: the member gets a fresh session with its reply.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages.join_group import JoinGroupResponse
from kwire_protocol.messages.sync_group import SyncGroupResponse

from kwire.coordinators.deadlines import PAUSES_MS, Deadline, Deadlines
from kwire.coordinators.effects import Step
from kwire.groups.classic.group import ClassicGroup, GroupState, Member
from kwire.groups.classic.records import empty_generation_record
from kwire.groups.config import GroupConfig
from kwire.groups.counts import GroupCounts

log = logging.getLogger(__name__)

NO_MEMBER_ID = ""

_CAN_REBALANCE = (GroupState.STABLE, GroupState.COMPLETING_REBALANCE, GroupState.EMPTY)


@attrs.define(eq=False)
class Rebalancing:
    """The rebalance protocol for all groups of a shard."""

    config: GroupConfig
    timers: Deadlines
    counts: GroupCounts

    @staticmethod
    def _level(group: ClassicGroup) -> int:
        """Returns the log level: a failing group was logged once, so its retries are logged at DEBUG only."""
        return logging.DEBUG if group.unrecorded else logging.INFO

    # Members

    def start_session(self, step: Step, group: ClassicGroup, member: Member, timeout_ms: int | None = None) -> None:
        """Starts the member's session, of `timeout_ms` or by default its session timeout, until its next request."""
        if member.session.on_expiry is None:
            member.session.on_expiry = partial(self._session_over, group, member)
        self.timers.schedule(
            member.session, step.now.monotonic_ms + (member.session_timeout_ms if timeout_ms is None else timeout_ms)
        )

    def add_pending(self, step: Step, group: ClassicGroup, member_id: str, timeout_ms: int) -> None:
        """Reserves a member id for the client that got it in its response and has to join with it."""
        timer = Deadline(partial(self._pending_member_over, group, member_id))
        group.pending_members[member_id] = timer
        self.timers.schedule(timer, step.now.monotonic_ms + timeout_ms)

    def forget_pending(self, group: ClassicGroup, member_id: str) -> None:
        timer = group.pending_members.pop(member_id, None)
        if timer is not None:
            self.timers.cancel(timer)

    def drop(self, step: Step, group: ClassicGroup, member_id: str) -> None:
        """Removes the member from the group. Its parked requests are answered with UNKNOWN_MEMBER_ID."""
        member = group.members.get(member_id)
        if member is None:
            return
        self.answer_join(
            step,
            group,
            member,
            JoinGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID, member_id=NO_MEMBER_ID),
        )
        self.answer_sync(step, member, SyncGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
        self.timers.cancel(member.session)
        group.remove(member_id)

    def member_gone(self, step: Step, group: ClassicGroup, reason: str) -> None:
        """Continues or starts the rebalance after members were dropped."""
        if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            self.prepare(step, group, reason)
        elif group.state is GroupState.PREPARING_REBALANCE and group.all_joined:
            self.complete_join(step, group)

    def retire(self, group: ClassicGroup) -> None:
        """The group is gone from this coordinator: cancels all of its deadlines."""
        group.state = GroupState.DEAD
        for timer in (group.join_timer, group.sync_timer, *group.pending_members.values()):
            self.timers.cancel(timer)
        for member in group.members.values():
            self.timers.cancel(member.session)

    # Answers

    def answer_join(self, step: Step, group: ClassicGroup, member: Member, response: JoinGroupResponse) -> bool:
        """Answers the member's parked JoinGroup, if there is one."""
        if member.join_token is None:
            return False
        step.reply(member.join_token, response)
        group.park_join(member, None)
        return True

    def answer_sync(self, step: Step, member: Member, response: SyncGroupResponse) -> bool:
        """Answers the member's parked SyncGroup, if there is one."""
        if member.sync_token is None:
            return False
        step.reply(member.sync_token, response)
        member.sync_token = None
        return True

    @staticmethod
    def current_generation(group: ClassicGroup, member: Member, *, with_roster: bool = True) -> JoinGroupResponse:
        """A JoinGroup response for the current generation; only the leader gets the list of members."""
        return JoinGroupResponse(
            generation_id=group.generation,
            protocol_type=group.protocol_type,
            protocol_name=group.protocol_name,
            leader=group.leader_id or "",
            skip_assignment=False,
            member_id=member.member_id,
            members=group.roster() if with_roster and group.is_leader(member.member_id) else [],
        )

    # Preparing: all members join

    def rebalance_or_complete_join(self, step: Step, group: ClassicGroup, reason: str) -> None:
        """Starts a rebalance, or completes the join phase of one in progress, if possible."""
        if group.state in _CAN_REBALANCE:
            self.prepare(step, group, reason)
        else:
            self.complete_join_when_all_joined(step, group)

    def prepare(self, step: Step, group: ClassicGroup, reason: str) -> None:
        """Starts a rebalance, from Stable, CompletingRebalance or Empty: all members have to rejoin."""
        assert group.state in _CAN_REBALANCE
        if group.state is GroupState.COMPLETING_REBALANCE:
            for member in group.members.values():
                member.assignment = b""
            self._answer_all_syncs(step, group, ErrorCode.REBALANCE_IN_PROGRESS)
        group.pending_sync.clear()
        self.timers.cancel(group.sync_timer)
        initial = group.state is GroupState.EMPTY
        group.transition_to(GroupState.PREPARING_REBALANCE, step.now.wall_ms)
        log.log(
            self._level(group), "group %a: rebalance after generation %d: %s", group.group_id, group.generation, reason
        )
        if initial:
            delay_ms = self.config.initial_rebalance_delay_ms
            self._wait_for_company(step, group, delay_ms, max(group.rebalance_timeout_ms - delay_ms, 0))
        elif group.all_joined:
            self.complete_join(step, group)
        else:
            self._wait_for_joins(step, group)

    def complete_join_when_all_joined(self, step: Step, group: ClassicGroup) -> None:
        """Ends the phase early, unless it is the first one, which waits for its full initial delay."""
        if (
            group.state is GroupState.PREPARING_REBALANCE
            and group.previous_state is not GroupState.EMPTY
            and group.all_joined
        ):
            self.complete_join(step, group)

    def complete_join(self, step: Step, group: ClassicGroup) -> None:
        """Ends the phase with the members that have joined, or at the end of a pause."""
        if step.now.monotonic_ms < group.joins_until_ms:
            group.join_timer.on_expiry = partial(self._join_phase_over, group)
            self.timers.schedule(group.join_timer, group.joins_until_ms)
            return
        self.timers.cancel(group.join_timer)
        absent = [m.member_id for m in group.members.values() if m.join_token is None and not m.is_static]
        for member_id in absent:
            self.drop(step, group, member_id)
        if absent:
            log.info("group %a: members that did not rejoin are out: %a", group.group_id, absent)
        if not self._elect_leader(group) and group.members:
            # All members are static and none has rejoined: only their sessions show whether they come back.
            log.warning("group %a: no member rejoined, waiting again", group.group_id)
            self._wait_for_joins(step, group)
            return
        group.begin_generation(step.now.wall_ms)
        if group.state is GroupState.EMPTY:
            self._record_empty_generation(step, group)
            return
        log.log(
            self._level(group),
            "group %a: generation %d with %d members",
            group.group_id,
            group.generation,
            len(group.members),
        )
        for member in group.members.values():
            self.answer_join(step, group, member, self.current_generation(group, member))
            member.is_new = False
            self.start_session(step, group, member)
            group.pending_sync.add(member.member_id)
        group.sync_timer.on_expiry = partial(self._sync_phase_over, group, group.generation)
        self.timers.schedule(group.sync_timer, step.now.monotonic_ms + group.rebalance_timeout_ms)

    def _elect_leader(self, group: ClassicGroup) -> bool:
        """Elects the first member that has rejoined, unless the leader has. Returns False if no member has."""
        if group.leader_id is None:
            return False
        if group.members[group.leader_id].join_token is not None:
            return True
        for member in group.members.values():
            if member.join_token is not None:
                group.leader_id = member.member_id
                return True
        return False

    def _record_empty_generation(self, step: Step, group: ClassicGroup) -> None:
        log.info("group %a: generation %d has no members", group.group_id, group.generation)

        def appended(_: Step, error: ErrorCode) -> None:
            if error is not ErrorCode.NONE:
                # After a restart the previous generation would be loaded again, and its members would time out again.
                log.debug("group %a: could not record that it is empty: %s", group.group_id, error.name)

        step.append([empty_generation_record(group)], appended)

    def _wait_for_joins(self, step: Step, group: ClassicGroup) -> None:
        group.join_timer.on_expiry = partial(self._join_phase_over, group)
        self.timers.schedule(group.join_timer, step.now.monotonic_ms + group.rebalance_timeout_ms)

    def _wait_for_company(self, step: Step, group: ClassicGroup, delay_ms: int, remaining_ms: int) -> None:
        group.join_timer.on_expiry = partial(self._initial_delay_over, group, delay_ms, remaining_ms)
        self.timers.schedule(group.join_timer, step.now.monotonic_ms + delay_ms)

    # Completing: all members get their assignments

    def synced(self, group: ClassicGroup, member: Member) -> None:
        """The member has sent its SyncGroup."""
        group.pending_sync.discard(member.member_id)
        if not group.pending_sync:
            self.timers.cancel(group.sync_timer)

    def install_assignment(self, step: Step, group: ClassicGroup, assignment: Mapping[str, bytes]) -> None:
        """The leader's assignment is recorded: every member gets its part, an empty one if it was left out."""
        assert group.state is GroupState.COMPLETING_REBALANCE
        if group.unrecorded:
            log.info("group %a: the assignment of generation %d is recorded", group.group_id, group.generation)
            group.unrecorded = group.joins_until_ms = 0
        for member in group.members.values():
            member.assignment = assignment.get(member.member_id, b"")
        self._answer_all_syncs(step, group, ErrorCode.NONE)
        group.transition_to(GroupState.STABLE, step.now.wall_ms)
        self.counts.rebalances[group.type] += 1

    def refuse_assignment(self, step: Step, group: ClassicGroup, error: ErrorCode) -> None:
        """The assignment could not be recorded: pending requests get the error, and the group tries again."""
        assert group.state is GroupState.COMPLETING_REBALANCE
        log.log(
            logging.DEBUG if group.unrecorded else logging.WARNING,
            "group %a: the assignment of generation %d could not be recorded (%s), so its members have to rejoin, "
            "with growing pauses",
            group.group_id,
            group.generation,
            error.name,
        )
        group.unrecorded += 1
        group.joins_until_ms = step.now.monotonic_ms + PAUSES_MS.after(group.unrecorded)
        for member in group.members.values():
            member.assignment = b""
        self._answer_all_syncs(step, group, error)
        self.prepare(step, group, f"the assignment could not be stored: {error.name}")

    def _answer_all_syncs(self, step: Step, group: ClassicGroup, error: ErrorCode) -> None:
        ok = error is ErrorCode.NONE
        for member in group.members.values():
            response = SyncGroupResponse(
                error_code=error,
                protocol_type=group.protocol_type if ok else None,
                protocol_name=group.protocol_name if ok else None,
                assignment=member.assignment,
            )
            if self.answer_sync(step, member, response):
                self.start_session(step, group, member)

    # Deadlines

    def _session_over(self, group: ClassicGroup, member: Member, step: Step) -> None:
        if group.members.get(member.member_id) is not member or member.is_parked:
            return
        log.info("group %a: member %a fell silent and is out", group.group_id, member.member_id)
        self.drop(step, group, member.member_id)
        self.member_gone(step, group, f"the session of {member.member_id!a} ended")

    def _pending_member_over(self, group: ClassicGroup, member_id: str, step: Step) -> None:
        group.pending_members.pop(member_id, None)
        if group.state is GroupState.PREPARING_REBALANCE and group.all_joined:
            self.complete_join(step, group)

    def _initial_delay_over(self, group: ClassicGroup, delay_ms: int, remaining_ms: int, step: Step) -> None:
        if group.new_member_added and remaining_ms:
            group.new_member_added = False
            next_delay_ms = min(self.config.initial_rebalance_delay_ms, remaining_ms)
            self._wait_for_company(step, group, next_delay_ms, max(remaining_ms - delay_ms, 0))
        else:
            self.complete_join(step, group)

    def _join_phase_over(self, group: ClassicGroup, step: Step) -> None:
        self.complete_join(step, group)

    def _sync_phase_over(self, group: ClassicGroup, generation: int, step: Step) -> None:
        if group.generation != generation or not group.pending_sync:
            return
        if group.state not in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE):
            return
        late = sorted(group.pending_sync)
        for member_id in late:
            self.drop(step, group, member_id)
        self.prepare(step, group, f"no SyncGroup came from {late!a}")
