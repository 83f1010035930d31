"""The driver's requests to brokers: the decision in the state topic, and the source and target of the replay.

A run takes the driver's transactional id, and aborts transactions that tasks of an earlier run left open, because
readers of the state topic would wait for them. That fences an earlier run that is still alive; it finds out at its next
transaction.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs

from kwire.client.cluster import Cluster
from kwire.client.errors import UnknownTopic
from kwire.pipeline.bounds import resolve
from kwire.pipeline.delivery.compacted_topic import CompactedTopic
from kwire.pipeline.delivery.parts import abort_orphans
from kwire.pipeline.delivery.positioned import PositionedWriter
from kwire.pipeline.delivery.writing import partitions_to_write
from kwire.pipeline.errors import PipelineError
from kwire.pipeline.replay.pinned import Pinned, key_of
from kwire.pipeline.replay.plan import Range
from kwire.pipeline.replay.writing import TIMEOUT_MS, driver_id, transactional_id
from kwire.pipeline.topic_state import TopicState
from kwire.pipeline.topics import Topics


@attrs.frozen
class Target:
    """The topic to write to. `topic_id` is all zeros if the brokers have none."""

    topic_id: str
    partitions: int


@attrs.define(eq=False)
class Keeper:
    """The driver's access to the state topic. All methods raise ClientError."""

    cluster: Cluster
    name: str
    state_topic: CompactedTopic
    _writer: PositionedWriter

    @classmethod
    def take(cls, cluster: Cluster, name: str, state_topic: str, now_ms: Callable[[], int]) -> Keeper:
        """Takes the driver's name, which fences any earlier driver. Creates the state topic if it does not exist."""
        topic = CompactedTopic(cluster, state_topic)
        topic.make()
        key = key_of(name)
        writer = PositionedWriter(cluster, driver_id(name), topic, key, now_ms=now_ms, timeout_ms=TIMEOUT_MS)
        abort_orphans(cluster, transactional_id(name, None))
        return cls(cluster, name, topic, writer)

    def pinned(self) -> Pinned | None:
        """Returns the decision of an earlier run. Also raises PipelineError."""
        value = self._writer.position()
        return None if value is None else Pinned.from_json(value)

    def keep(self, pinned: Pinned, *, forget_positions: bool = False) -> None:
        """Stores the decision. Raises ProducerFenced if another run has taken over."""
        own = f"{self.name}/".encode()
        forgotten = {key: None for key in self.state_topic.all() if key.startswith(own)} if forget_positions else {}
        with self._writer.transaction():
            self._writer.keep(pinned.to_json(), forgotten)


def peek(cluster: Cluster, name: str, state_topic: str) -> Pinned | None:
    """The decision, read without taking the name, because a run may be active. Raises ClientError and PipelineError."""
    try:
        value = CompactedTopic(cluster, state_topic).newest(key_of(name))
    except UnknownTopic:
        return None
    return None if value is None else Pinned.from_json(value)


def target_of(cluster: Cluster, topic: str) -> Target:
    """The target. Raises ClientError; PipelineError if it does not exist and brokers do not create topics."""
    try:
        partitions = partitions_to_write(cluster, topic)
    except UnknownTopic:
        raise PipelineError(f"topic {topic} not found: create it, or name another (--to-topic)") from None
    cluster.forget_topic(topic)
    return Target(str(cluster.topic(topic).topic_id), partitions)


def resolve_range(range_: Range, topic: TopicState, topics: Topics) -> dict[int, tuple[int, int]]:
    """Returns a range's first offset and the one after its last, by partition of the topic. Raises PipelineError.

    Partitions that one of the bounds leaves out are left out.
    """
    first, until = (
        resolve(bound, topic, lambda ms: topics.offsets_at(topic.topic, ms)) for bound in (range_.first, range_.until)
    )
    return {number: (at, max(at, until[number])) for number, at in first.items() if number in until}
