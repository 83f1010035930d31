"""Keystores in every format, made for tests."""

from __future__ import annotations

from cryptography import x509
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
    pkcs12,
)

PASSWORD = "correct horse"


def encrypted(key_pem: str, password: str = PASSWORD) -> str:
    key = load_pem_private_key(key_pem.encode(), None)
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(password.encode())).decode()


def pkcs12_of(pem_chain: str, key_pem: str | None) -> bytes:
    certificates = x509.load_pem_x509_certificates(pem_chain.encode())
    encryption = BestAvailableEncryption(PASSWORD.encode())
    if key_pem is None:
        return pkcs12.serialize_java_truststore(
            [pkcs12.PKCS12Certificate(it, b"ca") for it in certificates], encryption
        )
    key = load_pem_private_key(key_pem.encode(), None)
    return pkcs12.serialize_key_and_certificates(b"key", key, certificates[0], certificates[1:], encryption)  # type: ignore[arg-type]
