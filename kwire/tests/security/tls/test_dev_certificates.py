"""Certificates for development: their keystores are for Java's clients, too."""

from __future__ import annotations

import pytest

from kwire.security.tls.dev_certificates import DevAuthority


@pytest.mark.parametrize("keystore", [DevAuthority.new().server(), DevAuthority.new().client("alice")])
def test_a_keystore_begins_with_its_key_in_the_only_form_that_java_reads(keystore: bytes) -> None:
    assert keystore.startswith(b"-----BEGIN PRIVATE KEY-----\n")
    assert keystore.count(b"PRIVATE KEY-----") == 2
    assert keystore.count(b"-----BEGIN CERTIFICATE-----") == 1


def test_an_authority_that_is_read_again_issues_what_is_trusted_as_before() -> None:
    made = DevAuthority.new()
    assert DevAuthority.from_pem(b"# mine\n" + made.pem).certificate == made.certificate


@pytest.mark.parametrize("begins", [b"-----BEGIN CERTIFICATE", b"-----BEGIN EC PRIVATE KEY"])
def test_an_authority_needs_its_certificate_and_its_key(begins: bytes) -> None:
    pem = DevAuthority.new().pem
    assert pem.count(begins) == 1
    with pytest.raises(ValueError, match="there is no certificate and private key in PEM in it"):
        DevAuthority.from_pem(pem.replace(begins, b"-----BEGIN SOMETHING"))
