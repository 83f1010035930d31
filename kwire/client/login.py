"""Authenticates this client to a broker: the client's part of Kafka's SASL (KIP-43, KIP-152).

    SaslHandshake, which selects a mechanism -> SaslAuthenticate, until the mechanism is complete

`Login` returns the next request. It is the same for all kinds of connections: they send it over their own conversation,
after ApiVersions, and before anything else. If the session has a limited lifetime, they re-authenticate before it
expires (KIP-368).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from kwire_protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

from kwire.client.errors import ClientError, error_name

if TYPE_CHECKING:
    from kwire.security.sasl.client import ClientExchange

LEAST_HANDSHAKE_VERSION: Final = 1
"""The minimum version of SaslHandshake. After version 0 the mechanism's bytes would have no headers."""

MAX_STEPS: Final = 8
"""The maximum number of steps. No mechanism has more; a peer that continues for ever is not a broker."""

_RENEWED_AFTER: Final = 0.85
"""The fraction of a session's lifetime after which the client re-authenticates. Kafka's clients choose a random
fraction between this and 0.95."""


class LoginFailed(ClientError):
    """The broker does not accept the client's credentials, or does not prove its own identity."""


NewExchange = Callable[[], "ClientExchange"]
"""Begins an authentication. It reads secrets that may change again each time."""


class Login:
    """One authentication. `first` is the first request, and `following` returns the one after each response."""

    def __init__(self, broker: str, machine: ClientExchange) -> None:
        """broker: its name in errors, host:port."""
        self.renewal_ms = math.inf
        """The time in ms after which the client has to re-authenticate; infinite if the session does not expire."""
        self._broker = broker
        self._machine = machine
        self._steps = 0

    def first(self) -> SaslHandshakeRequest:
        return SaslHandshakeRequest(self._machine.mechanism)

    def following(self, response: Any) -> SaslAuthenticateRequest | None:
        """Returns the next request, or None when the client is authenticated. Raises LoginFailed."""
        if isinstance(response, SaslHandshakeResponse):
            if response.error_code:
                known = ", ".join(response.mechanisms) or "none"
                raise self._failed(f"{error_name(response.error_code)}; the mechanisms of this listener are: {known}")
            return self._next(None)
        assert isinstance(response, SaslAuthenticateResponse)
        if response.error_code:
            reason = response.error_message or ""
            if response.error_code != ErrorCode.SASL_AUTHENTICATION_FAILED or not reason:
                reason = f"{error_name(response.error_code)}{reason and f' ({reason})'}"
            raise self._failed(reason)
        lifetime_ms = response.session_lifetime_ms
        self.renewal_ms = lifetime_ms * _RENEWED_AFTER if lifetime_ms else math.inf
        return self._next(response.auth_bytes)

    def _next(self, challenge: bytes | None) -> SaslAuthenticateRequest | None:
        self._steps += 1
        if self._steps > MAX_STEPS:
            raise self._failed("the broker sends another challenge after the last one")
        try:
            answer = self._machine.respond(challenge)
        except ValueError as error:
            raise self._failed(str(error)) from None
        return None if answer is None else SaslAuthenticateRequest(answer)

    def _failed(self, why: str) -> LoginFailed:
        return LoginFailed(f"cannot log in at {self._broker} with {self._machine.mechanism}: {why}")
