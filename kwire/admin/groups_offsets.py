"""The progress of groups: the offsets that they have committed, and the ends of the partitions.

Classic, consumer and streams groups commit offsets, one owner for each partition. The offset of a share group is its
start offset: all records before it are finished. Its partitions have several owners at a time, and the share
coordinator counts the lag, since some of the records after the start offset are finished, too (KIP-1226).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import quoted
from kwire_protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
    DeleteShareGroupOffsetsResponse,
)
from kwire_protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from kwire_protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)

from kwire.admin.groups import SHARE, GroupDescription, GroupNotEmpty, GroupNotFound, once
from kwire.admin.partitions import by_topic
from kwire.client.cluster import Cluster, CoordinatorKind, TopicPartition
from kwire.client.connection import BrokerConnection
from kwire.client.errors import ClientError, error_name, refused
from kwire.client.groups import fetch_offsets
from kwire.client.offsets import LATEST, list_offsets


@attrs.frozen
class Position:
    """The position of a group in one partition."""

    offset: int | None
    """The offset of the next record to read, or a share group's start offset. None before there is one."""
    lag: int | None = None
    """The lag that the coordinator counts. None except in share groups."""


@attrs.frozen
class PartitionProgress:
    at: TopicPartition
    offset: int | None
    log_end: int | None
    """None if it is not known: the topic is gone, or the partition has no leader."""
    lag: int | None
    """Negative if the log ends before the offset."""
    member_ids: tuple[str, ...]
    """The owners: at most one, except in share groups."""


@attrs.frozen
class Progress:
    """`notes`: a sentence for each topic whose ends are not known."""

    partitions: list[PartitionProgress]
    notes: list[str]


def positions(cluster: Cluster, group: GroupDescription) -> dict[TopicPartition, Position]:
    """Returns the positions that the coordinator keeps, in all topics. Raises ClientError."""
    if group.kind == SHARE:
        return _share_positions(cluster, group.group_id)
    return {at: Position(it.offset) for at, it in fetch_offsets(cluster, group.group_id).items()}


def progress(cluster: Cluster, group: GroupDescription) -> Progress:
    """Returns every partition in which the group has an offset, or that a member owns, by topic and number."""
    owners: dict[TopicPartition, list[str]] = defaultdict(list)
    for member in group.members:
        for at in member.partitions:
            owners[at].append(member.member_id)
    found = positions(cluster, group)
    ends, notes = log_ends(cluster, found.keys() | owners.keys())
    partitions = []
    for at in sorted(found.keys() | owners.keys()):
        position, end = found.get(at, Position(None)), ends.get(at)
        lag = position.lag
        if lag is None and position.offset is not None and end is not None and group.kind != SHARE:
            lag = end - position.offset
        partitions.append(PartitionProgress(at, position.offset, end, lag, tuple(owners.get(at, ()))))
    return Progress(partitions, notes)


def log_ends(cluster: Cluster, partitions: Iterable[TopicPartition]) -> tuple[dict[TopicPartition, int], list[str]]:
    """Returns the ends of the partitions that exist and have a leader, and a sentence for each topic with others."""
    ends: dict[TopicPartition, int] = {}
    notes = []
    for topic, indexes in sorted(by_topic(partitions).items()):
        try:
            leaders = cluster.topic(topic).leaders
            led = [index for index in indexes if leaders.get(index, -1) >= 0]
            if len(led) < len(indexes):
                left_out = ", ".join(str(index) for index in sorted(set(indexes) - set(led)))
                notes.append(f"topic {quoted(topic)} has no leader of partition {left_out}, or no such partition")
            if led:
                found = list_offsets(cluster, topic, LATEST, partitions=led)
                ends |= {TopicPartition(topic, index): end for index, end in found.items()}
        except ClientError as error:
            notes.append(error.message)
    return ends, notes


def delete_offsets(
    cluster: Cluster, group: GroupDescription, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, str | None]:
    """Deletes the offsets that a classic, consumer or streams group has committed in these partitions (KIP-496).

    Returns a problem for each partition, or None where the offset is deleted. Raises ClientError if none is deleted.
    """
    topics = [
        OffsetDeleteRequestTopic(name, [OffsetDeleteRequestPartition(index) for index in sorted(indexes)])
        for name, indexes in by_topic(partitions).items()
    ]

    def call(coordinator: BrokerConnection) -> dict[TopicPartition, str | None]:
        answer: OffsetDeleteResponse = coordinator.call(OffsetDeleteRequest(group.group_id, topics))
        _check_deletion(group.group_id, answer.error_code, None)
        return {
            TopicPartition(topic.name, it.partition_index): _problem(it.error_code, None)
            for topic in answer.topics
            for it in topic.partitions
        }

    return cluster.call_coordinator(CoordinatorKind.GROUP, group.group_id, call)


def delete_share_offsets(cluster: Cluster, group_id: str, topics: Collection[str]) -> dict[str, str | None]:
    """Deletes the offsets of a share group in whole topics (KIP-932). Returns a problem for each topic, or None."""
    requested = [DeleteShareGroupOffsetsRequestTopic(name) for name in sorted(topics)]

    def call(coordinator: BrokerConnection) -> dict[str, str | None]:
        answer: DeleteShareGroupOffsetsResponse = once(
            lambda: coordinator.call(DeleteShareGroupOffsetsRequest(group_id, requested))
        )
        _check_deletion(group_id, answer.error_code, answer.error_message)
        return {it.topic_name: _problem(it.error_code, it.error_message) for it in answer.responses}

    return cluster.call_coordinator(CoordinatorKind.GROUP, group_id, call)


def _check_deletion(group_id: str, code: int, message: str | None) -> None:
    what = f"offsets of group {quoted(group_id)} are not deleted"
    if code == ErrorCode.GROUP_ID_NOT_FOUND:
        raise GroupNotFound(group_id)
    if code == ErrorCode.NON_EMPTY_GROUP:
        raise GroupNotEmpty(f"{what}: it has members (NON_EMPTY_GROUP)")
    if code:
        raise refused(what, code, message)


def _problem(code: int, message: str | None) -> str | None:
    if not code:
        return None
    if code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC:
        return "a member subscribes to the topic (GROUP_SUBSCRIBED_TO_TOPIC)"
    return error_name(code) + (f" ({message})" if message else "")


def _share_positions(cluster: Cluster, group_id: str) -> dict[TopicPartition, Position]:
    request = DescribeShareGroupOffsetsRequest([DescribeShareGroupOffsetsRequestGroup(group_id, topics=None)])

    def call(coordinator: BrokerConnection) -> dict[TopicPartition, Position]:
        found = {}
        for group in coordinator.call(request).groups:
            if group.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
                raise GroupNotFound(group_id)
            what = f"the offsets of group {quoted(group_id)} cannot be fetched"
            if group.error_code:
                raise refused(what, group.error_code, group.error_message)
            for topic in group.topics:
                for it in topic.partitions:
                    if it.error_code:
                        raise refused(what, it.error_code, it.error_message)
                    # -1 for both until a member has fetched from it.
                    found[TopicPartition(topic.topic_name, it.partition_index)] = Position(
                        it.start_offset if it.start_offset >= 0 else None, it.lag if it.lag >= 0 else None
                    )
        return found

    return cluster.call_coordinator(CoordinatorKind.GROUP, group_id, call)
