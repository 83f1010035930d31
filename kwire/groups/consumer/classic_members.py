"""Members of a consumer group that use the classic protocol's requests, while a group migrates (KIP-848).

The coordinator assigns to them as to all others. JoinGroup counts as a full heartbeat and is answered at once: the
generation is the member's epoch. SyncGroup returns the member's assignment. The response to a Heartbeat requests a
rejoin when the member has to give up partitions, or gets more. None of them waits for other members.

While the assignment of a new group epoch is delayed, rejoining would not help a member, so it need not rejoin. Once the
assignment is due, the member has to rejoin, and its JoinGroup computes the assignment. Apache Kafka leaves that to the
members of the consumer protocol, of which the group may have none any more.
"""

from __future__ import annotations

import logging
from functools import partial

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kwire_protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from kwire_protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse
from kwire_protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from kwire_protocol.wire import ProtocolError

from kwire.coordinators.effects import Step, Token, response_error
from kwire.groups.classic.joining import FIRST_VERSION_REQUIRING_MEMBER_ID, Join
from kwire.groups.classic.subscription import CONSUMER_PROTOCOL_TYPE
from kwire.groups.config import MigrationPolicy
from kwire.groups.consumer.assigning import Assigning
from kwire.groups.consumer.group import ConsumerGroup
from kwire.groups.consumer.heartbeats import Heartbeats
from kwire.groups.consumer.member import ClassicProtocol, MemberMetadata, MemberState
from kwire.groups.consumer.membership import Membership
from kwire.groups.draft import Draft
from kwire.groups.migration import Migration, owned_by, read_subscription

log = logging.getLogger(__name__)

NO_MEMBER_ID = ""


@attrs.define(eq=False)
class ClassicMembers:
    heartbeats: Heartbeats
    assigning: Assigning
    membership: Membership
    migration: Migration

    # JoinGroup

    def join(self, step: Step, group: ConsumerGroup, join: Join) -> None:
        request = join.request
        member_id = request.member_id or join.fresh_id
        draft = Draft()
        try:
            if self.migration.config.consumer_migration_policy is MigrationPolicy.DISABLED:
                raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
            self.heartbeats.check_room(group, member_id)
            if not group.supports_classic(request.protocol_type, join.protocols):
                raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
            if _needs_member_id(join):
                join.refuse(step, ErrorCode.MEMBER_ID_REQUIRED, member_id)
                return
            downgrades = self._enter_and_assign(step, draft, group, join, member_id)
        except KafkaError as refused:
            draft.undo()
            join.refuse(step, refused.code, NO_MEMBER_ID)
            return
        response = JoinGroupResponse(
            generation_id=group.assignment_of(member_id).epoch,
            protocol_type=CONSUMER_PROTOCOL_TYPE,
            protocol_name=next(iter(join.protocols)),
            member_id=member_id,
        )
        if not downgrades:
            draft.then(partial(self.membership.joined, group=group, member_id=member_id))
        draft.then(lambda later: later.reply(join.token, response))
        draft.append(step, lambda later, error: join.refuse(later, response_error(error), NO_MEMBER_ID))

    def _enter_and_assign(self, step: Step, draft: Draft, group: ConsumerGroup, join: Join, member_id: str) -> bool:
        """Returns whether the group has become a classic one: a static member replaced the last other member."""
        request = join.request
        instance_id = request.group_instance_id
        try:
            subscription = read_subscription(next(iter(join.protocols.values())))
        except ProtocolError as error:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the subscription is malformed: {error}") from error
        former_id = None if instance_id is None else group.static_members.get(instance_id)
        downgrades = former_id is not None and self.migration.may_downgrade(group, [former_id], joining=1)
        if instance_id is not None and request.member_id:
            before: MemberMetadata | None = group.identified(member_id, instance_id)
        else:
            before = self.heartbeats.enter_joining(draft, group, member_id, instance_id, classic=True)
        after = MemberMetadata(
            member_id=member_id,
            instance_id=instance_id or (before and before.instance_id) or None,
            rack_id=subscription.rack_id or (before and before.rack_id) or None,
            client_id=join.context.client_id,
            client_host=join.context.client_host,
            subscribed_topic_names=frozenset(subscription.topics),
            rebalance_timeout_ms=join.rebalance_timeout_ms,
            classic=ClassicProtocol(request.session_timeout_ms, join.protocols),
        )
        subscription_changed = self.heartbeats.subscribe(step, draft, group, before, after, join.context)
        if not downgrades:
            self.assigning.assign(draft, group, step.now)
        is_assigned = group.epoch <= group.assignment_epoch
        if is_assigned or not downgrades:
            owned = self.migration.ids_of(owned_by(subscription))
            self.assigning.reconcile(draft, group, member_id, owned, subscription_changed=subscription_changed)
        if downgrades:
            # Without an assignment of its epoch all have to rejoin, the one that has just joined in generation 0.
            self.migration.downgrade(draft, group, rebalance=not is_assigned)
            draft.then(lambda _: self.membership.stop_all(group))
        return downgrades

    # SyncGroup

    def sync(self, step: Step, group: ConsumerGroup, request: SyncGroupRequest, token: Token) -> None:
        try:
            member, classic = self._check(group, request)
            self._check_sync(step, group, member, classic, request)
        except KafkaError as refused:
            step.reply(token, SyncGroupResponse(error_code=refused.code))
            return
        self.membership.synced(step, group, member.member_id)
        step.reply(
            token,
            SyncGroupResponse(
                protocol_type=request.protocol_type,
                protocol_name=request.protocol_name,
                assignment=self.migration.written_assignment(group.assignment_of(member.member_id).assigned, classic),
            ),
        )

    def _check(
        self, group: ConsumerGroup, request: SyncGroupRequest | HeartbeatRequest
    ) -> tuple[MemberMetadata, ClassicProtocol]:
        """Raises KafkaError unless it is a member of the classic protocol in its current generation."""
        member = group.identified(request.member_id, request.group_instance_id)
        if member.classic is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        if request.generation_id != group.assignment_of(member.member_id).epoch:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        return member, member.classic

    def _check_sync(
        self,
        step: Step,
        group: ConsumerGroup,
        member: MemberMetadata,
        classic: ClassicProtocol,
        request: SyncGroupRequest,
    ) -> None:
        if request.protocol_type not in (None, CONSUMER_PROTOCOL_TYPE) or request.protocol_name not in (
            None,
            next(iter(classic.protocols)),
        ):
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        current = group.assignment_of(member.member_id)
        # A member that has to give something up has rejoined already: it takes what it keeps before it rejoins again.
        if current.epoch < group.assignment_epoch and current.state is not MemberState.UNREVOKED_PARTITIONS:
            self.membership.await_join(step, group, member.member_id)
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)

    # Heartbeat

    def heartbeat(self, step: Step, group: ConsumerGroup, request: HeartbeatRequest) -> HeartbeatResponse:
        try:
            member, _ = self._check(group, request)
        except KafkaError as refused:
            return HeartbeatResponse(error_code=refused.code)
        member_id = member.member_id
        self.membership.start_session(step, group, member_id)
        current = group.assignment_of(member_id)
        if (
            current.epoch < group.assignment_epoch
            or self.assigning.is_due(group, step.now)
            or current.state is MemberState.UNREVOKED_PARTITIONS
            or (current.state is MemberState.UNRELEASED_PARTITIONS and not group.waits_for_others(member_id))
        ):
            self.membership.await_join(step, group, member_id)
            return HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
        return HeartbeatResponse()

    # LeaveGroup

    def leave(self, step: Step, group: ConsumerGroup, request: LeaveGroupRequest, token: Token) -> None:
        """Members of either protocol may be named: administrators remove them with this request."""
        leaving: dict[str, None] = {}
        draft = Draft()
        members = [_left(identity, self._leaver(draft, group, identity, leaving)) for identity in request.members]
        self.membership.remove(draft, group, leaving)
        response = LeaveGroupResponse(members=members)
        draft.answer(step, token, response, lambda error: LeaveGroupResponse(error_code=error))

    def _leaver(
        self, draft: Draft, group: ConsumerGroup, identity: MemberIdentity, leaving: dict[str, None]
    ) -> ErrorCode:
        instance_id, member_id = identity.group_instance_id, identity.member_id
        try:
            if instance_id is not None and not member_id:
                member_id = group.static_members.get(instance_id, "")
            member = group.identified(member_id, instance_id)
        except KafkaError as refused:
            return refused.code
        reason = identity.reason or "not provided"
        draft.say(log, "group %a: member %a left: %a", group.group_id, member.member_id, reason)
        leaving[member.member_id] = None
        return ErrorCode.NONE


def _needs_member_id(join: Join) -> bool:
    request: JoinGroupRequest = join.request
    return (
        not request.member_id
        and request.group_instance_id is None
        and join.context.api_version >= FIRST_VERSION_REQUIRING_MEMBER_ID
    )


def _left(identity: MemberIdentity, error: ErrorCode) -> MemberResponse:
    return MemberResponse(member_id=identity.member_id, group_instance_id=identity.group_instance_id, error_code=error)
