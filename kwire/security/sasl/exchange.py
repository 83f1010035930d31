"""One authentication by SASL: a client names a mechanism, then its bytes and the server's take turns until it is known.

A mechanism (`plain.py`, `scram.py`, `oauthbearer.py`) is a pure state machine: bytes and the time in, a challenge or a
principal out. `SaslSession` is what a connection has of it. The handlers of SaslHandshake and SaslAuthenticate drive
it, and `kwire.network.authentication` says what a connection may ask before it is over.

                 handshake                    respond, to the end
    not known -----------------> exchanging -----------------------> known
                                     ^                                 |
                                     +---------------------------------+
                                                 handshake

A connection that is known may authenticate again, with the same mechanism and as the same principal (KIP-368), if its
authentication ends at some time. A connection whose authentication failed is closed.

A client that is not known may also request the versions of the APIs, once and before its handshake. While it exchanges
it may not, and the connection cannot go on after that, nor after any other request (Kafka's SaslServerAuthenticator).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Protocol

import attrs

from kwire.security.principal import Principal

MIN_REAUTH_INTERVAL_MS: Final = 1000
"""Kafka's: whoever authenticates again sooner is refused."""

TOKEN_VERSION: Final = -1
"""Stands for the version of SaslAuthenticate where there is none: after SaslHandshake v0 each frame is the mechanism's
bytes, without a header."""


class AuthenticationFailed(Exception):
    """The text is for the client. It is the same for a wrong name and a wrong password; `reason` is for the log.

    Without a text the client is told of invalid credentials, in Kafka's words.
    """

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


class UnsupportedMechanism(Exception):
    """The listener does not have the mechanism."""


class IllegalSaslState(Exception):
    """The request does not come at its time.

    `closes`: the connection cannot go on. `is_answered`: there is an answer in any case, with ILLEGAL_SASL_STATE.
    """

    def __init__(self, message: str, *, closes: bool, is_answered: bool = True) -> None:
        super().__init__(message)
        self.closes = closes
        self.is_answered = is_answered


@attrs.frozen
class Known:
    """The client is known. `data` still goes to it. `lifetime_ms`: for so long; None: as long as it is connected."""

    principal: Principal
    data: bytes
    lifetime_ms: int | None


@attrs.define(eq=False)
class SaslSession:
    """The authentication of one connection. `mechanisms` are those of its listener, by name, in their order.

    `exchange` is the one under way, with `mechanism`. `principal` and `authenticated_by` are those of the last one that
    was completed. Times are of a clock that never goes backwards, if they are not `now_ms`.
    """

    mechanisms: Mapping[str, ServerMechanism]
    max_reauth_ms: Mapping[str, int]
    """connections.max.reauth.ms of each mechanism; 0: an authentication lasts as long as the credentials do."""
    mechanism: str | None = None
    exchange: ServerExchange | None = None
    principal: Principal | None = None
    authenticated_by: str | None = None
    takes_tokens: bool = False
    """The client has named its mechanism with SaslHandshake v0: what follows are the mechanism's bytes."""
    _ends: bool = False
    """Whether the last authentication has an end, so that another one may follow."""
    _began_again_ms: int | None = None
    _has_versions: bool = False
    """Whether the client has been answered which versions there are, before its first handshake."""

    @property
    def names(self) -> Sequence[str]:
        return tuple(self.mechanisms)

    @property
    def verb(self) -> str:
        """For messages, in Kafka's words."""
        return "authentication" if self.principal is None else "re-authentication"

    def check_versions(self) -> None:
        """The client requests the versions of the APIs. Raises IllegalSaslState."""
        if self.exchange is not None:
            raise IllegalSaslState("ApiVersions during an authentication", closes=True)
        if self.principal is None and self._has_versions:
            raise IllegalSaslState("ApiVersions twice before SaslHandshake", closes=True, is_answered=False)

    def versions_are_known(self) -> None:
        """The client gets the versions now. It is not called when it has to ask again, in another version."""
        self._has_versions = True

    def handshake(self, name: str, *, version: int, monotonic_ms: int) -> None:
        """The client names its mechanism. Raises UnsupportedMechanism, IllegalSaslState."""
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
            # Kafka accepts it here, too, and refuses what comes next.
            self.exchange = _Refused(
                f"SASL mechanism '{name}' requested by client is not supported for re-authentication of mechanism "
                f"'{self.authenticated_by}'"
            )

    def _check_again(self, monotonic_ms: int) -> None:
        began = self._began_again_ms
        if not self._ends or (began is not None and monotonic_ms - began < MIN_REAUTH_INTERVAL_MS):
            raise IllegalSaslState("SaslHandshake after the authentication", closes=False)

    def respond(self, data: bytes, *, now_ms: int) -> Challenge | Known:
        """Takes the client's next bytes. Raises AuthenticationFailed, IllegalSaslState."""
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
            told = str(error) or (
                f"Authentication failed during {self.verb} due to invalid credentials with SASL mechanism {mechanism}"
            )
            raise AuthenticationFailed(told, f"{self.verb} with {mechanism} failed: {error.reason}") from None
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
    """The exchange of a client that names another mechanism than before."""

    message: str

    def respond(self, data: bytes, *, now_ms: int) -> Challenge | Authenticated:  # noqa: ARG002
        raise AuthenticationFailed(self.message, "another mechanism than before")
