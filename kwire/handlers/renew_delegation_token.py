"""RenewDelegationToken: v1-2.

* v2: flexible

The rules are in `kwire.metadata.controller.access.delegation_tokens`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse

from kwire.handlers._shared.delegation_tokens import NO_TIME, check_connection, tokens_of
from kwire.metadata.controller.access.delegation_tokens import renew_token

if TYPE_CHECKING:
    from kwire.handlers.context import Context
    from kwire.metadata.service import MetadataService


async def handle(
    metadata: MetadataService, request: RenewDelegationTokenRequest, context: Context
) -> RenewDelegationTokenResponse:
    expires_ms = NO_TIME
    try:
        check_connection(context)
        expires_ms = 0  # as in Kafka, where the controller makes the remaining checks
        tokens = tokens_of(metadata)
        expires_ms = await metadata.change(
            renew_token,
            tokens.id_of,
            bytes(request.hmac),
            period_ms=request.renew_period_ms,
            requester=context.principal,
        )
    except KafkaError as error:
        return RenewDelegationTokenResponse(error.code, expires_ms)
    return RenewDelegationTokenResponse(0, expires_ms)
