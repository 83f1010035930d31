"""OffsetFetch: v1-10.

* v2: error_code; null instead of topics requests all of the group's offsets
* v3: throttle_time_ms
* v5: committed_leader_epoch (KIP-320)
* v6: flexible
* v7: require_stable: partitions with offsets of an open transaction are UNSTABLE_OFFSET_COMMIT (KIP-447)
* v8: several groups (KIP-709)
* v9: member_id and member_epoch, for groups of KIP-848
* v10: topics by id

A group, topic or partition without a commit has the offset -1 and no error: clients rely on it. An offset is returned
only when it is committed, so the response waits for offsets that flush.messages holds back.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

from kwire.coordinators.effects import response_error
from kwire.groups.offsets.store import NO_OFFSET
from kwire.runtime.futures import Future
from kwire.security.authorizer import Operation, ResourceType

if TYPE_CHECKING:
    from kwire.groups.service import GroupService
    from kwire.handlers.authorization import Authorization
    from kwire.handlers.context import Context
    from kwire.metadata.service import MetadataService

FIRST_VERSION_WITH_GROUP_ERROR = 2
FIRST_VERSION_WITH_GROUPS = 8
FIRST_VERSION_WITH_TOPIC_IDS = 10


@attrs.define(eq=False)
class _Answer:
    """A group's response. `held` is set when its offsets are committed, and None if they are already."""

    group: OffsetFetchResponseGroup
    held: Future[KafkaError | None] | None = None


def handle(
    metadata: MetadataService,
    authorization: Authorization,
    groups: GroupService,
    request: OffsetFetchRequest,
    context: Context,
) -> OffsetFetchResponse | Coroutine[Future[Any], None, OffsetFetchResponse]:
    by_id = context.api_version >= FIRST_VERSION_WITH_TOPIC_IDS
    stable = request.require_stable
    answers = [
        _fetch(metadata, authorization, groups, context, group, by_id=by_id, require_stable=stable)
        for group in _requested_groups(request, context)
    ]
    if any(answer.held is not None for answer in answers):
        return _when_committed(request, answers, context)
    return _response(request, answers, context)


async def _when_committed(request: OffsetFetchRequest, answers: list[_Answer], context: Context) -> OffsetFetchResponse:
    for answer in answers:
        error = None if answer.held is None else await answer.held
        if error is not None:
            answer.group = OffsetFetchResponseGroup(answer.group.group_id, error_code=response_error(error.code))
    return _response(request, answers, context)


def _requested_groups(request: OffsetFetchRequest, context: Context) -> list[OffsetFetchRequestGroup]:
    if context.api_version >= FIRST_VERSION_WITH_GROUPS:
        return request.groups
    topics = None
    if request.topics is not None:
        topics = [
            OffsetFetchRequestTopics(name=it.name, partition_indexes=it.partition_indexes) for it in request.topics
        ]
    return [OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)]


def _response(request: OffsetFetchRequest, answers: list[_Answer], context: Context) -> OffsetFetchResponse:
    if context.api_version >= FIRST_VERSION_WITH_GROUPS:
        return OffsetFetchResponse(groups=[answer.group for answer in answers])
    (answer,) = (it.group for it in answers)
    if answer.error_code and context.api_version < FIRST_VERSION_WITH_GROUP_ERROR:
        topics = (
            OffsetFetchRequestTopics(name=it.name, partition_indexes=it.partition_indexes)
            for it in request.topics or ()
        )
        answer.topics = [_refused(topic, answer.error_code) for topic in topics]
    return OffsetFetchResponse(
        topics=[
            OffsetFetchResponseTopic(
                topic.name,
                [
                    OffsetFetchResponsePartition(
                        partition_index=it.partition_index,
                        committed_offset=it.committed_offset,
                        committed_leader_epoch=it.committed_leader_epoch,
                        metadata=it.metadata,
                        error_code=it.error_code,
                    )
                    for it in topic.partitions
                ],
            )
            for topic in answer.topics
        ],
        error_code=answer.error_code,
    )


def _fetch(
    metadata: MetadataService,
    authorization: Authorization,
    groups: GroupService,
    context: Context,
    group: OffsetFetchRequestGroup,
    *,
    by_id: bool,
    require_stable: bool,
) -> _Answer:
    if not authorization.allows(context, Operation.DESCRIBE, ResourceType.GROUP, group.group_id):
        return _Answer(OffsetFetchResponseGroup(group.group_id, error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED))
    image = metadata.image
    denied: list[OffsetFetchRequestTopics] = []
    unknown: list[OffsetFetchRequestTopics] = []
    if by_id and group.topics is not None:
        wanted, group.topics = group.topics, []
        for topic in wanted:
            found = image.topics_by_id.get(topic.topic_id)
            topic.name = "" if found is None else found.name
            (unknown if found is None else group.topics).append(topic)
    if group.topics is not None:
        group.topics, denied = authorization.divided(context, Operation.DESCRIBE, group.topics, lambda it: it.name)
    try:
        answer = groups.fetch_offsets(group, require_stable=require_stable)
        held = groups.when_committed(group.group_id)
    except KafkaError as error:
        return _Answer(OffsetFetchResponseGroup(group_id=group.group_id, error_code=error.code))
    if group.topics is None:
        answer.topics, _ = authorization.divided(context, Operation.DESCRIBE, answer.topics, lambda it: it.name)
    if by_id and group.topics is None:
        # Deleted topics have no id to return.
        answer.topics = [topic for topic in answer.topics if topic.name in image.topics]
        for named in answer.topics:
            named.topic_id = image.topics[named.name].topic_id
    answer.topics += [_refused(topic, ErrorCode.UNKNOWN_TOPIC_ID) for topic in unknown]
    answer.topics += [_refused(topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED) for topic in denied]
    return _Answer(answer, held)


def _refused(topic: OffsetFetchRequestTopics, error: int) -> OffsetFetchResponseTopics:
    return OffsetFetchResponseTopics(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetFetchResponsePartitions(partition_index=index, committed_offset=NO_OFFSET, error_code=error)
            for index in topic.partition_indexes
        ],
    )
