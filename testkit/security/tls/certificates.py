"""Certificates for tests, by trustme; made once for all of them, because that takes a while."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import attrs
import trustme
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from kwire.security.tls.settings import TlsSettings

HOST: Final = "127.0.0.1"


@cache
def authority(name: str = "one") -> trustme.CA:
    return trustme.CA(organization_name=name)


@attrs.frozen
class Issued:
    """A private key (PKCS #8) and its certificate, in PEM."""

    key: str
    chain: str

    @property
    def pem(self) -> str:
        return self.key + self.chain


@cache
def issued(*hosts: str, name: str | None = None, by: str = "one", key: str = "ECDSA", number: int = 0) -> Issued:
    """Certificates with another `number` are the same, except for their keys."""
    leaf = authority(by).issue_cert(
        *hosts,
        common_name=name,
        organization_name="kwire",
        organization_unit_name="tests",
        key_type=trustme.KeyType[key],
    )
    private = load_pem_private_key(leaf.private_key_pem.bytes(), None)
    chain = "".join(it.bytes().decode() for it in leaf.cert_chain_pems)
    return Issued(private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode(), chain)


def trusted(name: str = "one") -> str:
    return authority(name).cert_pem.bytes().decode()


def server_settings(**changed: Any) -> TlsSettings:
    """The settings of a server for HOST that trusts the authority "one"."""
    return attrs.evolve(settings_of(issued(HOST, name="server")), **changed)


def settings_of(certificate: Issued | None, by: str = "one") -> TlsSettings:
    return TlsSettings(
        keystore_type="PEM",
        keystore_key=None if certificate is None else certificate.key,
        keystore_certificate_chain=None if certificate is None else certificate.chain,
        truststore_type="PEM",
        truststore_certificates=trusted(by),
    )


def client_settings(name: str | None = None, by: str = "one") -> TlsSettings:
    """The settings of a client that trusts the authority "one", with a certificate if there is a name."""
    return attrs.evolve(
        settings_of(None if name is None else issued("client.invalid", name=name, by=by)),
    )
