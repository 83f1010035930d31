"""Checks of the APIs of delegation tokens: the connection may use them, and delegation tokens are enabled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError

from kwire.security.principal import ANONYMOUS

if TYPE_CHECKING:
    from kwire.handlers.context import Context
    from kwire.metadata.delegation_tokens import DelegationTokens
    from kwire.metadata.service import MetadataService

NO_TIME: Final = -1
"""The timestamps in the response to a request that is not allowed."""


def check_connection(context: Context) -> None:
    """Raises KafkaError(DELEGATION_TOKEN_REQUEST_NOT_ALLOWED) unless the client is authenticated without a token.

    A client must not get a token without authentication, nor with another token, which would make tokens live for ever.
    So it must have authenticated by SASL, without a token, or with a certificate.
    """
    is_known = context.sasl is not None or context.principal != ANONYMOUS
    if not is_known or context.principal.token_authenticated:
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)


def tokens_of(metadata: MetadataService) -> DelegationTokens:
    """Raises KafkaError(DELEGATION_TOKEN_AUTH_DISABLED) if delegation.token.secret.key is not set."""
    tokens = metadata.delegation_tokens
    if tokens is None:
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    return tokens
