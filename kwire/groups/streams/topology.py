"""The topology of a Kafka Streams application, as its members send it when they join (KIP-1071).

A subtopology reads source topics, which users make, and repartition topics, which another subtopology writes: the one
that has it among its sinks. It keeps state in changelog topics. Repartition and changelog topics are internal: the
broker creates them. `internal_topics.py` computes their numbers of partitions.

The first member that joins decides the topology of its group. A member with an older epoch gets the status that it is
stale. Any other topology is refused, as in Kafka 4.3.1: a group cannot change its topology yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from itertools import pairwise
from typing import Final

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.internal import streams_group as records
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages import streams_group_heartbeat as wire

from kwire.groups.streams_topics import InternalTopic

MAX_SUBTOPOLOGIES: Final = 1_000
MAX_TOPICS: Final = 10_000
"""The maximum number of topics in all subtopologies. The coordinator iterates over them. Apache Kafka has no bounds."""


class StatusCode(IntEnum):
    """The status codes in a heartbeat's response (Kafka's `StreamsGroupHeartbeatResponse.Status`)."""

    STALE_TOPOLOGY = 0
    MISSING_SOURCE_TOPICS = 1
    INCORRECTLY_PARTITIONED_TOPICS = 2
    MISSING_INTERNAL_TOPICS = 3
    SHUTDOWN_APPLICATION = 4
    ASSIGNMENT_DELAYED = 5


@attrs.frozen
class Status:
    code: StatusCode
    detail: str


@attrs.frozen
class TopologyPart:
    """A subtopology. The order in which a member lists its topics does not matter, so tuples are in order of names.

    `copartition_groups`: topics that must have the same number of partitions, as records of one key are joined.
    """

    source_topics: tuple[str, ...] = ()
    repartition_source_topics: tuple[InternalTopic, ...] = ()
    repartition_sink_topics: tuple[str, ...] = ()
    state_changelog_topics: tuple[InternalTopic, ...] = ()
    copartition_groups: frozenset[frozenset[str]] = frozenset()

    @property
    def is_stateful(self) -> bool:
        return bool(self.state_changelog_topics)

    def read_topics(self) -> tuple[str, ...]:
        return (*self.source_topics, *(it.name for it in self.repartition_source_topics))

    def internal_topics(self) -> tuple[InternalTopic, ...]:
        return (*self.repartition_source_topics, *self.state_changelog_topics)


@attrs.frozen
class Topology:
    """`subtopologies` by subtopology id, in order of the ids."""

    epoch: int
    subtopologies: Mapping[str, TopologyPart]
    readers: Mapping[str, str] = attrs.field(init=False, eq=False, repr=False)
    """Topic -> the subtopology that reads it."""

    @readers.default
    def _readers(self) -> Mapping[str, str]:
        return {topic: name for name, part in self.subtopologies.items() for topic in part.read_topics()}

    def required_topics(self) -> frozenset[str]:
        """The topics whose changes concern the group."""
        parts = self.subtopologies.values()
        return frozenset(
            name for part in parts for name in (*part.source_topics, *(it.name for it in part.internal_topics()))
        )


def topology_of(sent: wire.Topology | records.StreamsGroupTopologyValue) -> Topology:
    """Returns the topology that a member has sent, or that a record has.

    Raises KafkaError(STREAMS_INVALID_TOPOLOGY) for one that contradicts itself or is too large, and
    KafkaError(INVALID_REQUEST) for source topics that are patterns: Kafka 4.3.1 does not support these either.
    """
    if sent.epoch < 0:
        raise _invalid("The epoch of a topology must not be negative.")
    check_size(sent)
    parts: dict[str, TopologyPart] = {}
    sent_parts: list[wire.Subtopology | records.Subtopology] = [*sent.subtopologies]
    for its in sorted(sent_parts, key=lambda it: it.subtopology_id):
        if its.source_topic_regex:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Regular expressions for source topics are not supported yet.")
        if its.subtopology_id in parts:
            raise _invalid(f"The subtopology id {its.subtopology_id} is used twice.")
        for topic in its.state_changelog_topics:
            if topic.partitions:
                raise _invalid(
                    f"Changelog topic {topic.name} must have an undefined partition count, "
                    f"but it is set to {topic.partitions}."
                )
        parts[its.subtopology_id] = TopologyPart(
            tuple(sorted(its.source_topics)),
            _internal(its.repartition_source_topics),
            tuple(sorted(its.repartition_sink_topics)),
            _internal(its.state_changelog_topics),
            frozenset(_copartitioned(its, group) for group in its.copartition_groups),
        )
    return Topology(sent.epoch, parts)


def check_size(sent: wire.Topology | records.StreamsGroupTopologyValue) -> None:
    """Raises KafkaError(STREAMS_INVALID_TOPOLOGY) for a topology that is too large."""
    if len(sent.subtopologies) > MAX_SUBTOPOLOGIES:
        raise _invalid(
            f"A topology may have {MAX_SUBTOPOLOGIES} subtopologies, this one has {len(sent.subtopologies)}."
        )
    lists = ("source_topics", "repartition_sink_topics", "repartition_source_topics", "state_changelog_topics")
    count = sum(len(getattr(it, name)) for it in sent.subtopologies for name in lists)
    if count > MAX_TOPICS:
        raise _invalid(f"A topology may name {MAX_TOPICS} topics, this one names {count}.")


def _internal(topics: Iterable[wire.TopicInfo | records.TopicInfo]) -> tuple[InternalTopic, ...]:
    in_order = sorted(topics, key=lambda it: it.name)
    for first, second in pairwise(in_order):
        if first.name == second.name:
            raise _invalid(f"Internal topic {first.name} is used twice.")
    for it in in_order:
        if it.partitions < 0:
            raise _invalid(f"Internal topic {it.name} must not have {it.partitions} partitions.")
    return tuple(
        InternalTopic(it.name, it.partitions, it.replication_factor, {its.key: its.value for its in it.topic_configs})
        for it in in_order
    )


def _copartitioned(
    part: wire.Subtopology | records.Subtopology, group: wire.CopartitionGroup | records.CopartitionGroup
) -> frozenset[str]:
    """Returns the topic names of a copartition group, which has positions in the subtopology's lists."""
    repartition = [it.name for it in part.repartition_source_topics]
    names = set()
    for positions, known in ((group.source_topics, part.source_topics), (group.repartition_source_topics, repartition)):
        for position in positions:
            if not 0 <= position < len(known):
                raise _invalid(f"A copartition group of subtopology {part.subtopology_id} has an unknown topic.")
            names.add(known[position])
    return frozenset(names)


def topology_after_join(current: Topology | None, joined: Topology) -> Topology:
    """The group's topology after a member has joined with its own.

    Raises KafkaError(INVALID_REQUEST) for a topology that differs, unless its epoch is older: see `stale_status`.
    """
    if current is None or joined == current:
        return joined
    if joined.epoch < current.epoch:
        return current
    raise KafkaError(ErrorCode.INVALID_REQUEST, "Topology updates are not supported yet.")


def stale_status(member_epoch: int, group_epoch: int) -> Status | None:
    """Returns the status for a member whose topology is older than the group's. Both are epochs of topologies."""
    if member_epoch >= group_epoch:
        return None
    return Status(
        StatusCode.STALE_TOPOLOGY,
        f"The member's topology epoch {member_epoch} is behind the group's topology epoch {group_epoch}.",
    )


def _invalid(reason: str) -> KafkaError:
    return KafkaError(ErrorCode.STREAMS_INVALID_TOPOLOGY, reason)
