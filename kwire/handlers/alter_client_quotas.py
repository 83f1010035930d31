"""AlterClientQuotas: v0-1 (KIP-546).

* v1: flexible

The rules are in `kwire.metadata.controller.access.client_quotas`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.alter_client_quotas import AlterClientQuotasRequest, AlterClientQuotasResponse

from kwire.metadata.controller.access.client_quotas import alter_client_quotas, refused
from kwire.security.authorizer import Operation, ResourceType

if TYPE_CHECKING:
    from kwire.handlers.authorization import Authorization
    from kwire.handlers.context import Context
    from kwire.metadata.service import MetadataService


async def handle(
    metadata: MetadataService, authorization: Authorization, request: AlterClientQuotasRequest, context: Context
) -> AlterClientQuotasResponse:
    try:
        authorization.check(context, Operation.ALTER_CONFIGS, ResourceType.CLUSTER)
        return await metadata.change(alter_client_quotas, request)
    except KafkaError as error:
        return refused(request, error)
