"""Makes `ssl.SSLContext`s from settings, like Kafka's DefaultSslEngineFactory for Java.

A context is made once, and each new connection uses the one that is in force then. So certificates change without
touching connections, and a session that was begun under another context cannot be resumed: its ticket keys differ.

The limitation of Python's `ssl`:

* It cannot choose among the cipher suites of TLS 1.3 before Python 3.15. A list with none of them means TLS 1.2 only, a
  list with nothing else means TLS 1.3 only, and it makes no difference which of the three suites of TLS 1.3 are listed.
"""

from __future__ import annotations

import re
import ssl
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from kwire.security.tls.keystores import Stores, key_file, load_stores
from kwire.security.tls.settings import TlsError, TlsSettings

_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_CLIENT_AUTH: Final = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}
_TLS_1_3_SUITES: Final = frozenset(
    (
        "TLS_AES_128_GCM_SHA256",
        "TLS_AES_256_GCM_SHA384",
        "TLS_CHACHA20_POLY1305_SHA256",
        "TLS_AES_128_CCM_SHA256",
        "TLS_AES_128_CCM_8_SHA256",
    )
)
_SUITE: Final = re.compile(r"TLS_(\w+?)_WITH_(\w+?)(?:_(SHA\d*))?")
_TICKETS: Final = 1
"""The number of session tickets of a TLS 1.3 handshake. A client needs one to resume its session when it reconnects."""
_MOST_FLIGHTS: Final = 10
"""The maximum number of flights of a handshake, from either side; TLS 1.2 has four."""
_DAY_S: Final = 86_400.0
_SOON_DAYS: Final = 14


def server_context(settings: TlsSettings, stores: Stores | None = None) -> ssl.SSLContext:
    """Makes the context of a listener. `stores` is the result of `load_stores` for the settings. Raises TlsError."""
    stores = stores or load_stores(settings)
    if stores.key_store is None:
        raise TlsError(
            "a listener with TLS needs a certificate: set ssl.keystore.location, or ssl.keystore.key and "
            "ssl.keystore.certificate.chain"
        )
    context = _context(ssl.PROTOCOL_TLS_SERVER, settings, stores)
    context.options |= ssl.OP_CIPHER_SERVER_PREFERENCE | ssl.OP_SINGLE_ECDH_USE
    context.num_tickets = _TICKETS
    if settings.client_auth not in _CLIENT_AUTH:
        raise TlsError(f"ssl.client.auth is {settings.client_auth}: it must be one of {', '.join(_CLIENT_AUTH)}")
    context.verify_mode = _CLIENT_AUTH[settings.client_auth]
    if stores.trusted is None and context.verify_mode is not ssl.CERT_NONE:
        context.load_default_certs(ssl.Purpose.CLIENT_AUTH)
    return context


def client_context(settings: TlsSettings, stores: Stores | None = None) -> ssl.SSLContext:
    """Makes the context of connections to brokers. Raises TlsError."""
    stores = stores or load_stores(settings)
    context = _context(ssl.PROTOCOL_TLS_CLIENT, settings, stores)
    algorithm = settings.endpoint_identification_algorithm.lower()
    if algorithm not in ("https", ""):
        raise TlsError(
            f"ssl.endpoint.identification.algorithm is {settings.endpoint_identification_algorithm}: it must be "
            "https, or empty"
        )
    context.check_hostname = algorithm == "https"
    if stores.trusted is None:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    return context


def check_handshake(server: ssl.SSLContext, client: ssl.SSLContext) -> None:
    """Runs a handshake of the two in memory. Raises TlsError if one does not accept the other."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    waiting = [
        client.wrap_bio(to_client, to_server, server_hostname="broker" if client.check_hostname else None),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(_MOST_FLIGHTS):
        for side in list(waiting):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLCertVerificationError as error:
                whose = "the client's" if side.server_side else "the server's"
                raise TlsError(f"{whose} certificate is not accepted: {error.verify_message.rstrip('.')}") from error
            except ssl.SSLError as error:
                raise TlsError(f"there is no TLS between the two: {_reason(error)}") from error
            waiting.remove(side)
        if not waiting:
            return
    raise AssertionError("a handshake has an end")


def warnings_about(settings: TlsSettings, stores: Stores, *, now_ms: int) -> list[str]:
    """Returns a line for each certificate in the keystore that has expired or soon will, and one for TLS 1.3 suites."""
    warnings = []
    for certificate in stores.key_store.chain if stores.key_store is not None else ():
        ends = certificate.not_valid_after_utc
        left_days = (ends.timestamp() - now_ms / 1000) / _DAY_S
        name = certificate.subject.rfc4514_string()
        if left_days <= 0:
            warnings.append(f"the certificate of {name} expired on {ends:%Y-%m-%d}: clients refuse it, so renew it")
        elif left_days <= _SOON_DAYS:
            warnings.append(f"the certificate of {name} expires on {ends:%Y-%m-%d}: renew it")
    named = _TLS_1_3_SUITES.intersection(settings.cipher_suites)
    if named and "TLSv1.3" in settings.enabled_protocols:
        left_out = {"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"} - named
        if left_out:
            warnings.append(
                f"ssl.cipher.suites lacks {', '.join(sorted(left_out))}, which TLS 1.3 offers nevertheless: "
                "Python cannot leave out one of its suites"
            )
    return warnings


def _context(kind: ssl._SSLMethod, settings: TlsSettings, stores: Stores) -> ssl.SSLContext:
    context = ssl.SSLContext(kind)
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # as in Java, every certificate in a truststore is trusted
    _set_protocols_and_suites(context, settings)
    if stores.key_store is not None:
        try:
            with key_file(stores.key_store) as path:
                context.load_cert_chain(path)
        except ssl.SSLError as error:
            raise TlsError(
                f"the certificate {stores.key_store.certificate.subject.rfc4514_string()} cannot be used: "
                f"{_reason(error)}"
            ) from error
    if stores.trusted is not None:
        _trust(context, stores.trusted)
    return context


def _trust(context: ssl.SSLContext, certificates: tuple[x509.Certificate, ...]) -> None:
    different = {it.public_bytes(Encoding.DER): None for it in certificates}
    try:
        context.load_verify_locations(cadata=b"".join(different))
    except ssl.SSLError as error:
        raise TlsError(f"the certificates of the truststore cannot be used: {_reason(error)}") from error


def _set_protocols_and_suites(context: ssl.SSLContext, settings: TlsSettings) -> None:
    protocols = settings.enabled_protocols or tuple(_VERSIONS)
    unknown = [it for it in protocols if it not in _VERSIONS]
    if unknown:
        raise TlsError(f"ssl.enabled.protocols has {', '.join(unknown)}: kwire speaks {' and '.join(_VERSIONS)}")
    versions = {_VERSIONS[it] for it in protocols}
    suites = settings.cipher_suites
    if suites:
        older = [it for it in suites if it not in _TLS_1_3_SUITES]
        if len(older) == len(suites):
            versions.discard(ssl.TLSVersion.TLSv1_3)
        if not older:
            versions.discard(ssl.TLSVersion.TLSv1_2)
        if not versions:
            raise TlsError(
                f"ssl.cipher.suites has no suite for {', '.join(protocols)}: ssl.enabled.protocols has nothing else"
            )
        if older:
            context.set_ciphers(":".join(_openssl_names(older)))
    context.minimum_version, context.maximum_version = min(versions), max(versions)


def _openssl_names(suites: list[str]) -> list[str]:
    everything = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    everything.set_ciphers("ALL:COMPLEMENTOFALL")
    known = {suite["name"] for suite in everything.get_ciphers()}
    names = {suite: _openssl_name(suite) for suite in suites}
    unknown = [suite for suite, name in names.items() if name not in known]
    if unknown:
        raise TlsError(
            f"ssl.cipher.suites has {', '.join(unknown)}, which OpenSSL does not have: name suites as Java does, such "
            "as TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"
        )
    return list(names.values())


def _openssl_name(suite: str) -> str:
    """Converts TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 to ECDHE-RSA-AES128-GCM-SHA256; other names are unchanged."""
    match = _SUITE.fullmatch(suite)
    if match is None:
        return suite
    exchange, cipher, digest = match.groups()
    for its, ours in (("_CBC", ""), ("CCM_8", "CCM8"), ("AES_", "AES"), ("ARIA_", "ARIA"), ("CAMELLIA_", "CAMELLIA")):
        cipher = cipher.replace(its, ours)
    parts = [] if exchange == "RSA" else [exchange]
    parts.append(cipher)
    if digest is not None and "POLY1305" not in cipher:
        parts.append(digest)
    return "-".join(parts).replace("_", "-")


def _reason(error: ssl.SSLError) -> str:
    return (error.reason or str(error)).replace("_", " ").lower()
