"""CreateTopics: v2-7.

* v4: partitions and replication factor may be -1, for the broker's defaults (KIP-464)
* v5: flexible; the answer has the topic's size and configuration (KIP-525)
* v6: THROTTLING_QUOTA_EXCEEDED may be returned (KIP-599); kwire has no such quota
* v7: topic ids (KIP-516)

The rules are in `kwire.metadata.controller.topic_creation`. The topics are there when the answer leaves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse

if TYPE_CHECKING:
    from kwire.broker import Broker
    from kwire.context import Context


def handle(broker: Broker, request: CreateTopicsRequest, context: Context) -> CreateTopicsResponse:
    try:
        return broker.metadata.create_topics(request)
    except KafkaError as error:
        return CreateTopicsResponse(
            topics=[
                CreatableTopicResult(topic.name, error_code=error.code, error_message=error.message)
                for topic in request.topics
            ]
        )
