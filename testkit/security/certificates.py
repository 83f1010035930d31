"""Keys and certificates for secured listeners and their clients, in the forms that brokers and clients read.

An authority signs the server, its clients, and deliberately wrong ones: an expired certificate, and one for a machine
of another name. Another authority, which is not trusted, signs a stranger. Each pair of key and certificate is there as
one PEM file (key, certificate, the authority's) and as a PKCS #12 key store; the trusted ones as PEM and as a PKCS #12
trust store, with the attribute by which Java distinguishes a trusted certificate from any other.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import attrs
import trustme
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
    pkcs12,
)
from cryptography.x509 import Certificate, load_pem_x509_certificate

PASSWORD: Final = "keystore-secret"
"""The password of each key store and trust store."""

_A_DAY: Final = timedelta(days=1)


@attrs.frozen
class Identity:
    """A key and its certificate. `pem` has both, and the authority's certificate; `key_store` the same."""

    pem: Path
    key_store: Path


@attrs.frozen
class Certificates:
    """authority: the certificate that is trusted; trust_store: the same for Java.

    server is valid for 127.0.0.1 and localhost; misnamed_server for neither. renewed_server has the names of
    expired_server, all of them. client has CN=carol, other_client CN=dave. expired_client and stranger (signed
    by another authority) have CN=carol, too. both_authorities: the certificates of the two. listed: those of client and
    other_client themselves; listed_without_client: that of other_client alone.
    """

    authority: Path
    trust_store: Path
    other_authority: Path
    both_authorities: Path
    listed: Path
    listed_without_client: Path
    server: Identity
    expired_server: Identity
    renewed_server: Identity
    misnamed_server: Identity
    client: Identity
    other_client: Identity
    expired_client: Identity
    stranger: Identity

    @classmethod
    def make(cls, folder: Path) -> Certificates:
        """Creates them in `folder`, which must exist."""
        ours, other = trustme.CA(), trustme.CA()
        authority, other_authority, trust_store = (
            folder / name for name in ("authority.pem", "other-authority.pem", "trusted.p12")
        )
        ours.cert_pem.write_to_path(authority)
        other.cert_pem.write_to_path(other_authority)
        trust_store.write_bytes(_trust_store(load_pem_x509_certificate(ours.cert_pem.bytes())))
        now = datetime.now(UTC)
        past: dict[str, Any] = {"not_before": now - 30 * _A_DAY, "not_after": now - _A_DAY}
        same: dict[str, Any] = {"organization_name": "kwire", "organization_unit_name": "tests"}
        here = ("127.0.0.1", "localhost")

        def identity(name: str, issued: trustme.LeafCert) -> Identity:
            made = Identity(folder / f"{name}.pem", folder / f"{name}.p12")
            _write(made, name, issued)
            return made

        carol, dave = (ours.issue_cert(f"{name}.example", common_name=name) for name in ("carol", "dave"))
        of_carol, of_dave = (it.cert_chain_pems[0].bytes() for it in (carol, dave))
        return cls(
            authority=authority,
            trust_store=trust_store,
            other_authority=other_authority,
            both_authorities=_trusting(folder / "both.pem", ours.cert_pem.bytes(), other.cert_pem.bytes()),
            listed=_trusting(folder / "listed.pem", of_carol, of_dave),
            listed_without_client=_trusting(folder / "listed-without-client.pem", of_dave),
            server=identity("server", ours.issue_cert(*here)),
            expired_server=identity("expired-server", ours.issue_cert(*here, **past, **same)),
            renewed_server=identity("renewed-server", ours.issue_cert(*here, **same)),
            misnamed_server=identity("misnamed-server", ours.issue_cert("elsewhere.example")),
            client=identity("client", carol),
            other_client=identity("other-client", dave),
            expired_client=identity("expired-client", ours.issue_cert("carol.example", common_name="carol", **past)),
            stranger=identity("stranger", other.issue_cert("carol.example", common_name="carol")),
        )


def _write(made: Identity, name: str, issued: trustme.LeafCert) -> None:
    key = load_pem_private_key(issued.private_key_pem.bytes(), None)
    assert isinstance(key, EllipticCurvePrivateKey)
    certificate, *above = (load_pem_x509_certificate(it.bytes()) for it in issued.cert_chain_pems)
    # PKCS #8, the only form of a key in PEM that Java reads.
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    made.pem.write_bytes(pem + b"".join(it.bytes() for it in issued.cert_chain_pems))
    encryption = BestAvailableEncryption(PASSWORD.encode())
    made.key_store.write_bytes(
        pkcs12.serialize_key_and_certificates(name.encode(), key, certificate, above, encryption)
    )


def _trusting(file: Path, *pems: bytes) -> Path:
    file.write_bytes(b"".join(pems))
    return file


def _trust_store(authority: Certificate) -> bytes:
    trusted = pkcs12.PKCS12Certificate(authority, b"authority")
    return pkcs12.serialize_java_truststore([trusted], BestAvailableEncryption(PASSWORD.encode()))
