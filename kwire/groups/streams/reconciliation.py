"""Moves one member from the tasks that it has to those that it should have, a step per heartbeat.

    STABLE ---- a new target ----> UNREVOKED_TASKS    it must first give up tasks, in its present epoch
      ^  \\                              |
      |   `--- nothing to give up ----. | it no longer reports them
      |                               v v
      +---- all of them free ---- the target's epoch ----> UNRELEASED_TASKS    others must give up the rest first

An active task is given to a member only when no member has it as active, so it runs once, whoever is slow. And a task
in any role waits until it has left the member's process in every role: the members of a process share one disk, and so
the task's state. The rules are those of Kafka's `CurrentAssignmentBuilder` of streams groups.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError

from kwire.groups.streams.member import CurrentTasks, HeldTasks, MemberState
from kwire.groups.streams.tasks import NO_TASKS, TaskIds, Tasks


@attrs.frozen
class Reconciliation:
    """The surroundings of a step.

    `owned` are the tasks that the member reports, None if it does not say. `is_active` tells whether a member has the
    task as active, and `is_in_process` whether a member of this one's process has it in any role.
    """

    target_epoch: int
    target: Tasks
    owned: Tasks | None
    is_active: Callable[[str, int], bool]
    is_in_process: Callable[[str, int], bool]

    def next(self, current: CurrentTasks) -> CurrentTasks:
        """What the member has next; the same object if it stays where it is.

        Raises KafkaError(FENCED_MEMBER_EPOCH) for a member in an unknown state that has tasks.
        """
        match current.state:
            case MemberState.STABLE:
                if current.epoch == self.target_epoch:
                    return current
                after = self._toward_target(current, current.epoch)
            case MemberState.UNREVOKED_TASKS:
                if self._still_owns(current.pending_revocation):
                    return current
                # A target that came meanwhile may want more back: that is another epoch for the member.
                after = self._toward_target(current, current.epoch + 1)
            case MemberState.UNRELEASED_TASKS:
                after = self._toward_target(current, current.epoch)
            case MemberState.UNKNOWN:
                if self.owned is None or self.owned != NO_TASKS:
                    raise KafkaError(
                        ErrorCode.FENCED_MEMBER_EPOCH,
                        "The streams group member is in an unknown state. "
                        "The member must abandon all its tasks and rejoin.",
                    )
                after = self._toward_target(current, self.target_epoch)
        return current if after == current else after

    def _still_owns(self, tasks: HeldTasks) -> bool:
        """A member that does not report what it owns may still own anything."""
        return not tasks.is_empty and (self.owned is None or tasks.have_any_of(self.owned))

    def _toward_target(self, current: CurrentTasks, epoch: int) -> CurrentTasks:
        has, target = current.assigned, self.target
        active, waits_for_active = self._next_active(has.active, target.active)
        standby, waits_for_standby = self._next_replicas(has.standby, target.standby)
        warmup, waits_for_warmup = self._next_replicas(has.warmup, target.warmup)
        revoked = HeldTasks(
            {name: gone for name, of in has.active.items() if (gone := _without(of, target.active.get(name)))},
            _difference(has.standby, target.standby),
            _difference(has.warmup, target.warmup),
        )
        if self._still_owns(revoked):
            kept = HeldTasks(
                {name: kept for name, of in has.active.items() if (kept := _within(of, target.active.get(name)))},
                _intersection(has.standby, target.standby),
                _intersection(has.warmup, target.warmup),
            )
            return current.moved_to(epoch, MemberState.UNREVOKED_TASKS, kept, revoked)
        waits = waits_for_active or waits_for_standby or waits_for_warmup
        state = MemberState.UNRELEASED_TASKS if waits else MemberState.STABLE
        return current.moved_to(self.target_epoch, state, HeldTasks(active, standby, warmup))

    def _next_active(
        self, has: Mapping[str, Mapping[int, int]], target: TaskIds
    ) -> tuple[dict[str, Mapping[int, int]], bool]:
        """What of the target the member has or can get now, and whether it has to wait for the rest."""
        found: dict[str, Mapping[int, int]] = {}
        waits = False
        for name, wanted in target.items():
            held = has.get(name, {})
            tasks: dict[int, int] = {}
            for partition in sorted(wanted):
                if partition in held:
                    tasks[partition] = held[partition]
                elif self.is_active(name, partition) or self.is_in_process(name, partition):
                    waits = True
                else:
                    tasks[partition] = self.target_epoch
            if tasks:
                found[name] = tasks
        return found, waits

    def _next_replicas(self, has: TaskIds, target: TaskIds) -> tuple[dict[str, frozenset[int]], bool]:
        found: dict[str, frozenset[int]] = {}
        waits = False
        for name, wanted in target.items():
            held = has.get(name, frozenset())
            blocked = {it for it in wanted - held if self.is_in_process(name, it)}
            waits |= bool(blocked)
            if tasks := wanted - blocked:
                found[name] = tasks
        return found, waits


def _within(held: Mapping[int, int], wanted: frozenset[int] | None) -> dict[int, int]:
    return {partition: epoch for partition, epoch in held.items() if wanted is not None and partition in wanted}


def _without(held: Mapping[int, int], wanted: frozenset[int] | None) -> dict[int, int]:
    return {partition: epoch for partition, epoch in held.items() if wanted is None or partition not in wanted}


def _intersection(held: TaskIds, wanted: TaskIds) -> dict[str, frozenset[int]]:
    return {name: kept for name, of in held.items() if (kept := of & wanted.get(name, frozenset()))}


def _difference(held: TaskIds, wanted: TaskIds) -> dict[str, frozenset[int]]:
    return {name: gone for name, of in held.items() if (gone := of - wanted.get(name, frozenset()))}
