"""CreateDelegationToken: v1-3.

* v2: flexible
* v3: tokens of other owners, and the requester of the token (KIP-373)

The rules are in `kwire.metadata.controller.access.delegation_tokens`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.create_delegation_token import CreateDelegationTokenRequest, CreateDelegationTokenResponse

from kwire.handlers._shared.delegation_tokens import NO_TIME, check_connection, tokens_of
from kwire.metadata.controller.access.delegation_tokens import check_renewers, create_token
from kwire.security.authorizer import Operation, ResourceType
from kwire.security.principal import Principal

if TYPE_CHECKING:
    from kwire.handlers.authorization import Authorization
    from kwire.handlers.context import Context
    from kwire.metadata.service import MetadataService


async def handle(
    metadata: MetadataService, authorization: Authorization, request: CreateDelegationTokenRequest, context: Context
) -> CreateDelegationTokenResponse:
    requester = owner = context.principal
    if request.owner_principal_name:
        owner = Principal(request.owner_principal_type or "", request.owner_principal_name)
    response = CreateDelegationTokenResponse(
        principal_type=owner.type,
        principal_name=owner.name,
        issue_timestamp_ms=NO_TIME,
        expiry_timestamp_ms=NO_TIME,
        max_timestamp_ms=NO_TIME,
    )
    if context.api_version >= 3:
        response.token_requester_principal_type = requester.type
        response.token_requester_principal_name = requester.name
    try:
        check_connection(context)
        if owner != requester:
            authorization.check(context, Operation.CREATE_TOKENS, ResourceType.USER, str(owner))
        check_renewers(request)
        # As in Kafka, where the controller makes the remaining checks.
        response.issue_timestamp_ms = response.expiry_timestamp_ms = response.max_timestamp_ms = 0
        tokens = tokens_of(metadata)
        record = await metadata.change(create_token, request, owner=owner, requester=requester)
    except KafkaError as error:
        response.error_code = error.code
        return response
    response.issue_timestamp_ms = record.issue_timestamp
    response.expiry_timestamp_ms = record.expiration_timestamp
    response.max_timestamp_ms = record.max_timestamp
    response.token_id = record.token_id
    response.hmac = tokens.hmac(record.token_id)
    return response
