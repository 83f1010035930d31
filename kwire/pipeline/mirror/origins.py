"""The origins of a topic's records, so that none are mirrored back to their origin. Pure.

A mirror stores, with its position, the origins of each topic that it writes: the topic that it reads, by cluster id and
name, and all origins of that topic. It finds those in the state topics of the mirrors that write into the source's
cluster. So the last mirror of a chain has all clusters of the chain.

Two mirrors that start at the same moment in opposite directions would not find each other. So each writes its origins
first and then reads the other's: at least one of them sees both, and stops.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from kwire.pipeline.errors import PipelineError


class Origin(NamedTuple):
    """A topic that records came from."""

    cluster_id: str
    topic: str


class Cycle(PipelineError):
    """The records would come back to their origin."""


Lineage = Mapping[str, Mapping[str, frozenset[Origin]]]
"""The known origins of records, by topic of a cluster, and by the state topic that stores them."""


def origins_of(source: Origin, lineage: Lineage) -> frozenset[Origin]:
    """All origins of the records that a mirror of `source` writes."""
    return frozenset({source}).union(*lineage.get(source.topic, {}).values())


def check_origins(source: Origin, target: Origin, lineage: Lineage) -> frozenset[Origin]:
    """The origins of the records written to `target`. Raises Cycle if records would come back.

    Records that were in any topic of another cluster may not be written to that cluster. Within a cluster a topic may
    be copied to another one unless it comes from there.
    """
    if source == target:
        raise Cycle(
            f"topic {source.topic} would be mirrored to itself: --from and --to are the same cluster "
            f"({source.cluster_id}). Name another cluster, or other topics: --rename copy.{{topic}}"
        )
    for state_topic, origins in sorted(lineage.get(source.topic, {}).items()):
        found = _comes_back(source, target, origins)
        if found is not None:
            raise Cycle(
                f"topic {source.topic} would go in a circle: it has records of topic {found.topic} in cluster "
                f"{found.cluster_id}, which is --to, as {state_topic} says. Leave it out; or, if the mirror that wrote "
                f"it is over for good, delete topic {state_topic} at --from"
            )
    return origins_of(source, lineage)


def _comes_back(source: Origin, target: Origin, origins: Iterable[Origin]) -> Origin | None:
    for it in sorted(origins):
        if it == target or (it.cluster_id == target.cluster_id != source.cluster_id):
            return it
    return None
