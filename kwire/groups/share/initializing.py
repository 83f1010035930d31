"""Partitions of subscribed topics get a state with the share coordinator, before they are assigned to members.

A heartbeat finds the partitions without a state, marks them, and requests their states in the background. The response
marks them again, and the next heartbeat assigns them. A failure removes the mark, so that the next heartbeat retries.
If there is no response, for example because the coordinator of the group has changed, it retries after
group.share.initialize.retry.interval.ms. Kafka's `GroupMetadataManager.maybeCreateInitializeShareGroupStateRequest`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial

import attrs
from kwire_protocol.wire import Uuid

from kwire.coordinators.effects import Step
from kwire.groups.config import GroupConfig
from kwire.groups.draft import Draft
from kwire.groups.modern.groups import Groups
from kwire.groups.share.changes import StatesChange
from kwire.groups.share.group import ShareGroup
from kwire.groups.share.states import NamedPartitions, PartitionStates
from kwire.groups.share_states import NOT_CHOSEN, Initialize, Outcome, StatesToInitialize
from kwire.groups.topics import Topics

log = logging.getLogger(__name__)


@attrs.define(eq=False)
class Initializing:
    config: GroupConfig
    groups: Groups[ShareGroup]
    topics: Topics

    def begin(self, step: Step, draft: Draft, group: ShareGroup) -> None:
        """Marks the partitions without a state, and requests their states once the mark is appended."""
        if group.settled_version == self.topics.version:
            return
        missing = self._missing(group, step.now.monotonic_ms)
        if missing:
            states = StatesToInitialize(
                group.group_id,
                group.epoch,
                {topic_id: dict.fromkeys(sorted(it.partitions), NOT_CHOSEN) for topic_id, it in missing.items()},
            )
            self.mark(step, draft, group, missing)
            draft.then(lambda later: later.effects.append(Initialize(states)))
        elif not draft.records and group.epoch <= group.assignment_epoch and not group.states.initializing:
            # This heartbeat has changed nothing, so no initialized partition was missing from the target either.
            group.settled_version = self.topics.version

    def mark(self, step: Step, draft: Draft, group: ShareGroup, topics: Mapping[Uuid, NamedPartitions]) -> None:
        """Marks partitions as initializing, before the share coordinator is requested to initialize their states."""
        draft.change(group, StatesChange(group.group_id, group.states.begun(topics)))
        before = dict(group.initializing_since_ms)
        draft.did(None, partial(setattr, group, "initializing_since_ms", before))
        group.initializing_since_ms = {**before, **dict.fromkeys(topics, step.now.monotonic_ms)}

    def _missing(self, group: ShareGroup, now_ms: int) -> dict[Uuid, NamedPartitions]:
        missing: dict[Uuid, NamedPartitions] = {}
        for name in group.topic_subscribers:
            topic = self.topics.find(name)
            if topic is None:
                continue
            known: frozenset[int] = frozenset()
            if (initialized := group.states.initialized.get(topic.topic_id)) is not None:
                known |= initialized.partitions
            waiting = group.states.initializing.get(topic.topic_id)
            if waiting is not None and not self._is_overdue(group, topic.topic_id, now_ms):
                known |= waiting.partitions
            partitions = frozenset(range(topic.spec.partition_count)) - known
            if partitions:
                missing[topic.topic_id] = NamedPartitions(name, partitions)
        return missing

    def _is_overdue(self, group: ShareGroup, topic_id: Uuid, now_ms: int) -> bool:
        since_ms = group.initializing_since_ms.get(topic_id, now_ms)
        return now_ms - since_ms >= self.config.share_initialize_retry_interval_ms

    def loaded(self, step: Step, group: ShareGroup) -> None:
        """Restarts the time of initializations: a former coordinator of the group may still wait for responses."""
        group.initializing_since_ms = dict.fromkeys(group.states.initializing, step.now.monotonic_ms)

    def ended(self, step: Step, group_id: str, outcome: Outcome) -> None:
        """The share coordinator has answered. The group may have been removed meanwhile."""
        group = self.groups.find(group_id)
        if group is None:
            return
        succeeded: dict[Uuid, set[int]] = {}
        failed: dict[Uuid, set[int]] = {}
        for (topic_id, partition), error in outcome.items():
            (failed if error else succeeded).setdefault(topic_id, set()).add(partition)
        errors = ", ".join(sorted({error.name for error in outcome.values() if error}))
        if errors and errors != group.not_initialized_because:  # each retry may fail in the same way
            log.error("group %a: states are not initialized: %s", group_id, errors)
        group.not_initialized_because = errors
        self.put(step, group, group.states.ended(_frozen(succeeded), _frozen(failed)))

    def topics_deleted(self, step: Step, topic_ids: set[Uuid]) -> None:
        for group in self.groups:
            self.put(step, group, group.states.without_topics(topic_ids))

    def put(self, step: Step, group: ShareGroup, states: PartitionStates) -> None:
        """Records the states if they have changed. If that fails, they stay as they were."""
        if states != group.states:
            Draft().change(group, StatesChange(group.group_id, states)).append(step)


def _frozen(partitions: Mapping[Uuid, set[int]]) -> dict[Uuid, frozenset[int]]:
    return {topic_id: frozenset(of_topic) for topic_id, of_topic in partitions.items()}
