"""JoinGroup: which members may join a group, with which id, and whether that requires a rebalance.

A dynamic member first sends no member id, gets one and joins with it. From v4 on the id comes with MEMBER_ID_REQUIRED,
so that a lost response leaves no unused member behind (KIP-394). A static member sends a group.instance.id and keeps
its place over restarts. When it comes back without a member id, it replaces its previous instance, which is fenced. It
gets its assignment back without a rebalance if the group is stable and the chosen protocol does not change (KIP-345,
KIP-814).
"""

from __future__ import annotations

import logging

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from kwire_protocol.messages.sync_group import SyncGroupResponse

from kwire.coordinators.effects import Step, Token, response_error
from kwire.groups.classic.group import ClassicGroup, GroupState, Member, Protocols
from kwire.groups.classic.groups import ClassicGroups
from kwire.groups.classic.rebalance import NO_MEMBER_ID, Rebalancing
from kwire.groups.classic.records import empty_generation_record, generation_record
from kwire.groups.config import GroupConfig
from kwire.groups.group import MemberContext

log = logging.getLogger(__name__)

FIRST_VERSION_WITH_REBALANCE_TIMEOUT = 1
FIRST_VERSION_REQUIRING_MEMBER_ID = 4
FIRST_VERSION_SKIPPING_ASSIGNMENT = 9


@attrs.define(eq=False)
class Join:
    """A JoinGroup in progress. `fresh_id` is the member id it gets if it needs one."""

    request: JoinGroupRequest
    context: MemberContext
    token: Token
    fresh_id: str
    protocols: Protocols

    @classmethod
    def of(cls, request: JoinGroupRequest, context: MemberContext, token: Token, member_uuid: str) -> Join:
        prefix = context.client_id if request.group_instance_id is None else request.group_instance_id
        protocols: Protocols = {}
        for protocol in request.protocols:
            protocols.setdefault(protocol.name, protocol.metadata)
        return cls(request, context, token, f"{prefix}-{member_uuid}", protocols)

    @property
    def rebalance_timeout_ms(self) -> int:
        if self.context.api_version < FIRST_VERSION_WITH_REBALANCE_TIMEOUT:
            return self.request.session_timeout_ms
        return self.request.rebalance_timeout_ms

    def has_valid_session_timeout(self, config: GroupConfig) -> bool:
        return config.min_session_timeout_ms <= self.request.session_timeout_ms <= config.max_session_timeout_ms

    @property
    def reason(self) -> str:
        return self.request.reason or "not provided"

    def refuse(self, step: Step, error: ErrorCode, member_id: str) -> None:
        """`member_id` is the request's only where Apache Kafka repeats it: if a classic group was found."""
        step.reply(self.token, JoinGroupResponse(error_code=error, member_id=member_id))


@attrs.define(eq=False)
class Joining:
    config: GroupConfig
    groups: ClassicGroups
    rebalancing: Rebalancing

    def join(self, step: Step, join: Join) -> None:
        request = join.request
        group = self.groups.find(request.group_id)
        if not join.has_valid_session_timeout(self.config):
            join.refuse(step, ErrorCode.INVALID_SESSION_TIMEOUT, request.member_id)
        elif group is not None:
            self._enter(step, group, join)
        elif self.groups.is_of_other_kind(request.group_id):
            join.refuse(step, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, NO_MEMBER_ID)
        elif request.member_id:
            join.refuse(step, ErrorCode.UNKNOWN_MEMBER_ID, request.member_id)
        else:
            self._found(step, join)

    def _found(self, step: Step, join: Join) -> None:
        """The first join creates the group, even if the join itself fails, and the group must be recorded."""
        group = ClassicGroup(join.request.group_id, state_timestamp_ms=step.now.wall_ms)
        record = empty_generation_record(group)
        self.groups.add(group)
        self._enter(step, group, join)
        answers = step.take()

        def appended(then: Step, error: ErrorCode) -> None:
            if error is ErrorCode.NONE:
                then.effects += answers
                return
            log.debug("group %a: could not record the new group: %s", group.group_id, error.name)
            if self.groups.find(group.group_id) is group:
                self.groups.remove(group.group_id)
            self.rebalancing.retire(group)
            join.refuse(then, response_error(error), NO_MEMBER_ID)

        step.append([record], appended)

    def _enter(self, step: Step, group: ClassicGroup, join: Join) -> None:
        member_id = join.request.member_id
        if not self._has_room(group, member_id):
            self.rebalancing.drop(step, group, member_id)
            self.rebalancing.forget_pending(group, member_id)
            join.refuse(step, ErrorCode.GROUP_MAX_SIZE_REACHED, NO_MEMBER_ID)
        elif not group.supports(join.request.protocol_type, join.protocols):
            join.refuse(step, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id)
        elif member_id:
            self._enter_with_id(step, group, join)
        elif join.request.group_instance_id is not None:
            self._enter_static(step, group, join)
        elif join.context.api_version >= FIRST_VERSION_REQUIRING_MEMBER_ID:
            self.rebalancing.add_pending(step, group, join.fresh_id, join.request.session_timeout_ms)
            join.refuse(step, ErrorCode.MEMBER_ID_REQUIRED, join.fresh_id)
        else:
            self._add(step, group, join, join.fresh_id)

    def _has_room(self, group: ClassicGroup, member_id: str) -> bool:
        """True if the member fits into the group.

        During a rebalance the members that join first stay, so a group loses members after the limit was lowered.
        """
        member = group.members.get(member_id)
        if group.state is GroupState.PREPARING_REBALANCE:
            return (member is not None and member.join_token is not None) or group.awaiting_join < self.config.max_size
        if group.state in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE):
            return member is not None or len(group.members) < self.config.max_size
        return True

    def _add(self, step: Step, group: ClassicGroup, join: Join, member_id: str) -> None:
        if group.state is GroupState.PREPARING_REBALANCE and group.previous_state is GroupState.EMPTY:
            group.new_member_added = True
        member = Member(
            member_id=member_id,
            group_instance_id=join.request.group_instance_id,
            client_id=join.context.client_id,
            client_host=join.context.client_host,
            rebalance_timeout_ms=join.rebalance_timeout_ms,
            session_timeout_ms=join.request.session_timeout_ms,
            protocol_type=join.request.protocol_type,
            protocols=join.protocols,
            is_new=True,
            join_token=join.token,
        )
        self.rebalancing.forget_pending(group, member_id)
        group.add(member)
        # It cannot send heartbeats while it is parked, and a client that gave up and rejoined under a new id leaves its
        # former member parked here: without a limit such members would accumulate during a long rebalance.
        self.rebalancing.start_session(step, group, member, self.config.new_member_join_timeout_ms)
        self.rebalancing.rebalance_or_complete_join(
            step, group, f"member {member_id!a} joins; client reason: {join.reason!a}"
        )

    def _enter_with_id(self, step: Step, group: ClassicGroup, join: Join) -> None:
        member_id, instance_id = join.request.member_id, join.request.group_instance_id
        if member_id not in group.pending_members:
            try:
                member = group.check_member(member_id, instance_id)
            except KafkaError as error:
                join.refuse(step, error.code, member_id)
            else:
                self._enter_again(step, group, member, join)
        elif instance_id is None:
            self._add(step, group, join, member_id)
        else:
            # Only dynamic members are given an id in advance; Kafka fails on this, too.
            join.refuse(step, ErrorCode.UNKNOWN_SERVER_ERROR, NO_MEMBER_ID)

    def _enter_again(self, step: Step, group: ClassicGroup, member: Member, join: Join) -> None:
        unchanged = member.offers(join.protocols)
        if unchanged and group.state is GroupState.COMPLETING_REBALANCE:
            # The response to its join was lost, so it is sent again.
            step.reply(join.token, self.rebalancing.current_generation(group, member))
        elif unchanged and group.state is GroupState.STABLE and not group.is_leader(member.member_id):
            step.reply(join.token, self.rebalancing.current_generation(group, member))
        else:
            # A rebalance is in progress; or its metadata changed; or the leader rejoins because a topic has changed.
            self._update(step, group, member, join)
            self.rebalancing.rebalance_or_complete_join(
                step, group, f"member {member.member_id!a} rejoins; client reason: {join.reason!a}"
            )

    def _update(self, step: Step, group: ClassicGroup, member: Member, join: Join) -> None:
        """Updates the member from the join, and parks it. A parked join of the same member is answered."""
        self.rebalancing.answer_join(
            step,
            group,
            member,
            JoinGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS, member_id=member.member_id),
        )
        group.set_protocols(member, join.protocols)
        member.rebalance_timeout_ms = join.rebalance_timeout_ms
        member.session_timeout_ms = join.request.session_timeout_ms
        group.park_join(member, join.token)

    # Static members

    def _enter_static(self, step: Step, group: ClassicGroup, join: Join) -> None:
        assert join.request.group_instance_id is not None
        old_id = group.static_members.get(join.request.group_instance_id)
        if old_id is None:
            self._add(step, group, join, join.fresh_id)
            return
        old_leader_id = group.leader_id
        old = group.members[old_id]
        self._fence(step, group, old)
        member = group.replace_static(old_id, join.fresh_id)
        self.rebalancing.timers.cancel(old.session)
        self.rebalancing.start_session(step, group, member)
        self._update(step, group, member, join)
        log.info(
            "group %a: static member %a is back as %a", group.group_id, join.request.group_instance_id, join.fresh_id
        )
        if group.state is GroupState.STABLE and group.select_protocol() == group.protocol_name:
            self._record_replaced(step, group, member, old, old_leader_id, join)
        elif group.state is GroupState.PREPARING_REBALANCE:
            self.rebalancing.complete_join_when_all_joined(step, group)
        else:
            # While assignments are awaited the leader may be assigning by the old id, so all members rejoin.
            self.rebalancing.prepare(
                step, group, f"static member {member.member_id!a} replaced {old_id!a}; client reason: {join.reason!a}"
            )

    def _fence(self, step: Step, group: ClassicGroup, old: Member) -> None:
        fenced = JoinGroupResponse(
            error_code=ErrorCode.FENCED_INSTANCE_ID, member_id=old.member_id, protocol_type=None, protocol_name=None
        )
        self.rebalancing.answer_join(step, group, old, fenced)
        self.rebalancing.answer_sync(
            step,
            old,
            SyncGroupResponse(error_code=ErrorCode.FENCED_INSTANCE_ID, protocol_type=None, protocol_name=None),
        )

    def _record_replaced(
        self, step: Step, group: ClassicGroup, member: Member, old: Member, old_leader_id: str | None, join: Join
    ) -> None:
        """Stores the new member id and replies with the current generation; undoes the change if storing fails."""

        def appended(then: Step, error: ErrorCode) -> None:
            if error is not ErrorCode.NONE:
                group.park_join(member, None)
                self._restore(then, group, member, old)
                response = self.rebalancing.current_generation(group, member, with_roster=False)
                response.error_code = response_error(error)
                response.member_id = NO_MEMBER_ID
                then.reply(join.token, response)
                return
            group.topics = group.find_topics()
            if join.context.api_version >= FIRST_VERSION_SKIPPING_ASSIGNMENT:
                response = self.rebalancing.current_generation(group, member)
                response.skip_assignment = group.is_leader(member.member_id)
            else:
                # Older clients cannot lead without assigning: with the old id as leader, no member acts as the leader.
                response = self.rebalancing.current_generation(group, member, with_roster=False)
                response.leader = old_leader_id or ""
            self.rebalancing.answer_join(then, group, member, response)

        assignment = {other.member_id: other.assignment for other in group.members.values()}
        step.append([generation_record(group, assignment)], appended)

    def _restore(self, step: Step, group: ClassicGroup, member: Member, old: Member) -> None:
        log.debug("group %a: could not record %a, it is %a again", group.group_id, member.member_id, old.member_id)
        group.set_protocols(member, old.protocols)
        self.rebalancing.timers.cancel(member.session)
        restored = group.replace_static(member.member_id, old.member_id)
        restored.rebalance_timeout_ms = old.rebalance_timeout_ms
        restored.session_timeout_ms = old.session_timeout_ms
        self.rebalancing.start_session(step, group, restored)
