"""The parts of contexts: protocols, suites, requests for client certificates, and warnings."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from typing import Any

import attrs
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from kwire.security.tls import contexts
from kwire.security.tls.contexts import check_handshake, client_context, server_context, warnings_about
from kwire.security.tls.keystores import load_stores
from kwire.security.tls.settings import TlsError, TlsSettings
from testkit.security.tls.certificates import HOST, authority, client_settings, server_settings, settings_of, trusted

DAY_MS = 86_400_000


def suites_of(context: ssl.SSLContext) -> set[str]:
    return {suite["name"] for suite in context.get_ciphers() if not suite["name"].startswith("TLS_")}


@pytest.mark.parametrize(
    ("protocols", "lowest", "highest"),
    [
        (("TLSv1.2", "TLSv1.3"), ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3),
        ((), ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3),
        (("TLSv1.2",), ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_2),
        (("TLSv1.3",), ssl.TLSVersion.TLSv1_3, ssl.TLSVersion.TLSv1_3),
    ],
)
def test_enabled_protocols_are_the_versions(
    protocols: tuple[str, ...], lowest: ssl.TLSVersion, highest: ssl.TLSVersion
) -> None:
    context = server_context(server_settings(enabled_protocols=protocols))
    assert (context.minimum_version, context.maximum_version) == (lowest, highest)


def test_suites_have_javas_names() -> None:
    context = server_context(
        server_settings(
            cipher_suites=(
                "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
                "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
                "TLS_DHE_RSA_WITH_AES_128_CBC_SHA256",
                "TLS_RSA_WITH_AES_128_CBC_SHA",
            )
        )
    )
    assert suites_of(context) == {
        "ECDHE-RSA-AES256-GCM-SHA384",
        "ECDHE-ECDSA-CHACHA20-POLY1305",
        "DHE-RSA-AES128-SHA256",
        "AES128-SHA",
    }
    assert context.maximum_version == ssl.TLSVersion.TLSv1_2  # no suite of TLS 1.3 is named


def test_suites_of_tls_1_3_alone_leave_nothing_of_tls_1_2() -> None:
    context = server_context(server_settings(cipher_suites=("TLS_AES_128_GCM_SHA256",)))
    assert context.minimum_version == ssl.TLSVersion.TLSv1_3


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"enabled_protocols": ("TLSv1.3", "TLSv1.1", "SSLv3")}, "ssl.enabled.protocols has TLSv1.1, SSLv3: kwire"),
        ({"cipher_suites": ("TLS_NOT_WITH_NOTHING", "x")}, "TLS_NOT_WITH_NOTHING, x, which OpenSSL does not have"),
        (
            {"cipher_suites": ("TLS_AES_128_GCM_SHA256",), "enabled_protocols": ("TLSv1.2",)},
            "ssl.cipher.suites has no suite for TLSv1.2",
        ),
        ({"client_auth": "sometimes"}, "ssl.client.auth is sometimes"),
        (
            {"keystore_key": None, "keystore_certificate_chain": None},
            "a listener with TLS needs a certificate: set ssl.keystore.location",
        ),
    ],
)
def test_settings_that_cannot_be_used_are_refused(changed: dict[str, object], reason: str) -> None:
    with pytest.raises(TlsError, match=reason) as error:
        server_context(server_settings(**changed))
    assert "\n" not in str(error.value)


def too_short() -> tuple[str, str]:
    """Makes a key of RSA that OpenSSL finds too short, and its certificate."""
    key = rsa.generate_private_key(65_537, 1024)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "short")])
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1, now, now + timedelta(days=1))
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return pem.decode(), builder.sign(key, SHA256()).public_bytes(Encoding.PEM).decode()


def test_a_certificate_that_openssl_does_not_take_is_refused_by_its_name() -> None:
    key, chain = too_short()
    with pytest.raises(TlsError, match="^the certificate CN=short cannot be used: ee key too small$"):
        server_context(server_settings(keystore_key=key, keystore_certificate_chain=chain))


class _Choosy(ssl.SSLContext):
    """A context that takes no certificate into its truststore, as if each were damaged."""

    def load_verify_locations(self, cafile: Any = None, capath: Any = None, cadata: Any = None) -> None:
        super().load_verify_locations(cafile, capath, cadata[:-1])


def test_a_truststore_that_openssl_does_not_take_is_refused() -> None:
    trusted_ones = load_stores(client_settings()).trusted
    assert trusted_ones is not None
    with pytest.raises(TlsError, match="^the certificates of the truststore cannot be used: "):
        contexts._trust(_Choosy(ssl.PROTOCOL_TLS_CLIENT), trusted_ones)


@pytest.mark.parametrize(
    ("server", "client", "reason"),
    [
        ({}, {"truststore_certificates": trusted("two")}, "the server's certificate is not accepted: "),
        (
            {"client_auth": "required", "truststore_certificates": trusted("two")},
            {},
            "the client's certificate is not ",
        ),
        ({"enabled_protocols": ("TLSv1.3",)}, {"enabled_protocols": ("TLSv1.2",)}, "there is no TLS between the two: "),
    ],
)
def test_contexts_that_do_not_accept_each_other_say_who_and_why(
    server: dict[str, Any], client: dict[str, Any], reason: str
) -> None:
    usual = attrs.evolve(client_settings("broker"), endpoint_identification_algorithm="")
    check_handshake(server_context(server_settings()), client_context(usual))
    with pytest.raises(TlsError, match=f"^{reason}"):
        check_handshake(server_context(server_settings(**server)), client_context(attrs.evolve(usual, **client)))


def test_nothing_is_compressed_nor_negotiated_again() -> None:
    for context in (server_context(server_settings()), client_context(client_settings())):
        assert context.options & ssl.OP_NO_COMPRESSION
        assert context.options & ssl.OP_NO_RENEGOTIATION


@pytest.mark.parametrize(
    ("client_auth", "mode"),
    [("none", ssl.CERT_NONE), ("requested", ssl.CERT_OPTIONAL), ("required", ssl.CERT_REQUIRED)],
)
def test_certificates_of_clients_are_requested_as_configured(client_auth: str, mode: ssl.VerifyMode) -> None:
    assert server_context(server_settings(client_auth=client_auth)).verify_mode is mode


def test_clients_check_the_host_name_unless_that_is_disabled() -> None:
    assert client_context(client_settings()).check_hostname
    unnamed = client_context(attrs.evolve(client_settings(), endpoint_identification_algorithm=""))
    assert not unnamed.check_hostname
    assert unnamed.verify_mode is ssl.CERT_REQUIRED
    with pytest.raises(TlsError, match="it must be https, or empty"):
        client_context(attrs.evolve(client_settings(), endpoint_identification_algorithm="ldaps"))


def test_a_truststore_may_have_the_same_certificate_twice() -> None:
    settings = attrs.evolve(
        client_settings(), truststore_certificates=2 * (client_settings().truststore_certificates or "")
    )
    client_context(settings)


def test_without_a_truststore_the_systems_authorities_are_trusted() -> None:
    assert client_context(TlsSettings()).verify_mode is ssl.CERT_REQUIRED


def expiring(not_after: datetime) -> TlsSettings:
    leaf = authority().issue_cert(HOST, not_after=not_after)
    return attrs.evolve(
        settings_of(None),
        keystore_key=leaf.private_key_pem.bytes().decode(),
        keystore_certificate_chain=leaf.cert_chain_pems[0].bytes().decode(),
    )


def test_certificates_that_expire_are_warned_of_in_time() -> None:
    end = datetime(2030, 1, 31, tzinfo=UTC)
    settings = expiring(end)
    stores = load_stores(settings)
    end_ms = int(end.timestamp() * 1000)
    assert warnings_about(settings, stores, now_ms=end_ms - 15 * DAY_MS) == []
    (soon,) = warnings_about(settings, stores, now_ms=end_ms - 13 * DAY_MS)
    assert soon.endswith("expires on 2030-01-31: renew it")
    (late,) = warnings_about(settings, stores, now_ms=end_ms + 1)
    assert "expired on 2030-01-31: clients refuse it" in late
    server_context(settings, stores)  # which is no error


def test_suites_of_tls_1_3_that_cannot_be_left_out_are_warned_of() -> None:
    settings = server_settings(cipher_suites=("TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"))
    (warning,) = warnings_about(settings, load_stores(settings), now_ms=0)
    assert warning.startswith("ssl.cipher.suites lacks TLS_AES_128_GCM_SHA256, which TLS 1.3 offers nevertheless")
