"""The public keys that verify tokens: a JSON Web Key Set (RFC 7517), and the candidates among its keys for a token.

Only asymmetric algorithms are supported. A key is made from the public numbers in the set and belongs to one family of
algorithms, so a token's signature is verified only in the way that the key is meant for: not with "none", and not with
an HMAC whose secret would be the public key. Kafka accepts symmetric keys in the set, too; kwire does not, since a
party that can verify a token with such a key could also issue one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from jwt.algorithms import Algorithm, get_default_algorithms
from jwt.exceptions import PyJWTError

from kwire.security.oauth.token import parse_json

MAX_SET_BYTES: Final = 1024 * 1024
MAX_KEYS: Final = 256
MAX_TRIED: Final = 16
"""The maximum number of keys that are tried for a token without a key id."""
RSA_BITS: Final = range(2048, 16384 + 1)

_FAMILIES: Final[Mapping[str, tuple[str, str | None]]] = {
    "RS256": ("RSA", None),
    "RS384": ("RSA", None),
    "RS512": ("RSA", None),
    "PS256": ("RSA", None),
    "PS384": ("RSA", None),
    "PS512": ("RSA", None),
    "ES256": ("EC", "P-256"),
    "ES384": ("EC", "P-384"),
    "ES512": ("EC", "P-521"),
    "EdDSA": ("OKP", "Ed25519"),
}
"""The algorithms by their names in a token's header, with the type and the curve of their keys."""
ALGORITHMS: Final = frozenset(_FAMILIES)

_PUBLIC_MEMBERS: Final = {"RSA": ("kty", "n", "e"), "EC": ("kty", "crv", "x", "y"), "OKP": ("kty", "crv", "x")}


class UnusableKeys(Exception):
    """A set of keys cannot be used. The message has the reason."""


@attrs.frozen(eq=False)
class Key:
    """A public key. `alg` is the only algorithm it is for, or None if it is for every algorithm of its family."""

    kid: str | None
    family: tuple[str, str | None]
    alg: str | None
    value: Any = attrs.field(repr=False)

    def suits(self, alg: str, kid: str | None) -> bool:
        return self.family == _FAMILIES[alg] and self.alg in (None, alg) and kid in (None, self.kid)


@attrs.frozen(eq=False)
class KeySet:
    keys: tuple[Key, ...] = ()
    _algorithms: Mapping[str, Algorithm] = attrs.field(factory=get_default_algorithms, init=False, repr=False)

    @classmethod
    def parse(cls, data: bytes) -> KeySet:
        """Parses a key set. Keys of an unknown type, or not for signatures, are left out. Raises UnusableKeys."""
        if len(data) > MAX_SET_BYTES:
            raise UnusableKeys(f"it has more than {MAX_SET_BYTES} bytes")
        try:
            value = parse_json(data)
        except ValueError as error:
            raise UnusableKeys(f"it is not JSON: {error}") from None
        members = value.get("keys") if isinstance(value, dict) else None
        if not isinstance(members, list):
            raise UnusableKeys('it is not a JSON Web Key Set: an object with a list "keys"')
        if len(members) > MAX_KEYS:
            raise UnusableKeys(f"it has {len(members)} keys, more than {MAX_KEYS}")
        keys = tuple(key for member in members if (key := _key(member)) is not None)
        if not keys:
            raise UnusableKeys(
                "it has no key that can be used: public keys for signatures, RSA of 2048 bits or more, "
                "EC (P-256, P-384, P-521) or Ed25519"
            )
        return cls(keys)

    def candidates(self, alg: str, kid: str | None) -> Sequence[Key]:
        """Returns the keys that a token may be signed with according to its header. `alg` is one of ALGORITHMS."""
        return [key for key in self.keys if key.suits(alg, kid)][:MAX_TRIED]

    def verifies(self, key: Key, alg: str, signed: bytes, signature: bytes) -> bool:
        """Returns True if the signature is valid. `key` is one of the candidates for `alg`."""
        algorithm = self._algorithms[alg]
        return bool(algorithm.verify(signed, algorithm.prepare_key(key.value), signature))


def _key(member: object) -> Key | None:
    """Returns None for a key that cannot be used."""
    if not isinstance(member, dict):
        return None
    kid, alg, kty, crv = (_text(member, name) for name in ("kid", "alg", "kty", "crv"))
    if member.get("use", "sig") != "sig" or "verify" not in _operations(member):
        return None
    family = (kty, crv if kty in ("EC", "OKP") else None)
    fitting = [name for name, known in _FAMILIES.items() if known == family and alg in (None, name)]
    if not fitting:
        return None
    assert kty is not None
    public = {name: member[name] for name in _PUBLIC_MEMBERS[kty] if name in member}
    try:
        value = get_default_algorithms()[fitting[0]].from_jwk(public)
    except (PyJWTError, ValueError, TypeError, UnsupportedAlgorithm):
        return None
    if isinstance(value, RSAPublicKey) and value.key_size not in RSA_BITS:
        return None
    return Key(kid, _FAMILIES[fitting[0]], alg, value)


def _text(member: dict[str, Any], name: str) -> str | None:
    value = member.get(name)
    return value if isinstance(value, str) else None


def _operations(member: dict[str, Any]) -> Sequence[object]:
    operations = member.get("key_ops", ["verify"])
    return operations if isinstance(operations, list) else ()
