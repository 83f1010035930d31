"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677): both sides prove that they have a password, without sending it.

    client first    n,,n=NAME,r=NONCE                  and perhaps extensions, such as tokenauth=true
    server first    r=NONCE+MORE,s=SALT,i=ITERATIONS
    client final    c=HEADER,r=NONCE+MORE,p=PROOF
    server final    v=SIGNATURE

The broker has a `ScramCredential`, from which a password cannot be computed. Nonces and secrets are arguments.

* An unknown name still gets a salt, always the same one, and fails at its proof, with the same response and after the
  same work as a wrong password. Kafka refuses it at its first message.
* Passwords and names are the bytes of their text in UTF-8, as with every client of Kafka: none of them normalizes
  (SASLprep, RFC 4013), so a broker or a tool that did would compute another proof. Kafka supports only ASCII names.
* There is no channel binding: p= is refused, and y (the client supports it) is treated like n.
* With tokenauth=true the name is the id of a delegation token, and its owner is authenticated (KIP-48).
"""

from __future__ import annotations

import binascii
import hashlib
import hmac
import re
from base64 import b64encode
from collections.abc import Callable, Mapping
from typing import Final, Protocol

import attrs
from kwire_protocol.kafka_error import quoted

from kwire.security.principal import USER, Principal
from kwire.security.sasl.exchange import Authenticated, AuthenticationFailed, Challenge

MIN_ITERATIONS: Final = 4096
MAX_ITERATIONS: Final = 16_384
"""Kafka's bounds on iterations. A client does not compute more either, even if the server requests it."""

MAX_MESSAGE_BYTES: Final = 16 * 1024
MAX_NONCE_CHARS: Final = 1024

TOKEN_AUTH: Final = "tokenauth"


@attrs.frozen
class ScramMechanism:
    """A mechanism of SCRAM. `number` is its number in Kafka's messages and records."""

    name: str
    number: int
    algorithm: str
    digest_bytes: int

    def hmac(self, key: bytes, message: bytes) -> bytes:
        return hmac.digest(key, message, self.algorithm)

    def hash(self, data: bytes) -> bytes:
        return hashlib.new(self.algorithm, data).digest()

    def salted_password(self, password: str, salt: bytes, iterations: int) -> bytes:
        return hashlib.pbkdf2_hmac(self.algorithm, password.encode(), salt, iterations)

    def client_key(self, salted_password: bytes) -> bytes:
        return self.hmac(salted_password, b"Client Key")

    def server_key(self, salted_password: bytes) -> bytes:
        return self.hmac(salted_password, b"Server Key")


SCRAM_SHA_256: Final = ScramMechanism("SCRAM-SHA-256", 1, "sha256", 32)
SCRAM_SHA_512: Final = ScramMechanism("SCRAM-SHA-512", 2, "sha512", 64)
SCRAM_MECHANISMS: Final = {it.name: it for it in (SCRAM_SHA_256, SCRAM_SHA_512)}
SCRAM_MECHANISMS_BY_NUMBER: Final = {it.number: it for it in (SCRAM_SHA_256, SCRAM_SHA_512)}


@attrs.frozen
class ScramCredential:
    """The data that a broker stores for a password. `owner` is the authenticated user, if not the one of that name."""

    salt: bytes = attrs.field(repr=False)
    stored_key: bytes = attrs.field(repr=False)
    server_key: bytes = attrs.field(repr=False)
    iterations: int
    owner: Principal | None = None
    expires_at_ms: int | None = None


def credential_of_salted_password(
    mechanism: ScramMechanism, salted_password: bytes, *, salt: bytes, iterations: int
) -> ScramCredential:
    return ScramCredential(
        salt,
        mechanism.hash(mechanism.client_key(salted_password)),
        mechanism.server_key(salted_password),
        iterations,
    )


def credential_of_password(
    mechanism: ScramMechanism, password: str, *, salt: bytes, iterations: int = MIN_ITERATIONS
) -> ScramCredential:
    """Returns the credential that Kafka's tools make. Raises ValueError for too few or too many iterations."""
    if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS:
        raise ValueError(f"{iterations} iterations: give a number from {MIN_ITERATIONS} to {MAX_ITERATIONS}")
    salted = mechanism.salted_password(password, salt, iterations)
    return credential_of_salted_password(mechanism, salted, salt=salt, iterations=iterations)


_SALT_CHARS: Final = 26
_BASE_36: Final = b"0123456789abcdefghijklmnopqrstuvwxyz"


def salt_from(random_bytes: bytes) -> bytes:
    """Returns a salt in the form of Java's clients: text in base 36. The argument has 32 random bytes or more."""
    number = int.from_bytes(random_bytes, "big")
    digits = bytearray()
    for _ in range(_SALT_CHARS):
        number, digit = divmod(number, 36)
        digits.append(_BASE_36[digit])
    return bytes(digits)


class FindCredential(Protocol):
    def __call__(self, name: str, *, is_token: bool) -> ScramCredential | None:
        """Returns the credential of a user, or of the delegation token with that id; None if there is none."""
        ...


class ScramNobody:
    """Makes credentials for unknown names. `secret` is random, 32 bytes; the same name gets the same salt."""

    def __init__(self, mechanism: ScramMechanism, secret: bytes) -> None:
        self._secret = hmac.digest(secret, mechanism.name.encode(), "sha512")
        self._key = mechanism.hmac(self._secret, b"")

    def credential(self, name: str) -> ScramCredential:
        """Returns a credential whose salt has the form of Java's clients and of kwire."""
        salt = salt_from(hmac.digest(self._secret, b"salt of " + name.encode(), "sha512"))
        return ScramCredential(salt, self._key, self._key, MIN_ITERATIONS)


# Messages

_NONCE: Final = re.compile(r"[\x21-\x2b\x2d-\x7e]+")
_EXTENSION: Final = re.compile(r"([A-Za-z]+)=([^\0,]+)")
_HEADER: Final = re.compile(r"([^,]*),(?:a=([^,]*))?,")


@attrs.frozen
class ClientFirst:
    """The client's first message. `header` is the part before `bare`, the part that is signed."""

    header: str
    bare: str
    name: str
    authorization_id: str
    nonce: str
    extensions: Mapping[str, str]


@attrs.frozen
class ClientFinal:
    """The client's final message. `without_proof` is the part that is signed."""

    without_proof: str
    channel_binding: bytes
    nonce: str
    proof: bytes = attrs.field(repr=False)


def parse_client_first(data: bytes) -> ClientFirst:
    """Raises ValueError."""
    text = _decoded(data)
    header = _HEADER.match(text)
    if header is None:
        raise ValueError("no header")
    if header[1].startswith("p="):
        raise ValueError("channel binding is wanted, which there is not")
    if header[1] not in ("n", "y"):
        raise ValueError("no flag about channel binding")
    bare = text[header.end() :]
    if bare.startswith("m="):
        raise ValueError("an extension that is mandatory, m=")
    name, _, rest = bare.partition(",")
    nonce, *extensions = rest.split(",")
    if not name.startswith("n="):
        raise ValueError("no name")
    if not nonce.startswith("r="):
        raise ValueError("no nonce")
    return ClientFirst(
        header[0],
        bare,
        _name(name[2:]),
        "" if header[2] is None else _name(header[2]),
        _nonce(nonce[2:]),
        _extensions(extensions),
    )


def parse_client_final(data: bytes) -> ClientFinal:
    """Raises ValueError."""
    text = _decoded(data)
    without_proof, _, proof = text.rpartition(",p=")  # without a proof, all of it is in `proof`
    binding, _, rest = without_proof.partition(",")
    nonce, *extensions = rest.split(",")
    if not binding.startswith("c=") or not nonce.startswith("r="):
        raise ValueError("no proof")
    _extensions(extensions)
    return ClientFinal(without_proof, _base64(binding[2:]), _nonce(nonce[2:]), _base64(proof))


def _decoded(data: bytes) -> str:
    if len(data) > MAX_MESSAGE_BYTES:
        raise ValueError(f"{len(data)} bytes, of at most {MAX_MESSAGE_BYTES}")
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8") from None
    if "\0" in text:
        raise ValueError("it has a NUL")
    return text


def _name(sasl_name: str) -> str:
    """Decodes a name in a message, which has =2C for a comma and =3D for an equals sign."""
    if not sasl_name or re.search("=(?!2C|3D)", sasl_name):
        raise ValueError("a malformed name")
    return sasl_name.replace("=2C", ",").replace("=3D", "=")


def sasl_name(name: str) -> str:
    return name.replace("=", "=3D").replace(",", "=2C")


def _nonce(text: str) -> str:
    if len(text) > MAX_NONCE_CHARS or not _NONCE.fullmatch(text):
        raise ValueError("a malformed nonce")
    return text


def _extensions(texts: list[str]) -> dict[str, str]:
    extensions = {}
    for text in texts:
        match = _EXTENSION.fullmatch(text)
        if match is None:
            raise ValueError("a malformed extension")
        extensions[match[1]] = match[2]
    return extensions


def _base64(text: str) -> bytes:
    try:
        return binascii.a2b_base64(text.encode(), strict_mode=True)
    except binascii.Error:
        raise ValueError("malformed base64") from None


def _xor(one: bytes, other: bytes) -> bytes:
    size = len(one)
    return (int.from_bytes(one, "big") ^ int.from_bytes(other, "big")).to_bytes(size, "big")


# The server's side

_NONCE_TWICE: Final = ": librdkafka does so before version 2.6.1, use a newer one"
"""The broker's nonce begins with the client's, and old clients put theirs in front of it again. Kafka brokers accepted
that as the broker's nonce until CVE-2024-56128, and have refused it since then, as RFC 5802 requires."""


class Scram:
    """The mechanism with its credentials. `new_nonce` makes random printable text without commas."""

    def __init__(
        self,
        mechanism: ScramMechanism,
        find: FindCredential,
        *,
        secret: bytes,
        new_nonce: Callable[[], str],
    ) -> None:
        self.name = mechanism.name
        self.mechanism = mechanism
        self.find = find
        self.nobody = ScramNobody(mechanism, secret)
        self.new_nonce = new_nonce

    def begin(self) -> ScramExchange:
        return ScramExchange(self)


@attrs.frozen
class _Begun:
    """The state after the first messages. `credential` is made for an unknown name if `is_known` is False."""

    first: ClientFirst
    server_first: str
    nonce: str
    credential: ScramCredential
    is_known: bool
    is_token: bool

    @property
    def whose(self) -> str:
        """The user of the login, for the log."""
        return f"{'token' if self.is_token else 'user'} {quoted(self.first.name)}"


@attrs.define(eq=False)
class ScramExchange:
    _scram: Scram
    _begun: _Begun | None = None
    _is_over: bool = False

    def respond(self, data: bytes, *, now_ms: int) -> Challenge | Authenticated:
        """See `ServerExchange`."""
        if self._is_over:
            raise AuthenticationFailed("", "a message after the last one")
        if self._begun is None:
            return self._take_first(data)
        self._is_over = True
        return self._take_final(self._begun, data, now_ms)

    def _take_first(self, data: bytes) -> Challenge:
        scram = self._scram
        try:
            first = parse_client_first(data)
        except ValueError as error:
            self._is_over = True
            raise AuthenticationFailed("", f"a malformed first message: {error}") from None
        is_token = first.extensions.get(TOKEN_AUTH, "").lower() == "true"
        known = scram.find(first.name, is_token=is_token)
        credential = scram.nobody.credential(first.name)  # in any case, for the time that it takes
        if known is not None:
            credential = known
        nonce = first.nonce + scram.new_nonce()
        server_first = f"r={nonce},s={b64encode(credential.salt).decode()},i={credential.iterations}"
        self._begun = _Begun(first, server_first, nonce, credential, known is not None, is_token)
        return Challenge(server_first.encode())

    def _take_final(self, begun: _Begun, data: bytes, now_ms: int) -> Authenticated:
        mechanism, credential, first = self._scram.mechanism, begun.credential, begun.first
        try:
            final = parse_client_final(data)
        except ValueError as error:
            raise self._failed(f"a malformed final message: {error}") from None
        if final.nonce == first.nonce + begun.nonce:
            raise self._failed("its own nonce twice", hint=_NONCE_TWICE)
        if final.nonce != begun.nonce:
            raise self._failed("another nonce than it was given")
        if final.channel_binding != first.header.encode():
            raise self._failed("another header than it began with")
        signed = f"{first.bare},{begun.server_first},{final.without_proof}".encode()
        signature = mechanism.hmac(credential.stored_key, signed)
        if len(final.proof) != mechanism.digest_bytes:
            raise self._failed("a proof of another mechanism")
        shown = mechanism.hash(_xor(final.proof, signature))
        is_shown = hmac.compare_digest(shown, credential.stored_key)
        if not (is_shown and begun.is_known):
            what = "delegation token" if begun.is_token else "user"
            raise self._failed("a wrong password" if begun.is_known else f"no such {what}")
        if first.authorization_id not in ("", first.name):
            raise AuthenticationFailed(
                "Authentication failed: Client requested an authorization id that is different from username",
                f"{begun.whose} wants to be {quoted(first.authorization_id)}",
            )
        if credential.expires_at_ms is not None and credential.expires_at_ms <= now_ms:
            raise self._failed("its credential has expired")
        owner = credential.owner or Principal(USER, first.name)
        if begun.is_token:
            owner = attrs.evolve(owner, token_authenticated=True)
        verified = mechanism.hmac(credential.server_key, signed)
        return Authenticated(owner, b"v=" + b64encode(verified), credential.expires_at_ms)

    def _failed(self, why: str, *, hint: str = "") -> AuthenticationFailed:
        assert self._begun is not None
        return AuthenticationFailed("", f"{why}, {self._begun.whose}{hint}")


# The client's side

_SERVER_FIRST: Final = re.compile(r"r=([\x21-\x2b\x2d-\x7e]+),s=([A-Za-z0-9/+=]+),i=([0-9]{1,9})(?:,.*)?", re.DOTALL)


@attrs.define(eq=False)
class ScramClient:
    """The client's side: see `kwire.security.sasl.client`. `nonce` is random printable text without commas."""

    _mechanism: ScramMechanism
    name: str
    password: str = attrs.field(repr=False)
    nonce: str = attrs.field(repr=False)
    is_token: bool = False
    """True if name and password are the id and the HMAC of a delegation token."""
    _signature: bytes | None = attrs.field(default=None, repr=False)
    """The signature that the broker has to send at the end."""
    _steps: int = 0

    @property
    def mechanism(self) -> str:
        return self._mechanism.name

    def respond(self, challenge: bytes | None) -> bytes | None:
        self._steps += 1
        if self._steps == 1 and challenge is None:
            return f"n,,{self._bare}".encode()
        if self._steps == 2 and challenge is not None:
            return self._final(challenge)
        if self._steps == 3 and challenge is not None:
            self._verify(challenge)
            return None
        raise ValueError("it continues after the last message")

    @property
    def _bare(self) -> str:
        extensions = f",{TOKEN_AUTH}=true" if self.is_token else ""
        return f"n={sasl_name(self.name)},r={self.nonce}{extensions}"

    def _final(self, challenge: bytes) -> bytes:
        mechanism = self._mechanism
        server_first = _decoded(challenge)
        match = _SERVER_FIRST.fullmatch(server_first)
        if match is None:
            raise ValueError("its first message is no SCRAM")
        nonce, salt, iterations = match[1], _base64(match[2]), int(match[3])
        if not nonce.startswith(self.nonce) or nonce == self.nonce:
            raise ValueError("its nonce does not begin with ours")
        if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS:
            raise ValueError(f"it requires {iterations} iterations; from {MIN_ITERATIONS} to {MAX_ITERATIONS} are done")
        salted = mechanism.salted_password(self.password, salt, iterations)
        client_key = mechanism.client_key(salted)
        without_proof = f"c=biws,r={nonce}"
        signed = f"{self._bare},{server_first},{without_proof}".encode()
        proof = _xor(client_key, mechanism.hmac(mechanism.hash(client_key), signed))
        self._signature = mechanism.hmac(mechanism.server_key(salted), signed)
        return f"{without_proof},p={b64encode(proof).decode()}".encode()

    def _verify(self, challenge: bytes) -> None:
        assert self._signature is not None
        text = _decoded(challenge)
        if text.startswith("e="):
            raise ValueError(f"it refuses: {quoted(text[2:])}")
        if not text.startswith("v="):
            raise ValueError("its final message is no SCRAM")
        if not hmac.compare_digest(_base64(text[2:].partition(",")[0]), self._signature):
            raise ValueError("it does not know the password itself: it is not the broker that it should be")
