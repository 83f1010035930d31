"""AlterClientQuotas: v0-1 (KIP-546).

* v1: flexible

The rules are in `kwire.metadata.controller.access.client_quotas`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.alter_client_quotas import AlterClientQuotasRequest, AlterClientQuotasResponse

from kwire.handlers._shared.authorization import check
from kwire.metadata.controller.access.client_quotas import alter_client_quotas, refused
from kwire.security.authorizer import Operation, ResourceType

if TYPE_CHECKING:
    from kwire.broker import Broker
    from kwire.context import Context


async def handle(broker: Broker, request: AlterClientQuotasRequest, context: Context) -> AlterClientQuotasResponse:
    try:
        check(broker, context, Operation.ALTER_CONFIGS, ResourceType.CLUSTER)
        return await broker.metadata.change(alter_client_quotas, request)
    except KafkaError as error:
        return refused(request, error)
