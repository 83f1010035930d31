"""OffsetCommit: v2-10.

* v2: retention_time_ms, until v4
* v3: throttle_time_ms
* v6: committed_leader_epoch (KIP-320)
* v7: group_instance_id (KIP-345)
* v8: flexible
* v9: GROUP_ID_NOT_FOUND for a generation of an unknown group (KIP-848)
* v10: topics by id
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

from kwire.groups.offsets.committing import commit_error
from kwire.handlers._shared.committed_topics import committed_name, merged, take_missing
from kwire.security.authorizer import Operation, ResourceType

if TYPE_CHECKING:
    from kwire.groups.service import GroupService
    from kwire.handlers.authorization import Authorization
    from kwire.handlers.context import Context
    from kwire.metadata.service import MetadataService

FIRST_VERSION_WITH_TOPIC_IDS = 10


async def handle(
    metadata: MetadataService,
    authorization: Authorization,
    groups: GroupService,
    request: OffsetCommitRequest,
    context: Context,
) -> OffsetCommitResponse:
    if not authorization.allows(context, Operation.READ, ResourceType.GROUP, request.group_id):
        return commit_error(request, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    by_id = context.api_version >= FIRST_VERSION_WITH_TOPIC_IDS
    name_of = partial(committed_name, metadata.image, by_id=by_id)
    request.topics, unreadable = authorization.divided(context, Operation.READ, request.topics, name_of)
    denied = OffsetCommitRequest(topics=unreadable)
    refused = commit_error(denied, ErrorCode.TOPIC_AUTHORIZATION_FAILED).topics
    refused += [
        OffsetCommitResponseTopic(
            it.name, it.topic_id, [OffsetCommitResponsePartition(index, it.error) for index in it.partitions]
        )
        for it in take_missing(metadata.image, request.topics, by_id=by_id)
    ]
    request.topics = [topic for topic in request.topics if topic.partitions]
    if not request.topics:
        return OffsetCommitResponse(topics=refused)
    try:
        response = await groups.commit(request, api_version=context.api_version)
    except KafkaError as error:
        response = commit_error(request, error.code)
    if refused:
        response.topics = merged(refused, response.topics)
    return response
