"""The sessions and the removal of members: they leave, time out, or miss another deadline.

A removal changes the group epoch, so the next heartbeat of another member computes a new assignment.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Collection
from functools import partial
from typing import Any, Generic, TypeVar

import attrs
from kwire_protocol.errors import ErrorCode

from kwire.coordinators.deadlines import Deadline, Deadlines
from kwire.coordinators.effects import Now, Step
from kwire.groups.draft import Draft
from kwire.groups.modern.group import ModernGroup
from kwire.groups.modern.groups import Groups

log = logging.getLogger(__name__)

G = TypeVar("G", bound=ModernGroup[Any, Any, Any, Any])


@attrs.define(eq=False)
class Membership(ABC, Generic[G]):
    groups: Groups[G]
    timers: Deadlines

    # Deadlines

    def start_session(self, step: Step, group: G, member_id: str) -> None:
        """Starts or restarts the member's session."""
        self.restart_session(group, member_id, step.now)

    def restart_session(self, group: G, member_id: str, now: Now) -> None:
        timeout_ms = self.session_timeout_ms(group, member_id)
        self.timers.schedule(self.timers_of(group, member_id).session, now.monotonic_ms + timeout_ms)

    @abstractmethod
    def session_timeout_ms(self, group: G, member_id: str) -> int: ...

    def timers_of(self, group: G, member_id: str) -> Any:
        timers = group.timers.get(member_id)
        if timers is None:
            timers = group.timers[member_id] = self.new_timers(group, member_id)
        return timers

    @abstractmethod
    def new_timers(self, group: G, member_id: str) -> Any:
        """The kind's `MemberTimers`."""

    def start_all(self, step: Step, group: G) -> None:
        """The group was loaded: every member gets its full session timeout."""
        for member_id in group.members:
            self.start(step, group, member_id)

    def start(self, step: Step, group: G, member_id: str) -> None:
        self.start_session(step, group, member_id)

    def stop_all(self, group: G) -> None:
        """The group is gone from this coordinator, or is of another kind now."""
        for member_id in list(group.timers):
            self.forget(group, member_id)

    def forget(self, group: G, member_id: str) -> None:
        for timer in group.timers.pop(member_id, ()):
            self.timers.cancel(timer)

    def timer(self, group: G, member_id: str, why: str) -> Deadline:
        """A deadline that removes the member for this reason."""
        timer = Deadline()
        timer.on_expiry = partial(self.over, group, member_id, timer, why)
        return timer

    def over(self, group: G, member_id: str, timer: Deadline, why: str, step: Step) -> None:
        """A deadline has passed: removes the member, and tries again if that cannot be recorded."""
        if self.groups.find(group.group_id) is not group or member_id not in group.members:
            return

        def failed(later: Step, _: ErrorCode) -> None:
            self.timers.retry(timer, later.now.monotonic_ms)

        draft = Draft()
        self.remove(draft, group, [member_id])
        draft.then(lambda _: log.info("group %a: member %a is removed: %s", group.group_id, member_id, why))
        draft.append(step, failed)

    # Removal

    @abstractmethod
    def remove(self, draft: Draft, group: G, leaving: Collection[str]) -> None:
        """Removes the members that leave or are fenced, and begins an epoch."""

    def take_out(self, draft: Draft, group: G, member_id: str) -> None:
        """Removes the member from the group."""
        for removal in group.removals_of_member(member_id):
            draft.change(group, removal)

    def forget_later(self, draft: Draft, group: G, member_id: str) -> None:
        """Cancels the member's deadlines once the draft is appended."""
        draft.then(lambda _: self.forget(group, member_id))
