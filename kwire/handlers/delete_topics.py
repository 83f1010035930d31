"""DeleteTopics: v1-6.

* v3: TOPIC_DELETION_DISABLED may be returned
* v4: flexible
* v5: error_message (KIP-599)
* v6: topics may be named by id (KIP-516)

The rules are in `kwire.metadata.controller.topic_deletion`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

if TYPE_CHECKING:
    from kwire.broker import Broker
    from kwire.context import Context


def handle(broker: Broker, request: DeleteTopicsRequest, context: Context) -> DeleteTopicsResponse:
    try:
        return broker.metadata.delete_topics(request, version=context.api_version)
    except KafkaError as error:
        topics = [*request.topics, *(DeleteTopicState(name) for name in request.topic_names)]
        return DeleteTopicsResponse(
            responses=[DeletableTopicResult(it.name, it.topic_id, error.code, error.message) for it in topics]
        )
