"""The consequences of a change to a group: a new group epoch, and then a new target assignment.

The target is computed at most once per assignment interval (KIP-1263); the next heartbeat of any member after that
computes it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, TypeVar

import attrs

from kwire.coordinators.effects import Now
from kwire.groups.counts import GroupCounts
from kwire.groups.draft import Draft
from kwire.groups.modern.changes import AssignmentEpoch, GroupEpoch
from kwire.groups.modern.group import ModernGroup
from kwire.groups.topics import Topics, metadata_hash

log = logging.getLogger(__name__)

AnyGroup = ModernGroup[Any, Any, Any, Any]

G = TypeVar("G", bound=AnyGroup)


@attrs.define(eq=False)
class Epochs:
    topics: Topics
    counts: GroupCounts
    _hashed: tuple[int, set[str], int] = attrs.field(init=False, factory=lambda: (-1, set(), 0))
    """The version of the topics, the topic names, and the hash last computed for them."""

    def begin(self, draft: Draft, group: AnyGroup, topics: Iterable[str], *, needed: bool) -> bool:
        """Begins a new group epoch if it is needed, or if these topics, which the group reads, have changed.

        Returns True if it has begun one.
        """
        new_hash = self.hash_of(set(topics))
        needed |= new_hash != group.metadata_hash
        if needed:
            self.enter(draft, group, GroupEpoch(group.epoch + 1, new_hash))
        draft.did(None, partial(setattr, group, "topics_version", -1))
        group.topics_version = self.topics.version
        return needed

    def enter(self, draft: Draft, group: AnyGroup, epoch: GroupEpoch) -> None:
        draft.change(group, group.changes.epoch(group.group_id, epoch))
        draft.then(lambda _: self._count(group))
        draft.say(log, "group %a: epoch %d", group.group_id, group.epoch)

    def _count(self, group: AnyGroup) -> None:
        self.counts.rebalances[group.type] += 1

    def hash_of(self, names: set[str]) -> int:
        """Returns the hash of these topics. The last one is cached: joining members mostly have the same topics."""
        version = self.topics.version
        if self._hashed[:2] != (version, names):
            self._hashed = version, names, metadata_hash(self.topics, names)
        return self._hashed[2]


def is_assignment_due(group: G, now: Now, interval_ms: Callable[[G], float]) -> bool:
    """True if the target is outdated and at least one interval old. A time in the future means that a clock was set."""
    if group.epoch <= group.assignment_epoch:
        return False
    if not group.assignment_timestamp_ms:
        return True
    return not 0 <= now.wall_ms - group.assignment_timestamp_ms < interval_ms(group)


def set_targets(draft: Draft, group: AnyGroup, targets: Mapping[str, Any], now: Now, *, assignor: str) -> None:
    """Sets the members' targets for the group epoch. Each member has one, perhaps the same object as before."""
    for member_id in group.members:
        target = targets[member_id]
        before = group.targets.get(member_id)
        if target is not before and target != before:
            draft.change(group, group.changes.target(group.group_id, member_id, target))
    epoch = AssignmentEpoch(group.epoch, now.wall_ms)
    draft.change(group, group.changes.assignment_epoch(group.group_id, epoch))
    draft.say(log, "group %a: assigned epoch %d (%s)", group.group_id, group.epoch, assignor)
