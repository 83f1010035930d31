"""Delegation tokens (KIP-48): short-lived credentials that brokers issue to a user, with which its jobs log in.

A token has a public id and a secret: the HMAC of the id with delegation.token.secret.key, which all brokers of a
cluster have. So the secret is in no log and in no record. A client logs in by SCRAM: the id is its name, and the HMAC,
in base64, its password.
"""

from __future__ import annotations

import hmac
from base64 import b64encode

from kwire.security.principal import Principal


def hmac_of(secret_key: str, token_id: str) -> bytes:
    """Returns the secret of a token."""
    return hmac.digest(secret_key.encode(), token_id.encode(), "sha512")


def password_of(token_hmac: bytes) -> str:
    """Returns the password with which the owner's client logs in."""
    return b64encode(token_hmac).decode()


def principal_of(text: str) -> Principal:
    """Returns the principal in a record: User:alice. The text before the first colon is the type."""
    kind, _, name = text.partition(":")
    return Principal(kind, name)
