"""DeleteTopics: v1-6.

* v3: TOPIC_DELETION_DISABLED may be returned
* v4: flexible
* v5: error_message; THROTTLING_QUOTA_EXCEEDED may be returned (KIP-599)
* v6: topics may be named by id (KIP-516)

The rules are in `kwire.metadata.controller.topics.topic_deletion`.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from kwire_protocol.wire import NULL_UUID, Uuid

from kwire.handlers._shared.mutation_quotas import mutation_quota
from kwire.handlers.authorization import refusal
from kwire.metadata.controller.topics.topic_deletion import delete_topics
from kwire.security.authorizer import Operation, ResourceType

if TYPE_CHECKING:
    from kwire.handlers.authorization import Authorization
    from kwire.handlers.context import Context
    from kwire.metadata.service import MetadataService
    from kwire.quotas.client_quotas import ClientQuotas
    from kwire.runtime.clock import Clock


STRICT_SINCE: Final = 5


async def handle(
    metadata: MetadataService,
    authorization: Authorization,
    client_quotas: ClientQuotas,
    clock: Clock,
    request: DeleteTopicsRequest,
    context: Context,
) -> DeleteTopicsResponse:
    denied = _take_denied(metadata, authorization, context, request)
    quota = mutation_quota(client_quotas, clock, context, strict_since=STRICT_SINCE)
    try:
        response = await metadata.change(delete_topics, request, quota, version=context.api_version)
    except KafkaError as error:
        topics = [*request.topics, *(DeleteTopicState(name) for name in request.topic_names)]
        response = DeleteTopicsResponse(
            responses=[DeletableTopicResult(it.name, it.topic_id, error.code, error.message) for it in topics]
        )
    response.throttle_time_ms = quota.throttle_ms
    response.responses += denied
    return response


def _take_denied(
    metadata: MetadataService, authorization: Authorization, context: Context, request: DeleteTopicsRequest
) -> list[DeletableTopicResult]:
    """Removes the topics that the client may not delete from the request, and returns their results.

    Topics that are not named correctly, for example twice, stay in the request.
    """
    if not metadata.config.delete_topic_enable or authorization.allows(context, Operation.DELETE, ResourceType.CLUSTER):
        return []
    denied: list[DeletableTopicResult] = []
    names = Counter([*request.topic_names, *(it.name for it in request.topics)])
    ids = Counter(it.topic_id for it in request.topics)

    def is_denied(name: str | None, topic_id: Uuid) -> bool:
        if (names[name] if name is not None else ids[topic_id]) > 1 or (name is not None and topic_id != NULL_UUID):
            return False
        image = metadata.image
        topic = image.topics_by_id.get(topic_id) if name is None else image.topics.get(name)
        shown = name if topic is None else topic.name
        if shown is None:
            return False  # unknown ids are not secret
        is_visible = authorization.allows(context, Operation.DESCRIBE, ResourceType.TOPIC, shown)
        if name is not None and (topic is None or not is_visible):
            needed, is_refused = Operation.DESCRIBE, not is_visible
        else:
            needed = Operation.DELETE
            is_refused = not authorization.allows(context, needed, ResourceType.TOPIC, shown)
        if is_refused:
            # A topic that is requested by id has its name in the response if the client may describe it.
            shown_name = shown if name is not None or is_visible else None
            error = refusal(needed, ResourceType.TOPIC)
            denied.append(DeletableTopicResult(shown_name, topic_id, error.code, error.message))
        return is_refused

    request.topic_names = [name for name in request.topic_names if not is_denied(name, NULL_UUID)]
    request.topics = [topic for topic in request.topics if not is_denied(topic.name, topic.topic_id)]
    return denied
