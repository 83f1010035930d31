"""One authentication by SASL: a client selects a mechanism, then client and server exchange tokens until it is done.

A mechanism (`plain.py`, `scram.py`, `oauthbearer.py`) is a pure state machine: bytes and the time in, a challenge or a
principal out. `SaslSession` is the authentication of a connection. The handlers of SaslHandshake and SaslAuthenticate
drive it, and `kwire.network.authentication` restricts the requests of a connection until it is authenticated.

                       handshake                    respond, to the end
    unauthenticated -----------------> exchanging -----------------------> authenticated
                                           ^                                     |
                                           +-------------------------------------+
                                                         handshake

An authenticated connection may re-authenticate, with the same mechanism and as the same principal (KIP-368), if its
session expires. A connection whose authentication failed is closed.

An unauthenticated client may also send ApiVersions, once and before its handshake. During the exchange, ApiVersions and
any other request but SaslAuthenticate end the connection (Kafka's SaslServerAuthenticator).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Protocol

import attrs

from kwire.security.principal import Principal

MIN_REAUTH_INTERVAL_MS: Final = 1000
"""The minimum time between re-authentications, as in Kafka: an earlier one is refused."""

TOKEN_VERSION: Final = -1
"""The version that stands for frames without a SaslAuthenticate request: after SaslHandshake v0 each frame is a token
of the mechanism, without a header."""


class AuthenticationFailed(Exception):
    """The message is for the client. It is the same for a wrong name and a wrong password; `reason` is for the log.

    If the message is empty, the client receives Kafka's message for invalid credentials.
    """

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


@attrs.frozen
class Challenge:
    """The exchange continues: the client answers these bytes."""

    data: bytes


@attrs.frozen
class Authenticated:
    """The exchange is over. `data` still goes to the client. `expires_at_ms`: the time when the credentials expire."""

    principal: Principal
    data: bytes = b""
    expires_at_ms: int | None = None


class ServerExchange(Protocol):
    def respond(self, data: bytes, *, now_ms: int) -> Challenge | Authenticated:
        """Processes the client's next bytes. Raises AuthenticationFailed, which ends the exchange."""
        ...


class ServerMechanism(Protocol):
    """A mechanism of one listener, with its users."""

    name: str

    def begin(self) -> ServerExchange: ...


class UnsupportedMechanism(Exception):
    """The listener does not have the mechanism."""


class IllegalSaslState(Exception):
    """The request is not allowed in the current state.

    `closes`: the connection is closed. `is_answered`: there is a response in any case, with ILLEGAL_SASL_STATE.
    """

    def __init__(self, message: str, *, closes: bool, is_answered: bool = True) -> None:
        super().__init__(message)
        self.closes = closes
        self.is_answered = is_answered


@attrs.frozen
class Known:
    """The client is authenticated, for `lifetime_ms`, or until it disconnects if that is None. `data` goes to it."""

    principal: Principal
    data: bytes
    lifetime_ms: int | None


@attrs.define(eq=False)
class SaslSession:
    """The authentication of one connection. `mechanisms` are those of its listener, by name, in their order.

    `exchange` is the current one, with `mechanism`. `principal` and `authenticated_by` are those of the last completed
    one. Times other than `now_ms` are of a monotonic clock.
    """

    mechanisms: Mapping[str, ServerMechanism]
    max_reauth_ms: Mapping[str, int]
    """The connections.max.reauth.ms of each mechanism; with 0 a session lasts as long as the credentials."""
    mechanism: str | None = None
    exchange: ServerExchange | None = None
    principal: Principal | None = None
    authenticated_by: str | None = None
    takes_tokens: bool = False
    """True if the client has selected its mechanism with SaslHandshake v0: the next frames are tokens."""
    _ends: bool = False
    """True if the session expires, so that the client may re-authenticate."""
    _began_again_ms: int | None = None
    _has_versions: bool = False
    """True if the client has received the versions of the APIs before its first handshake."""

    @property
    def names(self) -> Sequence[str]:
        return tuple(self.mechanisms)

    @property
    def verb(self) -> str:
        """Kafka's word for the current exchange in messages."""
        return "authentication" if self.principal is None else "re-authentication"

    def check_versions(self) -> None:
        """Checks that the client may send ApiVersions now. Raises IllegalSaslState."""
        if self.exchange is not None:
            raise IllegalSaslState("ApiVersions during an authentication", closes=True)
        if self.principal is None and self._has_versions:
            raise IllegalSaslState("ApiVersions twice before SaslHandshake", closes=True, is_answered=False)

    def versions_are_known(self) -> None:
        """Called when the client receives the versions; not if it has to repeat the request in another version."""
        self._has_versions = True

    def handshake(self, name: str, *, version: int, monotonic_ms: int) -> None:
        """Begins an exchange with the mechanism `name`. Raises UnsupportedMechanism, IllegalSaslState."""
        if self.exchange is not None:
            raise IllegalSaslState("SaslHandshake during an authentication", closes=True)
        if self.principal is not None:
            self._check_again(monotonic_ms)
            self._began_again_ms = monotonic_ms
        mechanism = self.mechanisms.get(name)
        if mechanism is None:
            raise UnsupportedMechanism(name)
        self.mechanism = name
        self.takes_tokens = version == 0
        self.exchange = mechanism.begin()
        if self.authenticated_by not in (None, name):
            # Kafka accepts it here, too, and refuses the next request.
            self.exchange = _Refused(
                f"SASL mechanism '{name}' requested by client is not supported for re-authentication of mechanism "
                f"'{self.authenticated_by}'"
            )

    def _check_again(self, monotonic_ms: int) -> None:
        began = self._began_again_ms
        if not self._ends or (began is not None and monotonic_ms - began < MIN_REAUTH_INTERVAL_MS):
            raise IllegalSaslState("SaslHandshake after the authentication", closes=False)

    def respond(self, data: bytes, *, now_ms: int) -> Challenge | Known:
        """Processes the client's next bytes. Raises AuthenticationFailed, IllegalSaslState."""
        exchange, mechanism = self.exchange, self.mechanism
        if exchange is None:
            raise IllegalSaslState(
                "SaslAuthenticate request received after successful authentication"
                if self.principal is not None
                else "SaslAuthenticate before SaslHandshake",
                closes=self.principal is None,
                is_answered=self.principal is not None,
            )
        assert mechanism is not None, "handshake has set both"
        try:
            step = exchange.respond(data, now_ms=now_ms)
            if isinstance(step, Challenge):
                return step
            self._check_principal(step.principal)
        except AuthenticationFailed as error:
            message = str(error) or (
                f"Authentication failed during {self.verb} due to invalid credentials with SASL mechanism {mechanism}"
            )
            raise AuthenticationFailed(message, f"{self.verb} with {mechanism} failed: {error.reason}") from None
        lifetime_ms = self._lifetime_ms(mechanism, step.expires_at_ms, now_ms)
        self.exchange, self.takes_tokens = None, False
        self.principal, self.authenticated_by = step.principal, mechanism
        self._ends = lifetime_ms is not None
        return Known(step.principal, step.data, lifetime_ms)

    def _check_principal(self, principal: Principal) -> None:
        before = self.principal
        if before is not None and before != principal:
            raise AuthenticationFailed(
                f"Cannot change principals during re-authentication from {before.type}.{before.name}: "
                f"{principal.type}.{principal.name}",
                "another principal than before",
            )

    def _lifetime_ms(self, mechanism: str, expires_at_ms: int | None, now_ms: int) -> int | None:
        bounds = []
        if expires_at_ms is not None:
            bounds.append(max(0, expires_at_ms - now_ms))
        if (max_reauth_ms := self.max_reauth_ms.get(mechanism, 0)) > 0:
            bounds.append(max_reauth_ms)
        return min(bounds, default=None)


@attrs.frozen
class _Refused:
    """The exchange of a client that re-authenticates with another mechanism."""

    message: str

    def respond(self, data: bytes, *, now_ms: int) -> Challenge | Authenticated:  # noqa: ARG002
        raise AuthenticationFailed(self.message, "another mechanism than before")
