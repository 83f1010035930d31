"""From a change to what each member gets: a new group epoch, a new target assignment, and the member's move to it.

The target is computed at most once per assignment interval (KIP-1263); the next heartbeat of any member after that
computes it. It has initialized partitions only.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

import attrs
from kwire_protocol.wire import Uuid

from kwire.coordinators.effects import Now
from kwire.groups.assignors.assignor import GroupSpec, MemberSpec, TopicSpec
from kwire.groups.assignors.simple import SimpleAssignor
from kwire.groups.config import ShareGroupSettings
from kwire.groups.draft import Draft
from kwire.groups.share.changes import (
    AssignmentEpoch,
    AssignmentEpochChange,
    CurrentChange,
    EpochChange,
    GroupEpoch,
    TargetChange,
)
from kwire.groups.share.group import ShareGroup
from kwire.groups.share.member import NOTHING, CurrentAssignment
from kwire.groups.topics import Topics, metadata_hash

log = logging.getLogger(__name__)

ASSIGNOR = SimpleAssignor()


@attrs.define(eq=False)
class Assigning:
    topics: Topics
    settings: Callable[[str], ShareGroupSettings]

    def begin_epoch(self, draft: Draft, group: ShareGroup, *, subscriptions_changed: bool) -> bool:
        """A new group epoch if the subscriptions, the topics or the initialized partitions have changed.

        Returns whether there is one.
        """
        needed = subscriptions_changed
        if group.epoch <= group.assignment_epoch:
            needed |= self._misses_initialized(group)
        if not needed and group.topics_version == self.topics.version:
            return False
        new_hash = metadata_hash(self.topics, group.topic_subscribers)
        needed |= new_hash != group.metadata_hash
        if needed:
            draft.change(group, EpochChange(group.group_id, GroupEpoch(group.epoch + 1, new_hash)))
            log.info("group %a: epoch %d", group.group_id, group.epoch)
        draft.did(None, partial(setattr, group, "topics_version", -1))
        group.topics_version = self.topics.version
        return needed

    def _misses_initialized(self, group: ShareGroup) -> bool:
        """Whether the target lacks initialized partitions of a subscribed topic, or has others."""
        assigned: dict[Uuid, set[int]] = {}
        for target in group.targets.values():
            for topic_id, partitions in target.items():
                assigned.setdefault(topic_id, set()).update(partitions)
        for topic_id, it in group.states.initialized.items():
            name = self.topics.name_of(topic_id)
            if name in group.topic_subscribers and assigned.get(topic_id, set()) != it.partitions:
                return True
        return False

    def assign(self, draft: Draft, group: ShareGroup, now: Now) -> None:
        """Computes the target assignment for the group epoch, if it is due."""
        if group.epoch <= group.assignment_epoch or not self._may_assign(group, now):
            return
        targets = ASSIGNOR.assign(self._spec(group), group.states.assignable())
        for member_id in group.members:
            target = targets[member_id]
            before = group.targets.get(member_id)
            if target is not before and target != before:
                draft.change(group, TargetChange(group.group_id, member_id, target))
        draft.change(group, AssignmentEpochChange(group.group_id, AssignmentEpoch(group.epoch, now.wall_ms)))
        log.info("group %a: assigned epoch %d (%s)", group.group_id, group.epoch, ASSIGNOR.name)

    def _may_assign(self, group: ShareGroup, now: Now) -> bool:
        """Not while the last target is younger than the interval. One from the future is from a clock that was set."""
        if not group.assignment_timestamp_ms:
            return True
        age_ms = now.wall_ms - group.assignment_timestamp_ms
        return not 0 <= age_ms < self.settings(group.group_id).assignment_interval_ms

    def _spec(self, group: ShareGroup) -> GroupSpec:
        topics: dict[Uuid, TopicSpec] = {}
        members: dict[str, MemberSpec] = {}
        for member_id, member in group.members.items():
            found = [topic for name in member.subscribed_topic_names if (topic := self.topics.find(name)) is not None]
            topics.update((topic.topic_id, topic.spec) for topic in found)
            members[member_id] = MemberSpec(
                frozenset(topic.topic_id for topic in found), group.targets.get(member_id, NOTHING), member.rack_id
            )
        return GroupSpec(members, topics)

    def move(self, draft: Draft, group: ShareGroup, member_id: str, *, subscription_changed: bool) -> CurrentAssignment:
        """Gives the member its part of the target, without topics that it does not subscribe to any more."""
        current = group.assignment_of(member_id)
        if current.epoch == group.assignment_epoch and not subscription_changed:
            return current
        names = group.members[member_id].subscribed_topic_names
        assigned = {
            topic_id: partitions
            for topic_id, partitions in group.targets.get(member_id, NOTHING).items()
            if self.topics.name_of(topic_id) in names
        }
        if current.epoch != group.assignment_epoch:
            after = current.moved_to(group.assignment_epoch, assigned)
        else:
            after = attrs.evolve(current, assigned=assigned)
        if after != current:
            draft.change(group, CurrentChange(group.group_id, member_id, after))
        return after
