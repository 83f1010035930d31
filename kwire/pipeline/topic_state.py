"""A topic's state at one moment: its ids, and its partitions' first and last offsets."""

from __future__ import annotations

from collections.abc import Mapping

import attrs
from kwire_protocol.wire import NULL_UUID

from kwire.client.cluster import Cluster
from kwire.client.offsets import EARLIEST, LATEST, IsolationLevel, list_offsets


@attrs.frozen
class TopicState:
    """`topic_id` is empty if the brokers have none. An end is the next offset that a reader would get."""

    cluster_id: str
    topic: str
    topic_id: str
    starts: Mapping[int, int]
    ends: Mapping[int, int]


def topic_state(cluster: Cluster, topic: str, isolation: IsolationLevel) -> TopicState:
    """Requests the state from the brokers, regardless of the cluster's cached metadata. Raises ClientError."""
    cluster.forget_topic(topic)
    found = cluster.topic(topic)
    return TopicState(
        cluster_id=cluster.cluster_id or "",
        topic=topic,
        topic_id="" if found.topic_id == NULL_UUID else str(found.topic_id),
        starts=list_offsets(cluster, topic, EARLIEST),
        ends=list_offsets(cluster, topic, LATEST, isolation_level=isolation),
    )
