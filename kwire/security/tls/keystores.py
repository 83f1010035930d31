"""Keys and certificates as Kafka's configurations name them: PEM, in files or in place (KIP-651), and PKCS12.

Kafka's default type is JKS. Java reads PKCS12 under that name, too, and so does kwire: the content decides which of the
two a file is. A real JKS file is refused with the command that converts it, because only Java reads its format.

A key stays in the process's memory. Python's `ssl` needs a file name; `key_file` provides a file that is in memory as
well, has no name that another process could open, and is removed with its descriptor.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_der_private_key,
    pkcs12,
)

from kwire.security.tls.settings import TlsError, TlsSettings

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12KeyAndCertificates

MAX_FILE_BYTES: Final = 16 << 20
"""The maximum size of a file. A truststore with all authorities of a system has a quarter of a MiB."""

_PEM: Final = "PEM"
_BINARY_TYPES: Final = ("JKS", "PKCS12")
_JKS_MAGICS: Final = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
_ASN1_SEQUENCE: Final = b"\x30"

# As Kafka's, so that line breaks may be spaces: a properties file has the text in one line.
_HEADERS: Final = r"((?:\s*[^\r\n:-]*(?:-[^\r\n:-]+)*:[^\r\n]*[\r\n]+)*)"
_BLOCK: Final = rf"-+BEGIN\s[^-]*%s[^-]*-+\s+{_HEADERS}([a-zA-Z0-9/+=\s]*)-+END\s[^-]*%s[^-]*-+"
_CERTIFICATE: Final = re.compile(_BLOCK % (("CERTIFICATE",) * 2))
_PRIVATE_KEY: Final = re.compile(_BLOCK % ((r"PRIVATE\s+KEY",) * 2))


@attrs.frozen(repr=False)
class KeyStore:
    """A private key, and its certificate chain, beginning with its own certificate."""

    key: PrivateKeyTypes
    chain: tuple[x509.Certificate, ...]

    @property
    def certificate(self) -> x509.Certificate:
        return self.chain[0]


@attrs.frozen(repr=False)
class Stores:
    """The keystore and the truststore of settings; each is None if it is not configured."""

    key_store: KeyStore | None
    trusted: tuple[x509.Certificate, ...] | None


def load_stores(settings: TlsSettings) -> Stores:
    """Reads the files. Raises TlsError."""
    return Stores(_load_key_store(settings), _load_trusted(settings))


@attrs.frozen
class FileState:
    """The values that show that a file has changed; all 0 if `stat` fails."""

    modified_ns: int = 0
    size: int = 0
    inode: int = 0


def file_states(settings: TlsSettings) -> tuple[FileState, ...]:
    """Returns the states of the configured files. Never raises: loading the files reports the errors."""
    return tuple(
        _file_state(path) for path in (settings.keystore_location, settings.truststore_location) if path is not None
    )


def _file_state(path: str) -> FileState:
    try:
        status = os.stat(path)  # noqa: PTH116 - twice as fast, for each second of a busy listener
    except (OSError, ValueError):
        return FileState()
    return FileState(status.st_mtime_ns, status.st_size, status.st_ino)


@contextmanager
def key_file(store: KeyStore) -> Iterator[str]:
    """Yields the path of a PEM file with key and chain, for `SSLContext.load_cert_chain`.

    The file is in memory (memfd_create): it is never on a disk, other users cannot open it, and it exists only within
    the block. Encryption would not help, since this process has the key in its memory anyway.
    """
    content = store.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    content += b"".join(certificate.public_bytes(Encoding.PEM) for certificate in store.chain)
    descriptor = os.memfd_create("kwire-key", os.MFD_CLOEXEC)
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(content)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


# Key stores


def _load_key_store(settings: TlsSettings) -> KeyStore | None:
    if settings.keystore_key is not None or settings.keystore_certificate_chain is not None:
        return _inline_key_store(settings)
    path = settings.keystore_location
    if path is None:
        if settings.keystore_password is not None:
            raise TlsError("ssl.keystore.password is set, and ssl.keystore.location is not: set that, too")
        return None
    what = f"ssl.keystore.location: {path}"
    if settings.keystore_type == _PEM:
        if settings.keystore_password is not None:
            raise TlsError(
                "ssl.keystore.password is set, and a keystore of the type PEM has none: the password of an encrypted "
                "key is ssl.key.password"
            )
        text = _read_text(what, path)
        return _from_pem(what, text, what, text, settings.key_password)
    store = _load_binary("keystore", what, path, settings.keystore_type, settings.keystore_password)
    if store.cert is None:
        raise TlsError(f"{what} has no private key with its certificate: make it with one, or name another file")
    assert store.key is not None, "the certificate is the one of the key"
    others = [it.certificate for it in store.additional_certs]
    return _checked(what, store.key, _in_order(store.cert.certificate, others))


def _inline_key_store(settings: TlsSettings) -> KeyStore:
    key, chain = settings.keystore_key, settings.keystore_certificate_chain
    if settings.keystore_type != _PEM:
        raise TlsError(
            f"ssl.keystore.key and ssl.keystore.certificate.chain are PEM, and ssl.keystore.type is "
            f"{settings.keystore_type}: set it to PEM"
        )
    if key is None or chain is None:
        one, other = ("key", "certificate.chain") if chain is None else ("certificate.chain", "key")
        raise TlsError(f"ssl.keystore.{one} is set, and ssl.keystore.{other} is not: set both")
    if settings.keystore_location is not None:
        raise TlsError("ssl.keystore.key and ssl.keystore.location are both set: set one of them")
    if settings.keystore_password is not None:
        raise TlsError(
            "ssl.keystore.password is set, and a keystore of the type PEM has none: the password of an encrypted key "
            "is ssl.key.password"
        )
    return _from_pem("ssl.keystore.key", key, "ssl.keystore.certificate.chain", chain, settings.key_password)


def _from_pem(key_what: str, key_text: str, chain_what: str, chain_text: str, password: str | None) -> KeyStore:
    blocks = list(_PRIVATE_KEY.finditer(key_text))
    if len(blocks) != 1:
        found = "no" if not blocks else f"{len(blocks)}"
        raise TlsError(f"{key_what} has {found} private keys in PEM: it must have one")
    (block,) = blocks
    if block[1].strip():
        raise TlsError(
            f"{key_what} has a private key in an old format of OpenSSL's: convert it with `openssl pkcs8 -topk8`"
        )
    is_encrypted = "ENCRYPTED" in block[0].split("KEY", 1)[0]
    if is_encrypted and password is None:
        raise TlsError(f"{key_what} has an encrypted private key: set ssl.key.password")
    der = _decoded(key_what, block[2])
    try:
        key = load_der_private_key(der, password.encode() if is_encrypted and password is not None else None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        if is_encrypted:
            raise TlsError(f"{key_what} has a private key that ssl.key.password does not open") from error
        raise TlsError(f"{key_what} has a private key that cannot be read: write it as PKCS #8") from error
    return _checked(key_what, key, _certificates(chain_what, chain_text))


def _checked(what: str, key: PrivateKeyTypes, chain: tuple[x509.Certificate, ...]) -> KeyStore:
    try:
        of_certificate = chain[0].public_key()
    except (ValueError, UnsupportedAlgorithm) as error:
        raise TlsError(f"{what} has a certificate whose key cannot be read: {error}") from error
    forms = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    if key.public_key().public_bytes(*forms) != of_certificate.public_bytes(*forms):
        raise TlsError(
            f"{what} has a private key that does not belong to its first certificate "
            f"({chain[0].subject.rfc4514_string()}): the certificate of the key comes first, then its issuers"
        )
    return KeyStore(key, chain)


def _in_order(certificate: x509.Certificate, others: Sequence[x509.Certificate]) -> tuple[x509.Certificate, ...]:
    """Returns the certificate, its issuer, and so on: in PKCS12 they are an unordered set."""
    chain = [certificate]
    left = list(others)
    while chain[-1].issuer != chain[-1].subject:
        issuer = next((it for it in left if it.subject == chain[-1].issuer), None)
        if issuer is None:
            break
        left.remove(issuer)
        chain.append(issuer)
    return tuple(chain)


# Truststores


def _load_trusted(settings: TlsSettings) -> tuple[x509.Certificate, ...] | None:
    path, text = settings.truststore_location, settings.truststore_certificates
    is_pem = settings.truststore_type == _PEM
    if text is not None:
        if not is_pem:
            raise TlsError(
                f"ssl.truststore.certificates is PEM, and ssl.truststore.type is {settings.truststore_type}: set it "
                "to PEM"
            )
        if path is not None:
            raise TlsError("ssl.truststore.certificates and ssl.truststore.location are both set: set one of them")
    if is_pem and settings.truststore_password is not None:
        raise TlsError("ssl.truststore.password is set, and a truststore of the type PEM has none: remove it")
    if text is not None:
        return _certificates("ssl.truststore.certificates", text)
    if path is None:
        if settings.truststore_password is not None:
            raise TlsError("ssl.truststore.password is set, and ssl.truststore.location is not: set that, too")
        return None
    what = f"ssl.truststore.location: {path}"
    if is_pem:
        return _certificates(what, _read_text(what, path))
    store = _load_binary("truststore", what, path, settings.truststore_type, settings.truststore_password)
    found = ([] if store.cert is None else [store.cert]) + store.additional_certs
    if not found:
        raise TlsError(f"{what} has no certificate: import the ones to be trusted with `keytool -importcert`")
    return tuple(it.certificate for it in found)


# Both


def _load_binary(kind: str, what: str, path: str, type_: str, password: str | None) -> PKCS12KeyAndCertificates:
    """`kind` is keystore or truststore."""
    if type_.upper() not in _BINARY_TYPES:
        raise TlsError(f"ssl.{kind}.type is {type_}, which kwire does not read: it reads PEM, PKCS12 and JKS")
    if password is None:
        raise TlsError(f"ssl.{kind}.location is set, and ssl.{kind}.password is not: set that, too")
    content = _read(what, path)
    if content.startswith(_JKS_MAGICS):
        raise TlsError(
            f"{what} is in Java's own format, which only Java reads: convert it with `keytool -importkeystore "
            f"-srckeystore {path} -destkeystore {path}.p12 -deststoretype PKCS12`, and name the new file"
        )
    if b"-----BEGIN " in content[:MAX_FILE_BYTES] and not content.startswith(_ASN1_SEQUENCE):
        raise TlsError(f"{what} is PEM, and ssl.{kind}.type is {type_}: set it to PEM")
    try:
        return pkcs12.load_pkcs12(content, password.encode())
    except (ValueError, UnsupportedAlgorithm) as error:
        if "password" in str(error).lower():
            raise TlsError(f"{what} is not opened by ssl.{kind}.password: one of them is wrong") from error
        raise TlsError(f"{what} is no keystore of the type PKCS12, or it is damaged: {error}") from error


def _certificates(what: str, text: str) -> tuple[x509.Certificate, ...]:
    found = []
    for block in _CERTIFICATE.finditer(text):
        try:
            found.append(x509.load_der_x509_certificate(_decoded(what, block[2])))
        except ValueError as error:
            raise TlsError(f"{what} has a certificate that cannot be read (number {len(found) + 1})") from error
    if not found:
        raise TlsError(f"{what} has no certificate in PEM: put -----BEGIN CERTIFICATE----- and what follows into it")
    return tuple(found)


def _decoded(what: str, text: str) -> bytes:
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except binascii.Error as error:
        raise TlsError(f"{what} has PEM that is damaged: {error}") from error


def _read_text(what: str, path: str) -> str:
    return _read(what, path).decode("utf-8", "replace")


def _read(what: str, path: str) -> bytes:
    try:
        with Path(path).open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise TlsError(f"{what} cannot be read: {why}") from error
    if len(content) > MAX_FILE_BYTES:
        raise TlsError(f"{what} has more than {MAX_FILE_BYTES} bytes: that is no keystore")
    return content
