"""SyncGroup, Heartbeat, LeaveGroup: the requests of a group's members."""

from __future__ import annotations

import logging

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kwire_protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from kwire_protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

from kwire.coordinators.effects import Now, Step, Token, response_error
from kwire.groups.classic.group import ClassicGroup, GroupState, Member
from kwire.groups.classic.groups import ClassicGroups
from kwire.groups.classic.rebalance import NO_MEMBER_ID, Rebalancing
from kwire.groups.classic.records import generation_record

log = logging.getLogger(__name__)


@attrs.define(eq=False)
class Membership:
    groups: ClassicGroups
    rebalancing: Rebalancing

    # Heartbeat

    def heartbeat(self, request: HeartbeatRequest, *, now: Now) -> HeartbeatResponse:
        """Keeps the member's session alive. Returns REBALANCE_IN_PROGRESS when the member has to rejoin."""
        group = self.groups.find(request.group_id)
        if group is None:
            return HeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
        try:
            member = group.check_member(request.member_id, request.group_instance_id)
        except KafkaError as error:
            return HeartbeatResponse(error_code=error.code)
        if request.generation_id != group.generation:
            return HeartbeatResponse(error_code=ErrorCode.ILLEGAL_GENERATION)
        self.rebalancing.timers.schedule(member.session, now.monotonic_ms + member.session_timeout_ms)
        if group.state is GroupState.PREPARING_REBALANCE:
            return HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
        return HeartbeatResponse()

    # SyncGroup

    def sync(self, step: Step, request: SyncGroupRequest, token: Token) -> None:
        try:
            group, member = self._check_sync(request)
        except KafkaError as error:
            step.reply(token, SyncGroupResponse(error_code=error.code))
            return
        if group.state is GroupState.COMPLETING_REBALANCE:
            # The client gave up on its first SyncGroup and sent this one, so the first one is dropped.
            self.rebalancing.answer_sync(step, member, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
            member.sync_token = token
            self.rebalancing.synced(group, member)
            if group.is_leader(member.member_id):
                self._store_assignment(step, group, request)
        else:
            self.rebalancing.synced(group, member)
            step.reply(
                token,
                SyncGroupResponse(
                    protocol_type=group.protocol_type,
                    protocol_name=group.protocol_name,
                    assignment=member.assignment,
                ),
            )

    def _check_sync(self, request: SyncGroupRequest) -> tuple[ClassicGroup, Member]:
        group = self.groups.find(request.group_id)
        if group is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        member = group.check_member(request.member_id, request.group_instance_id)
        if request.generation_id != group.generation:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        if _differs(request.protocol_type, group.protocol_type) or _differs(request.protocol_name, group.protocol_name):
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if group.state is GroupState.PREPARING_REBALANCE:
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
        return group, member

    def _store_assignment(self, step: Step, group: ClassicGroup, request: SyncGroupRequest) -> None:
        """Records the generation. Its members get the assignment only once it is recorded."""
        generation = group.generation
        assignment = {each.member_id: each.assignment for each in request.assignments}
        left_out = [member_id for member_id in group.members if member_id not in assignment]
        if left_out:
            log.info("group %a: generation %d assigns nothing to %a", group.group_id, generation, left_out)

        def appended(then: Step, error: ErrorCode) -> None:
            if group.state is not GroupState.COMPLETING_REBALANCE or group.generation != generation:
                return  # a member joined meanwhile; pending requests have been answered
            if error is ErrorCode.NONE:
                self.rebalancing.install_assignment(then, group, assignment)
            else:
                self.rebalancing.refuse_assignment(then, group, response_error(error))

        step.append([generation_record(group, assignment)], appended)

    # LeaveGroup

    def leave(self, step: Step, request: LeaveGroupRequest, token: Token) -> None:
        """Up to v2 one member leaves, and its error is the response's. From v3 on any number may leave (KIP-345)."""
        group = self.groups.find(request.group_id)
        if group is None:
            unknown = [_left(identity, ErrorCode.UNKNOWN_MEMBER_ID) for identity in request.members]
            step.reply(token, LeaveGroupResponse(members=unknown))
            return
        left = [self._leave_one(step, group, identity) for identity in request.members]
        gone = [each.member_id for each in left if not each.error_code]
        if gone and group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            self.rebalancing.prepare(step, group, f"members left: {gone!a}")
        elif gone:
            self.rebalancing.complete_join_when_all_joined(step, group)
        step.reply_when_appended(
            token, LeaveGroupResponse(members=left), lambda error: LeaveGroupResponse(error_code=error)
        )

    def _leave_one(self, step: Step, group: ClassicGroup, identity: MemberIdentity) -> MemberResponse:
        member_id = identity.member_id
        if member_id in group.pending_members:
            self.rebalancing.forget_pending(group, member_id)
            return _left(identity, ErrorCode.NONE)
        if member_id == NO_MEMBER_ID and identity.group_instance_id is not None:
            # An administrator removes a static member by its instance id alone.
            member_id = group.static_members.get(identity.group_instance_id, NO_MEMBER_ID)
        try:
            group.check_member(member_id, identity.group_instance_id)
        except KafkaError as error:
            return _left(identity, error.code)
        log.info("group %a: member %a left: %a", group.group_id, member_id, identity.reason or "not provided")
        self.rebalancing.drop(step, group, member_id)
        return _left(identity, ErrorCode.NONE)


def _differs(requested: str | None, actual: str | None) -> bool:
    """True if the protocols differ. Older versions do not send the protocol, so there is nothing to compare."""
    return requested is not None and actual is not None and requested != actual


def _left(identity: MemberIdentity, error: ErrorCode) -> MemberResponse:
    return MemberResponse(member_id=identity.member_id, group_instance_id=identity.group_instance_id, error_code=error)
