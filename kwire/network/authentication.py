"""The requests that a SASL listener accepts before a connection is authenticated, and after its session has expired.

The state of the authentication selects the table of APIs that decodes the requests, so that requests of an
authenticated peer cost nothing more:

    unauthenticated      ApiVersions, SaslHandshake, SaslAuthenticate; limited in number, size and time
    authenticated        everything
    re-authenticating    the same as unauthenticated, from the SaslHandshake that begins it (KIP-368)
    expired              that SaslHandshake; anything else closes the connection

An authenticated connection may re-authenticate before its session expires. The `SaslSession` decides the order in which
the three requests may follow each other.

After SaslHandshake v0, frames are tokens of the mechanism until the peer is authenticated: they are decoded as requests
of SaslAuthenticate.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from kwire_protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from kwire_protocol.wire import ProtocolError

from kwire.handlers.apis import API_VERSIONS, Api
from kwire.handlers.context import Context, Handler
from kwire.network.decoding import Decode, RequestDecoder, Shapes
from kwire.security.sasl.exchange import TOKEN_VERSION, SaslSession

SASL_HANDSHAKE: Final = 17
SASL_AUTHENTICATE: Final = 36

MAX_REQUESTS: Final = 16
"""The maximum number of requests of one authentication. The longest exchange of a Kafka client has six: ApiVersions
twice, SaslHandshake, and SCRAM."""


class Unauthenticated:
    """Decodes the requests of a peer that is not authenticated yet, or that re-authenticates."""

    def __init__(self, apis: Mapping[int, Api], context: Context, session: SaslSession) -> None:
        allowed = {key: api for key, api in apis.items() if key in (API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE)}
        self._decoder = RequestDecoder(allowed, context, Shapes())
        self._context = context
        self._session = session
        self._served = apis
        self._count = 0

    def decode(self, frame: memoryview) -> tuple[Handler | None, Any, int]:
        """Decodes as `RequestDecoder.decode`. Raises ProtocolError for other requests, too, and for too many."""
        self._count += 1
        if self._count > MAX_REQUESTS:
            raise ProtocolError(f"more than {MAX_REQUESTS} requests {self._when}")
        if self._session.takes_tokens:
            return self._as_request(frame)
        key = int.from_bytes(frame[:2], "big", signed=True)
        if key not in (API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE):
            if key in self._served:
                raise ProtocolError(f"a request of {self._served[key].name} {self._when}")
            raise ProtocolError(_no_request(frame, self._session))
        return self._decoder.decode(frame)

    @property
    def _when(self) -> str:
        return "before authentication" if self._session.principal is None else "during its next authentication"

    def _as_request(self, token: memoryview) -> tuple[Handler | None, Any, int]:
        api = self._served[SASL_AUTHENTICATE]
        self._context.api_key, self._context.api_version = SASL_AUTHENTICATE, TOKEN_VERSION
        return (api.functions or api.load())[1], SaslAuthenticateRequest(bytes(token)), 0


def _no_request(frame: memoryview, session: SaslSession) -> str:
    """Returns the log message for a frame that is not a Kafka request. A GSSAPI token (RFC 2743) begins with 0x60."""
    if frame[:1].tobytes() == b"\x60":
        return f"a token of GSSAPI (Kerberos), which kwire does not have: use one of {', '.join(session.names)}"
    return (
        "what it sent is no request of Kafka: it is another program, or its security.protocol is not that of this "
        "listener"
    )


class Lasting:
    """Decodes the requests of a peer whose session expires: after that, the peer may only re-authenticate.

    The time is checked at each request. If the event loop were late, a timer would fire after the requests that arrived
    in the meantime.
    """

    def __init__(
        self,
        decoder: RequestDecoder,
        decode_known: Decode,
        has_ended: Callable[[], bool],
    ) -> None:
        self._decoder = decoder
        self._decode_known = decode_known
        self._has_ended = has_ended

    def decode(self, frame: memoryview) -> tuple[Handler | None, Any, int]:
        """Decodes as `decode_known`. Raises ProtocolError for other requests after the expiry."""
        if not self._has_ended():
            return self._decode_known(frame)
        key = int.from_bytes(frame[:2], "big", signed=True)
        if key != SASL_HANDSHAKE:
            raise ProtocolError("it did not authenticate again within connections.max.reauth.ms")
        return self._decoder.decode(frame)
