"""The consequences of a change to a group: a new group epoch, a new target assignment, and a step towards it.

While tasks warm up (`warmups.py`), members' tasks differ from their targets.

A new group waits for more members before its first assignment, and there is a minimum time between assignments
(KIP-1263). Meanwhile responses have the status that the assignment is delayed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import attrs

from kwire.coordinators.effects import Now
from kwire.groups.config import StreamsGroupSettings, WarmupSettings
from kwire.groups.draft import Draft
from kwire.groups.modern.changes import AssignmentEpoch
from kwire.groups.modern.epochs import Epochs, is_assignment_due, set_targets
from kwire.groups.streams.assignor import StickyTaskAssignor
from kwire.groups.streams.changes import NOT_VALIDATED, CurrentChange, StreamsEpoch
from kwire.groups.streams.group import GroupState, StreamsGroup
from kwire.groups.streams.internal_topics import ConfiguredTopology, configure
from kwire.groups.streams.member import CurrentTasks
from kwire.groups.streams.reconciliation import Reconciliation
from kwire.groups.streams.tasks import NO_TASKS, TaskGroup, TaskMember, Tasks
from kwire.groups.streams.topology import Status, StatusCode, Topology
from kwire.groups.streams.warmups import NO_PROGRESS, Refined, refine
from kwire.groups.topics import Topics

ASSIGNOR: Final = StickyTaskAssignor()

INITIAL_DELAY: Final = Status(
    StatusCode.ASSIGNMENT_DELAYED, "Assignment delayed due to the configured initial rebalance delay."
)
INTERVAL: Final = Status(StatusCode.ASSIGNMENT_DELAYED, "Assignment delayed due to the configured assignment interval.")


@attrs.define(eq=False)
class Assigning:
    topics: Topics
    settings: Callable[[str], StreamsGroupSettings]
    epochs: Epochs

    def partition_count(self, topic: str) -> int | None:
        found = self.topics.find(topic)
        return None if found is None else found.spec.partition_count

    def configure(self, draft: Draft, group: StreamsGroup, topology: Topology) -> ConfiguredTopology:
        """Configures the group's topology with the existing topics. Raises KafkaError(STREAMS_INVALID_TOPOLOGY)."""
        configured = group.configured
        if configured is not None and group.topics_version == self.topics.version:
            return configured
        configured = configure(topology, self.partition_count)
        draft.did(None, partial(setattr, group, "configured", None))
        draft.did(None, partial(setattr, group, "topics_version", -1))
        group.configured, group.topics_version = configured, self.topics.version
        group.endpoints.clear()
        return configured

    def begin_epoch(
        self,
        draft: Draft,
        group: StreamsGroup,
        configured: ConfiguredTopology,
        *,
        member_changed: bool,
        topics_changed: bool,
    ) -> None:
        """Begins a new group epoch if a member, the topics of the topology or the assignor's settings have changed.

        `topics_changed` is False if no topic at all has changed since the last epoch.
        """
        configs = self._assignment_configs(group)
        if not member_changed and not topics_changed and configs == group.assignment_configs:
            return
        topology = group.topology
        assert topology is not None
        before = group.epoch_value()
        after = attrs.evolve(
            before,
            metadata_hash=self.epochs.hash_of(set(topology.required_topics())),
            validated_topology_epoch=topology.epoch if configured.is_ready else NOT_VALIDATED,
            assignment_configs=configs,
        )
        if member_changed or after != before:
            self._begin(draft, group, after)

    def begin_epoch_without(self, draft: Draft, group: StreamsGroup) -> None:
        """Begins a new group epoch, because a member was removed."""
        self._begin(draft, group, group.epoch_value())

    def _begin(self, draft: Draft, group: StreamsGroup, value: StreamsEpoch) -> None:
        self.epochs.enter(draft, group, attrs.evolve(value, epoch=group.epoch + 1))

    def _assignment_configs(self, group: StreamsGroup) -> dict[str, str]:
        return {"num.standby.replicas": str(self.settings(group.group_id).num_standby_replicas)}

    def assign(self, draft: Draft, group: StreamsGroup, configured: ConfiguredTopology, now: Now) -> Status | None:
        """Computes the target assignment for the group epoch, if it is due. Returns why it is delayed, if it is."""
        if group.initial_delay.deadline_ms is not None:
            return INITIAL_DELAY
        if group.epoch <= group.assignment_epoch:
            return None
        if not is_assignment_due(group, now, self._interval_ms):
            return INTERVAL
        targets = dict.fromkeys(group.members, NO_TASKS)
        if configured.is_ready:
            targets = ASSIGNOR.assign(self._spec(group, configured))
        set_targets(draft, group, targets, now, assignor=ASSIGNOR.name)
        self._set_refined(draft, group, self._refined(group, configured))
        return None

    def refine(self, draft: Draft, group: StreamsGroup, configured: ConfiguredTopology) -> None:
        """Moves the tasks that have warmed up, and lets others begin to: a new epoch with the same targets.

        It waits until all members have settled, as Apache Kafka does.
        """
        refined = group.refined
        if refined is not None and not group.has_news and refined.settings == self._warmups(group):
            return
        have_settled = group.state is GroupState.STABLE
        if refined is None or have_settled:
            self._set_refined(draft, group, self._refined(group, configured))
        if not have_settled:
            # After a change of coordinator the former one may have assigned other tasks, based on other reports.
            group.has_news = True
        elif any(not group.assignment_of(it).assigned.are(group.part_of(it)) for it in group.members):
            self._begin(draft, group, group.epoch_value())
            epoch = AssignmentEpoch(group.epoch, group.assignment_timestamp_ms)
            draft.change(group, group.changes.assignment_epoch(group.group_id, epoch))

    def _refined(self, group: StreamsGroup, configured: ConfiguredTopology) -> Refined:
        targets = {it: target for it, target in group.targets.items() if it in group.members}
        return refine(targets, group.crew(), configured.subtopologies, self._warmups(group))

    def _set_refined(self, draft: Draft, group: StreamsGroup, refined: Refined) -> None:
        draft.did(None, partial(setattr, group, "refined", group.refined))
        draft.did(None, partial(setattr, group, "has_news", group.has_news))
        group.refined, group.has_news = refined, False

    def _warmups(self, group: StreamsGroup) -> WarmupSettings:
        return self.settings(group.group_id).warmups

    def _interval_ms(self, group: StreamsGroup) -> int:
        return self.settings(group.group_id).assignment_interval_ms

    def _spec(self, group: StreamsGroup, configured: ConfiguredTopology) -> TaskGroup:
        members = {
            member_id: TaskMember(
                member.process_id,
                group.targets.get(member_id, NO_TASKS),
                group.progress.get(member_id, NO_PROGRESS).offsets,
            )
            for member_id, member in group.members.items()
        }
        standbys = int(group.assignment_configs.get("num.standby.replicas", 0))
        return TaskGroup(members, configured.subtopologies, standbys)

    def reconcile(self, draft: Draft, group: StreamsGroup, member_id: str, owned: Tasks | None) -> CurrentTasks:
        """Moves the member a step towards its part and returns what it has then.

        Raises KafkaError(FENCED_MEMBER_EPOCH).
        """
        current = group.assignment_of(member_id)
        if current.is_reconciled_to(group.assignment_epoch):
            return current
        process_id = group.members[member_id].process_id
        after = Reconciliation(
            target_epoch=group.assignment_epoch,
            target=group.part_of(member_id),
            owned=owned,
            is_active=lambda *task: group.is_active(task),
            is_in_process=lambda *task: group.is_in_process(task, process_id),
        ).next(current)
        if after is not current:
            draft.change(group, CurrentChange(group.group_id, member_id, after))
        return after
