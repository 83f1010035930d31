"""UnregisterBroker: v0.

Removes a broker that will not return (KIP-631). A broker in service cannot be removed: it has to be stopped first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse

from kwire.metadata.controller.brokers import unregister
from kwire.security.authorizer import Operation, ResourceType

if TYPE_CHECKING:
    from kwire.handlers.authorization import Authorization
    from kwire.handlers.context import Context
    from kwire.metadata.service import MetadataService


async def handle(
    metadata: MetadataService, authorization: Authorization, request: UnregisterBrokerRequest, context: Context
) -> UnregisterBrokerResponse:
    try:
        authorization.check(context, Operation.ALTER, ResourceType.CLUSTER)
        await metadata.change(unregister, request.broker_id)
    except KafkaError as error:
        return UnregisterBrokerResponse(error_code=error.code, error_message=error.message)
    return UnregisterBrokerResponse(error_message=None)
