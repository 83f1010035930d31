"""Keeps the target's topics like the source's: partitions, and the configurations that are set at the source.

A configuration that is set at the target stays until the source changes the same one: only differences between the last
mirrored state and the source's current state are copied. Partitions are only ever added.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

import attrs

from kwire.client.cluster import Cluster
from kwire.client.errors import TopicExists, UnknownTopic
from kwire.client.producing import DEFAULT_BATCH_BYTES
from kwire.client.topics import (
    NewTopic,
    alter_topic_configs,
    create_partitions,
    create_topics,
    describe_topic_configs,
    topic_overrides,
)
from kwire.pipeline.clock import now_ms
from kwire.pipeline.delivery.compacted_topic import CompactedTopic
from kwire.pipeline.errors import PipelineError
from kwire.pipeline.mirror.state import configs_values

NEVER_MIRRORED: Final = frozenset(
    (
        # They name brokers, or depend on the number of brokers.
        "leader.replication.throttled.replicas",
        "follower.replication.throttled.replicas",
        "min.insync.replicas",
        "unclean.leader.election.enable",
        # Records keep their timestamps, however old they are.
        "message.timestamp.type",
        "message.timestamp.before.max.ms",
        "message.timestamp.difference.max.ms",
    )
)
_BATCH_HEADER_BYTES: Final = 512
"""The part of a topic's largest batch that is kept free for the batch's header."""


@attrs.frozen
class Changes:
    """The changes that a topic of the target needs."""

    create: bool
    partitions: int
    """The new number of partitions; 0 if it does not change."""
    values: Mapping[str, str]
    removed: Collection[str]

    @property
    def is_nothing(self) -> bool:
        return not (self.create or self.partitions or self.values or self.removed)


def wanted_configs(overrides: Mapping[str, str], excluded: Collection[str]) -> dict[str, str]:
    """The configurations of the source that are mirrored."""
    return {name: value for name, value in overrides.items() if name not in NEVER_MIRRORED and name not in excluded}


def changes(wanted: Mapping[str, str], mirrored: Mapping[str, str], *, partitions: int, there: int | None) -> Changes:
    """wanted, mirrored: the source's configurations now, and as they were last copied.

    partitions, there: the number of partitions at the source and at the target; None if the target lacks the topic.
    """
    if there is None:
        return Changes(create=True, partitions=partitions, values=wanted, removed=())
    return Changes(
        create=False,
        partitions=partitions if partitions > there else 0,
        values={name: value for name, value in wanted.items() if mirrored.get(name) != value},
        removed=sorted(set(mirrored) - set(wanted)),
    )


def planned_changes(
    source: Cluster,
    target: Cluster,
    pairs: Mapping[str, str],
    mirrored: Mapping[str, Mapping[str, str]],
    excluded: Collection[str],
) -> dict[str, tuple[Changes, dict[str, str]]]:
    """Returns the changes at the target and the configurations, by topic of the source. Raises ClientError."""
    found = {}
    overrides = topic_overrides(source, [*pairs])
    for topic, name in pairs.items():
        source.forget_topic(topic)
        wanted = wanted_configs(overrides[topic], excluded)
        partitions = len(source.topic(topic).leaders)
        there = _partitions_there(target, name)
        found[topic] = changes(wanted, mirrored.get(topic, {}), partitions=partitions, there=there), wanted
    return found


def carry_out(target: Cluster, name: str, it: Changes) -> None:
    """Makes the changes. Raises ClientError; some changes may be made then. It may be repeated."""
    if it.create:
        # Records keep their timestamps, independent of the default of the target's brokers.
        configs = {"message.timestamp.type": "CreateTime", **it.values}
        try:
            create_topics(target, [NewTopic(name, it.partitions, configs=configs)])
            return
        except TopicExists:  # another client has created it meanwhile
            target.forget_topic(name)
    if it.partitions:
        create_partitions(target, name, it.partitions)
    alter_topic_configs(target, name, it.values, removed=it.removed)


@attrs.define(eq=False)
class TargetTopics:
    """Changes the mirror's topics at the target. One thread has it at a time (`handover.py`).

    state_topic: the topic of the mirror's state.
    copied: the configurations that were copied to the target, by topic of the source.
    """

    excluded: Collection[str]
    state_topic: str = ""
    copied: dict[str, Mapping[str, str]] = attrs.field(factory=dict)

    def follow(self, source: Cluster, target: Cluster, pairs: Mapping[str, str]) -> dict[str, int]:
        """Follows topics of the source. Returns the largest batch of records of each. Raises PipelineError.

        pairs: each topic, and its name at the target.
        """
        planned = planned_changes(source, target, pairs, self.copied, self.excluded)
        for topic, (it, wanted) in planned.items():
            if it.create:  # creating it again would hide that its records are gone
                raise PipelineError(f"topic {pairs[topic]} at --to was deleted while it was mirrored")
            self.change(target, topic, pairs[topic], it, wanted)
        sizes = batch_bytes(target, list(pairs.values()))
        return {topic: sizes[name] for topic, name in pairs.items()}

    def change(self, target: Cluster, topic: str, name: str, it: Changes, wanted: Mapping[str, str]) -> None:
        """Makes the changes that give topic `name` the configurations `wanted`. Raises ClientError."""
        if not it.is_nothing:
            carry_out(target, name, it)
            CompactedTopic(target, self.state_topic).write(configs_values(topic, wanted), now_ms())
        self.copied[topic] = wanted


def _partitions_there(cluster: Cluster, topic: str) -> int | None:
    """The number of partitions; None for a topic that does not exist. Raises other ClientErrors."""
    cluster.forget_topic(topic)
    try:
        return len(cluster.topic(topic).leaders)
    except UnknownTopic:
        return None


def batch_bytes(target: Cluster, topics: Collection[str]) -> dict[str, int]:
    """The largest batch of records of each topic, before compression. Raises ClientError."""
    described = describe_topic_configs(target, list(topics))
    return {
        name: max(1, min(DEFAULT_BATCH_BYTES, int(configs.get("max.message.bytes") or 0) - _BATCH_HEADER_BYTES))
        for name, configs in described.items()
    }
