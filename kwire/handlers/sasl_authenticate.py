"""SaslAuthenticate: v0-2.

* v1: session_lifetime_ms, after which the client has to re-authenticate (KIP-368)
* v2: flexible

Passes the client's bytes to the exchange that SaslHandshake began (`kwire.security.sasl.exchange`). When the client is
authenticated, its connection is notified. The response to a failure is sent after
connection.failed.authentication.delay.ms, and closes the connection.

After SaslHandshake v0 the mechanism's bytes are sent without a request (`TOKEN_VERSION`), and failures get no response.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from kwire_protocol.wire import Writer

from kwire.handlers._shared.failed_authentications import failed_authentication_is_over
from kwire.handlers.context import CloseAfterResponse, CloseConnection
from kwire.security.principal import Principal, Requester
from kwire.security.sasl.exchange import (
    TOKEN_VERSION,
    AuthenticationFailed,
    IllegalSaslState,
    Known,
    SaslSession,
)

if TYPE_CHECKING:
    from kwire.handlers.authorization import Authorization
    from kwire.handlers.context import Context
    from kwire.metadata.service import MetadataService
    from kwire.runtime.clock import Clock

AFTER_AUTHENTICATION = "SaslAuthenticate request received after successful authentication"


@attrs.define
class Token:
    """The mechanism's bytes, as the whole content of a frame."""

    data: bytes

    def write(self, w: Writer, version: int) -> None:  # noqa: ARG002
        del w.buf[-4:]  # the correlation id, with which the frame was begun
        w.buf += self.data


async def handle(
    metadata: MetadataService,
    authorization: Authorization,
    clock: Clock,
    request: SaslAuthenticateRequest,
    context: Context,
) -> SaslAuthenticateResponse | Token:
    session = context.sasl
    if session is None:
        return SaslAuthenticateResponse(ErrorCode.ILLEGAL_SASL_STATE, AFTER_AUTHENTICATION)
    try:
        step = session.respond(bytes(request.auth_bytes), now_ms=clock.now_ms())
    except IllegalSaslState as error:
        if not error.is_answered:
            raise CloseConnection(str(error)) from None
        return SaslAuthenticateResponse(ErrorCode.ILLEGAL_SASL_STATE, str(error))
    except AuthenticationFailed as error:
        reason, message = error.reason, str(error)
    else:
        lifetime_ms = 0
        if isinstance(step, Known):
            lifetime_ms = step.lifetime_ms or 0
            _notify_connection(context, step)
            _audit(authorization, context, session, step.principal)
        if context.api_version == TOKEN_VERSION:
            return Token(step.data)
        return SaslAuthenticateResponse(auth_bytes=step.data, session_lifetime_ms=lifetime_ms)
    _audit(authorization, context, session, None, reason)
    await failed_authentication_is_over(metadata)
    if context.api_version == TOKEN_VERSION:
        raise CloseConnection(reason)
    raise CloseAfterResponse(reason, SaslAuthenticateResponse(ErrorCode.SASL_AUTHENTICATION_FAILED, message))


def _notify_connection(context: Context, known: Known) -> None:
    context.requester = Requester(known.principal, context.client_host)
    if context.on_authenticated is not None:
        context.on_authenticated(None if known.lifetime_ms is None else known.lifetime_ms / 1000)


def _audit(
    authorization: Authorization,
    context: Context,
    session: SaslSession,
    principal: Principal | None,
    reason: str | None = None,
) -> None:
    mechanism = session.mechanism or ""
    listener = context.listener_name
    authorization.audit.authenticated(
        context.client_host, mechanism=mechanism, listener=listener, principal=principal, reason=reason
    )
