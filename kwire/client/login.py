"""Introduces this side to a broker that asks who is there: the client's part of Kafka's SASL (KIP-43, KIP-152).

    SaslHandshake, which names a mechanism -> SaslAuthenticate, until the mechanism has no more to say

`Login` says what to ask next. It is the same for all kinds of connections: they ask on their own conversation, when
they know the broker's versions, and before anything else. If the broker believes it for a limited time only, they ask
again before that is over (KIP-368).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from kwire_protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

from kwire.client.errors import ClientError, error_name

if TYPE_CHECKING:
    from kwire.security.sasl.client import ClientExchange

LEAST_HANDSHAKE_VERSION: Final = 1
"""After version 0 the mechanism's bytes would have no headers."""

MAX_STEPS: Final = 8
"""No mechanism has more; a broker that goes on for ever is none."""

RENEWED_AFTER: Final = 0.85
"""Of the time for which the broker believes a login: then it is repeated. As Kafka's clients, which choose at random
between this and 0.95."""


class LoginFailed(ClientError):
    """The broker does not accept who this side says it is, or does not show that it is the broker."""


NewExchange = Callable[[], "ClientExchange"]
"""Begins an authentication. It reads the secrets anew each time, where they may change."""


class Login:
    """`first` is the first request, and `following` the one after each response."""

    def __init__(self, broker: str, machine: ClientExchange) -> None:
        """broker: its name in errors, host:port."""
        self.lifetime_ms = 0
        """How long the broker believes it; 0: as long as the connection lasts."""
        self._broker = broker
        self._machine = machine
        self._steps = 0

    def first(self) -> SaslHandshakeRequest:
        return SaslHandshakeRequest(self._machine.mechanism)

    def following(self, response: Any) -> SaslAuthenticateRequest | None:
        """None when the broker knows this side. Raises LoginFailed."""
        if isinstance(response, SaslHandshakeResponse):
            if response.error_code:
                known = ", ".join(response.mechanisms) or "none"
                raise self._failed(f"{error_name(response.error_code)}; the mechanisms of this listener are: {known}")
            return self._next(None)
        assert isinstance(response, SaslAuthenticateResponse)
        if response.error_code:
            told = response.error_message or ""
            if response.error_code != ErrorCode.SASL_AUTHENTICATION_FAILED or not told:
                told = f"{error_name(response.error_code)}{told and f' ({told})'}"
            raise self._failed(told)
        self.lifetime_ms = response.session_lifetime_ms
        return self._next(response.auth_bytes)

    def _next(self, challenge: bytes | None) -> SaslAuthenticateRequest | None:
        self._steps += 1
        if self._steps > MAX_STEPS:
            raise self._failed("the broker goes on asking for more")
        try:
            answer = self._machine.respond(challenge)
        except ValueError as error:
            raise self._failed(str(error)) from None
        return None if answer is None else SaslAuthenticateRequest(answer)

    def _failed(self, why: str) -> LoginFailed:
        return LoginFailed(f"cannot log in at {self._broker} with {self._machine.mechanism}: {why}")
