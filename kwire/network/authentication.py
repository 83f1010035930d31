"""What a connection of a SASL listener may do before it is authenticated, and once its authentication has ended.

It is a matter of which table of APIs its requests are decoded with, so that requests of a known peer cost nothing more:

    not known     ApiVersions, SaslHandshake, SaslAuthenticate; few of them, small ones, and soon
    known         everything
    once more     the same as not known, from the SaslHandshake that begins another authentication (KIP-368)
    ended         that SaslHandshake; anything else closes the connection

A connection that is known may authenticate again before its time ends. Which of the three requests may follow which is
up to the `SaslSession`.

After SaslHandshake v0 frames are bytes of the mechanism, until it is known: they become requests of SaslAuthenticate.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from kwire_protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from kwire_protocol.wire import ProtocolError

from kwire.handlers.apis import API_VERSIONS, Api, Handler
from kwire.handlers.context import Context
from kwire.network.decoding import RequestDecoder, Shapes
from kwire.security.sasl.exchange import TOKEN_VERSION, SaslSession

SASL_HANDSHAKE: Final = 17
SASL_AUTHENTICATE: Final = 36

MAX_REQUESTS: Final = 16
"""Of one authentication. The longest conversation of a client of Kafka has six: versions twice, a handshake, SCRAM."""


class Unauthenticated:
    """Decodes the requests of a peer that is not known yet, or that authenticates once more."""

    def __init__(self, apis: Mapping[int, Api], context: Context, session: SaslSession) -> None:
        allowed = {key: api for key, api in apis.items() if key in (API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE)}
        self._decoder = RequestDecoder(allowed, context, Shapes())
        self._context = context
        self._session = session
        self._served = apis
        self._count = 0

    def decode(self, frame: memoryview) -> tuple[Handler, Any, int]:
        """As `RequestDecoder.decode`. Raises ProtocolError for other requests, too, and for too many."""
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

    def _as_request(self, token: memoryview) -> tuple[Handler, Any, int]:
        api = self._served[SASL_AUTHENTICATE]
        self._context.api_key, self._context.api_version = SASL_AUTHENTICATE, TOKEN_VERSION
        return (api.functions or api.load())[1], SaslAuthenticateRequest(bytes(token)), 0


def _no_request(frame: memoryview, session: SaslSession) -> str:
    """What to log of a frame that is none of Kafka's. The first byte of a token of GSSAPI (RFC 2743) is 0x60."""
    if frame[:1].tobytes() == b"\x60":
        return f"a token of GSSAPI (Kerberos), which kwire does not have: use one of {', '.join(session.names)}"
    return (
        "what it sent is no request of Kafka: it is another program, or its security.protocol is not that of this "
        "listener"
    )


class Lasting:
    """Decodes the requests of a peer whose authentication ends: from then on it may only authenticate again.

    The time is compared with each request. A timer would come late where the loop does, after the requests that came in
    the meantime.
    """

    def __init__(
        self,
        decoder: RequestDecoder,
        decode_known: Callable[[memoryview], tuple[Handler, Any, int]],
        has_ended: Callable[[], bool],
    ) -> None:
        self._decoder = decoder
        self._decode_known = decode_known
        self._has_ended = has_ended

    def decode(self, frame: memoryview) -> tuple[Handler, Any, int]:
        """As `RequestDecoder.decode`. Raises ProtocolError for other requests after the end."""
        if not self._has_ended():
            return self._decode_known(frame)
        key = int.from_bytes(frame[:2], "big", signed=True)
        if key != SASL_HANDSHAKE:
            raise ProtocolError("it did not authenticate again within connections.max.reauth.ms")
        return self._decoder.decode(frame)
