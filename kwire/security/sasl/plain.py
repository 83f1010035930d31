"""PLAIN (RFC 4616): the client sends its name and its password in one message.

    [authorization id] NUL name NUL password

The users are options of the login module (`kwire.security.sasl.jaas`): user_alice="secret". An authorization id other
than the name is refused, or else a user could impersonate another one (CVE-2017-12610). Passwords are compared by keyed
hashes, so the time depends on the bytes that were sent, and neither on the correct password nor on whether the user
exists.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import Final

import attrs
from kwire_protocol.kafka_error import quoted

from kwire.security.principal import USER, Principal
from kwire.security.sasl.exchange import Authenticated, AuthenticationFailed, Challenge

PLAIN: Final = "PLAIN"
USER_PREFIX: Final = "user_"

MAX_RESPONSE_BYTES: Final = 64 * 1024


def users_of(options: Mapping[str, str]) -> dict[str, str]:
    """Returns the passwords by user name, from the options of a login module."""
    return {key.removeprefix(USER_PREFIX): value for key, value in options.items() if key.startswith(USER_PREFIX)}


class Plain:
    """The mechanism with its users. `secret` is random; it is the key of the hashes."""

    name = PLAIN

    def __init__(self, passwords: Mapping[str, str], *, secret: bytes) -> None:
        self._secret = secret
        self._hashes = {name: self._hash(password) for name, password in passwords.items()}
        self._hash_of_nobody = hmac.digest(secret, b"", "sha512")[:32]  # of another function than those of passwords

    def begin(self) -> PlainExchange:
        return PlainExchange(self)

    def accepts(self, name: str, password: str) -> bool:
        expected = self._hashes.get(name, self._hash_of_nobody)
        return hmac.compare_digest(self._hash(password), expected)

    def has_user(self, name: str) -> bool:
        return name in self._hashes

    def _hash(self, password: str) -> bytes:
        return hmac.digest(self._secret, password.encode(), "sha256")


@attrs.define(eq=False)
class PlainExchange:
    _mechanism: Plain

    def respond(self, data: bytes, *, now_ms: int) -> Challenge | Authenticated:  # noqa: ARG002
        """See `ServerExchange`."""
        if len(data) > MAX_RESPONSE_BYTES:
            raise AuthenticationFailed(
                "Invalid SASL/PLAIN response: it is too long", f"{len(data)} bytes, of at most {MAX_RESPONSE_BYTES}"
            )
        parts = data.split(b"\0")
        if len(parts) != 3:
            message = f"Invalid SASL/PLAIN response: expected 3 tokens, got {min(len(parts), 4)}"
            raise AuthenticationFailed(message, "a malformed response")
        try:
            authorization_id, name, password = (part.decode() for part in parts)
        except UnicodeDecodeError:
            raise AuthenticationFailed("Invalid SASL/PLAIN response: it is not UTF-8", "a malformed response") from None
        if not name:
            raise AuthenticationFailed("Authentication failed: username not specified", "no user name")
        if not password:
            raise AuthenticationFailed("Authentication failed: password not specified", "no password")
        if not self._mechanism.accepts(name, password):
            why = "a wrong password" if self._mechanism.has_user(name) else "no such user"
            raise AuthenticationFailed(
                "Authentication failed: Invalid username or password", f"{why}, user {quoted(name)}"
            )
        if authorization_id not in ("", name):
            raise AuthenticationFailed(
                "Authentication failed: Client requested an authorization id that is different from username",
                f"user {quoted(name)} wants to be {quoted(authorization_id)}",
            )
        return Authenticated(Principal(USER, name))


@attrs.define(eq=False)
class PlainClient:
    """The client's side: see `kwire.security.sasl.client`."""

    name: str
    password: str = attrs.field(repr=False)
    mechanism: str = PLAIN
    _has_begun: bool = False

    def respond(self, challenge: bytes | None) -> bytes | None:
        if challenge is None and not self._has_begun:
            self._has_begun = True
            return b"\0".join((b"", self.name.encode(), self.password.encode()))
        if challenge:
            raise ValueError("it sends a challenge after the name and the password")
        return None
