"""Moves one member from what it has to what it should have, a step per heartbeat.

    STABLE ---- a new target ----> UNREVOKED_PARTITIONS    it must first give up partitions, in its present epoch
      ^  \\                              |
      |   `--- nothing to give up ----. | it no longer reports them
      |                               v v
      +---- all of them free ---- the target's epoch ----> UNRELEASED_PARTITIONS    others must give up the rest first

A partition is given to a member only when no other member has it. So it has one owner at a time, even if members are
slow. The rules are those of Kafka's `CurrentAssignmentBuilder`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.wire import Uuid

from kwire.groups.assignors.assignor import Assignment
from kwire.groups.consumer.member import NOTHING, CurrentAssignment, MemberState, Owned, Partitions, owns_any


@attrs.frozen
class Reconciliation:
    """The inputs of a step of the reconciliation.

    `owned` are the partitions that the member reports, None if it does not. `is_free` returns True if no other member
    has a partition, `subscribes` if the member subscribes to a topic: its target may still have others.
    """

    target_epoch: int
    target: Assignment
    owned: Owned | None
    is_free: Callable[[Uuid, int], bool]
    subscribes: Callable[[Uuid], bool]

    def next(self, current: CurrentAssignment, *, subscription_changed: bool) -> CurrentAssignment:
        """Returns the member's next assignment; the same object if nothing changes.

        Raises KafkaError(FENCED_MEMBER_EPOCH) for a member in an unknown state that has partitions.
        """
        match current.state:
            case MemberState.STABLE:
                if current.epoch != self.target_epoch:
                    return self._toward_target(current)
                return self._without_unsubscribed(current) if subscription_changed else current
            case MemberState.UNREVOKED_PARTITIONS:
                if self._still_owns(current.pending_revocation):
                    return self._without_unsubscribed(current) if subscription_changed else current
                return self._toward_target(current)
            case MemberState.UNRELEASED_PARTITIONS:
                return self._toward_target(current)
            case MemberState.UNKNOWN:
                if self.owned is None or self.owned:
                    raise KafkaError(
                        ErrorCode.FENCED_MEMBER_EPOCH,
                        "The consumer group member is in an unknown state. "
                        "The member must abandon all its partitions and rejoin.",
                    )
                return self._toward_target(current)

    def _still_owns(self, partitions: Partitions) -> bool:
        """True if the member owns one of the partitions. A member that does not report may still own all of them."""
        return bool(partitions) and (self.owned is None or owns_any(self.owned, partitions))

    def _toward_target(self, current: CurrentAssignment) -> CurrentAssignment:
        retained: dict[Uuid, Mapping[int, int]] = {}
        revoked: dict[Uuid, Mapping[int, int]] = {}
        added: dict[Uuid, dict[int, int]] = {}
        waits = False
        for topic_id, has in current.assigned.items():
            wanted = self._wanted(topic_id)
            if has.keys() <= wanted:
                retained[topic_id] = has
                continue
            stays = {partition: epoch for partition, epoch in has.items() if partition in wanted}
            if stays:
                retained[topic_id] = stays
            revoked[topic_id] = {partition: epoch for partition, epoch in has.items() if partition not in wanted}
        for topic_id in self.target:
            has = current.assigned.get(topic_id, {})
            for partition in self._wanted(topic_id):
                if partition in has:
                    continue
                if self.is_free(topic_id, partition):
                    added.setdefault(topic_id, {})[partition] = self.target_epoch
                else:
                    waits = True
        if self._still_owns(revoked):
            return current.moved_to(current.epoch, MemberState.UNREVOKED_PARTITIONS, retained, revoked)
        for topic_id, partitions in added.items():
            retained[topic_id] = {**retained.get(topic_id, {}), **partitions}
        state = MemberState.UNRELEASED_PARTITIONS if waits else MemberState.STABLE
        if state is current.state and self.target_epoch == current.epoch and not added and not revoked:
            return current
        return current.moved_to(self.target_epoch, state, retained)

    def _wanted(self, topic_id: Uuid) -> frozenset[int]:
        wanted = self.target.get(topic_id)
        return wanted if wanted and self.subscribes(topic_id) else frozenset()

    def _without_unsubscribed(self, current: CurrentAssignment) -> CurrentAssignment:
        """The member gives up topics that it no longer subscribes to, before it has a new target."""
        unsubscribed = {topic_id: has for topic_id, has in current.assigned.items() if not self.subscribes(topic_id)}
        if not unsubscribed:
            return current
        retained = {topic_id: has for topic_id, has in current.assigned.items() if topic_id not in unsubscribed}
        revoked = dict(current.pending_revocation)
        for topic_id, partitions in unsubscribed.items():
            revoked[topic_id] = {**revoked.get(topic_id, {}), **partitions}
        if self._still_owns(revoked):
            return current.moved_to(current.epoch, MemberState.UNREVOKED_PARTITIONS, retained, revoked)
        return current.moved_to(current.epoch, current.state, retained, NOTHING)
