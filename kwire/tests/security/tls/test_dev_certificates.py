"""Certificates for development: their keystores are for Java's clients, too."""

from __future__ import annotations

import pytest

from kwire.security.tls.dev_certificates import DevAuthority


@pytest.mark.parametrize("keystore", [DevAuthority.new().server(), DevAuthority.new().client("alice")])
def test_a_keystore_begins_with_its_key_in_the_only_form_that_java_reads(keystore: bytes) -> None:
    assert keystore.startswith(b"-----BEGIN PRIVATE KEY-----\n")
    assert keystore.count(b"PRIVATE KEY-----") == 2
    assert keystore.count(b"-----BEGIN CERTIFICATE-----") == 1
