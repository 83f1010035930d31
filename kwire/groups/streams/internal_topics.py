"""The partition counts of a topology's internal topics, its number of tasks, and the topics that are missing.

    source topics exist --> repartition topics --> copartition groups --> changelog topics --> tasks
                            as their writers'      all equal              as many as tasks
                            largest source

The numbers here are for topics that do not exist yet. A topic that exists with another number than it should have is an
error, which the user has to fix.

The steps are those of Kafka's `InternalTopicManager`, `RepartitionTopics`, `CopartitionedTopicsEnforcer` and
`ChangelogTopics`. One differs. Where a copartition group has repartition topics only, Kafka 4.3.1 considers all
repartition topics of the topology whose numbers are given, though they may not belong to the group. Here only those of
the group count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeAlias

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError

from kwire.groups.streams.tasks import Subtopology
from kwire.groups.streams.topology import Status, StatusCode, Topology, TopologyPart
from kwire.groups.streams_topics import InternalTopic

PartitionCount: TypeAlias = Callable[[str], int | None]
"""Returns the number of partitions of a topic, by name; None if it does not exist."""

_SHOWN: Final = 3


@attrs.frozen
class ConfiguredTopology:
    """`subtopologies` is empty while source topics are missing, or topics have a wrong number of partitions.

    `to_create` has each topic's number of partitions. `status` is the status for members; None if all topics exist.
    """

    subtopologies: Mapping[str, Subtopology]
    to_create: tuple[InternalTopic, ...] = ()
    status: Status | None = None

    @property
    def is_ready(self) -> bool:
        return self.status is None


class _NotConfiguredError(Exception):
    def __init__(self, code: StatusCode, detail: str) -> None:
        super().__init__(detail)
        self.status = Status(code, detail)


def configure(topology: Topology, partition_count: PartitionCount) -> ConfiguredTopology:
    """Configures the topology with the topics that exist.

    Raises KafkaError(STREAMS_INVALID_TOPOLOGY) if numbers of partitions cannot be computed from it.
    """
    try:
        _check_source_topics(topology, partition_count)
        counts = _Counts(topology, partition_count)
        counts.decide()
        subtopologies = {
            name: Subtopology(counts.largest_source(name, part), part.is_stateful)
            for name, part in topology.subtopologies.items()
        }
        to_create = counts.missing()
    except _NotConfiguredError as error:
        return ConfiguredTopology({}, status=error.status)
    status = None
    if to_create:
        missing = _summary([it.name for it in to_create])
        status = Status(StatusCode.MISSING_INTERNAL_TOPICS, f"Internal topics are missing: {missing}")
    return ConfiguredTopology(subtopologies, to_create, status)


def _check_source_topics(topology: Topology, partition_count: PartitionCount) -> None:
    sources = {name for part in topology.subtopologies.values() for name in part.source_topics}
    if missing := sorted(name for name in sources if partition_count(name) is None):
        raise _NotConfiguredError(StatusCode.MISSING_SOURCE_TOPICS, f"Source topics {_summary(missing)} are missing.")


def _summary(names: list[str]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} additional topics" if more > 0 else "")


@attrs.define(eq=False)
class _Counts:
    """`decided`: the partition counts of internal topics, by name. `given`: those that the topology itself has."""

    topology: Topology
    existing: PartitionCount
    decided: dict[str, int] = attrs.field(init=False, factory=dict)
    given: dict[str, int] = attrs.field(init=False)
    repartition: frozenset[str] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        topics = [it for part in self._parts() for it in part.repartition_source_topics]
        self.repartition = frozenset(it.name for it in topics)
        self.given = {it.name: it.partitions for it in topics if it.partitions}

    def _parts(self) -> Iterable[TopologyPart]:
        return self.topology.subtopologies.values()

    def decide(self) -> None:
        self._decide_repartition_topics()
        for part in self._parts():
            for group in sorted(sorted(it) for it in part.copartition_groups if it):
                self._enforce(group)
        for name, part in self.topology.subtopologies.items():
            # A subtopology without state is checked too: it has to read a topic.
            count = self.largest_source(name, part)
            self.decided.update((it.name, count) for it in part.state_changelog_topics)

    def largest_source(self, name: str, part: TopologyPart) -> int:
        if not part.read_topics():
            raise _invalid(f"No source topics found for subtopology {name}")
        return max(map(self._count, part.read_topics()))

    def _count(self, topic: str) -> int:
        count = self.existing(topic)
        return self.decided[topic] if count is None else count

    def _decide_repartition_topics(self) -> None:
        """Repeats until every number is known, since writers may read topics that others write."""
        self.decided.update(self.given)
        while True:
            unknown = progress = False
            for part in self._parts():
                for topic in part.repartition_sink_topics:
                    if topic in self.decided:
                        continue
                    known = [self.decided[it.name] for it in part.repartition_source_topics if it.name in self.decided]
                    known += [count for it in part.source_topics if (count := self.existing(it)) is not None]
                    if known:
                        self.decided[topic] = max(known)
                        progress = True
                    else:
                        unknown = True
            if not unknown:
                break
            if not progress:
                raise _invalid(
                    "Failed to compute number of partitions for all repartition topics. "
                    "There may be loops in the topology that cannot be resolved."
                )
        if not self.repartition <= self.decided.keys():
            raise _invalid(
                "Failed to compute number of partitions for all repartition topics, "
                "because a repartition source topic is never used as a sink topic."
            )

    def _enforce(self, group: list[str]) -> None:
        counts = {topic: self._count(topic) for topic in group}
        internal = {topic: count for topic, count in counts.items() if topic in self.repartition}
        fixed = {topic: count for topic, count in counts.items() if topic in self.given or topic not in internal}
        external = {topic: count for topic, count in fixed.items() if topic not in internal}
        deciding = external or fixed
        if len(set(deciding.values())) > 1:
            raise _NotConfiguredError(
                StatusCode.INCORRECTLY_PARTITIONED_TOPICS,
                f"Following topics do not have the same number of partitions: [{_written(deciding)}]",
            )
        # If no number is given, the largest is enough for all.
        wanted = max(deciding.values() or counts.values())
        for topic, count in internal.items():
            if topic in self.given and count != wanted:
                raise _NotConfiguredError(
                    StatusCode.INCORRECTLY_PARTITIONED_TOPICS,
                    f"Number of partitions [{count}] of repartition topic [{topic}] "
                    f"doesn't match number of partitions [{wanted}] of the source topic.",
                )
            self.decided[topic] = wanted

    def missing(self) -> tuple[InternalTopic, ...]:
        """The internal topics that do not exist, in order of their names."""
        topics = {it.name: it for part in self._parts() for it in part.internal_topics()}
        to_create = []
        for name, topic in sorted(topics.items()):
            wanted = topic.partitions or self.decided[name]
            found = self.existing(name)
            if found is None:
                to_create.append(attrs.evolve(topic, partitions=wanted))
            elif found != wanted:
                raise _NotConfiguredError(
                    StatusCode.INCORRECTLY_PARTITIONED_TOPICS,
                    f"Existing topic {name} has different number of partitions: expected {wanted}, found {found}",
                )
        return tuple(to_create)


def _written(counts: Mapping[str, int]) -> str:
    return "{" + ", ".join(f"{topic}={count}" for topic, count in sorted(counts.items())) + "}"


def _invalid(reason: str) -> KafkaError:
    return KafkaError(ErrorCode.STREAMS_INVALID_TOPOLOGY, reason)
