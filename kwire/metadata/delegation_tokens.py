"""The delegation tokens of the cluster by their secrets, and the SCRAM credentials that they imply.

The records have no secrets. They are computed from the ids when the first token is looked up, and follow the metadata
from then on. A broker whose clients have no tokens computes nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import attrs

from kwire.metadata.controller.access.delegation_tokens import is_expired
from kwire.security.delegation_tokens import hmac_of, password_of, principal_of
from kwire.security.sasl.scram import MIN_ITERATIONS, ScramCredential, ScramMechanism, credential_of_password

if TYPE_CHECKING:
    from kwire_protocol.internal.metadata_security import DelegationTokenRecord


@attrs.define(eq=False)
class DelegationTokens:
    """The delegation tokens; `tokens` are those of the image, by id. Call `follow` with the ids of changed ones."""

    tokens: Mapping[str, DelegationTokenRecord]
    _secret_key: str = attrs.field(repr=False)
    _hmacs: dict[str, bytes] = attrs.field(factory=dict, init=False, repr=False)
    """By token id."""
    _ids: dict[bytes, str] = attrs.field(factory=dict, init=False, repr=False)
    """By HMAC."""
    _credentials: dict[str, dict[str, ScramCredential]] = attrs.field(factory=dict, init=False, repr=False)
    """By token id and mechanism, of the tokens that a client has authenticated with."""

    def __attrs_post_init__(self) -> None:
        self.follow(self.tokens)

    def follow(self, changed: Iterable[str]) -> None:
        for token_id in changed:
            if token_id in self.tokens:
                self._ids[self.hmac(token_id)] = token_id
            else:
                token_hmac = self._hmacs.pop(token_id, None)
                if token_hmac is not None:
                    del self._ids[token_hmac]
                self._credentials.pop(token_id, None)

    def hmac(self, token_id: str) -> bytes:
        """Returns the secret of a token."""
        token_hmac = self._hmacs.get(token_id)
        if token_hmac is None:
            token_hmac = self._hmacs[token_id] = hmac_of(self._secret_key, token_id)
        return token_hmac

    def id_of(self, token_hmac: bytes) -> str | None:
        """Returns the id of the token that has this secret."""
        return self._ids.get(token_hmac)

    def credential(self, token_id: str, mechanism: ScramMechanism, *, now_ms: int) -> ScramCredential | None:
        """The credential by which a client proves the secret; None if there is no such token, or it has expired.

        Kafka makes these for every token on every broker. That takes milliseconds each, so here the first login makes
        it.
        """
        token = self.tokens.get(token_id)
        if token is None or is_expired(token, now_ms):
            return None
        known = self._credentials.setdefault(token_id, {})
        credential = known.get(mechanism.name)
        if credential is None:
            # The salt is derived from the HMAC, which is secret: it is as good as a random one.
            salt = hashlib.sha256(b"salt of " + mechanism.name.encode() + self.hmac(token_id)).digest()
            password = password_of(self.hmac(token_id))
            credential = credential_of_password(mechanism, password, salt=salt, iterations=MIN_ITERATIONS)
            known[mechanism.name] = credential
        return attrs.evolve(credential, owner=principal_of(token.owner), expires_at_ms=token.expiration_timestamp)
