"""The consequences of a change to a group: a new group epoch, a new target assignment, and a step towards it.

The target is computed by an assignor of `kwire.groups.assignors`: the one that most members request, else the first of
group.consumer.assignors. It is computed at most once per assignment interval (KIP-1263); the next heartbeat of any
member after that computes it. A large group has a minimum interval of its own: when a thousand members join at once, an
assignment for each of them would block the broker for ten seconds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import attrs
from kwire_protocol.wire import Uuid

from kwire.coordinators.effects import Now
from kwire.groups.assignors import ASSIGNORS
from kwire.groups.assignors.assignor import Assignment, Assignor, GroupSpec, MemberSpec, TopicSpec
from kwire.groups.config import ConsumerGroupSettings, GroupConfig
from kwire.groups.consumer.changes import CurrentChange
from kwire.groups.consumer.group import ConsumerGroup
from kwire.groups.consumer.member import CurrentAssignment, Owned
from kwire.groups.consumer.reconciliation import Reconciliation
from kwire.groups.draft import Draft
from kwire.groups.modern.epochs import Epochs, is_assignment_due, set_targets
from kwire.groups.topics import Topics

NOTHING_ASSIGNED: Assignment = {}

LARGE_GROUP_MEMBERS = 100
INTERVAL_MS_PER_MEMBER = 0.1
"""The minimum assignment interval of a large group, per member.

An assignment takes about a tenth of that: 10 ms for 1,000 members and 2,000 partitions.
"""


@attrs.define(eq=False)
class Assigning:
    config: GroupConfig
    topics: Topics
    settings: Callable[[str], ConsumerGroupSettings]
    epochs: Epochs

    def begin_epoch(self, draft: Draft, group: ConsumerGroup, *, subscriptions_changed: bool) -> None:
        """Begins a new group epoch if the subscriptions or the topics have changed."""
        if subscriptions_changed or group.topics_version != self.topics.version:
            self.epochs.begin(draft, group, group.subscribed_topics(), needed=subscriptions_changed)

    def is_due(self, group: ConsumerGroup, now: Now) -> bool:
        """True if a new target assignment has to be computed."""
        return is_assignment_due(group, now, self._interval_ms)

    def assign(self, draft: Draft, group: ConsumerGroup, now: Now) -> None:
        """Computes the target assignment for the group epoch, if it is due."""
        if self.is_due(group, now):
            assignor = self.assignor_of(group)
            targets = assignor.assign(self._spec(group))
            whole = {member_id: targets.get(member_id, NOTHING_ASSIGNED) for member_id in group.members}
            set_targets(draft, group, whole, now, assignor=assignor.name)

    def _interval_ms(self, group: ConsumerGroup) -> float:
        interval_ms = self.settings(group.group_id).assignment_interval_ms
        if len(group.members) >= LARGE_GROUP_MEMBERS:
            return max(interval_ms, len(group.members) * INTERVAL_MS_PER_MEMBER)
        return interval_ms

    def assignor_of(self, group: ConsumerGroup) -> Assignor:
        votes = Counter(it.server_assignor for it in group.members.values() if it.server_assignor is not None)
        names = self.config.consumer_assignors
        return ASSIGNORS[max(names, key=lambda name: votes[name])]

    def _spec(self, group: ConsumerGroup) -> GroupSpec:
        topics: dict[Uuid, TopicSpec] = {}
        subscriptions: dict[frozenset[str], frozenset[Uuid]] = {}

        def ids_of(names: frozenset[str]) -> frozenset[Uuid]:
            ids = subscriptions.get(names)
            if ids is None:
                found = [topic for name in names if (topic := self.topics.find(name)) is not None]
                topics.update((topic.topic_id, topic.spec) for topic in found)
                ids = subscriptions[names] = frozenset(topic.topic_id for topic in found)
            return ids

        members = {
            member_id: MemberSpec(
                topics=ids_of(group.subscription_of(member)),
                assigned=group.targets.get(member_id, NOTHING_ASSIGNED),
                rack_id=member.rack_id,
                instance_id=member.instance_id,
            )
            for member_id, member in group.members.items()
        }
        return GroupSpec(members, topics)

    def reconcile(
        self, draft: Draft, group: ConsumerGroup, member_id: str, owned: Owned | None, *, subscription_changed: bool
    ) -> CurrentAssignment:
        """Moves the member a step towards its target and returns what it has then.

        Raises KafkaError(FENCED_MEMBER_EPOCH).
        """
        current = group.assignment_of(member_id)
        if current.is_reconciled_to(group.assignment_epoch) and not subscription_changed:
            return current
        subscription = group.subscription_of(group.members[member_id])
        after = Reconciliation(
            target_epoch=group.assignment_epoch,
            target=group.targets.get(member_id, NOTHING_ASSIGNED),
            owned=owned,
            is_free=lambda topic_id, partition: group.is_free(topic_id, partition, member_id),
            subscribes=lambda topic_id: self.topics.name_of(topic_id) in subscription,
        ).next(current, subscription_changed=subscription_changed)
        if after is not current:
            draft.change(group, CurrentChange(group.group_id, member_id, after))
        return after
