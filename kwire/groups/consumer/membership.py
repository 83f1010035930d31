"""The sessions and the removal of members: they leave, time out, or take too long to give up partitions.

A removal changes the group epoch, so the next heartbeat of another member computes a new assignment. If it leaves only
members of the classic protocol, the group becomes a classic one, where the policy allows it (`migration.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial

import attrs

from kwire.coordinators.deadlines import Deadline
from kwire.coordinators.effects import Step
from kwire.groups.config import ConsumerGroupSettings
from kwire.groups.consumer.assigning import Assigning
from kwire.groups.consumer.changes import RegexChange
from kwire.groups.consumer.group import ConsumerGroup, MemberTimers
from kwire.groups.consumer.member import CurrentAssignment, MemberState
from kwire.groups.draft import Draft
from kwire.groups.migration import Migration
from kwire.groups.modern.membership import Membership as ModernMembership


@attrs.define(eq=False)
class Membership(ModernMembership[ConsumerGroup]):
    settings: Callable[[str], ConsumerGroupSettings]
    assigning: Assigning
    migration: Migration

    # Deadlines

    def session_timeout_ms(self, group: ConsumerGroup, member_id: str) -> int:
        classic = group.members[member_id].classic
        return self.settings(group.group_id).session_timeout_ms if classic is None else classic.session_timeout_ms

    def follow_revocation(self, step: Step, group: ConsumerGroup, member_id: str, current: CurrentAssignment) -> None:
        """A member has its rebalance timeout to give up partitions. The time restarts with each epoch."""
        timer = self.timers_of(group, member_id).rebalance
        if current.state is not MemberState.UNREVOKED_PARTITIONS:
            self.timers.cancel(timer)
            return
        timer.on_expiry = partial(self._revocation_over, group, member_id, current.epoch)
        self.timers.schedule(timer, step.now.monotonic_ms + group.members[member_id].rebalance_timeout_ms)

    def await_join(self, step: Step, group: ConsumerGroup, member_id: str) -> None:
        """Starts the time in which a member of the classic protocol has to rejoin, unless it is already running."""
        timer = self.timers_of(group, member_id).join
        if timer.deadline_ms is None:
            self.timers.schedule(timer, step.now.monotonic_ms + group.members[member_id].rebalance_timeout_ms)

    def joined(self, step: Step, group: ConsumerGroup, member_id: str) -> None:
        """A member of the classic protocol has rejoined, and is to send SyncGroup next."""
        timers = self.timers_of(group, member_id)
        self.timers.cancel(timers.join)
        self.start_session(step, group, member_id)
        self.timers.schedule(timers.sync, step.now.monotonic_ms + group.members[member_id].rebalance_timeout_ms)

    def synced(self, step: Step, group: ConsumerGroup, member_id: str) -> None:
        self.timers.cancel(self.timers_of(group, member_id).sync)
        self.start_session(step, group, member_id)

    def start(self, step: Step, group: ConsumerGroup, member_id: str) -> None:
        super().start(step, group, member_id)
        if group.members[member_id].classic is None:
            self.follow_revocation(step, group, member_id, group.assignment_of(member_id))

    def new_timers(self, group: ConsumerGroup, member_id: str) -> MemberTimers:
        return MemberTimers(
            session=self.timer(group, member_id, "its session ended"),
            rebalance=Deadline(),
            join=self.timer(group, member_id, "it did not rejoin within its rebalance timeout"),
            sync=self.timer(group, member_id, "it did not send SyncGroup within its rebalance timeout"),
        )

    def _revocation_over(self, group: ConsumerGroup, member_id: str, epoch: int, step: Step) -> None:
        if group.assignment_of(member_id).epoch == epoch:
            timer = self.timers_of(group, member_id).rebalance
            self.over(group, member_id, timer, f"it did not give up partitions in epoch {epoch} in time", step)

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
            self.forget_later(draft, group, member_id)
        for regex in group.regexes.keys() - group.regex_subscribers.keys():
            draft.change(group, RegexChange(group.group_id, regex, None))
        self.assigning.begin_epoch(draft, group, subscriptions_changed=True)
