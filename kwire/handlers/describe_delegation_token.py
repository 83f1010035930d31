"""DescribeDelegationToken: v1-3.

* v2: flexible
* v3: the requester of a token (KIP-373)

The response has the tokens that the client owns, requested, or may renew, and those that it may describe: by their ids,
or by their owners. It has their secrets. Expired tokens are in it until they are removed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)

from kwire.handlers._shared.delegation_tokens import check_connection, tokens_of
from kwire.security.authorizer import Operation, ResourceType
from kwire.security.delegation_tokens import principal_of
from kwire.security.principal import Principal

if TYPE_CHECKING:
    from kwire_protocol.internal.metadata_security import DelegationTokenRecord

    from kwire.handlers.authorization import Authorization
    from kwire.handlers.context import Context
    from kwire.metadata.service import MetadataService


def handle(
    metadata: MetadataService, authorization: Authorization, request: DescribeDelegationTokenRequest, context: Context
) -> DescribeDelegationTokenResponse:
    try:
        check_connection(context)
        tokens = tokens_of(metadata)
    except KafkaError as error:
        return DescribeDelegationTokenResponse(error.code)
    found = _found(metadata, authorization, request, context)
    described = [_described(token, tokens.hmac(token.token_id), context.api_version) for token in found]
    return DescribeDelegationTokenResponse(0, described)


def _found(
    metadata: MetadataService, authorization: Authorization, request: DescribeDelegationTokenRequest, context: Context
) -> Iterator[DelegationTokenRecord]:
    """Yields the tokens that the client may see. `request.owners` restricts them to those that one of these principals
    owns, has requested, or may renew; None: no restriction."""
    wanted = None
    if request.owners is not None:
        wanted = {f"{it.principal_type}:{it.principal_name}" for it in request.owners}
        if not wanted:
            return
    requester = {str(context.principal)}
    for token in metadata.image.access.delegation_tokens.values():
        concerned = {token.owner, token.requester, *token.renewers}
        if wanted is not None and not wanted & concerned:
            continue
        if (
            requester & concerned
            or authorization.allows(context, Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token.token_id)
            or authorization.allows(context, Operation.DESCRIBE_TOKENS, ResourceType.USER, token.owner)
        ):
            yield token


def _described(token: DelegationTokenRecord, token_hmac: bytes, version: int) -> DescribedDelegationToken:
    owner, requester = principal_of(token.owner), principal_of(token.requester)
    if version < 3:
        requester = Principal("", "")
    return DescribedDelegationToken(
        owner.type,
        owner.name,
        requester.type,
        requester.name,
        token.issue_timestamp,
        token.expiration_timestamp,
        token.max_timestamp,
        token.token_id,
        token_hmac,
        [DescribedDelegationTokenRenewer(it.type, it.name) for it in map(principal_of, token.renewers)],
    )
