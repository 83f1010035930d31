"""The results of a validator of bearer tokens, and the compact form of tokens (RFC 7515, RFC 7519).

A token is `header.payload.signature`, each in base64url without padding. Header and payload are JSON objects. Anybody
can send a token, so everything here is bounded, and nothing is trusted before the signature is verified.
"""

from __future__ import annotations

import binascii
import json
import re
from base64 import urlsafe_b64decode
from typing import Any, Final, Protocol

import attrs

MAX_TOKEN_LENGTH: Final = 64 * 1024
"""The maximum length of a token. In Kafka sasl.server.max.receive.size limits it. No HTTP server accepts a token of
half this size."""
MAX_HEADER_LENGTH: Final = 4 * 1024
"""The maximum length of the encoded header, which is read before the signature is verified."""

MAX_PRINCIPAL_LENGTH: Final = 1000
"""The maximum length of a principal's name. Names are in records, in responses, and in the log, many times."""

INVALID_TOKEN: Final = "invalid_token"
INSUFFICIENT_SCOPE: Final = "insufficient_scope"

MAX_QUOTED: Final = 200

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_SEGMENT: Final = re.compile(r"[A-Za-z0-9_-]*", re.ASCII)


class TokenRejected(Exception):
    """The message is for the log. The client receives only `status`, and `scope` if the token lacks it."""

    def __init__(self, reason: str, *, status: str = INVALID_TOKEN, scope: str | None = None) -> None:
        super().__init__(reason)
        self.status = status
        self.scope = scope


@attrs.frozen
class AcceptedToken:
    principal_name: str
    expires_at_ms: int


class TokenValidator(Protocol):
    def validate(self, token: str, *, now_ms: int) -> AcceptedToken:
        """Raises TokenRejected."""
        ...


@attrs.frozen
class CompactToken:
    """A token in parts. `signed` are the bytes that the signature covers. `claims` decodes the payload after that."""

    header: dict[str, Any]
    payload: bytes = attrs.field(repr=False)
    signed: bytes = attrs.field(repr=False)
    signature: bytes = attrs.field(repr=False)

    @classmethod
    def parse(cls, token: str) -> CompactToken:
        """Raises TokenRejected."""
        if len(token) > MAX_TOKEN_LENGTH:
            raise TokenRejected(f"the token has {len(token)} characters, more than {MAX_TOKEN_LENGTH}")
        segments = token.split(".", 3)
        if len(segments) != 3:
            raise TokenRejected("the token does not have three sections: header, payload and signature")
        header, payload, signature = segments
        if len(header) > MAX_HEADER_LENGTH:
            raise TokenRejected(f"the token's header has {len(header)} characters, more than {MAX_HEADER_LENGTH}")
        return cls(
            _object(_decoded(header, "header"), "header"),
            _decoded(payload, "payload"),
            f"{header}.{payload}".encode("ascii"),
            _decoded(signature, "signature"),
        )

    def claims(self) -> dict[str, Any]:
        """Raises TokenRejected."""
        return _object(self.payload, "payload")


def principal_name(claims: dict[str, Any], claim: str) -> str:
    """Returns the principal's name. Kafka limits neither its length nor its characters. Raises TokenRejected."""
    value = claims.get(claim)
    if not isinstance(value, str) or not value.strip():
        raise TokenRejected(f"the claim {claim}, the name of the principal, is {shown(value)}")
    if len(value) > MAX_PRINCIPAL_LENGTH or _CONTROL.search(value.strip()) is not None:
        raise TokenRejected(
            f"the claim {claim} is no name of a principal: it has {len(value)} characters, or control characters"
        )
    return value.strip()


def shown(value: object) -> str:
    """Returns a value of a token for the log: on one line, and of limited length."""
    text = repr(value)
    return text if len(text) <= MAX_QUOTED else f"{text[:MAX_QUOTED]}..."


def parse_json(data: bytes) -> Any:
    """Parses JSON. Raises ValueError, also for values outside JSON (NaN), duplicate names, and too many levels."""
    try:
        return json.loads(data.decode("utf-8"), parse_constant=_refuse_constant, object_pairs_hook=_unique)
    except RecursionError:
        raise ValueError("it has too many levels") from None


def _object(data: bytes, what: str) -> dict[str, Any]:
    try:
        value = parse_json(data)
    except ValueError as error:
        raise TokenRejected(f"the token's {what} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise TokenRejected(f"the token's {what} is not a JSON object")
    return value


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number of JSON")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        raise ValueError("a name is there twice")
    return values


def _decoded(segment: str, what: str) -> bytes:
    if _SEGMENT.fullmatch(segment) is None:
        raise TokenRejected(f"the token's {what} is not in base64url")
    try:
        return urlsafe_b64decode(segment + "=" * (-len(segment) % 4))
    except binascii.Error:
        raise TokenRejected(f"the token's {what} is not in base64url") from None
