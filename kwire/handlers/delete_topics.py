"""DeleteTopics: v1-6.

* v3: TOPIC_DELETION_DISABLED may be returned
* v4: flexible
* v5: error_message; THROTTLING_QUOTA_EXCEEDED may be returned (KIP-599)
* v6: topics may be named by id (KIP-516)

The rules are in `kwire.metadata.controller.topics.topic_deletion`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from kwire_protocol.wire import NULL_UUID, Uuid

from kwire.handlers._shared.authorization import allows
from kwire.handlers._shared.mutation_quotas import mutation_quota
from kwire.security.authorizer import Operation, ResourceType

if TYPE_CHECKING:
    from kwire.broker import Broker
    from kwire.context import Context


STRICT_SINCE: Final = 5


async def handle(broker: Broker, request: DeleteTopicsRequest, context: Context) -> DeleteTopicsResponse:
    denied = _take_denied(broker, context, request)
    quota = mutation_quota(broker, context, strict_since=STRICT_SINCE)
    try:
        response = await broker.metadata.delete_topics(request, quota, version=context.api_version)
    except KafkaError as error:
        topics = [*request.topics, *(DeleteTopicState(name) for name in request.topic_names)]
        response = DeleteTopicsResponse(
            responses=[DeletableTopicResult(it.name, it.topic_id, error.code, error.message) for it in topics]
        )
    response.throttle_time_ms = quota.throttle_ms
    response.responses += denied
    return response


def _take_denied(broker: Broker, context: Context, request: DeleteTopicsRequest) -> list[DeletableTopicResult]:
    """Takes the topics out of the request that the client may not delete, and returns the answers to them."""
    if broker.authorizer.allows_all:
        return []
    denied: list[DeletableTopicResult] = []

    def is_denied(name: str | None, topic_id: Uuid) -> bool:
        named = name
        if named is None:
            found = broker.metadata.image.topics_by_id.get(topic_id)
            if found is None:
                return False
            named = found.name
        if allows(broker, context, Operation.DELETE, ResourceType.TOPIC, named):
            return False
        # A client that may see the topic but not delete it gets the topic's name, even if it asked by id.
        told = named if name or allows(broker, context, Operation.DESCRIBE, ResourceType.TOPIC, named) else None
        denied.append(DeletableTopicResult(told, topic_id, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        return True

    request.topic_names = [name for name in request.topic_names if not is_denied(name, NULL_UUID)]
    request.topics = [topic for topic in request.topics if not is_denied(topic.name, topic.topic_id)]
    return denied
