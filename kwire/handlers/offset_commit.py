"""OffsetCommit: v2-10.

* v2: retention_time_ms, until v4
* v3: throttle_time_ms
* v6: committed_leader_epoch (KIP-320)
* v7: group_instance_id (KIP-345)
* v8: flexible
* v9: GROUP_ID_NOT_FOUND for a generation of a group that is not there (KIP-848)
* v10: topics by id

Offsets are committed for partitions that exist; the others are refused one by one and do not keep these back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

from kwire.groups.offsets import commit_error

if TYPE_CHECKING:
    from kwire.broker import Broker
    from kwire.context import Context

FIRST_VERSION_WITH_TOPIC_IDS = 10


async def handle(broker: Broker, request: OffsetCommitRequest, context: Context) -> OffsetCommitResponse:
    refused: list[OffsetCommitResponseTopic] = []
    wanted, request.topics = request.topics, []
    by_id = context.api_version >= FIRST_VERSION_WITH_TOPIC_IDS
    for topic in wanted:
        _check(broker, topic, by_id, refused)
        if topic.partitions:
            request.topics.append(topic)
    if not request.topics:
        return OffsetCommitResponse(topics=refused)
    try:
        response = await broker.groups.commit(request, context)
    except KafkaError as error:
        response = commit_error(request, error.code)
    if refused:
        response.topics = _merged(refused, response.topics)
    return response


def _check(
    broker: Broker, topic: OffsetCommitRequestTopic, by_id: bool, refused: list[OffsetCommitResponseTopic]
) -> None:
    """Gives the topic its name and its id, and moves the partitions that do not exist to `refused`."""
    image = broker.metadata.image
    found = image.topics_by_id.get(topic.topic_id) if by_id else image.topics.get(topic.name)
    if found is None:
        count, error = 0, ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    else:
        topic.name, topic.topic_id = found.name, found.topic_id
        count, error = len(found.partitions), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    missing = [partition for partition in topic.partitions if not 0 <= partition.partition_index < count]
    if missing:
        refused.append(
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[OffsetCommitResponsePartition(partition.partition_index, error) for partition in missing],
            )
        )
        topic.partitions = [partition for partition in topic.partitions if 0 <= partition.partition_index < count]


def _merged(
    refused: list[OffsetCommitResponseTopic], answered: list[OffsetCommitResponseTopic]
) -> list[OffsetCommitResponseTopic]:
    topics = {(topic.name, topic.topic_id): topic for topic in refused}
    for topic in answered:
        known = topics.setdefault((topic.name, topic.topic_id), topic)
        if known is not topic:
            known.partitions += topic.partitions
    return list(topics.values())
