"""OffsetDelete: v0 (KIP-496).

Offsets of topics that a member of the group subscribes to cannot be deleted: GROUP_SUBSCRIBED_TO_TOPIC.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

from kwire.security.authorizer import Operation, ResourceType

if TYPE_CHECKING:
    from kwire.groups.service import GroupService
    from kwire.handlers.authorization import Authorization
    from kwire.handlers.context import Context
    from kwire.metadata.service import MetadataService


async def handle(
    metadata: MetadataService,
    authorization: Authorization,
    groups: GroupService,
    request: OffsetDeleteRequest,
    context: Context,
) -> OffsetDeleteResponse:
    if not authorization.allows(context, Operation.DELETE, ResourceType.GROUP, request.group_id):
        return OffsetDeleteResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    refused: dict[str, OffsetDeleteResponseTopic] = {}
    wanted, request.topics = request.topics, []
    for topic in wanted:
        _check(metadata, authorization, context, topic, refused)
        if topic.partitions:
            request.topics.append(topic)
    try:
        response = await groups.delete_offsets(request)
    except KafkaError as error:
        return OffsetDeleteResponse(error_code=error.code)
    if response.error_code:
        return response
    for answered in response.topics:
        known = refused.setdefault(answered.name, answered)
        if known is not answered:
            known.partitions += answered.partitions
    return OffsetDeleteResponse(topics=list(refused.values()))


def _check(
    metadata: MetadataService,
    authorization: Authorization,
    context: Context,
    topic: OffsetDeleteRequestTopic,
    refused: dict[str, OffsetDeleteResponseTopic],
) -> None:
    """Moves the partitions that do not exist to `refused`."""
    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    found = metadata.image.topics.get(topic.name)
    if not authorization.allows(context, Operation.READ, ResourceType.TOPIC, topic.name):
        found, error = None, ErrorCode.TOPIC_AUTHORIZATION_FAILED
    count = 0 if found is None else len(found.partitions)
    missing = [it.partition_index for it in topic.partitions if not 0 <= it.partition_index < count]
    if missing:
        answer = refused.setdefault(topic.name, OffsetDeleteResponseTopic(name=topic.name))
        answer.partitions += [OffsetDeleteResponsePartition(index, error) for index in missing]
        topic.partitions = [it for it in topic.partitions if 0 <= it.partition_index < count]
