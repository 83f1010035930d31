"""The sessions and the removal of members of share groups: they leave or time out."""

from __future__ import annotations

from collections.abc import Callable, Collection

import attrs

from kwire.groups.config import ShareGroupSettings
from kwire.groups.draft import Draft
from kwire.groups.modern.group import MemberTimers
from kwire.groups.modern.membership import Membership as ModernMembership
from kwire.groups.share.assigning import Assigning
from kwire.groups.share.group import ShareGroup


@attrs.define(eq=False)
class Membership(ModernMembership[ShareGroup]):
    settings: Callable[[str], ShareGroupSettings]
    assigning: Assigning

    def session_timeout_ms(self, group: ShareGroup, member_id: str) -> int:  # noqa: ARG002
        return self.settings(group.group_id).session_timeout_ms

    def new_timers(self, group: ShareGroup, member_id: str) -> MemberTimers:
        return MemberTimers(self.timer(group, member_id, "its session ended"))

    def remove(self, draft: Draft, group: ShareGroup, leaving: Collection[str]) -> None:
        for member_id in leaving:
            self.take_out(draft, group, member_id)
            self.forget_later(draft, group, member_id)
        self.assigning.begin_epoch(draft, group, subscriptions_changed=True)
