"""Delegation tokens (KIP-48): short-lived credentials that a user has the brokers make, for its jobs to log in with.

A token has an id, which everybody may know, and a secret: the HMAC of the id with delegation.token.secret.key, which
all brokers of a cluster have. So the secret is in no log and in no record. A client logs in by SCRAM: the id is its
name, and the HMAC, in base64, its password.
"""

from __future__ import annotations

import hmac
from base64 import b64encode

from kwire.security.principal import Principal


def hmac_of(secret_key: str, token_id: str) -> bytes:
    """The secret of a token."""
    return hmac.digest(secret_key.encode(), token_id.encode(), "sha512")


def password_of(token_hmac: bytes) -> str:
    """What its owner's client logs in with."""
    return b64encode(token_hmac).decode()


def principal_of(text: str) -> Principal:
    """The principal in a record: User:alice. What is before the first colon is the type."""
    kind, _, name = text.partition(":")
    return Principal(kind, name)
