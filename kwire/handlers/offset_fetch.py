"""OffsetFetch: v1-10.

* v2: error_code; topics of null ask for all of the group's offsets
* v3: throttle_time_ms
* v5: committed_leader_epoch (KIP-320)
* v6: flexible
* v7: require_stable: partitions with offsets of an open transaction are UNSTABLE_OFFSET_COMMIT (KIP-447)
* v8: several groups (KIP-709)
* v9: member_id and member_epoch, for groups of KIP-848
* v10: topics by id

A group, topic or partition that nobody committed for has the offset -1 and no error: clients rely on it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

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

from kwire.groups.offsets.store import NO_OFFSET
from kwire.handlers._shared.authorization import allows, divided
from kwire.security.authorizer import Operation, ResourceType

if TYPE_CHECKING:
    from kwire.broker import Broker
    from kwire.context import Context

FIRST_VERSION_WITH_GROUP_ERROR = 2
FIRST_VERSION_WITH_GROUPS = 8
FIRST_VERSION_WITH_TOPIC_IDS = 10


def handle(broker: Broker, request: OffsetFetchRequest, context: Context) -> OffsetFetchResponse:
    version = context.api_version
    if version >= FIRST_VERSION_WITH_GROUPS:
        by_id = version >= FIRST_VERSION_WITH_TOPIC_IDS
        stable = request.require_stable
        return OffsetFetchResponse(
            groups=[_fetch(broker, context, group, by_id=by_id, require_stable=stable) for group in request.groups]
        )
    topics = None
    if request.topics is not None:
        topics = [
            OffsetFetchRequestTopics(name=it.name, partition_indexes=it.partition_indexes) for it in request.topics
        ]
    group = OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)
    answer = _fetch(broker, context, group, by_id=False, require_stable=request.require_stable)
    if answer.error_code and version < FIRST_VERSION_WITH_GROUP_ERROR:
        answer.topics = [_refused(topic, answer.error_code) for topic in topics or ()]
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
    broker: Broker, context: Context, group: OffsetFetchRequestGroup, *, by_id: bool, require_stable: bool
) -> OffsetFetchResponseGroup:
    if not allows(broker, context, Operation.DESCRIBE, ResourceType.GROUP, group.group_id):
        return OffsetFetchResponseGroup(group_id=group.group_id, error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    image = broker.metadata.image
    denied: list[OffsetFetchRequestTopics] = []
    unknown: list[OffsetFetchRequestTopics] = []
    if by_id and group.topics is not None:
        wanted, group.topics = group.topics, []
        for topic in wanted:
            found = image.topics_by_id.get(topic.topic_id)
            topic.name = "" if found is None else found.name
            (unknown if found is None else group.topics).append(topic)
    if group.topics is not None:
        group.topics, denied = divided(broker, context, Operation.DESCRIBE, group.topics, lambda it: it.name)
    try:
        answer = broker.groups.fetch_offsets(group, require_stable=require_stable)
    except KafkaError as error:
        return OffsetFetchResponseGroup(group_id=group.group_id, error_code=error.code)
    if group.topics is None:
        answer.topics, _ = divided(broker, context, Operation.DESCRIBE, answer.topics, lambda it: it.name)
    if by_id and group.topics is None:
        # Topics that are gone have no id to be told by.
        answer.topics = [topic for topic in answer.topics if topic.name in image.topics]
        for named in answer.topics:
            named.topic_id = image.topics[named.name].topic_id
    answer.topics += [_refused(topic, ErrorCode.UNKNOWN_TOPIC_ID) for topic in unknown]
    answer.topics += [_refused(topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED) for topic in denied]
    return answer


def _refused(topic: OffsetFetchRequestTopics, error: int) -> OffsetFetchResponseTopics:
    return OffsetFetchResponseTopics(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetFetchResponsePartitions(partition_index=index, committed_offset=NO_OFFSET, error_code=error)
            for index in topic.partition_indexes
        ],
    )
