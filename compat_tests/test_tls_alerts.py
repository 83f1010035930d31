"""The TLS alerts that a client gets whose certificate is refused: those of OpenSSL, or those of Java."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path

import pytest

from testkit.security.secured import Secured
from testkit.servers import brokers

TIMEOUT_S = 20.0


def alert(secured: Secured, version: ssl.TLSVersion, certificate: Path | None) -> str:
    """The reason for which the handshake, or the first receive after it, fails."""
    host, port = secured.address("MUTUAL").rsplit(":", 1)
    context = ssl.create_default_context(cafile=str(secured.certificates.authority))
    context.minimum_version = context.maximum_version = version
    if certificate is not None:
        context.load_cert_chain(certificate)
    try:
        with (
            socket.create_connection((host, int(port)), timeout=TIMEOUT_S) as sock,
            context.wrap_socket(sock, server_hostname=host) as wrapped,
        ):
            wrapped.recv(1)
    except ssl.SSLError as error:
        return str(error.reason)
    return "none"


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize(
    ("whose", "of_openssl", "of_java"),
    [
        ("stranger", {"TLSV1_ALERT_UNKNOWN_CA"}, {"SSLV3_ALERT_CERTIFICATE_UNKNOWN"}),
        ("expired_client", {"SSLV3_ALERT_CERTIFICATE_EXPIRED"}, {"SSLV3_ALERT_CERTIFICATE_UNKNOWN"}),
        (
            None,
            {"SSLV3_ALERT_HANDSHAKE_FAILURE", "TLSV13_ALERT_CERTIFICATE_REQUIRED"},
            {"SSLV3_ALERT_BAD_CERTIFICATE"},
        ),
    ],
)
def test_a_client_receives_an_alert_that_its_certificate_is_refused(
    secured: Secured, version: ssl.TLSVersion, whose: str | None, of_openssl: set[str], of_java: set[str]
) -> None:
    certificate = None if whose is None else getattr(secured.certificates, whose).pem
    assert alert(secured, version, certificate) in (of_java if brokers.IS_KAFKA else of_openssl)
