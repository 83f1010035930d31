"""The limit of a reassignment's copy rate (KIP-73), set and removed as by kafka-reassign-partitions.

A limit is in two places. Each broker has a rate for what it sends, and one for what it fetches:
{leader,follower}.replication.throttled.rate. Each topic names the replicas that the rates are for, as partition:broker
pairs: {leader,follower}.replication.throttled.replicas. A rate without such a replica has no effect.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

from kwire.admin.reassignments import Reassignment, list_reassignments
from kwire.client.cluster import Cluster, TopicPartition
from kwire.client.errors import UnknownTopic, refused
from kwire.client.topics import topic_overrides

LEADER: Final = "leader"
FOLLOWER: Final = "follower"

_TOPIC, _BROKER = 2, 4
_SET, _DELETE, _APPEND, _SUBTRACT = 0, 1, 2, 3


def limit_copying(cluster: Cluster, it: Reassignment, bytes_per_second: int) -> None:
    """Limits each broker that sends the partition, and each that copies it. Raises ClientError."""
    rate = str(bytes_per_second)
    for node_ids, side in ((it.before, LEADER), (it.adding, FOLLOWER)):
        for node_id in node_ids:
            _alter(cluster, _BROKER, str(node_id), [AlterableConfig(_rate(side), _SET, rate)], node_id=node_id)
    _alter(
        cluster,
        _TOPIC,
        it.at.topic,
        [
            AlterableConfig(_replicas(side), _APPEND, ",".join(f"{it.at.partition}:{node_id}" for node_id in node_ids))
            for node_ids, side in ((it.before, LEADER), (it.adding, FOLLOWER))
            if node_ids
        ],
    )


def end_limit(cluster: Cluster, at: TopicPartition) -> bool:
    """Removes the limit that `limit_copying` has set for the partition. Returns True if there was one.

    The brokers' rates stay as long as reassignments are in progress, for which they may have been set. Raises
    ClientError.
    """
    try:
        overrides = topic_overrides(cluster, [at.topic])[at.topic]
    except UnknownTopic:
        overrides = {}
    named = {side: _pairs_of(at, overrides.get(_replicas(side), "")) for side in (LEADER, FOLLOWER)}
    operations = [
        AlterableConfig(_replicas(side), _SUBTRACT, ",".join(pairs)) for side, pairs in named.items() if pairs
    ]
    if not operations:
        return False
    _alter(cluster, _TOPIC, at.topic, operations)
    if not list_reassignments(cluster):
        for node_id in cluster.node_ids():
            rates = [AlterableConfig(_rate(side), _DELETE, None) for side in (LEADER, FOLLOWER)]
            _alter(cluster, _BROKER, str(node_id), rates, node_id=node_id)
    return True


def _pairs_of(at: TopicPartition, value: str) -> list[str]:
    return [it for it in value.split(",") if it.partition(":")[0].strip() == str(at.partition)]


def _rate(side: str) -> str:
    return f"{side}.replication.throttled.rate"


def _replicas(side: str) -> str:
    return f"{side}.replication.throttled.replicas"


def _alter(
    cluster: Cluster, kind: int, name: str, operations: Iterable[AlterableConfig], *, node_id: int | None = None
) -> None:
    request = IncrementalAlterConfigsRequest([AlterConfigsResource(kind, name, [*operations])])
    what = f"the limit of {'topic' if kind == _TOPIC else 'broker'} {name} cannot be changed"

    def alter() -> None:
        receiver_id = cluster.controller_id() if node_id is None else node_id
        for it in cluster.call(request, node_id=receiver_id).responses:
            if it.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise UnknownTopic(refused(what, it.error_code, it.error_message).message)
            if it.error_code:
                raise refused(what, it.error_code, it.error_message)

    cluster.until_done(alter)
