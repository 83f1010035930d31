"""The reasons for which a TLS handshake fails, in words that name the remedy where there is one."""

from __future__ import annotations

import ssl
from typing import Final

from kwire_protocol.kafka_error import quoted

_NO_TLS: Final = frozenset(
    (
        "HTTP_REQUEST",
        "HTTPS_PROXY_REQUEST",
        "WRONG_VERSION_NUMBER",
        "RECORD_LAYER_FAILURE",
        "PACKET_LENGTH_TOO_LONG",
        "INVALID_SEQUENCE_NUMBER",
    )
)
_NO_PROTOCOL: Final = frozenset(
    (
        "UNSUPPORTED_PROTOCOL",
        "NO_PROTOCOLS_AVAILABLE",
        "TLSV1_ALERT_PROTOCOL_VERSION",
        "VERSION_TOO_LOW",
        "VERSION_TOO_HIGH",
    )
)
_NO_SUITE: Final = frozenset(("NO_SHARED_CIPHER", "SSLV3_ALERT_HANDSHAKE_FAILURE", "TLSV1_ALERT_INSUFFICIENT_SECURITY"))
_NOT_TRUSTED: Final = frozenset(
    (
        "TLSV1_ALERT_UNKNOWN_CA",
        "SSLV3_ALERT_BAD_CERTIFICATE",
        "SSLV3_ALERT_CERTIFICATE_EXPIRED",
        "SSLV3_ALERT_CERTIFICATE_REVOKED",
        "SSLV3_ALERT_CERTIFICATE_UNKNOWN",
        "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE",
    )
)
_CERTIFICATE_WANTED: Final = frozenset(("TLSV13_ALERT_CERTIFICATE_REQUIRED",))


def why_tls_failed(error: ssl.SSLError, *, server_side: bool) -> str:
    """Returns the reason why the handshake failed, for a sentence whose subject is the peer.

    server_side: this side is the server, and the peer a client.
    """
    reason = error.reason or ""
    said = reason.partition("_ALERT_")[2].replace("_", " ").lower()
    if reason in _NO_TLS:
        if not server_side:
            return "it does not speak TLS: its listener is in plain text, or it is another server"
        other = "HTTP" if reason.startswith("HTTP") else "perhaps Kafka's protocol in plain text"
        return f"it does not speak TLS, but {other}: a client of this listener needs security.protocol=SSL or SASL_SSL"
    if reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
        return "it has no certificate, and ssl.client.auth=required wants one: give it a keystore"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted: {error.verify_message.rstrip('.')}"
    if reason in _NOT_TRUSTED:
        return (
            f"it does not accept our certificate ({said}): has it the authority in its truststore, and is the "
            "certificate for the host that it connects to?"
        )
    if reason in _CERTIFICATE_WANTED:
        return "it wants a certificate from us, and we have none: set a keystore"
    if reason in _NO_PROTOCOL:
        return "it has no version of TLS in common with us: see ssl.enabled.protocols"
    if reason in _NO_SUITE:
        return "it has no cipher suite in common with us: see ssl.cipher.suites, and the kind of the certificate's key"
    if said:
        return f"it broke off the TLS handshake: {said}"
    return f"the TLS handshake failed: {reason.replace('_', ' ').lower() or quoted(str(error))}"
