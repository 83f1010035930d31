"""ConsumerGroupHeartbeat: how members join, stay, change their subscription, and leave.

One request does all of it. The request has the fields that changed since the last one, and the member's partitions when
they have changed. The response has the member's epoch, and its assignment when that has changed. Kafka's
`GroupMetadataManager.consumerGroupHeartbeat`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError, quoted
from kwire_protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatResponseTopicPartitions,
)

from kwire.coordinators.effects import Now, Step, Token
from kwire.groups.config import ConsumerGroupSettings, GroupConfig
from kwire.groups.consumer.assigning import Assigning
from kwire.groups.consumer.changes import CurrentChange, MemberChange, TargetChange
from kwire.groups.consumer.group import ConsumerGroup
from kwire.groups.consumer.member import (
    JOINING_EPOCH,
    NOTHING,
    STATIC_LEAVING_EPOCH,
    CurrentAssignment,
    MemberMetadata,
    MemberState,
    Owned,
    owned_partitions,
    owns_only,
)
from kwire.groups.consumer.membership import Membership
from kwire.groups.consumer.regexes import Regexes
from kwire.groups.draft import Draft
from kwire.groups.group import MemberContext
from kwire.groups.migration import Migration
from kwire.groups.modern.groups import Groups

log = logging.getLogger(__name__)

UNCHANGED_MS = -1
"""The rebalance timeout in a request that does not change it."""


@attrs.define(eq=False)
class Heartbeats:
    config: GroupConfig
    groups: Groups[ConsumerGroup]
    settings: Callable[[str], ConsumerGroupSettings]
    assigning: Assigning
    regexes: Regexes
    membership: Membership
    migration: Migration

    def heartbeat(
        self,
        step: Step,
        request: ConsumerGroupHeartbeatRequest,
        context: MemberContext,
        token: Token,
        *,
        member_id: str,
    ) -> None:
        """`member_id` is the request's, or a new one for a member of version 0 that joins."""
        draft = Draft()
        try:
            if request.member_epoch < JOINING_EPOCH:
                response = self._leave(draft, request)
            else:
                response = self._stay(step, draft, request, context, member_id)
        except KafkaError as refused:
            draft.undo()
            step.reply(token, _refusal(refused.code, refused.message))
            return
        draft.answer(step, token, response, _refusal)

    def confirm(
        self, group_id: str, member_id: str, member_epoch: int, client_id: str, client_host: str, *, now: Now
    ) -> int | None:
        """Restarts the session of a member whose heartbeat has only its id and its epoch, if that changes nothing.

        Returns the heartbeat interval in ms. None, after which nothing has changed, if `heartbeat` must answer.
        """
        group = self.groups.find(group_id)
        if group is None or group.topics_version != self.assigning.topics.version:
            return None
        member, current = group.members.get(member_id), group.current.get(member_id)
        if (
            member is None
            or current is None
            or current.epoch != member_epoch
            or not current.is_reconciled_to(group.assignment_epoch)
            or group.epoch > group.assignment_epoch
            or member.client_id != client_id
            or member.client_host != client_host
            or member.classic is not None
            or group.regex_subscribers
            or group.regexes
            or member_id not in group.timers
        ):
            return None
        self.membership.restart_session(group, member_id, now)
        return self.settings(group_id).heartbeat_interval_ms

    def _stay(
        self,
        step: Step,
        draft: Draft,
        request: ConsumerGroupHeartbeatRequest,
        context: MemberContext,
        member_id: str,
    ) -> ConsumerGroupHeartbeatResponse:
        joins = request.member_epoch == JOINING_EPOCH
        group = self._group_to_join(draft, request.group_id) if joins else self.groups.get(request.group_id)
        self.check_room(group, member_id)
        owned: Owned | None = None
        if request.topic_partitions is not None:
            owned = owned_partitions((it.topic_id, it.partitions) for it in request.topic_partitions)
        if joins:
            before = self.enter_joining(draft, group, member_id, request.instance_id, classic=False)
        else:
            before = group.identified(member_id, request.instance_id)
        had = group.assignment_of(member_id)
        if not joins:
            _check_epoch(had, request.member_epoch, owned)
        after = _updated(before or MemberMetadata(member_id), request, context)
        subscription_changed = self.subscribe(step, draft, group, before, after, context)
        self.assigning.assign(draft, group, step.now)
        has = self.assigning.reconcile(draft, group, member_id, owned, subscription_changed=subscription_changed)
        if has is not had:
            draft.then(partial(self.membership.follow_revocation, group=group, member_id=member_id, current=has))
        if member_id in group.timers:
            self.membership.start_session(step, group, member_id)
        else:
            draft.then(partial(self.membership.start_session, group=group, member_id=member_id))
        response = ConsumerGroupHeartbeatResponse(
            member_id=member_id,
            member_epoch=has.epoch,
            heartbeat_interval_ms=self.settings(group.group_id).heartbeat_interval_ms,
        )
        if joins or _is_full(request) or (has is not had and has.assigned != had.assigned):
            response.assignment = _assignment(has)
        return response

    def _group_to_join(self, draft: Draft, group_id: str) -> ConsumerGroup:
        """Returns the group for a member that joins. Creates it, or converts a classic one, if necessary."""
        group = self.migration.consumer_group(draft, group_id)
        if group.members and not group.timers:
            # It was a classic group until now: its members' sessions begin.
            draft.then(partial(self.membership.start_all, group=group))
        return group

    def check_room(self, group: ConsumerGroup, member_id: str) -> None:
        """Raises KafkaError(GROUP_MAX_SIZE_REACHED) if the group is full and this is not one of its members."""
        if len(group.members) >= self.config.consumer_max_size and member_id not in group.members:
            raise KafkaError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The consumer group has reached its maximum capacity of {self.config.consumer_max_size} members.",
            )

    # Identity

    def enter_joining(
        self, draft: Draft, group: ConsumerGroup, member_id: str, instance_id: str | None, *, classic: bool
    ) -> MemberMetadata | None:
        """Returns the member that joins, if it is in the group. A static member replaces its previous instance.

        If both use the consumer protocol, the previous one must have left: UNRELEASED_INSTANCE_ID.
        """
        protocol = "classic" if classic else "consumer"
        former_id = None if instance_id is None else group.static_members.get(instance_id)
        if former_id is None or former_id == member_id:
            draft.say(log, "group %a: member %a joins with the %s protocol", group.group_id, member_id, protocol)
            return group.members.get(member_id)
        former = group.members[former_id]
        has = group.assignment_of(former_id)
        if not classic and former.classic is None and has.epoch != STATIC_LEAVING_EPOCH:
            raise KafkaError(
                ErrorCode.UNRELEASED_INSTANCE_ID,
                f"Static member {quoted(member_id)} with instance id {quoted(instance_id)} "
                f"cannot join the group because the instance id is owned by {quoted(former_id)} member.",
            )
        draft.say(
            log,
            "group %a: static member %a is back as %a with the %s protocol",
            group.group_id,
            instance_id,
            member_id,
            protocol,
        )
        member = attrs.evolve(former, member_id=member_id)
        target = group.targets.get(former_id, {})
        self.membership.take_out(draft, group, former_id)
        draft.change(group, MemberChange(group.group_id, member_id, member))
        draft.change(group, TargetChange(group.group_id, member_id, target))
        new_life = attrs.evolve(has, epoch=JOINING_EPOCH, previous_epoch=JOINING_EPOCH)
        draft.change(group, CurrentChange(group.group_id, member_id, new_life))
        draft.then(lambda _: self.membership.forget(group, former_id))
        return member

    # Subscription

    def subscribe(
        self,
        step: Step,
        draft: Draft,
        group: ConsumerGroup,
        before: MemberMetadata | None,
        after: MemberMetadata,
        context: MemberContext,
    ) -> bool:
        """Stores the member's request; a change begins an epoch. Returns True if the member's topics changed.

        Raises KafkaError(INVALID_REGULAR_EXPRESSION).
        """
        topics_changed = False
        if after is not before and after != before:  # A comparison looks at every name.
            draft.change(group, MemberChange(group.group_id, after.member_id, after))
            # A new member without topics changes nothing for the others.
            topics_changed = _subscription(before or MemberMetadata(after.member_id)) != _subscription(after)
        matches_changed = self.regexes.refresh(step, draft, group, after.subscribed_topic_regex, context)
        self.assigning.begin_epoch(draft, group, subscriptions_changed=topics_changed or matches_changed)
        return before is not None and topics_changed

    # Leaving

    def _leave(self, draft: Draft, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
        group = self.groups.get(request.group_id)
        member_id, instance_id = request.member_id, request.instance_id
        group.identified(member_id, instance_id)
        if request.member_epoch == STATIC_LEAVING_EPOCH and instance_id is not None:
            draft.say(log, "group %a: static member %a left, and may come back", group.group_id, member_id)
            has = attrs.evolve(
                group.assignment_of(member_id),
                epoch=STATIC_LEAVING_EPOCH,
                state=MemberState.STABLE,
                pending_revocation=NOTHING,
            )
            draft.change(group, CurrentChange(group.group_id, member_id, has))
            draft.then(partial(self.membership.follow_revocation, group=group, member_id=member_id, current=has))
        else:
            draft.say(log, "group %a: member %a left", group.group_id, member_id)
            self.membership.remove(draft, group, [member_id])
        return ConsumerGroupHeartbeatResponse(member_id=member_id, member_epoch=request.member_epoch)


def _refusal(code: ErrorCode, message: str | None = None) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=code, error_message=message)


def _updated(before: MemberMetadata, request: ConsumerGroupHeartbeatRequest, context: MemberContext) -> MemberMetadata:
    """Returns the metadata that the member requests: an absent field stays as it was.

    The same object as `before` if all are absent, as in most heartbeats.
    """
    names, timeout_ms = request.subscribed_topic_names, request.rebalance_timeout_ms
    if (
        names is None
        and timeout_ms == UNCHANGED_MS
        and request.subscribed_topic_regex is None
        and request.server_assignor is None
        and request.rack_id is None
        and request.instance_id in (None, before.instance_id)
        and context.client_id == before.client_id
        and context.client_host == before.client_host
        and before.classic is None
    ):
        return before
    return MemberMetadata(
        member_id=before.member_id,
        instance_id=before.instance_id if request.instance_id is None else request.instance_id,
        rack_id=before.rack_id if request.rack_id is None else request.rack_id,
        client_id=context.client_id,
        client_host=context.client_host,
        subscribed_topic_names=before.subscribed_topic_names if names is None else frozenset(names),
        subscribed_topic_regex=(
            before.subscribed_topic_regex if request.subscribed_topic_regex is None else request.subscribed_topic_regex
        ),
        rebalance_timeout_ms=before.rebalance_timeout_ms if timeout_ms == UNCHANGED_MS else timeout_ms,
        server_assignor=before.server_assignor if request.server_assignor is None else request.server_assignor,
    )


def _subscription(member: MemberMetadata) -> tuple[frozenset[str], str]:
    return member.subscribed_topic_names, member.subscribed_topic_regex


def _check_epoch(has: CurrentAssignment, epoch: int, owned: Owned | None) -> None:
    """Raises KafkaError(FENCED_MEMBER_EPOCH) unless the member is in its epoch.

    It may be in the previous one, because its last response was lost, as long as it owns nothing that it should not.
    """
    if epoch == has.epoch:
        return
    if epoch == has.previous_epoch < has.epoch and owned is not None and owns_only(owned, has.assigned):
        return
    size = "greater" if epoch > has.epoch else "smaller"
    raise KafkaError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {size} member epoch ({epoch}) than the one known by the group coordinator "
        f"({has.epoch}). The member must abandon all its partitions and rejoin.",
    )


def _is_full(request: ConsumerGroupHeartbeatRequest) -> bool:
    """True if the request has all fields, as after an error: the member may not have its assignment either."""
    return (
        request.rebalance_timeout_ms != UNCHANGED_MS
        and (request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None)
        and request.topic_partitions is not None
    )


def _assignment(has: CurrentAssignment) -> Assignment:
    return Assignment(
        [
            ConsumerGroupHeartbeatResponseTopicPartitions(topic_id, list(partitions))
            for topic_id, partitions in has.assigned.items()
        ]
    )
