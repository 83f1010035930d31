"""The sessions and the removal of members of streams groups: they leave, time out, or take too long to give up tasks. A
new group waits for more members before its first assignment."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from functools import partial

import attrs
from kwire_protocol.kafka_error import KafkaError

from kwire.coordinators.deadlines import Deadline
from kwire.coordinators.effects import Step
from kwire.groups.config import StreamsGroupSettings
from kwire.groups.draft import Draft
from kwire.groups.modern.membership import Membership as ModernMembership
from kwire.groups.streams.assigning import Assigning
from kwire.groups.streams.descriptions import Descriptions
from kwire.groups.streams.group import MemberTimers, StreamsGroup
from kwire.groups.streams.member import CurrentTasks, MemberState

log = logging.getLogger(__name__)


@attrs.define(eq=False)
class Membership(ModernMembership[StreamsGroup]):
    settings: Callable[[str], StreamsGroupSettings]
    assigning: Assigning
    descriptions: Descriptions

    # Deadlines

    def session_timeout_ms(self, group: StreamsGroup, member_id: str) -> int:  # noqa: ARG002
        return self.settings(group.group_id).session_timeout_ms

    def new_timers(self, group: StreamsGroup, member_id: str) -> MemberTimers:
        return MemberTimers(self.timer(group, member_id, "its session ended"), Deadline())

    def start(self, step: Step, group: StreamsGroup, member_id: str) -> None:
        super().start(step, group, member_id)
        self.follow_revocation(step, group, member_id, group.assignment_of(member_id))

    def follow_revocation(self, step: Step, group: StreamsGroup, member_id: str, current: CurrentTasks) -> None:
        """A member has its rebalance timeout to give up tasks. The time restarts with each epoch."""
        timer = self.timers_of(group, member_id).rebalance
        if current.state is not MemberState.UNREVOKED_TASKS:
            self.timers.cancel(timer)
            return
        timer.on_expiry = partial(self._revocation_over, group, member_id, current.epoch)
        self.timers.schedule(timer, step.now.monotonic_ms + group.members[member_id].rebalance_timeout_ms)

    def _revocation_over(self, group: StreamsGroup, member_id: str, epoch: int, step: Step) -> None:
        if group.assignment_of(member_id).epoch == epoch:
            timer = self.timers_of(group, member_id).rebalance
            self.over(group, member_id, timer, f"it did not give up tasks in epoch {epoch} in time", step)

    # The first assignment

    def delay_first_assignment(self, step: Step, draft: Draft, group: StreamsGroup) -> None:
        """Starts the delay with the group's first member. As in Kafka, a new coordinator of the group does not wait."""
        delay_ms, timer = self.settings(group.group_id).initial_rebalance_delay_ms, group.initial_delay
        if delay_ms <= 0 or timer.deadline_ms is not None:
            return
        timer.on_expiry = partial(self._delay_over, group)
        self.timers.schedule(timer, step.now.monotonic_ms + delay_ms)
        draft.did(None, partial(self.timers.cancel, timer))

    def _delay_over(self, group: StreamsGroup, step: Step) -> None:
        """Computes the first assignment. If it cannot be recorded, the next heartbeat of a member computes it."""
        if self.groups.find(group.group_id) is not group or not group.members or group.topology is None:
            return
        draft, known = Draft(), group.configured
        try:
            configured = self.assigning.configure(draft, group, group.topology)
        except KafkaError as error:
            draft.undo()
            log.error("group %a: no assignment: %s", group.group_id, error.message)
            return
        self.assigning.begin_epoch(
            draft, group, configured, member_changed=False, topics_changed=configured is not known
        )
        self.assigning.assign(draft, group, configured, step.now)
        draft.append(step)

    def stop_all(self, group: StreamsGroup) -> None:
        super().stop_all(group)
        self.timers.cancel(group.initial_delay)
        self.descriptions.forget(group)

    # Removal

    def remove(self, draft: Draft, group: StreamsGroup, leaving: Collection[str]) -> None:
        for member_id in leaving:
            self.take_out(draft, group, member_id)
            self.forget_later(draft, group, member_id)
        self.assigning.begin_epoch_without(draft, group)
