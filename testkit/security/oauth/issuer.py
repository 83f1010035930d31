"""An issuer of tokens for tests: its keys, their public set, and tokens of all kinds, good and forged."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from functools import cache
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import get_default_algorithms

NOW_MS = 1_700_000_000_000
NOW_S = NOW_MS // 1000


@cache
def private_key(kind: str, number: int = 0) -> Any:
    """The same key for the same arguments: making one takes a while."""
    match kind:
        case "RSA":
            return rsa.generate_private_key(65537, 2048)
        case "small RSA":
            return rsa.generate_private_key(65537, 1024)
        case "P-256":
            return ec.generate_private_key(ec.SECP256R1())
        case "P-384":
            return ec.generate_private_key(ec.SECP384R1())
        case "P-521":
            return ec.generate_private_key(ec.SECP521R1())
    return ed25519.Ed25519PrivateKey.generate()


def kind_of(alg: str) -> str:
    return {"ES256": "P-256", "ES384": "P-384", "ES512": "P-521", "EdDSA": "Ed25519"}.get(alg, "RSA")


def jwk(kid: str | None, alg: str = "RS256", key: Any = None, **more: Any) -> dict[str, Any]:
    """The public key as a member of a set."""
    key = key or private_key(kind_of(alg))
    public = get_default_algorithms()[alg].to_jwk(key.public_key(), as_dict=True)
    return {name: value for name, value in public.items() if name != "key_ops"} | ({"kid": kid} if kid else {}) | more


def jwks(*members: Mapping[str, Any]) -> bytes:
    return json.dumps({"keys": list(members)}).encode()


def claims(**changes: Any) -> dict[str, Any]:
    """Returns the claims of a good token; a change to None removes a claim."""
    values = {"sub": "alice", "iat": NOW_S - 10, "exp": NOW_S + 600} | changes
    return {name: value for name, value in values.items() if value is not None}


def token(
    body: Mapping[str, Any] | None = None, *, kid: str | None = "k1", alg: str = "RS256", key: Any = None, **header: Any
) -> str:
    headers = ({"kid": kid} if kid else {}) | header
    return jwt.encode(dict(body or claims()), key or private_key(kind_of(alg)), alg, headers=headers)


def segment(value: object) -> str:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def unsigned(body: Mapping[str, Any] | None = None, header: Mapping[str, Any] | None = None) -> str:
    return f"{segment(header or {'alg': 'none'})}.{segment(dict(claims() if body is None else body))}."
