"""The mechanism OAUTHBEARER (RFC 7628, KIP-255): the client sends a token, and a validator returns its principal.

    client   n,a=NAME,^Aauth=Bearer TOKEN^Aextension=value^A^A        a=NAME may be absent; so may extensions
    server   nothing, and it is over; or {"status":"invalid_token"}
    client   ^A, and it has failed

^A is the byte 1. The name, if it is there, must be the token's. Extensions have to be well-formed and are accepted as
they are (KIP-342): nothing in the broker uses them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Final

import attrs

from kwire.security.oauth.token import AcceptedToken, TokenRejected, TokenValidator
from kwire.security.principal import USER, Principal
from kwire.security.sasl.exchange import Authenticated, AuthenticationFailed, Challenge

OAUTHBEARER: Final = "OAUTHBEARER"
MAX_MESSAGE_BYTES: Final = 128 * 1024
"""The maximum size of the client's first message: a token of the largest size, and extensions."""

_SEPARATOR: Final = "\x01"
_AUTH: Final = "auth"
_NAME: Final = re.compile(r"(?:[^,=\x00\x01]|=2C|=3D)+")
_KEY: Final = re.compile(r"[A-Za-z]+", re.ASCII)
_VALUE: Final = re.compile(r"[\x21-\x7e \t\r\n]+", re.ASCII)
_BEARER: Final = re.compile(r"(?i:bearer) +([-_~+/.a-zA-Z0-9]+=*)", re.ASCII)

_MALFORMED: Final = (
    "Authentication failed during authentication due to invalid credentials with SASL mechanism OAUTHBEARER"
)
"""Kafka's message for a client whose first message cannot be parsed."""


@attrs.frozen
class FirstMessage:
    """The client's first message. `authzid` is the requested authorization id; "" if the token alone decides."""

    token: str = attrs.field(repr=False)
    authzid: str = ""
    extensions: Mapping[str, str] = attrs.field(factory=dict, repr=False)

    @classmethod
    def parse(cls, data: bytes) -> FirstMessage:
        """Raises ValueError, whose text is for the log and has no part of the message."""
        if len(data) > MAX_MESSAGE_BYTES:
            raise ValueError(f"the first message has {len(data)} bytes, more than {MAX_MESSAGE_BYTES}")
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError:
            raise ValueError("the first message is not in UTF-8") from None
        header, _, rest = text.partition(_SEPARATOR)
        parts = header.split(",", 3)
        if len(parts) != 3 or parts[0] != "n" or parts[2]:
            raise ValueError("the first message does not begin with n,a=NAME,")
        authzid = _authzid(parts[1])
        if not rest.endswith(_SEPARATOR * 2):
            raise ValueError("the first message does not end with two bytes 1")
        pairs = _pairs(rest[:-2])
        auth = pairs.pop(_AUTH, None)
        if auth is None:
            raise ValueError("the first message has no auth")
        bearer = _BEARER.fullmatch(auth)
        if bearer is None:
            raise ValueError("the first message has something else than a bearer token")
        return cls(bearer[1], authzid, pairs)

    def encode(self) -> bytes:
        """Raises ValueError if something in it cannot be sent."""
        if _BEARER.fullmatch(f"Bearer {self.token}") is None:
            raise ValueError("the token is not of the form of a bearer token (RFC 6750)")
        if "\x00" in self.authzid or _SEPARATOR in self.authzid:
            raise ValueError("the authorization id has a control character")
        for key, value in self.extensions.items():
            if key == _AUTH or not _KEY.fullmatch(key) or not _VALUE.fullmatch(value):
                raise ValueError(f"the SASL extension {key!r} cannot be sent")
        name = f"a={self.authzid.replace('=', '=3D').replace(',', '=2C')}" if self.authzid else ""
        pairs = {_AUTH: f"Bearer {self.token}", **self.extensions}
        body = "".join(f"{key}={value}{_SEPARATOR}" for key, value in pairs.items())
        return f"n,{name},{_SEPARATOR}{body}{_SEPARATOR}".encode()


def _authzid(part: str) -> str:
    if not part:
        return ""
    if not part.startswith("a=") or _NAME.fullmatch(part, 2) is None:
        raise ValueError("the first message has a malformed authorization id")
    return part[2:].replace("=2C", ",").replace("=3D", "=")


def _pairs(text: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for pair in text.split(_SEPARATOR):
        key, _, value = pair.partition("=")
        if not _KEY.fullmatch(key) or not _VALUE.fullmatch(value) or key in pairs:
            raise ValueError("the first message has a malformed pair, or one twice")
        pairs[key] = value
    return pairs


@attrs.define(eq=False)
class OAuthBearer:
    """The mechanism of one listener."""

    validator: TokenValidator
    name: str = OAUTHBEARER

    def begin(self) -> OAuthBearerExchange:
        return OAuthBearerExchange(self.validator)


@attrs.define(eq=False)
class OAuthBearerExchange:
    """One authentication. Kafka would accept another token after it rejected one; its clients never send one."""

    _validator: TokenValidator
    _failure: AuthenticationFailed | None = None

    def respond(self, data: bytes, *, now_ms: int) -> Challenge | Authenticated:
        """See `ServerExchange`."""
        if self._failure is not None:
            raise self._failure
        try:
            message = FirstMessage.parse(data)
        except ValueError as error:
            self._failure = AuthenticationFailed(_MALFORMED, str(error))
            raise self._failure from None
        try:
            token = self._validator.validate(message.token, now_ms=now_ms)
        except TokenRejected as rejected:
            answer = _rejection(rejected)
            self._failure = AuthenticationFailed(answer, str(rejected))
            return Challenge(answer.encode())
        if message.authzid and message.authzid != token.principal_name:
            self._failure = _other_name(message, token)
            raise self._failure
        return Authenticated(Principal(USER, token.principal_name), expires_at_ms=token.expires_at_ms)


def _rejection(rejected: TokenRejected) -> str:
    answer = {"status": rejected.status}
    if rejected.scope is not None:
        answer["scope"] = rejected.scope
    return json.dumps(answer, separators=(",", ":"))


def _other_name(message: FirstMessage, token: AcceptedToken) -> AuthenticationFailed:
    return AuthenticationFailed(
        "Authentication failed: the authorization id that was asked for is not the principal of the token",
        f"the client asked to be {message.authzid[:200]!r} with a token of {token.principal_name[:200]!r}",
    )


@attrs.define(eq=False)
class OAuthBearerClient:
    """The client's side of one authentication: see `kwire.security.sasl.client`."""

    message: FirstMessage
    mechanism: str = OAUTHBEARER
    rejection: str | None = None
    """The server's error for a rejected token."""

    def respond(self, challenge: bytes | None) -> bytes | None:
        """Answers a rejection, too; the server's response to that answer is an error. Raises ValueError."""
        if challenge is None:
            return self.message.encode()
        if not challenge:
            return None
        if self.rejection is not None:
            raise ValueError("it continues after the last message")
        self.rejection = challenge[:MAX_MESSAGE_BYTES].decode("utf-8", "replace")
        return _SEPARATOR.encode()
