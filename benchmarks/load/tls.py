"""Connections over TLS for loads with sockets that do not block: they raise BlockingIOError, as plain ones do.

TLS 1.3 only, a full handshake each time. The load does not verify the broker's certificate, which is the client's work.
"""

from __future__ import annotations

import socket
import ssl
from functools import cache
from typing import Any

from benchmarks.load.connection import LOOPBACK

CONNECT_TIMEOUT_S = 60.0

_RECORD_BYTES = 1 << 14  # the most that a record of TLS has


class TlsSocket(ssl.SSLSocket):
    """`recv_into` takes as many records as there are and fit. With MSG_TRUNC they are thrown away, in its buffer."""

    def send(self, data: Any, flags: int = 0) -> int:
        try:
            return super().send(data, flags)
        except ssl.SSLWantWriteError:
            raise BlockingIOError from None

    def recv_into(self, buffer: Any, nbytes: int | None = None, flags: int = 0) -> int:
        view, count = memoryview(buffer), 0
        wanted = len(view) if nbytes is None else nbytes
        while count < wanted:
            at = 0 if flags & socket.MSG_TRUNC else count
            try:
                taken = super().recv_into(view[at : at + min(wanted - count, _RECORD_BYTES)])
            except ssl.SSLWantReadError:
                if not count:
                    raise BlockingIOError from None
                break
            if not taken:
                break
            count += taken
        return count


@cache
def client_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.sslsocket_class = TlsSocket
    return context


def connect_tls(port: int, count: int) -> list[TlsSocket]:
    """See `connect` in replay.py."""
    sockets = []
    for _ in range(count):
        plain = socket.create_connection((LOOPBACK, port), timeout=CONNECT_TIMEOUT_S)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock = client_context().wrap_socket(plain)
        assert isinstance(sock, TlsSocket)
        sock.setblocking(False)
        sockets.append(sock)
    return sockets
