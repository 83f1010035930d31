"""DescribeShareGroupOffsets: v0-1, flexible (KIP-932).

* v1: lag (KIP-1226)

A request without topics is for all partitions that the group has initialized. A partition without a state has start
offset -1.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Final

from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)
from kwire_protocol.wire import Uuid

from kwire.handlers._shared.end_offsets import end_offsets
from kwire.handlers._shared.group_protocols import SHARE, check_protocol
from kwire.security.authorizer import Operation, ResourceType
from kwire.share.coordinator.state import ShareStateSummary

if TYPE_CHECKING:
    from kwire.groups.service import GroupService
    from kwire.handlers.authorization import Authorization
    from kwire.handlers.context import Context
    from kwire.metadata.service import MetadataService
    from kwire.peers.peers import Peers
    from kwire.replicas.table import PartitionTable
    from kwire.share.coordinator.persister import Persister

NO_OFFSET: Final = -1
ANY_EPOCH: Final = -1


async def handle(
    metadata: MetadataService,
    authorization: Authorization,
    partitions: PartitionTable,
    groups: GroupService,
    persister: Persister,
    peers: Peers,
    request: DescribeShareGroupOffsetsRequest,
    context: Context,
) -> DescribeShareGroupOffsetsResponse:
    return DescribeShareGroupOffsetsResponse(
        groups=[
            await _group(metadata, authorization, partitions, groups, persister, peers, context, it)
            for it in request.groups
        ]
    )


async def _group(
    metadata: MetadataService,
    authorization: Authorization,
    partitions: PartitionTable,
    groups: GroupService,
    persister: Persister,
    peers: Peers,
    context: Context,
    requested: DescribeShareGroupOffsetsRequestGroup,
) -> DescribeShareGroupOffsetsResponseGroup:
    try:
        check_protocol(metadata, SHARE)
        authorization.check(context, Operation.DESCRIBE, ResourceType.GROUP, requested.group_id)
        wanted, answers = _wanted(metadata, authorization, groups, context, requested)
        summaries = await persister.read_summary(
            requested.group_id,
            {topic_id: [(it, ANY_EPOCH) for it in indexes] for topic_id, (_, indexes) in wanted.items()},
        )
    except KafkaError as error:
        return DescribeShareGroupOffsetsResponseGroup(
            requested.group_id, error_code=error.code, error_message=error.message
        )
    ends = await end_offsets(
        metadata,
        partitions,
        peers,
        [
            (name, it)
            for topic_id, (name, indexes) in wanted.items()
            for it in indexes
            if _has_a_lag(summaries[topic_id, it])
        ],
    )
    for topic_id, (name, indexes) in wanted.items():
        answers.append(
            DescribeShareGroupOffsetsResponseTopic(
                name, topic_id, [_partition(it, summaries[topic_id, it], ends.get((name, it))) for it in indexes]
            )
        )
    return DescribeShareGroupOffsetsResponseGroup(requested.group_id, answers)


def _wanted(
    metadata: MetadataService,
    authorization: Authorization,
    groups: GroupService,
    context: Context,
    requested: DescribeShareGroupOffsetsRequestGroup,
) -> tuple[dict[Uuid, tuple[str, Collection[int]]], list[DescribeShareGroupOffsetsResponseTopic]]:
    """Returns the name and the partitions of the topics that may be described, and the results of the others."""
    wanted: dict[Uuid, tuple[str, Collection[int]]] = {}
    if requested.topics is None:
        for topic_id, indexes in groups.initialized_share_partitions(requested.group_id).items():
            image = metadata.image.topics_by_id.get(topic_id)
            if image is not None and authorization.allows(context, Operation.DESCRIBE, ResourceType.TOPIC, image.name):
                wanted[topic_id] = image.name, sorted(indexes)
        return wanted, []
    allowed, refused = authorization.divided(context, Operation.DESCRIBE, requested.topics, lambda it: it.topic_name)
    answers = [_without_offsets(topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED) for topic in refused]
    for topic in allowed:
        image = metadata.image.topics.get(topic.topic_name)
        if image is None:
            answers.append(_without_offsets(topic, ErrorCode.NONE))
        else:
            wanted[image.topic_id] = topic.topic_name, topic.partitions
    return wanted, answers


def _without_offsets(
    topic: DescribeShareGroupOffsetsRequestTopic, error: ErrorCode
) -> DescribeShareGroupOffsetsResponseTopic:
    return DescribeShareGroupOffsetsResponseTopic(
        topic.topic_name,
        partitions=[
            DescribeShareGroupOffsetsResponsePartition(it, NO_OFFSET if not error else 0, error_code=error)
            for it in topic.partitions
        ],
    )


def _has_a_lag(summary: ShareStateSummary) -> bool:
    return not summary.error and NO_OFFSET not in (summary.start_offset, summary.delivery_complete_count)


def _partition(
    partition: int, summary: ShareStateSummary, end_offset: int | ErrorCode | None
) -> DescribeShareGroupOffsetsResponsePartition:
    """Returns a partition's result. As in Kafka, an unreadable state has no offset and no error, but an unknown end
    offset is an error."""
    if summary.error:
        return DescribeShareGroupOffsetsResponsePartition(partition, NO_OFFSET)
    if isinstance(end_offset, ErrorCode):
        return DescribeShareGroupOffsetsResponsePartition(partition, error_code=end_offset)
    answer = DescribeShareGroupOffsetsResponsePartition(partition, summary.start_offset, summary.leader_epoch)
    if end_offset is not None:
        answer.lag = end_offset - summary.start_offset - summary.delivery_complete_count
    return answer
