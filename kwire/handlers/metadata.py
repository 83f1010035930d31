"""Metadata: v0-13.

* v1: the controller; racks; whether a topic is internal; null, not the empty list, requests all topics
* v2: cluster_id
* v3: throttle_time_ms
* v4: allow_auto_topic_creation; in earlier versions every request for an unknown topic creates it
* v5: offline replicas
* v7: leader epochs (KIP-320)
* v8: authorized operations (KIP-430); those of the cluster only up to v10
* v9: flexible
* v10: topic ids in responses (KIP-516)
* v11: no more cluster authorized operations (DescribeCluster has them)
* v12: topics requested by id
* v13: a top-level error code (KIP-1102)

A topic that is requested twice is in the response once. A topic that the request creates is UNKNOWN_TOPIC_OR_PARTITION
in the response, as in Kafka. It exists by then, so the client finds it when it retries. If it cannot be created, the
response is the same and the log has the reason (Kafka's AutoTopicCreationManager).
"""

from __future__ import annotations

from collections.abc import Coroutine, Hashable, Mapping
from typing import TYPE_CHECKING, Any

from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kwire_protocol.wire import NULL_UUID

from kwire.metadata.answers import EncodedResponse
from kwire.metadata.image import NO_LEADER, MetadataImage, TopicImage
from kwire.names.topic_names import CLUSTER_METADATA, check_topic_name, is_internal
from kwire.runtime.futures import Future
from kwire.security.authorizer import Operation, ResourceType

if TYPE_CHECKING:
    from kwire.cluster.nodes import Nodes
    from kwire.handlers.authorization import Authorization
    from kwire.handlers.context import Context
    from kwire.metadata.auto_topic_creation import AutoTopicCreation
    from kwire.metadata.service import MetadataService

NULL_MEANS_ALL_SINCE = 1
FIRST_VERSION_BY_TOPIC_ID = 12
NO_CONTROLLER = -1


def handle(
    metadata: MetadataService,
    nodes: Nodes,
    authorization: Authorization,
    auto_topic_creation: AutoTopicCreation,
    request: MetadataRequest,
    context: Context,
) -> EncodedResponse | MetadataResponse | Coroutine[Future[Any], None, MetadataResponse]:
    key = _key(request, context)
    answer = metadata.answers.get(key)
    if answer is not None:
        return answer
    if _creates_topics(metadata, request):
        return _create_and_describe(metadata, nodes, authorization, auto_topic_creation, request, context)
    response = _describe(metadata, nodes, authorization, request, context, {})
    if response.error_code:
        return response
    return metadata.answers.put(key, response, context.api_version)


async def _create_and_describe(
    metadata: MetadataService,
    nodes: Nodes,
    authorization: Authorization,
    auto_topic_creation: AutoTopicCreation,
    request: MetadataRequest,
    context: Context,
) -> MetadataResponse:
    """Creates topics, and returns the response without them; they are in the next response."""
    created: dict[str, ErrorCode] = {}
    for name in dict.fromkeys(topic.name for topic in request.topics or ()):
        if name is None or name in metadata.image.topics:
            continue
        if authorization.allows(context, Operation.DESCRIBE, ResourceType.TOPIC, name):
            created[name] = await _create(authorization, auto_topic_creation, context, name)
    return _describe(metadata, nodes, authorization, request, context, created)


async def _create(
    authorization: Authorization, auto_topic_creation: AutoTopicCreation, context: Context, name: str
) -> ErrorCode:
    """Creates a topic that did not exist, if it can be created, and returns the error for the response."""
    try:
        if not authorization.allows(context, Operation.CREATE, ResourceType.CLUSTER):
            authorization.check(context, Operation.CREATE, ResourceType.TOPIC, name)
        check_topic_name(name)
    except KafkaError as error:
        return error.code
    if name != CLUSTER_METADATA:
        await auto_topic_creation.create(name)
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _describe(
    metadata: MetadataService,
    nodes: Nodes,
    authorization: Authorization,
    request: MetadataRequest,
    context: Context,
    created: Mapping[str, ErrorCode],
) -> MetadataResponse:
    """Returns the response. `created` has the errors of topics that did not exist when the request arrived."""
    try:
        topics = _topics(metadata, authorization, request, context, created)
    except KafkaError as error:
        return MetadataResponse(
            error_code=error.code,
            topics=[
                MetadataResponseTopic(error.code, topic.name or "", topic.topic_id) for topic in request.topics or ()
            ],
        )
    brokers = [
        MetadataResponseBroker(node.node_id, node.host, node.port, node.rack) for node in nodes.endpoints(context)
    ]
    return MetadataResponse(
        brokers=brokers,
        cluster_id=metadata.cluster_id,
        controller_id=brokers[0].node_id if brokers else NO_CONTROLLER,
        topics=topics,
        cluster_authorized_operations=authorization.cluster_operations(
            context, wanted=request.include_cluster_authorized_operations
        ),
    )


def _key(request: MetadataRequest, context: Context) -> Hashable:
    return (
        request.api_key,
        context.api_version,
        context.listener_name,
        context.local_host,
        context.local_port,
        context.requester,
        request.allow_auto_topic_creation,
        request.include_cluster_authorized_operations,
        request.include_topic_authorized_operations,
        None if request.topics is None else tuple([(topic.name, topic.topic_id) for topic in request.topics]),
    )


def _creates_topics(metadata: MetadataService, request: MetadataRequest) -> bool:
    """Returns True if the request has a topic that does not exist and that the request may create."""
    known = metadata.image.topics
    return (
        request.allow_auto_topic_creation
        and metadata.config.auto_create_topics_enable
        and all(topic.topic_id == NULL_UUID for topic in request.topics or ())
        and any(topic.name not in known for topic in request.topics or ())
    )


def _topics(
    metadata: MetadataService,
    authorization: Authorization,
    request: MetadataRequest,
    context: Context,
    created: Mapping[str, ErrorCode],
) -> list[MetadataResponseTopic]:
    """Raises KafkaError(INVALID_REQUEST) if the version does not allow this way of naming topics."""
    image = metadata.image
    version = context.api_version

    def described(topic: TopicImage) -> MetadataResponseTopic:
        wanted = request.include_topic_authorized_operations
        operations = authorization.operations(context, ResourceType.TOPIC, topic.name, wanted=wanted)
        return _described(image, topic, operations, context.listener_name)

    def is_visible(name: str) -> bool:
        return authorization.allows(context, Operation.DESCRIBE, ResourceType.TOPIC, name)

    if request.topics is None or (not request.topics and version < NULL_MEANS_ALL_SINCE):
        return [described(topic) for topic in image.topics.values() if is_visible(topic.name)]
    by_id = [topic for topic in request.topics if topic.topic_id != NULL_UUID]
    if by_id and version < FIRST_VERSION_BY_TOPIC_ID:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    answers: list[MetadataResponseTopic] = []
    if by_id:
        for topic_id in dict.fromkeys(topic.topic_id for topic in by_id):
            known = image.topics_by_id.get(topic_id)
            if known is None:
                answers.append(MetadataResponseTopic(ErrorCode.UNKNOWN_TOPIC_ID, None, topic_id))
            elif is_visible(known.name):
                answers.append(described(known))
            else:
                answers.append(MetadataResponseTopic(ErrorCode.TOPIC_AUTHORIZATION_FAILED, None, topic_id))
        return answers
    for name in dict.fromkeys(topic.name for topic in request.topics):
        if name is None:
            by_id_too = version >= FIRST_VERSION_BY_TOPIC_ID
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR if by_id_too else ErrorCode.INVALID_REQUEST)
        if not is_visible(name):
            answers.append(MetadataResponseTopic(ErrorCode.TOPIC_AUTHORIZATION_FAILED, name))
            continue
        if name in created:
            code: int = created[name]
        elif (found := image.topics.get(name)) is not None:
            answers.append(described(found))
            continue
        else:
            code = _unknown(name)
        answers.append(MetadataResponseTopic(code, name, is_internal=is_internal(name)))
    return answers


def _unknown(name: str) -> ErrorCode:
    """Returns the error for a topic that does not exist."""
    try:
        check_topic_name(name)
    except KafkaError as error:
        return error.code
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _described(image: MetadataImage, topic: TopicImage, operations: int, listener_name: str) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=is_internal(topic.name),
        partitions=[
            MetadataResponsePartition(
                error_code=0 if it.leader != NO_LEADER else ErrorCode.LEADER_NOT_AVAILABLE,
                partition_index=index,
                leader_id=it.leader,
                leader_epoch=it.leader_epoch,
                replica_nodes=list(it.replicas),
                isr_nodes=list(it.isr),
                offline_replicas=image.offline_replicas(it, listener_name),
            )
            for index, it in enumerate(topic.partitions)
        ],
        topic_authorized_operations=operations,
    )
