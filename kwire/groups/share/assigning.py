"""The consequences of a change to a group: a new group epoch, a new target assignment, and the member's move to it.

The target is computed at most once per assignment interval (KIP-1263); the next heartbeat of any member after that
computes it. It has initialized partitions only.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs
from kwire_protocol.wire import Uuid

from kwire.coordinators.effects import Now
from kwire.groups.assignors.assignor import GroupSpec, MemberSpec, TopicSpec
from kwire.groups.assignors.simple import SimpleAssignor
from kwire.groups.config import ShareGroupSettings
from kwire.groups.draft import Draft
from kwire.groups.modern.epochs import Epochs, is_assignment_due, set_targets
from kwire.groups.share.changes import CurrentChange
from kwire.groups.share.group import ShareGroup
from kwire.groups.share.member import NOTHING, CurrentAssignment
from kwire.groups.topics import Topics

ASSIGNOR = SimpleAssignor()


@attrs.define(eq=False)
class Assigning:
    topics: Topics
    settings: Callable[[str], ShareGroupSettings]
    epochs: Epochs

    def begin_epoch(self, draft: Draft, group: ShareGroup, *, subscriptions_changed: bool) -> None:
        """A new group epoch if the subscriptions, the topics or the initialized partitions have changed."""
        needed = subscriptions_changed
        if group.epoch <= group.assignment_epoch and group.settled_version != self.topics.version:
            needed |= self._misses_initialized(group)
        if needed or group.topics_version != self.topics.version:
            self.epochs.begin(draft, group, group.topic_subscribers, needed=needed)

    def _misses_initialized(self, group: ShareGroup) -> bool:
        """True if the target lacks initialized partitions of a subscribed topic, or has others."""
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
        if is_assignment_due(group, now, self._interval_ms):
            targets = ASSIGNOR.assign(self._spec(group), group.states.assignable())
            set_targets(draft, group, targets, now, assignor=ASSIGNOR.name)

    def _interval_ms(self, group: ShareGroup) -> int:
        return self.settings(group.group_id).assignment_interval_ms

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
