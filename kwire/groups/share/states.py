"""The partitions of a share group that have a state with the share coordinator, as one value.

    (unknown) ---> initializing ---> initialized ---> deleting ---> (unknown)
                        |                                |
                        `--- it failed ---> (unknown)    `---> initializing, if a member subscribes again

A partition is assigned only when it is initialized. It is marked before the request to the share coordinator and again
after its response, so that a coordinator that takes over has every state that may exist. Only whole topics are deleted.
Kafka's `ShareGroupStatePartitionMetadataInfo`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import attrs
from kwire_protocol.wire import Uuid

from kwire.groups.assignors.assignor import Assignment, Partitions


@attrs.frozen
class NamedPartitions:
    """Partitions of a topic, with the topic's name when they were recorded."""

    name: str
    partitions: Partitions


StatesByTopic = Mapping[Uuid, NamedPartitions]


@attrs.frozen
class PartitionStates:
    """Topic ids as keys; no topic is without partitions. `deleting` has the topics' names."""

    initializing: StatesByTopic = attrs.field(factory=dict)
    initialized: StatesByTopic = attrs.field(factory=dict)
    deleting: Mapping[Uuid, str] = attrs.field(factory=dict)

    def assignable(self) -> dict[Uuid, Partitions]:
        return {topic_id: it.partitions for topic_id, it in self.initialized.items()}

    def is_initialized(self, topic_id: Uuid, partition: int) -> bool:
        of_topic = self.initialized.get(topic_id)
        return of_topic is not None and partition in of_topic.partitions

    def begun(self, topics: StatesByTopic) -> PartitionStates:
        """Returns the states with these being initialized; they may be initialized already."""
        return attrs.evolve(
            self,
            initializing=_united(self.initializing, topics),
            deleting={topic_id: name for topic_id, name in self.deleting.items() if topic_id not in topics},
        )

    def ended(self, succeeded: Assignment, failed: Assignment) -> PartitionStates:
        """Returns the states after the share coordinator's response. Partitions no longer initializing are ignored."""
        done: dict[Uuid, NamedPartitions] = {}
        for topic_id, partitions in succeeded.items():
            waiting = self.initializing.get(topic_id)
            if waiting is not None and waiting.partitions & partitions:
                done[topic_id] = NamedPartitions(waiting.name, waiting.partitions & partitions)
        return attrs.evolve(
            self,
            initializing=_without(_without(self.initializing, succeeded), failed),
            initialized=_united(self.initialized, done),
        )

    def without_topics(self, topic_ids: Collection[Uuid]) -> PartitionStates:
        """Returns the states without these deleted topics, whose states the share coordinators delete as well."""
        return PartitionStates(
            {topic_id: it for topic_id, it in self.initializing.items() if topic_id not in topic_ids},
            {topic_id: it for topic_id, it in self.initialized.items() if topic_id not in topic_ids},
            {topic_id: name for topic_id, name in self.deleting.items() if topic_id not in topic_ids},
        )

    def with_deleting(self, topics: Mapping[Uuid, str]) -> PartitionStates:
        """Returns the states with those of these topics being deleted. Initializations continue, as in Kafka."""
        return PartitionStates(
            self.initializing,
            {topic_id: it for topic_id, it in self.initialized.items() if topic_id not in topics},
            {**self.deleting, **topics},
        )

    def deleted(self, topic_ids: Iterable[Uuid]) -> PartitionStates:
        gone = set(topic_ids)
        return attrs.evolve(self, deleting={it: name for it, name in self.deleting.items() if it not in gone})


def _united(these: StatesByTopic, those: StatesByTopic) -> dict[Uuid, NamedPartitions]:
    united = dict(these)
    for topic_id, it in those.items():
        known = united.get(topic_id)
        partitions = it.partitions if known is None else it.partitions | known.partitions
        if partitions:
            united[topic_id] = NamedPartitions(it.name, partitions)
    return united


def _without(these: StatesByTopic, partitions: Assignment) -> dict[Uuid, NamedPartitions]:
    rest = {
        topic_id: NamedPartitions(it.name, it.partitions - partitions.get(topic_id, frozenset()))
        for topic_id, it in these.items()
    }
    return {topic_id: it for topic_id, it in rest.items() if it.partitions}
