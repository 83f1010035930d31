"""The topology of a streams group's application, as one of its members has described it (KIP-1331).

Kafka 4.4 and kwire request it from a member and keep it if group.streams.topology.description.plugin.class is set.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Final

import attrs
from kwire_protocol.kafka_error import quoted
from kwire_protocol.messages.streams_group_describe import (
    DescribedGroup,
    StreamsGroupDescribeRequest,
    TopologyDescription,
    TopologyDescriptionNode,
)

from kwire.client.cluster import Cluster, CoordinatorKind
from kwire.client.connection import BrokerConnection
from kwire.client.errors import ClientError, refused

SOURCE: Final = "source"
PROCESSOR: Final = "processor"
SINK: Final = "sink"

_FIRST_WITH_DESCRIPTIONS = 1
_KINDS: Final = {1: SOURCE, 2: PROCESSOR, 3: SINK}
_AVAILABLE = 3


class NotDescribed(ClientError):
    """The brokers have no description of the group's topology."""


@attrs.frozen
class TopologyNode:
    """A node of a topology; all names are sorted.

    `topics` are those that a source reads, or the one that a sink writes. A sink without a topic chooses one for each
    record.
    """

    name: str
    kind: str
    topics: tuple[str, ...]
    stores: tuple[str, ...]
    successors: tuple[str, ...]
    predecessors: tuple[str, ...]


@attrs.frozen
class SubtopologyNodes:
    """A subtopology, or the nodes of a global store: these have no tasks, and get the next number as their id."""

    subtopology_id: str
    is_global: bool
    nodes: tuple[TopologyNode, ...]


def topology(cluster: Cluster, group_id: str) -> tuple[SubtopologyNodes, ...]:
    """Raises NotDescribed, and Refused, also for a group of another kind."""

    def call(coordinator: BrokerConnection) -> DescribedGroup:
        request = StreamsGroupDescribeRequest([group_id], include_topology_description=True)
        (answer,) = coordinator.call(request, at_least=_FIRST_WITH_DESCRIPTIONS).groups
        assert isinstance(answer, DescribedGroup)
        if answer.error_code:
            raise refused(f"group {quoted(group_id)} cannot be described", answer.error_code, answer.error_message)
        return answer

    found = cluster.call_coordinator(CoordinatorKind.GROUP, group_id, call)
    if found.topology_description_status != _AVAILABLE or found.topology_description is None:
        raise NotDescribed(
            f"the topology of group {quoted(group_id)} is not described: "
            "brokers ask for it if group.streams.topology.description.plugin.class is set"
        )
    return _parts(found.topology_description)


def _parts(described: TopologyDescription) -> tuple[SubtopologyNodes, ...]:
    parts = [(it.subtopology_id, False, _nodes(it.nodes)) for it in described.subtopologies]
    for number, it in enumerate(described.global_stores, start=len(parts)):
        parts.append((str(number), True, _nodes([it.source, it.processor])))
    return tuple(SubtopologyNodes(*part) for part in parts)


def _nodes(nodes: Iterable[TopologyDescriptionNode]) -> tuple[TopologyNode, ...]:
    known = list(nodes)
    predecessors: dict[str, set[str]] = defaultdict(set)
    for it in known:
        for name in it.successors:
            predecessors[name].add(it.name)
    return tuple(
        TopologyNode(
            it.name,
            _KINDS.get(it.node_type, str(it.node_type)),
            _in_order(it.source_topics if it.sink_topic is None else [it.sink_topic]),
            _in_order(it.stores),
            _in_order(it.successors),
            _in_order(predecessors[it.name]),
        )
        for it in known
    )


def _in_order(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(set(names)))
