"""DescribeTopicPartitions: v0 (KIP-966).

Topics are sorted by name, including unknown ones. A response has at most as many partitions as the client's limit and
max.request.partition.size.limit allow; its cursor is where to continue. The lists of eligible leader replicas are
empty, never null, because the Java client of Kafka 3.9 fails on null.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponseCursor,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)

from kwire.metadata.answers import EncodedResponse
from kwire.metadata.image import NO_LEADER, MetadataImage, PartitionRegistration
from kwire.names.topic_names import check_topic_name, is_internal
from kwire.security.authorizer import Operation, ResourceType

if TYPE_CHECKING:
    from kwire.handlers.authorization import Authorization
    from kwire.handlers.context import Context
    from kwire.metadata.service import MetadataService


def handle(
    metadata: MetadataService, authorization: Authorization, request: DescribeTopicPartitionsRequest, context: Context
) -> EncodedResponse | DescribeTopicPartitionsResponse:
    cursor = request.cursor
    key = (
        request.api_key,
        context.api_version,
        context.requester,
        request.response_partition_limit,
        None if cursor is None else (cursor.topic_name, cursor.partition_index),
        tuple([topic.name for topic in request.topics]),
    )
    answer = metadata.answers.get(key)
    if answer is not None:
        return answer
    names = {topic.name for topic in request.topics}
    if "" in names:
        return _refusal(request, ErrorCode.UNKNOWN_SERVER_ERROR)
    if cursor is not None and (cursor.partition_index < 0 or (names and cursor.topic_name not in names)):
        return _refusal(request, ErrorCode.INVALID_REQUEST)
    visible = {
        name
        for name in names or metadata.image.topics
        if authorization.allows(context, Operation.DESCRIBE, ResourceType.TOPIC, name)
    }
    response = _describe(metadata, authorization, context, request, visible)
    response.topics += [
        DescribeTopicPartitionsResponseTopic(ErrorCode.TOPIC_AUTHORIZATION_FAILED, name)
        for name in sorted(names - visible)
    ]
    return metadata.answers.put(key, response, context.api_version)


def _refusal(request: DescribeTopicPartitionsRequest, code: ErrorCode) -> DescribeTopicPartitionsResponse:
    return DescribeTopicPartitionsResponse(
        topics=[DescribeTopicPartitionsResponseTopic(code, topic.name) for topic in request.topics]
    )


def _describe(
    metadata: MetadataService,
    authorization: Authorization,
    context: Context,
    request: DescribeTopicPartitionsRequest,
    names: set[str],
) -> DescribeTopicPartitionsResponse:
    cursor = request.cursor
    room = max(1, min(request.response_partition_limit, metadata.config.max_request_partition_size_limit))
    topics: list[DescribeTopicPartitionsResponseTopic] = []
    for name in sorted(names if cursor is None else (it for it in names if it >= cursor.topic_name)):
        first = cursor.partition_index if cursor is not None and cursor.topic_name == name else 0
        if room == 0:
            return DescribeTopicPartitionsResponse(
                topics=topics, next_cursor=DescribeTopicPartitionsResponseCursor(name, first)
            )
        topic = metadata.image.topics.get(name)
        if topic is None:
            topics.append(_unknown(authorization, context, name))
            continue
        end = min(first + room, len(topic.partitions))
        topics.append(
            DescribeTopicPartitionsResponseTopic(
                name=name,
                topic_id=topic.topic_id,
                is_internal=is_internal(name),
                partitions=[
                    _described(metadata.image, index, topic.partitions[index], context.listener_name)
                    for index in range(first, end)
                ],
                topic_authorized_operations=authorization.operations(context, ResourceType.TOPIC, name, wanted=True),
            )
        )
        room -= max(end - first, 0)
        if end < len(topic.partitions):
            return DescribeTopicPartitionsResponse(
                topics=topics, next_cursor=DescribeTopicPartitionsResponseCursor(name, end)
            )
    return DescribeTopicPartitionsResponse(topics=topics)


def _unknown(authorization: Authorization, context: Context, name: str) -> DescribeTopicPartitionsResponseTopic:
    try:
        check_topic_name(name)
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    except KafkaError as error:
        code = error.code
    return DescribeTopicPartitionsResponseTopic(
        code,
        name,
        is_internal=is_internal(name),
        topic_authorized_operations=authorization.operations(context, ResourceType.TOPIC, name, wanted=True),
    )


def _described(
    image: MetadataImage, index: int, it: PartitionRegistration, listener_name: str
) -> DescribeTopicPartitionsResponsePartition:
    return DescribeTopicPartitionsResponsePartition(
        error_code=0 if it.leader != NO_LEADER else ErrorCode.LEADER_NOT_AVAILABLE,
        partition_index=index,
        leader_id=it.leader,
        leader_epoch=it.leader_epoch,
        replica_nodes=list(it.replicas),
        isr_nodes=list(it.isr),
        eligible_leader_replicas=list(it.eligible_leader_replicas),
        last_known_elr=list(it.last_known_elr),
        offline_replicas=image.offline_replicas(it, listener_name),
    )
