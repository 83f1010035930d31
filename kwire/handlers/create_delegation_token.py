"""CreateDelegationToken: v1-3.

* v2: flexible
* v3: tokens of other owners, and who asked for the token (KIP-373)

The rules are in `kwire.metadata.controller.access.delegation_tokens`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.create_delegation_token import CreateDelegationTokenRequest, CreateDelegationTokenResponse

from kwire.handlers._shared.authorization import check
from kwire.handlers._shared.delegation_tokens import NO_TIME, check_connection, tokens_of
from kwire.security.authorizer import Operation, ResourceType
from kwire.security.principal import Principal

if TYPE_CHECKING:
    from kwire_protocol.errors import ErrorCode

    from kwire.broker import Broker
    from kwire.context import Context


async def handle(
    broker: Broker, request: CreateDelegationTokenRequest, context: Context
) -> CreateDelegationTokenResponse:
    requester = owner = context.principal
    if request.owner_principal_name:
        owner = Principal(request.owner_principal_type or "", request.owner_principal_name)
    try:
        check_connection(context)
        if owner != requester:
            check(broker, context, Operation.CREATE_TOKENS, ResourceType.USER, str(owner))
        tokens = tokens_of(broker)
        record = await broker.metadata.create_delegation_token(request, owner=owner, requester=requester)
    except KafkaError as error:
        return _refused(error.code, owner, requester)
    return CreateDelegationTokenResponse(
        0,
        owner.type,
        owner.name,
        requester.type,
        requester.name,
        record.issue_timestamp,
        record.expiration_timestamp,
        record.max_timestamp,
        record.token_id,
        tokens.hmac(record.token_id),
    )


def _refused(code: ErrorCode, owner: Principal, requester: Principal) -> CreateDelegationTokenResponse:
    return CreateDelegationTokenResponse(
        code, owner.type, owner.name, requester.type, requester.name, NO_TIME, NO_TIME, NO_TIME
    )
