"""One authentication by SASL: a client names a mechanism, then its bytes and the server's take turns until it is known.

A mechanism (`plain.py`, `scram.py`, `oauthbearer.py`) is a pure state machine: bytes and the time in, a challenge or a
principal out. `SaslSession` is what a connection has of it. The handlers of SaslHandshake and SaslAuthenticate drive
it, and `kwire.network.authentication` says what a connection may ask before it is over.

A connection may authenticate again, with the same mechanism and as the same principal (KIP-368).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import attrs

from kwire.security.principal import Principal


class AuthenticationFailed(Exception):
    """The text is for the client. It is the same for a wrong name and a wrong password; `reason` is for the log."""

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


@attrs.frozen
class Challenge:
    """The exchange goes on: the client answers these bytes."""

    data: bytes


@attrs.frozen
class Authenticated:
    """The exchange is over. `data` still goes to the client. `expires_at_ms`: when the credentials end, if they do."""

    principal: Principal
    data: bytes = b""
    expires_at_ms: int | None = None


class ServerExchange(Protocol):
    def respond(self, data: bytes, *, now_ms: int) -> Challenge | Authenticated:
        """Takes the client's next bytes. Raises AuthenticationFailed; then the exchange is over, too."""
        ...


class ServerMechanism(Protocol):
    """A mechanism of one listener, with what it knows of users."""

    name: str

    def begin(self) -> ServerExchange: ...


@attrs.define(eq=False)
class SaslSession:
    """The authentication of one connection. `mechanisms` are those of its listener, by name, in their order.

    `exchange` is the one under way. `authenticated_by` is the mechanism of the last one that was completed.
    """

    mechanisms: Mapping[str, ServerMechanism]
    max_reauth_ms: Mapping[str, int]
    """connections.max.reauth.ms of each mechanism; 0: an authentication lasts as long as the credentials do."""
    mechanism: str | None = None
    exchange: ServerExchange | None = None
    authenticated_by: str | None = None

    @property
    def names(self) -> Sequence[str]:
        return tuple(self.mechanisms)
