"""Reads a mirror's position from both clusters, and describes its start, without Spark."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager

import attrs

from kwire.client.cluster import Cluster
from kwire.client.errors import UnknownTopic
from kwire.client.offsets import IsolationLevel
from kwire.pipeline.brokers import TIMEOUT_S, connect, explaining
from kwire.pipeline.delivery.compacted_topic import CompactedTopic
from kwire.pipeline.errors import PipelineError
from kwire.pipeline.mirror.origins import Lineage, Origin, check_origins
from kwire.pipeline.mirror.plan import MirrorPlan
from kwire.pipeline.mirror.state import TOPIC_PREFIX, Position, State
from kwire.pipeline.mirror.topics import Changes, planned_changes
from kwire.pipeline.tables import position as tables
from kwire.pipeline.topic_state import TopicState, topic_state


@contextmanager
def both_clusters(plan: MirrorPlan, *, timeout_s: float = TIMEOUT_S) -> Iterator[tuple[Cluster, Cluster]]:
    """Yields source and target, on new connections. Raises PipelineError, also for a ClientError of the block."""
    with reached(plan.source, "--from", timeout_s) as source, reached(plan.target, "--to", timeout_s) as target:
        yield source, target


@contextmanager
def reached(bootstrap: str, flag: str, timeout_s: float = TIMEOUT_S) -> Iterator[Cluster]:
    """Yields one of the clusters. Raises PipelineError, also for a ClientError of the block."""
    with connect(bootstrap, flag, timeout_s=timeout_s) as cluster, explaining():
        yield cluster


@attrs.frozen(kw_only=True)
class TopicStart:
    """One topic, at the start of a mirror."""

    state: TopicState
    target: str
    begun: tables.Start
    is_new: bool
    """True if none of it was mirrored yet."""
    origins: frozenset[Origin]
    changes: Changes
    configs: Mapping[str, str]


@attrs.frozen(kw_only=True)
class JobStart:
    name: str
    stored: State
    topics: Mapping[str, TopicStart]

    @property
    def state_topic(self) -> str:
        return TOPIC_PREFIX + self.name

    def describe(self) -> dict[str, object]:
        """Returns the start for --dry-run, under stable names."""
        return {"name": self.name, "kept_topic": self.state_topic}

    def describe_topics(self) -> dict[str, dict[str, object]]:
        """Returns the same for each topic."""
        described: dict[str, dict[str, object]] = {}
        for topic, it in self.topics.items():
            offsets = it.begun.position.offsets
            described[topic] = {
                "target": it.target,
                "start": {str(number): at for number, at in sorted(offsets.items())},
                "unread": {str(number): it.state.ends[number] - at for number, at in sorted(offsets.items())},
                "lost": [str(gap) for gap in it.begun.gaps],
                "create": it.changes.create,
                "partitions": it.changes.partitions or None,
                "set": dict(it.changes.values),
                "reset": sorted(it.changes.removed),
                "origins": [f"{found.cluster_id}/{found.topic}" for found in sorted(it.origins)],
            }
        return described


def job_start(plan: MirrorPlan, source: Cluster, target: Cluster) -> JobStart:
    """Returns the start of the plan's mirror. Raises PipelineError for everything that would prevent it."""
    name = plan.named(source.cluster_id, target.cluster_id)
    states = {topic: source_state(plan, source, topic) for topic in plan.topics}
    origins = origins_at(plan, source, target)
    stored = State.read(CompactedTopic(target, TOPIC_PREFIX + name).all())
    changes = planned_changes(source, target, plan.pairs, stored.configs, plan.excluded_configs)
    topics = {}
    for topic, state in states.items():
        positions = [it for at, it in stored.positions.items() if at.topic == topic]
        for it in positions:
            _check_target(name, it, plan, target)
        begun = tables.start(
            _joined(positions),
            state,
            begin_at=state.starts if plan.begin == "earliest" else state.ends,
            on_gap=plan.on_gap,
            holder=plan.holder(TOPIC_PREFIX + name),
        )
        topics[topic] = TopicStart(
            state=state,
            target=plan.target_topic(topic),
            begun=begun,
            is_new=not positions,
            origins=origins[topic],
            changes=changes[topic][0],
            configs=changes[topic][1],
        )
    return JobStart(name=name, stored=stored, topics=topics)


def source_state(plan: MirrorPlan, source: Cluster, topic: str) -> TopicState:
    """The state of a source's topic. Raises PipelineError if it does not exist, and other ClientErrors."""
    try:
        return topic_state(source, topic, IsolationLevel.READ_COMMITTED)
    except UnknownTopic:
        raise PipelineError(f"topic {topic} not found at {plan.source}: create it, or see --from") from None


def origins_at(plan: MirrorPlan, source: Cluster, target: Cluster) -> dict[str, frozenset[Origin]]:
    """The origins of each topic's records, as they are stored now. Raises Cycle and ClientError."""
    source_id, target_id = source.cluster_id or "", target.cluster_id or ""
    lineage = _lineage_at(source, plan.topics)
    return {
        topic: check_origins(Origin(source_id, topic), Origin(target_id, to), lineage)
        for topic, to in plan.pairs.items()
    }


def _lineage_at(cluster: Cluster, topics: Collection[str]) -> Lineage:
    """The origins that mirrors into a cluster have stored for some of its topics. Raises ClientError."""
    found: dict[str, dict[str, frozenset[Origin]]] = defaultdict(dict)
    for it in cluster.metadata(None).topics:
        name = it.name or ""
        if not name.startswith(TOPIC_PREFIX):
            continue
        # Uncommitted values count too: that mirror has begun.
        state = State.read(CompactedTopic(cluster, name).all(IsolationLevel.READ_UNCOMMITTED))
        for position in state.positions.values():
            topic = position.target_topic
            if topic in topics:
                found[topic][name] = found[topic].get(name, frozenset()) | position.origins
    return found


def target_ids(target: Cluster, topics: Collection[str]) -> dict[str, str]:
    """The ids of the target's topics, which have to exist. Raises ClientError."""
    return {name: str(target.topic(name).topic_id) for name in topics}


def _joined(positions: Collection[Position]) -> tables.Position | None:
    """The position in a topic, joined from those of its partitions."""
    for it in positions:
        offsets = {other.at.partition: other.next for other in positions}
        return tables.Position(it.cluster_id, it.at.topic, it.topic_id, offsets)
    return None


def _check_target(name: str, position: Position, plan: MirrorPlan, target: Cluster) -> None:
    """Raises PipelineError unless the target's topic is still the one that was mirrored to."""
    topic, to = position.at.topic, plan.target_topic(position.at.topic)
    if position.target_topic != to:
        raise PipelineError(
            f"mirror {name} writes topic {topic} to {position.target_topic}, not to {to}: leave --rename as it was, or "
            "begin another mirror, --name NAME"
        )
    target.forget_topic(to)
    try:
        found = str(target.topic(to).topic_id)
    except UnknownTopic:
        found = ""
    if found != position.target_topic_id:
        happened = "deleted and created again" if found else "deleted"
        raise PipelineError(
            f"topic {to} at --to was {happened} since it was mirrored, and its records are gone. To start again, let "
            "another mirror write it: --name NAME"
        )
