"""Committed offsets of groups, written and read by a client that is not a member.

A pipeline that stores its position elsewhere does this for tools that monitor the lag of groups. A group with members
accepts commits only from them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import quoted
from kwire_protocol.messages.list_groups import ListGroupsRequest
from kwire_protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kwire_protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)

from kwire.client.cluster import Cluster, CoordinatorKind, TopicPartition
from kwire.client.connection import BrokerConnection
from kwire.client.errors import ClientError, Refused, error_name, raise_worst, refused

_LAST_WITH_TOPIC_NAMES = 9
_FIRST_WITH_GROUPS = 8
_OF_MEMBERS_ONLY = {
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.STALE_MEMBER_EPOCH,
}
# A group that only keeps offsets has no type.
_CONSUMERS = ("consumer", "")


class GroupHasMembers(Refused):
    """The group has members, and accepts commits only from them."""


@attrs.frozen
class CommittedOffset:
    """`offset` is that of the next record to read. `metadata` is any text of the committer."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


def commit_offsets(cluster: Cluster, group_id: str, offsets: Mapping[TopicPartition, int | CommittedOffset]) -> None:
    """Commits for a group without members; all offsets are committed when this returns.

    Retries until the cluster's timeout while the coordinator moves or loads. Raises GroupHasMembers, UnknownTopic, and
    other ClientErrors; some offsets may then be committed.
    """
    by_topic: dict[str, list[OffsetCommitRequestPartition]] = defaultdict(list)
    for at, committed in offsets.items():
        it = committed if isinstance(committed, CommittedOffset) else CommittedOffset(committed)
        by_topic[at.topic].append(
            OffsetCommitRequestPartition(
                partition_index=at.partition,
                committed_offset=it.offset,
                committed_leader_epoch=it.leader_epoch,
                committed_metadata=it.metadata,
            )
        )
    if not by_topic:
        return
    topics = [OffsetCommitRequestTopic(name, partitions=partitions) for name, partitions in by_topic.items()]

    def call(coordinator: BrokerConnection) -> None:
        response = coordinator.call(OffsetCommitRequest(group_id, topics=topics), at_most=_LAST_WITH_TOPIC_NAMES)
        for topic in response.topics:
            for it in topic.partitions:
                if it.error_code:
                    raise _commit_refused(
                        cluster, group_id, TopicPartition(topic.name, it.partition_index), it.error_code
                    )

    cluster.call_coordinator(CoordinatorKind.GROUP, group_id, call)


def fetch_offsets(
    cluster: Cluster,
    group_id: str,
    partitions: Collection[TopicPartition] | None = None,
    *,
    require_stable: bool = False,
) -> dict[TopicPartition, CommittedOffset]:
    """Returns a group's committed offsets, for these partitions or for all. Partitions without an offset are left out.

    require_stable: waits for offsets that an open transaction may still commit (KIP-447).
    """
    topics: list[OffsetFetchRequestTopics] | None = None
    if partitions is not None:
        by_topic: dict[str, list[int]] = defaultdict(list)
        for at in partitions:
            by_topic[at.topic].append(at.partition)
        topics = [OffsetFetchRequestTopics(name, partition_indexes=indexes) for name, indexes in by_topic.items()]
    request = OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id, topics=topics)], require_stable=require_stable
    )

    def call(coordinator: BrokerConnection) -> dict[TopicPartition, CommittedOffset]:
        response = coordinator.call(request, at_least=_FIRST_WITH_GROUPS, at_most=_LAST_WITH_TOPIC_NAMES)
        found = {}
        for group in response.groups:
            if group.error_code:
                raise refused(f"the offsets of group {quoted(group_id)} cannot be fetched", group.error_code)
            for topic in group.topics:
                for it in topic.partitions:
                    at = TopicPartition(topic.name, it.partition_index)
                    if it.error_code:
                        what = f"the offset of group {quoted(group_id)} in {at} cannot be fetched"
                        raise refused(what, it.error_code)
                    if it.committed_offset >= 0:
                        found[at] = CommittedOffset(it.committed_offset, it.metadata or "", it.committed_leader_epoch)
        return found

    return cluster.call_coordinator(CoordinatorKind.GROUP, group_id, call)


def list_consumer_groups(cluster: Cluster) -> list[str]:
    """Returns the consumer groups of all brokers, and the groups that only have offsets. Raises ClientError."""
    found: set[str] = set()

    def attempt() -> None:
        cluster.metadata([])
        problems: list[ClientError] = []
        for node_id, answer in cluster.call_each(dict.fromkeys(cluster.node_ids(), ListGroupsRequest())).items():
            if isinstance(answer, ClientError):
                problems.append(answer)
            elif answer.error_code:
                problems.append(refused(f"the groups of broker {node_id} cannot be listed", answer.error_code))
            else:
                found.update(it.group_id for it in answer.groups if it.protocol_type in _CONSUMERS)
        raise_worst(problems)

    cluster.until_done(attempt)
    return sorted(found)


def _commit_refused(cluster: Cluster, group_id: str, at: TopicPartition, code: int) -> Refused:
    """Returns the error of a refused commit. Raises UnknownTopic instead if the partition does not exist; otherwise the
    coordinator may just not have it yet."""
    if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        cluster.forget_topic(at.topic)
        cluster.leader(at)
    what = f"group {quoted(group_id)} does not take the offset of {at}"
    if code in _OF_MEMBERS_ONLY:
        return GroupHasMembers(f"{what}: it has members, and only they may commit ({error_name(code)})", code)
    return refused(what, code)
