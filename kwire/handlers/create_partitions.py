"""CreatePartitions: v0-3.

* v2: flexible
* v3: THROTTLING_QUOTA_EXCEEDED may be returned (KIP-599)

The rules are in `kwire.metadata.controller.topics.partition_creation`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)

from kwire.handlers._shared.mutation_quotas import mutation_quota
from kwire.handlers.authorization import named_once, refusal
from kwire.metadata.controller.topics.partition_creation import create_partitions
from kwire.security.authorizer import Operation, ResourceType

if TYPE_CHECKING:
    from kwire.handlers.authorization import Authorization
    from kwire.handlers.context import Context
    from kwire.metadata.service import MetadataService
    from kwire.quotas.client_quotas import ClientQuotas
    from kwire.runtime.clock import Clock


STRICT_SINCE: Final = 3


async def handle(
    metadata: MetadataService,
    authorization: Authorization,
    client_quotas: ClientQuotas,
    clock: Clock,
    request: CreatePartitionsRequest,
    context: Context,
) -> CreatePartitionsResponse:
    possible = named_once(it.name for it in request.topics)
    request.topics, denied = authorization.divided(
        context, Operation.ALTER, request.topics, lambda it: it.name if it.name in possible else None
    )
    quota = mutation_quota(client_quotas, clock, context, strict_since=STRICT_SINCE)
    try:
        response = await metadata.change(create_partitions, request, quota)
    except KafkaError as error:
        response = CreatePartitionsResponse(
            results=[CreatePartitionsTopicResult(it.name, error.code, error.message) for it in request.topics]
        )
    response.throttle_time_ms = quota.throttle_ms
    denial = refusal(Operation.ALTER, ResourceType.TOPIC)
    response.results += [CreatePartitionsTopicResult(it.name, denial.code, denial.message) for it in denied]
    return response
