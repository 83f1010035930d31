"""ShareGroupHeartbeat: how members join, stay, change their subscription, and leave.

The request has the member's topics when they have changed. The response has its epoch, and its assignment when that has
changed or the request has topics. Kafka's `GroupMetadataManager.shareGroupHeartbeat`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError, quoted
from kwire_protocol.messages.share_group_heartbeat import (
    Assignment,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)

from kwire.coordinators.effects import Step, Token
from kwire.groups.config import GroupConfig, ShareGroupSettings
from kwire.groups.draft import Draft
from kwire.groups.group import MemberContext
from kwire.groups.modern.groups import Groups
from kwire.groups.share.assigning import Assigning
from kwire.groups.share.changes import MemberChange
from kwire.groups.share.group import ShareGroup
from kwire.groups.share.initializing import Initializing
from kwire.groups.share.member import JOINING_EPOCH, LEAVING_EPOCH, CurrentAssignment, ShareMember
from kwire.groups.share.membership import Membership

log = logging.getLogger(__name__)


@attrs.define(eq=False)
class Heartbeats:
    config: GroupConfig
    groups: Groups[ShareGroup]
    settings: Callable[[str], ShareGroupSettings]
    assigning: Assigning
    initializing: Initializing
    membership: Membership

    def heartbeat(self, step: Step, request: ShareGroupHeartbeatRequest, context: MemberContext, token: Token) -> None:
        draft = Draft()
        try:
            if request.member_epoch == LEAVING_EPOCH:
                response = self._leave(draft, request)
            else:
                response = self._stay(step, draft, request, context)
        except KafkaError as refused:
            draft.undo()
            step.reply(token, _refusal(refused.code, refused.message))
            return
        if request.member_epoch != LEAVING_EPOCH:
            self.initializing.begin(step, draft, self.groups.get(request.group_id))
        # The reply comes before the request to the share coordinator, which may take a while.
        draft.answer(step, token, response, _refusal)

    def _stay(
        self, step: Step, draft: Draft, request: ShareGroupHeartbeatRequest, context: MemberContext
    ) -> ShareGroupHeartbeatResponse:
        joins, member_id = request.member_epoch == JOINING_EPOCH, request.member_id
        group = self._group(draft, request.group_id, joins=joins)
        self._check_room(group, member_id)
        before = group.members.get(member_id) if joins else group.member(member_id)
        had = group.assignment_of(member_id)
        _check_epoch(had, request.member_epoch)
        if joins:
            draft.say(log, "group %a: member %a joins", group.group_id, member_id)
        after = _updated(before or ShareMember(member_id), request, context)
        subscription_changed = False
        if after is not before and after != before:
            draft.change(group, MemberChange(group.group_id, member_id, after))
            subscription_changed = before is None or after.subscribed_topic_names != before.subscribed_topic_names
        self.assigning.begin_epoch(draft, group, subscriptions_changed=subscription_changed)
        self.assigning.assign(draft, group, step.now)
        has = self.assigning.move(draft, group, member_id, subscription_changed=subscription_changed)
        if member_id in group.timers:
            self.membership.start_session(step, group, member_id)
        else:
            draft.then(partial(self.membership.start_session, group=group, member_id=member_id))
        response = ShareGroupHeartbeatResponse(
            member_id=member_id,
            member_epoch=has.epoch,
            heartbeat_interval_ms=self.settings(group.group_id).heartbeat_interval_ms,
        )
        if joins or request.subscribed_topic_names is not None or (has is not had and has.assigned != had.assigned):
            response.assignment = _assignment(has)
        return response

    def _group(self, draft: Draft, group_id: str, *, joins: bool) -> ShareGroup:
        if joins:
            return self.groups.get_or_make(draft, group_id)
        if group_id not in self.groups.by_id:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Share group {quoted(group_id)} not found.")
        return self.groups.get(group_id)

    def _check_room(self, group: ShareGroup, member_id: str) -> None:
        """Raises KafkaError(GROUP_MAX_SIZE_REACHED) if the group is full and this is not one of its members."""
        if len(group.members) >= self.config.share_max_size and member_id not in group.members:
            raise KafkaError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The share group has reached its maximum capacity of {self.config.share_max_size} members.",
            )

    def _leave(self, draft: Draft, request: ShareGroupHeartbeatRequest) -> ShareGroupHeartbeatResponse:
        group, member_id = self.groups.get(request.group_id), request.member_id
        group.member(member_id)
        draft.say(log, "group %a: member %a left", group.group_id, member_id)
        self.membership.remove(draft, group, [member_id])
        return ShareGroupHeartbeatResponse(member_id=member_id, member_epoch=request.member_epoch)


def _refusal(code: ErrorCode, message: str | None = None) -> ShareGroupHeartbeatResponse:
    return ShareGroupHeartbeatResponse(error_code=code, error_message=message)


def _updated(before: ShareMember, request: ShareGroupHeartbeatRequest, context: MemberContext) -> ShareMember:
    """Returns the metadata that the member requests: an absent field stays as it was.

    The same object as `before` if all are absent, as in most heartbeats.
    """
    names = request.subscribed_topic_names
    if (
        names is None
        and request.rack_id is None
        and context.client_id == before.client_id
        and context.client_host == before.client_host
    ):
        return before
    return ShareMember(
        member_id=before.member_id,
        rack_id=before.rack_id if request.rack_id is None else request.rack_id,
        client_id=context.client_id,
        client_host=context.client_host,
        subscribed_topic_names=before.subscribed_topic_names if names is None else frozenset(names),
    )


def _check_epoch(has: CurrentAssignment, epoch: int) -> None:
    """Raises KafkaError(FENCED_MEMBER_EPOCH) unless the member joins, or is in its epoch.

    It may be in the previous one, because its last response was lost.
    """
    if epoch in (JOINING_EPOCH, has.epoch) or epoch == has.previous_epoch < has.epoch:
        return
    if epoch > has.epoch:
        raise KafkaError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"The share group member has a greater member epoch ({epoch}) than the one known by the group coordinator "
            f"({has.epoch}). The member must abandon all its partitions and rejoin.",
        )
    raise KafkaError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The share group member has a smaller member epoch ({epoch}) than the one known by the group coordinator "
        f"({has.epoch}), and it is not its previous one ({has.previous_epoch}). "
        "The member must abandon all its partitions and rejoin.",
    )


def _assignment(has: CurrentAssignment) -> Assignment:
    return Assignment([TopicPartitions(topic_id, sorted(partitions)) for topic_id, partitions in has.assigned.items()])
