"""Certificates for tests of TLS, created for each test session."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import attrs
import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

PASSWORD: Final = "secret"
"""The password of the client's key."""


@attrs.frozen
class Certificates:
    """PEM files: the authority's certificate, and keys with certificates of a server on this machine and a client."""

    authority: Path
    server: Path
    client: Path

    @classmethod
    def make(cls, folder: Path) -> Certificates:
        made = cls(folder / "authority.pem", folder / "server.pem", folder / "client.pem")
        authority = trustme.CA()
        authority.cert_pem.write_to_path(made.authority)
        _write(made.server, authority.issue_cert("localhost", "127.0.0.1"), NoEncryption())
        _write(made.client, authority.issue_cert("client"), BestAvailableEncryption(PASSWORD.encode()))
        return made


def _write(path: Path, issued: trustme.LeafCert, encryption: KeySerializationEncryption) -> None:
    # PKCS #8, the only form of a key that ZooKeeper reads.
    key = load_pem_private_key(issued.private_key_pem.bytes(), None)
    content = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)
    path.write_bytes(content + b"".join(it.bytes() for it in issued.cert_chain_pems))
