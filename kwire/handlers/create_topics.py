"""CreateTopics: v2-7.

* v4: partitions and replication factor may be -1, for the broker's defaults (KIP-464)
* v5: flexible; the response has the number of partitions and the configuration (KIP-525)
* v6: THROTTLING_QUOTA_EXCEEDED may be returned (KIP-599)
* v7: topic ids (KIP-516)

The rules are in `kwire.metadata.controller.topics.topic_creation`. The topics exist when the response is sent.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

from kwire.handlers._shared.mutation_quotas import mutation_quota
from kwire.handlers.authorization import named_once
from kwire.metadata.controller.topics.topic_creation import create_topics
from kwire.names.topic_names import CLUSTER_METADATA
from kwire.security.authorizer import Operation, ResourceType

if TYPE_CHECKING:
    from kwire.handlers.authorization import Authorization
    from kwire.handlers.context import Context
    from kwire.metadata.service import MetadataService
    from kwire.quotas.client_quotas import ClientQuotas
    from kwire.runtime.clock import Clock


STRICT_SINCE: Final = 6


async def handle(
    metadata: MetadataService,
    authorization: Authorization,
    client_quotas: ClientQuotas,
    clock: Clock,
    request: CreateTopicsRequest,
    context: Context,
) -> CreateTopicsResponse:
    denied: list[CreatableTopic] = []
    if not authorization.allows(context, Operation.CREATE, ResourceType.CLUSTER):
        possible = named_once(it.name for it in request.topics) - {CLUSTER_METADATA}
        request.topics, denied = authorization.divided(
            context, Operation.CREATE, request.topics, lambda it: it.name if it.name in possible else None
        )
    quota = mutation_quota(client_quotas, clock, context, strict_since=STRICT_SINCE)
    try:
        response = await metadata.change(create_topics, request, quota)
    except KafkaError as error:
        response = CreateTopicsResponse(
            topics=[
                CreatableTopicResult(topic.name, error_code=error.code, error_message=error.message)
                for topic in request.topics
            ]
        )
    response.throttle_time_ms = quota.throttle_ms
    for created in response.topics:
        if not authorization.allows(context, Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, created.name):
            _hide_configs(created)
    refusal = partial(CreatableTopicResult, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    response.topics += [refusal(topic.name, error_message="Authorization failed.") for topic in denied]
    return response


def _hide_configs(created: CreatableTopicResult) -> None:
    """Hides the configurations, as in Kafka, from a client that may create the topic but may not describe them."""
    if not created.error_code:
        created.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        created.num_partitions = created.replication_factor = -1
        created.configs = []
