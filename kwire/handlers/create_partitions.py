"""CreatePartitions: v0-3.

* v2: flexible
* v3: THROTTLING_QUOTA_EXCEEDED may be returned (KIP-599); kwire has no such quota

The rules are in `kwire.metadata.controller.partition_creation`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)

if TYPE_CHECKING:
    from kwire.broker import Broker
    from kwire.context import Context


def handle(broker: Broker, request: CreatePartitionsRequest, context: Context) -> CreatePartitionsResponse:
    try:
        return broker.metadata.create_partitions(request)
    except KafkaError as error:
        return CreatePartitionsResponse(
            results=[CreatePartitionsTopicResult(it.name, error.code, error.message) for it in request.topics]
        )
