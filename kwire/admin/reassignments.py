"""Reassignments of partitions to other brokers (KIP-455): lists, begins, cancels and measures them.

A reassignment in progress has the union of the old and the new replicas, the new ones first. When all new replicas are
in sync, the others are dropped.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import StrEnum
from typing import Final

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from kwire_protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
)

from kwire.admin.partitions import look_up_partition, partition_states, replica_sizes
from kwire.client.cluster import Cluster, TopicPartition
from kwire.client.errors import ClientError, ConnectionFailed, UnknownTopic, refused
from kwire.client.waiting import until_done

SETTLING_S: Final = 5.0
"""The maximum time to wait until brokers have a reassignment's end: Apache Kafka's read it from the metadata log."""


class Outcome(StrEnum):
    """The outcome of a reassignment."""

    COMPLETE = "complete"
    CANCELLED = "cancelled"
    """It was cancelled, or replaced by another one."""
    DELETED = "deleted"
    """The topic was deleted."""


@attrs.frozen
class Reassignment:
    """A reassignment in progress."""

    at: TopicPartition
    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]

    @property
    def target(self) -> tuple[int, ...]:
        """The replicas when it is complete, the preferred leader first."""
        return tuple(it for it in self.replicas if it not in self.removing)

    @property
    def before(self) -> tuple[int, ...]:
        """The replicas when it is cancelled."""
        return tuple(it for it in self.replicas if it not in self.adding)


@attrs.frozen
class Progress:
    """The copied part of the new replicas, and of those old ones that stay and are not in sync.

    A replica that is in sync counts as complete. Sizes of replicas differ a little: each rolls, deletes and compacts
    its segments at its own time.
    """

    copied_bytes: int
    total_bytes: int | None
    """None when the leader's size is not known."""

    @property
    def percent(self) -> int | None:
        if self.total_bytes is None:
            return None
        return 100 * self.copied_bytes // self.total_bytes if self.total_bytes else 100


def list_reassignments(cluster: Cluster, at: TopicPartition | None = None) -> list[Reassignment]:
    """Returns the reassignments in progress, of all partitions or of one, by topic and number. Raises ClientError."""
    topics = None if at is None else [ListPartitionReassignmentsTopics(at.topic, [at.partition])]
    request = ListPartitionReassignmentsRequest(_timeout_ms(cluster), topics)

    def attempt() -> list[Reassignment]:
        answer: ListPartitionReassignmentsResponse = cluster.call(request, node_id=cluster.controller_id())
        if answer.error_code:
            raise refused("reassignments cannot be listed", answer.error_code, answer.error_message)
        return [
            Reassignment(
                TopicPartition(topic.name, it.partition_index),
                tuple(it.replicas),
                tuple(it.adding_replicas),
                tuple(it.removing_replicas),
            )
            for topic in answer.topics
            for it in topic.partitions
        ]

    return sorted(cluster.until_done(attempt), key=lambda it: it.at)


def reassign(cluster: Cluster, at: TopicPartition, replicas: Sequence[int]) -> None:
    """Begins to move a partition to these brokers, the preferred leader first. Replaces a reassignment in progress.

    Raises ClientError.
    """
    _alter(cluster, at, [*replicas], f"{at} cannot be moved")


def cancel_reassignment(cluster: Cluster, at: TopicPartition) -> None:
    """Raises ClientError; Refused with NO_REASSIGNMENT_IN_PROGRESS if there is none."""

    _alter(cluster, at, None, f"the reassignment of {at} cannot be cancelled")


def measure(cluster: Cluster, reassignments: Collection[Reassignment]) -> dict[TopicPartition, Progress]:
    """The progress of these reassignments. Those of partitions that do not exist any more are left out."""
    if not reassignments:
        return {}
    # A topic that was deleted has an error, and no partitions.
    topics = sorted({it.at.topic for it in reassignments})
    described = cluster.until_done(lambda: cluster.metadata(topics)).topics
    partitions = {it.at: it for it in partition_states(described)}
    known = [it for it in reassignments if it.at in partitions]
    leaders = {it.at: leader_id for it in known if (leader_id := partitions[it.at].leader_id) is not None}
    lagging = {it.at: [node_id for node_id in it.target if node_id not in partitions[it.at].isr] for it in known}
    sizes = replica_sizes(
        cluster,
        [
            *((leader_id, at) for at, leader_id in leaders.items()),
            *((node_id, at) for at, some in lagging.items() for node_id in some),
        ],
    )
    found = {}
    for it in known:
        copied = [sizes.get((node_id, it.at), 0) for node_id in lagging[it.at]]
        size = sizes.get((leaders[it.at], it.at)) if it.at in leaders else None
        if size is None:
            found[it.at] = Progress(sum(copied), None)
        else:
            needed = {*it.adding, *lagging[it.at]}
            in_sync = size * (len(needed) - len(copied))
            found[it.at] = Progress(in_sync + sum(min(some, size) for some in copied), size * len(needed))
    return found


def outcome(cluster: Cluster, ended: Reassignment) -> Outcome:
    """Returns the outcome of a reassignment that is not in progress any more. Raises ClientError."""

    def attempt(*, is_last: bool = False) -> Outcome:
        try:
            now = look_up_partition(cluster, ended.at)
        except UnknownTopic:
            return Outcome.DELETED
        has_target = set(now.replicas) == set(ended.target)
        if is_last:
            return Outcome.COMPLETE if has_target else Outcome.CANCELLED
        if has_target and set(ended.adding) <= set(now.isr):
            return Outcome.COMPLETE
        if set(now.replicas) == set(ended.before) != set(ended.replicas):
            return Outcome.CANCELLED
        raise _Unsettled(f"the replicas of {ended.at} may still be those of its reassignment")

    try:
        return until_done(attempt, clock=cluster.clock, timeout_s=SETTLING_S)
    except _Unsettled:
        return attempt(is_last=True)


def _alter(cluster: Cluster, at: TopicPartition, replicas: list[int] | None, what: str) -> None:
    request = AlterPartitionReassignmentsRequest(
        _timeout_ms(cluster),
        topics=[ReassignableTopic(at.topic, [ReassignablePartition(at.partition, replicas)])],
    )

    def alter() -> None:
        try:
            answer: AlterPartitionReassignmentsResponse = cluster.call(request, node_id=cluster.controller_id())
        except ConnectionFailed as error:
            # The request may have been carried out. Sent again, a cancellation would fail, and a reassignment would
            # count the replicas that it adds as those from before: cancelling it would keep them.
            error.may_pass = False
            raise
        if answer.error_code:
            raise refused(what, answer.error_code, answer.error_message)
        for it in (it for topic in answer.responses for it in topic.partitions):
            if it.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise UnknownTopic(refused(what, it.error_code, it.error_message).message)
            if it.error_code:
                raise refused(what, it.error_code, it.error_message)

    cluster.until_done(alter)


def _timeout_ms(cluster: Cluster) -> int:
    return int(cluster.timeout_s * 1000)


class _Unsettled(ClientError):
    """A broker may still list the reassignment."""

    may_pass = True
