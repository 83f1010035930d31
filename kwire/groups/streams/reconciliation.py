"""Moves one member from the tasks that it has to those that it should have, a step per heartbeat.

    STABLE ---- a new target ----> UNREVOKED_TASKS    it must first give up tasks, in its present epoch
      ^  \\                              |
      |   `--- nothing to give up ----. | it no longer reports them
      |                               v v
      +---- all of them free ---- the target's epoch ----> UNRELEASED_TASKS    others must give up the rest first

An active task is given to a member only when no member has it as active, so it runs once, even if members are slow. A
task in any role waits until the other members of the process have given it up in every role: they share one disk, and
so the task's state. But a member that has the task may change its role at once. Its state then stays open, even one
that is only in memory. The rules are those of Kafka 4.4's `CurrentAssignmentBuilder` of streams groups.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError

from kwire.groups.streams.member import ActiveTasks, CurrentTasks, HeldTasks, MemberState
from kwire.groups.streams.tasks import NO_TASKS, TaskIds, Tasks


@attrs.frozen
class Reconciliation:
    """The inputs of a step of the reconciliation.

    `owned` are the tasks that the member reports, None if it does not. `is_active` returns True if a member has the
    task as active, `is_in_process` if a member of this one's process has it in any role. Both include this one.
    """

    target_epoch: int
    target: Tasks
    owned: Tasks | None
    is_active: Callable[[str, int], bool]
    is_in_process: Callable[[str, int], bool]

    def next(self, current: CurrentTasks) -> CurrentTasks:
        """Returns the member's next tasks; the same object if nothing changes.

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
                # A target computed meanwhile may revoke more tasks: that is another epoch for the member.
                after = self._toward_target(current, min(current.epoch + 1, self.target_epoch))
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
        """True if the member owns one of the tasks. A member that does not report may still own all of them."""
        return not tasks.is_empty and (self.owned is None or tasks.have_any_of(self.owned))

    def _toward_target(self, current: CurrentTasks, epoch: int) -> CurrentTasks:
        has, target = current.assigned, self.target
        own, wanted = _union(has.active, has.standby, has.warmup), _union(target.active, target.standby, target.warmup)
        retained = {
            name: retained for name, of in has.active.items() if (retained := _within(of, target.active.get(name)))
        }
        revoked = HeldTasks(
            {name: gone for name, of in has.active.items() if (gone := _without(of, target.active.get(name)))},
            _difference(has.standby, wanted),
            _difference(has.warmup, wanted),
        )
        if self._still_owns(revoked):
            standby = _union(_intersection(own, target.standby), _intersection(has.standby, target.active))
            warmup = _union(_intersection(own, target.warmup), _intersection(has.warmup, target.active))
            return current.moved_to(epoch, MemberState.UNREVOKED_TASKS, HeldTasks(retained, standby, warmup), revoked)
        active = self._next_active(retained, own)
        standby, warmup = self._next_replicas(own, target.standby), self._next_replicas(own, target.warmup)
        waits = _difference(wanted, _union(active, standby, warmup))
        # Until it gets them as active ones, it continues with these as they are.
        standby = _union(standby, _intersection(has.standby, waits))
        warmup = _union(warmup, _intersection(has.warmup, waits))
        state = MemberState.UNRELEASED_TASKS if waits else MemberState.STABLE
        return current.moved_to(self.target_epoch, state, HeldTasks(active, standby, warmup))

    def _next_active(self, retained: ActiveTasks, own: TaskIds) -> dict[str, Mapping[int, int]]:
        """Returns the part of the target that the member has or can get now."""
        found: dict[str, Mapping[int, int]] = {}
        for name, wanted in self.target.active.items():
            held, own_tasks = retained.get(name, {}), own.get(name, frozenset())
            tasks: dict[int, int] = {}
            for partition in sorted(wanted):
                if partition in held:
                    tasks[partition] = held[partition]
                elif not self.is_active(name, partition) and (
                    partition in own_tasks or not self.is_in_process(name, partition)
                ):
                    tasks[partition] = self.target_epoch
            if tasks:
                found[name] = tasks
        return found

    def _next_replicas(self, own: TaskIds, target: TaskIds) -> TaskIds:
        found: dict[str, frozenset[int]] = {}
        for name, wanted in target.items():
            own_tasks = own.get(name, frozenset())
            if tasks := frozenset(it for it in wanted if it in own_tasks or not self.is_in_process(name, it)):
                found[name] = tasks
        return found


def _within(held: Mapping[int, int], wanted: frozenset[int] | None) -> dict[int, int]:
    return {partition: epoch for partition, epoch in held.items() if wanted is not None and partition in wanted}


def _without(held: Mapping[int, int], wanted: frozenset[int] | None) -> dict[int, int]:
    return {partition: epoch for partition, epoch in held.items() if wanted is None or partition not in wanted}


def _union(*roles: ActiveTasks | TaskIds) -> TaskIds:
    found: dict[str, frozenset[int]] = {}
    for tasks in roles:
        for name, of in tasks.items():
            found[name] = found.get(name, frozenset()).union(of)
    return found


def _intersection(tasks: TaskIds, others: TaskIds) -> TaskIds:
    return {name: both for name, of in tasks.items() if (both := of & others.get(name, frozenset()))}


def _difference(tasks: TaskIds, others: TaskIds) -> TaskIds:
    return {name: left for name, of in tasks.items() if (left := of - others.get(name, frozenset()))}
