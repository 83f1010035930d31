"""Members stay while they are heard from, and go when they leave, fall silent, or take too long to give up partitions.

A removal changes the group epoch, so the next heartbeat of another member computes a new assignment. If it leaves only
members of the classic protocol, the group becomes a classic one, where the policy allows it (`migration.py`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from functools import partial

import attrs
from kwire_protocol.errors import ErrorCode

from kwire.coordinators.deadlines import Deadline, Deadlines
from kwire.coordinators.effects import Step
from kwire.groups.config import ConsumerGroupSettings
from kwire.groups.consumer.assigning import Assigning
from kwire.groups.consumer.changes import CurrentChange, MemberChange, RegexChange, TargetChange
from kwire.groups.consumer.group import ConsumerGroup, MemberTimers
from kwire.groups.consumer.groups import ConsumerGroups
from kwire.groups.consumer.member import CurrentAssignment, MemberState
from kwire.groups.draft import Draft
from kwire.groups.migration import Migration

log = logging.getLogger(__name__)

RETRY_MS = 500
"""How soon a member is removed after its removal could not be recorded, because the disk was full for example."""


@attrs.define(eq=False)
class Membership:
    groups: ConsumerGroups
    timers: Deadlines
    settings: Callable[[str], ConsumerGroupSettings]
    assigning: Assigning
    migration: Migration

    # Deadlines

    def start_session(self, step: Step, group: ConsumerGroup, member_id: str) -> None:
        """The member was heard from."""
        member = group.members[member_id]
        timeout_ms = (
            self.settings(group.group_id).session_timeout_ms
            if member.classic is None
            else member.classic.session_timeout_ms
        )
        self.timers.schedule(self._timers_of(group, member_id).session, step.now.monotonic_ms + timeout_ms)

    def follow_revocation(self, step: Step, group: ConsumerGroup, member_id: str, current: CurrentAssignment) -> None:
        """A member that has to give up partitions has its rebalance timeout for it, in each epoch anew."""
        timer = self._timers_of(group, member_id).rebalance
        if current.state is not MemberState.UNREVOKED_PARTITIONS:
            self.timers.cancel(timer)
            return
        timer.on_expiry = partial(self._revocation_over, group, member_id, current.epoch)
        self.timers.schedule(timer, step.now.monotonic_ms + group.members[member_id].rebalance_timeout_ms)

    def await_join(self, step: Step, group: ConsumerGroup, member_id: str) -> None:
        """A member of the classic protocol was told to rejoin. The time counts from when it was first told."""
        timer = self._timers_of(group, member_id).join
        if timer.deadline_ms is None:
            self.timers.schedule(timer, step.now.monotonic_ms + group.members[member_id].rebalance_timeout_ms)

    def joined(self, step: Step, group: ConsumerGroup, member_id: str) -> None:
        """A member of the classic protocol has rejoined, and is to send SyncGroup next."""
        timers = self._timers_of(group, member_id)
        self.timers.cancel(timers.join)
        self.start_session(step, group, member_id)
        self.timers.schedule(timers.sync, step.now.monotonic_ms + group.members[member_id].rebalance_timeout_ms)

    def synced(self, step: Step, group: ConsumerGroup, member_id: str) -> None:
        self.timers.cancel(self._timers_of(group, member_id).sync)
        self.start_session(step, group, member_id)

    def start_all(self, step: Step, group: ConsumerGroup) -> None:
        """The group was loaded: every member has its full time."""
        for member_id, member in group.members.items():
            self.start_session(step, group, member_id)
            if member.classic is None:
                self.follow_revocation(step, group, member_id, group.assignment_of(member_id))

    def stop_all(self, group: ConsumerGroup) -> None:
        """The group is gone from this coordinator, or is of another kind now."""
        for member_id in list(group.timers):
            self.forget(group, member_id)

    def forget(self, group: ConsumerGroup, member_id: str) -> None:
        for timer in group.timers.pop(member_id, ()):
            self.timers.cancel(timer)

    def _timers_of(self, group: ConsumerGroup, member_id: str) -> MemberTimers:
        timers = group.timers.get(member_id)
        if timers is None:

            def over(why: str) -> Deadline:
                timer = Deadline()
                timer.on_expiry = partial(self._over, group, member_id, timer, why)
                return timer

            timers = group.timers[member_id] = MemberTimers(
                session=over("its session ended"),
                rebalance=Deadline(),
                join=over("it did not rejoin within its rebalance timeout"),
                sync=over("it did not send SyncGroup within its rebalance timeout"),
            )
        return timers

    def _revocation_over(self, group: ConsumerGroup, member_id: str, epoch: int, step: Step) -> None:
        if group.assignment_of(member_id).epoch == epoch:
            timer = self._timers_of(group, member_id).rebalance
            self._over(group, member_id, timer, f"it did not give up partitions in epoch {epoch} in time", step)

    def _over(self, group: ConsumerGroup, member_id: str, timer: Deadline, why: str, step: Step) -> None:
        """A deadline has passed: removes the member, and tries again if that cannot be recorded."""
        if self.groups.find(group.group_id) is not group or member_id not in group.members:
            return

        def failed(later: Step, _: ErrorCode) -> None:
            self.timers.schedule(timer, later.now.monotonic_ms + RETRY_MS)

        draft = Draft()
        self.remove(draft, group, [member_id])
        draft.then(lambda _: log.info("group %a: member %a is removed: %s", group.group_id, member_id, why))
        draft.append(step, failed)

    # Removal

    def remove(self, draft: Draft, group: ConsumerGroup, leaving: Collection[str]) -> None:
        """Removes the members that leave or are fenced; the group may become a classic one."""
        if not leaving:
            return
        if self.migration.may_downgrade(group, leaving):
            self.migration.downgrade(draft, group, leaving=leaving)
            draft.then(lambda _: self.stop_all(group))
            return
        for member_id in leaving:
            self.take_out(draft, group, member_id)
            draft.then(partial(self._forget_removed, group, member_id))
        for regex in group.regexes.keys() - group.regex_subscribers.keys():
            draft.change(group, RegexChange(group.group_id, regex, None))
        self.assigning.begin_epoch(draft, group, subscriptions_changed=True)

    def take_out(self, draft: Draft, group: ConsumerGroup, member_id: str) -> None:
        """Removes everything that the group knows of the member."""
        draft.change(group, CurrentChange(group.group_id, member_id, None))
        draft.change(group, TargetChange(group.group_id, member_id, None))
        draft.change(group, MemberChange(group.group_id, member_id, None))

    def _forget_removed(self, group: ConsumerGroup, member_id: str, _: Step) -> None:
        self.forget(group, member_id)
