"""Members stay while they are heard from, and go when they leave or fall silent.

A removal changes the group epoch, so the next heartbeat of another member computes a new assignment.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

import attrs
from kwire_protocol.errors import ErrorCode

from kwire.coordinators.deadlines import Deadline, Deadlines
from kwire.coordinators.effects import Step
from kwire.groups.config import ShareGroupSettings
from kwire.groups.draft import Draft
from kwire.groups.share.assigning import Assigning
from kwire.groups.share.changes import CurrentChange, MemberChange, TargetChange
from kwire.groups.share.group import ShareGroup
from kwire.groups.share.groups import ShareGroups

log = logging.getLogger(__name__)

RETRY_MS = 500
"""How soon a member is removed after its removal could not be recorded, because the disk was full for example."""


@attrs.define(eq=False)
class Membership:
    groups: ShareGroups
    timers: Deadlines
    settings: Callable[[str], ShareGroupSettings]
    assigning: Assigning

    def start_session(self, step: Step, group: ShareGroup, member_id: str) -> None:
        """The member was heard from."""
        session = group.sessions.get(member_id)
        if session is None:
            session = group.sessions[member_id] = Deadline(partial(self._over, group, member_id))
        self.timers.schedule(session, step.now.monotonic_ms + self.settings(group.group_id).session_timeout_ms)

    def start_all(self, step: Step, group: ShareGroup) -> None:
        """The group was loaded: every member has its full time."""
        for member_id in group.members:
            self.start_session(step, group, member_id)

    def stop_all(self, group: ShareGroup) -> None:
        """The group is gone from this coordinator."""
        for member_id in list(group.sessions):
            self._forget(group, member_id)

    def _forget(self, group: ShareGroup, member_id: str) -> None:
        session = group.sessions.pop(member_id, None)
        if session is not None:
            self.timers.cancel(session)

    def _over(self, group: ShareGroup, member_id: str, step: Step) -> None:
        """The session ended: removes the member, and tries again if that cannot be recorded."""
        if self.groups.find(group.group_id) is not group or member_id not in group.members:
            return

        def failed(later: Step, _: ErrorCode) -> None:
            self.timers.schedule(group.sessions[member_id], later.now.monotonic_ms + RETRY_MS)

        draft = Draft()
        self.remove(draft, group, member_id)
        draft.then(lambda _: log.info("group %a: member %a is removed: its session ended", group.group_id, member_id))
        draft.append(step, failed)

    def remove(self, draft: Draft, group: ShareGroup, member_id: str) -> None:
        draft.change(group, CurrentChange(group.group_id, member_id, None))
        draft.change(group, TargetChange(group.group_id, member_id, None))
        draft.change(group, MemberChange(group.group_id, member_id, None))
        draft.then(lambda _: self._forget(group, member_id))
        self.assigning.begin_epoch(draft, group, subscriptions_changed=True)
