"""The context of a request: the connection's state for handlers, and the errors by which they close the connection.

Also the types of handlers and fast paths, which get it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs
from kwire_protocol.wire import ApiMessage

from kwire.security.principal import ANONYMOUS, Principal, Requester
from kwire.security.sasl.exchange import SaslSession


@attrs.define(eq=False)
class Context:
    """The context of a request. Each connection has one and updates it, because it answers its requests in order.

    `local_host` and `local_port` are the address that the client connected to. Metadata returns it unless
    advertised.listeners has another one. `served_versions` are the APIs of the listener, by API key.
    """

    client_host: str
    local_host: str
    local_port: int
    listener_name: str = "PLAINTEXT"
    served_versions: Mapping[int, range] = attrs.field(factory=dict)
    api_key: int = -1
    api_version: int = -1
    client_id: str | None = None
    requester: Requester = attrs.field(
        default=attrs.Factory(lambda self: Requester(ANONYMOUS, self.client_host), takes_self=True)
    )
    sasl: SaslSession | None = None
    """The authentication by SASL on this connection; None on a listener without SASL."""
    on_authenticated: Callable[[float | None], None] | None = None
    """Called by SaslAuthenticate when the client is authenticated, with the session's lifetime in seconds (None: it
    does not expire)."""
    on_authenticating_again: Callable[[], None] | None = None
    """Called by SaslHandshake when an authenticated client begins to re-authenticate."""
    fetch_throttle_ms: Callable[[int], int] | None = None
    """Returns the throttle time in ms before a consumer may get that many bytes; None while no client has a quota."""
    on_closed: Callable[[], None] | None = None
    """Called once the connection is closed; a handler sets it."""

    @property
    def principal(self) -> Principal:
        return self.requester.principal


Handler = Callable[[Any, Context], Any]
"""Returns the response to a request, or None if there is none. A handler that has to wait returns a coroutine.

Raises CloseConnection if the request can have no response. The handler of ApiVersions is called with None for a request
in a version that is not served."""

Answer = Callable[[memoryview, Context, int], Any]
"""Answers the requests of one shape, by their frames, the context and the correlation id; see `kwire.handlers.fast`.

Returns the whole frame of the response (empty with acks=0), or the response itself, or a coroutine. None if the handler
has to answer: then nothing has changed."""


class CloseConnection(Exception):
    """Raised by a handler: the connection is closed without a response, and one log line has the reason."""


class CloseAfterResponse(CloseConnection):
    """The same, but the response is sent first."""

    def __init__(self, reason: str, response: ApiMessage) -> None:
        super().__init__(reason)
        self.response = response
