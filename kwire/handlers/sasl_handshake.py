"""SaslHandshake: v0-1.

* v1: SaslAuthenticate follows; after v0 the mechanism's bytes follow, in frames without a header (KIP-152)

The client selects its mechanism, for its first authentication or for re-authentication (KIP-368). On a listener without
SASL, and when re-authentication is not possible, the response is ILLEGAL_SASL_STATE, and the connection stays open. A
mechanism that is not enabled closes it; as in Kafka, there is a response only at the first authentication.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import quoted
from kwire_protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

from kwire.handlers._shared.failed_authentications import failed_authentication_is_over
from kwire.handlers.context import CloseAfterResponse, CloseConnection
from kwire.security.sasl.exchange import IllegalSaslState, UnsupportedMechanism

if TYPE_CHECKING:
    from kwire.handlers.authorization import Authorization
    from kwire.handlers.context import Context
    from kwire.metadata.service import MetadataService
    from kwire.runtime.clock import Clock


async def handle(
    metadata: MetadataService,
    authorization: Authorization,
    clock: Clock,
    request: SaslHandshakeRequest,
    context: Context,
) -> SaslHandshakeResponse:
    session = context.sasl
    if session is None:
        return SaslHandshakeResponse(ErrorCode.ILLEGAL_SASL_STATE)
    try:
        session.handshake(request.mechanism, version=context.api_version, monotonic_ms=clock.monotonic_ms())
    except IllegalSaslState as error:
        refusal = SaslHandshakeResponse(ErrorCode.ILLEGAL_SASL_STATE)
        if not error.closes:
            return refusal
        reason = str(error)
    except UnsupportedMechanism:
        refusal = SaslHandshakeResponse(ErrorCode.UNSUPPORTED_SASL_MECHANISM, [*session.names])
        reason = (
            f"{session.verb} failed: the mechanism {quoted(request.mechanism)} is not enabled, "
            f"{', '.join(session.names)} {'are' if len(session.names) > 1 else 'is'}"
        )
        authorization.audit.authenticated(
            context.client_host,
            mechanism=quoted(request.mechanism),
            listener=context.listener_name,
            principal=None,
            reason=reason,
        )
    else:
        if session.principal is not None and context.on_authenticating_again is not None:
            context.on_authenticating_again()
        return SaslHandshakeResponse(mechanisms=[*session.names])
    await failed_authentication_is_over(metadata)
    if session.principal is not None and refusal.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        raise CloseConnection(reason)
    raise CloseAfterResponse(reason, refusal)
