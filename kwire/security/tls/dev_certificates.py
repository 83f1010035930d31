"""Certificates for development and tests: a private certificate authority, and its certificates, made by trustme.

No other system trusts that authority, and its key is in an ordinary file: it is not for production.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, Self

import attrs
import trustme
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

ORGANIZATION: Final = "kwire"
UNIT: Final = "dev"
LOCAL_HOSTS: Final = ("localhost", "127.0.0.1", "::1")

_NO_HOST: Final = "client.invalid"
"""The host of a client's certificate. It needs none, but Java cannot read a certificate with an empty list of names."""

_CERTIFICATE: Final = re.compile(rb"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----\n?", re.DOTALL)
_KEY: Final = re.compile(rb"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?-----END [A-Z ]*PRIVATE KEY-----\n?", re.DOTALL)


@attrs.define(eq=False)
class DevAuthority:
    """Issues certificates. All results are in PEM, in the form of Kafka's keystores of type PEM."""

    _authority: trustme.CA

    @classmethod
    def new(cls) -> Self:
        return cls(trustme.CA(organization_name=ORGANIZATION, organization_unit_name="authority for development"))

    @classmethod
    def from_pem(cls, pem: bytes) -> Self:
        """Returns the authority with that `pem`. Raises ValueError if it is not valid."""
        certificate, key = _CERTIFICATE.search(pem), _KEY.search(pem)
        if certificate is None or key is None:
            raise ValueError("there is no certificate and private key in PEM in it")
        return cls(trustme.CA.from_pem(certificate[0], key[0]))

    @property
    def certificate(self) -> bytes:
        """The authority's certificate: a truststore for programs that have to trust it."""
        return self._authority.cert_pem.bytes()

    @property
    def pem(self) -> bytes:
        """The certificate and the private key, with which certificates can be issued."""
        return self.certificate + self._authority.private_key_pem.bytes()

    def server(self, hosts: Sequence[str] = LOCAL_HOSTS) -> bytes:
        """Returns a server's keystore: its private key, and its certificate for these host names and addresses."""
        return self._issue(hosts[0], hosts)

    def client(self, name: str) -> bytes:
        """Returns a client's keystore. Its principal is User:CN=name,OU=dev,O=kwire, unless ssl.principal.mapping.rules
        changes that."""
        return self._issue(name, (_NO_HOST,))

    def _issue(self, name: str, hosts: Sequence[str]) -> bytes:
        issued = self._authority.issue_cert(
            *hosts, common_name=name, organization_name=ORGANIZATION, organization_unit_name=UNIT
        )
        # Java reads private keys in PEM in this form only; trustme writes them in OpenSSL's older one.
        key = load_pem_private_key(issued.private_key_pem.bytes(), None)
        pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        return pem + b"".join(it.bytes() for it in issued.cert_chain_pems)
