"""The transport of a connection with TLS (`kwire.transport.Transport`), for servers and for clients.

It is Python's `SSLSocket`, without a buffer of its own: what OpenSSL holds for a connection is one record, 16 KiB. An
`SSLObject` with buffers in memory was measured beside it and takes the same time of the CPU for each request and for
each GiB, so there is nothing to be had for the memory.

What is sent goes out record by record. If the socket is full in the middle of one, OpenSSL wants to be given the bytes
of that record once more. The sender does that anyway, because a record counts as sent only when it is out.
"""

from __future__ import annotations

import select
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from kwire_protocol.kafka_error import quoted
from kwire_protocol.wire import Buffer, ProtocolError

from kwire.security.principal import ANONYMOUS, Principal
from kwire.security.tls.names import MalformedName
from kwire.security.tls.principals import NoMatchingRule

RECORD_BYTES: Final = 16 * 1024
"""The most that one record of TLS carries."""

NOTHING: Final = 0
READ: Final = select.EPOLLIN
WRITE: Final = select.EPOLLOUT

PrincipalOf = Callable[[bytes], Principal]
"""Whom a certificate, in DER, is for. Raises NoMatchingRule, MalformedName."""


class TlsTransport:
    """Encrypts what goes over `sock`, which it takes over: `sock` of this object is the one to use from now on.

    server_hostname: for clients: which host was dialled. `principal_of` is for servers that ask for a certificate.
    """

    __slots__ = (
        "_is_shaken",
        "_principal_of",
        "_receive",
        "_send",
        "_tls",
        "handshake",
        "has_more",
        "principal",
        "sock",
    )

    send_file: Callable[[int, int, int], int] | None = None

    def __init__(
        self,
        sock: socket.socket,
        context: ssl.SSLContext,
        *,
        server_side: bool = True,
        server_hostname: str | None = None,
        principal_of: PrincipalOf | None = None,
    ) -> None:
        self._tls = tls = context.wrap_socket(
            sock,
            server_side=server_side,
            do_handshake_on_connect=False,
            suppress_ragged_eofs=True,
            server_hostname=server_hostname,
        )
        self.sock: socket.socket = tls
        self.principal = ANONYMOUS
        self.handshake: Callable[[], int] | None = self._shake
        self.has_more: Callable[[], bool] | None = self._has_more
        self._receive = tls.recv_into
        self._send = tls.send
        self._principal_of = principal_of
        self._is_shaken = False

    def recv_into(self, room: memoryview, /) -> int:
        try:
            return self._receive(room)
        except ssl.SSLWantReadError:
            raise BlockingIOError from None
        except ssl.SSLWantWriteError:
            # It asked for new keys, again and again, and never read that it got them.
            raise ConnectionAbortedError("the peer does not read what TLS has to say") from None

    def send(self, data: Buffer, _flags: int, /) -> int:
        sent, size, view = 0, len(data), memoryview(data)
        try:
            while sent < size:
                sent += self._send(view[sent : sent + RECORD_BYTES])
        except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
            if not sent:
                raise BlockingIOError from None
        return sent

    def close(self) -> None:
        """Says that nothing more will come, if there is room for that, and does not wait for an answer."""
        if self._is_shaken:
            with suppress(OSError, ValueError):
                self._tls.unwrap()
        self._tls.close()
        self.handshake = self.has_more = None  # which refer to this object

    def _has_more(self) -> bool:
        return self._tls.pending() > 0

    def _shake(self) -> int:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return READ
        except ssl.SSLWantWriteError:
            return WRITE
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError):
            raise
        except ssl.SSLError as error:
            raise ProtocolError(_why_not(error, self._tls.server_side)) from None
        except ssl.CertificateError as error:
            raise ProtocolError(f"its certificate is for another host: {error}") from None
        self._is_shaken = True
        if self._principal_of is not None:
            certificate = self._tls.getpeercert(binary_form=True)
            if certificate is not None:
                try:
                    self.principal = self._principal_of(certificate)
                except (MalformedName, NoMatchingRule) as error:
                    raise ProtocolError(str(error)) from None
        return NOTHING


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


def _why_not(error: ssl.SSLError, server_side: bool) -> str:
    """Why there is no TLS with the peer, for a log line that begins with who it is."""
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
