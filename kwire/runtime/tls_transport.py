"""The transport of a connection with TLS (`kwire.runtime.transport.Transport`), for servers and for clients.

OpenSSL works in memory here (`SSLObject`), and the bytes of the socket are passed to it. With a socket of its own it
would continue to read for as long as a peer sends messages without data, such as requests for new keys, and one client
could keep the whole broker busy. The CPU time of both, for each request and for each GiB, is the same.

Data is sent in pieces. If the socket does not accept all of a piece, the rest of its encrypted bytes is buffered, and
the piece counts as sent once they are sent. Until then the sender passes the same bytes again, which it does anyway. So
a connection has at most one piece in memory for sending, and one for receiving.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from kwire_protocol.wire import Buffer, ProtocolError

from kwire.runtime.poll import NOTHING, READ, WRITE
from kwire.security.principal import ANONYMOUS, Principal
from kwire.security.tls.failures import why_tls_failed
from kwire.security.tls.names import MalformedName
from kwire.security.tls.principals import NoMatchingRule

PIECE_BYTES: Final = 64 * 1024
"""The size of the data that is encrypted and sent at once: four TLS records. With a quarter of it, sending takes a
quarter longer."""

RECEIVED_BYTES: Final = 32 * 1024
"""The size of the data that is received and decrypted at once. It may be a thousand requests for new keys, which take
about 50 ms."""

MOST_SILENT_BYTES: Final = 128 * 1024
"""The maximum number of bytes that a peer may send in a handshake, and later without any data. A record has 16 KiB, and
OpenSSL accepts 100 KiB of client certificates."""

PrincipalOf = Callable[[bytes], Principal]
"""Returns the principal of a certificate in DER. Raises NoMatchingRule, MalformedName."""


class TlsTransport:
    """Encrypts the traffic of `sock`, which is non-blocking.

    server_hostname: for clients, the requested host. `principal_of` is for servers that request a certificate.
    """

    __slots__ = (
        "_incoming",
        "_is_shaken",
        "_outgoing",
        "_owed",
        "_principal_of",
        "_silent_bytes",
        "_tls",
        "_unsent",
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
        self.sock = sock
        self.principal = ANONYMOUS
        self.handshake: Callable[[], int] | None = self._shake
        self.has_more: Callable[[], bool] | None = self._has_more
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(
            self._incoming, self._outgoing, server_side=server_side, server_hostname=server_hostname
        )
        self._principal_of = principal_of
        self._is_shaken = False
        self._unsent = b""
        """The encrypted bytes that the socket has not accepted."""
        self._owed = 0
        """The number of the caller's bytes in the piece that `_unsent` belongs to. They do not count as sent yet."""
        self._silent_bytes = 0

    def recv_into(self, room: memoryview, /) -> int:
        count: int
        try:
            count = self._tls.read(len(room), room)  # type: ignore[assignment] # it returns bytes if there is no room
        except ssl.SSLWantReadError:
            if not self._receive():
                return 0
            try:
                count = self._tls.read(len(room), room)  # type: ignore[assignment]
            except ssl.SSLWantReadError:
                self._say()
                raise BlockingIOError from None  # there may be more input, but other connections have their turn first
        self._silent_bytes = 0
        if self._outgoing.pending:
            self._say()
        return count

    def send(self, data: Buffer, _flags: int, /) -> int:
        size, view = len(data), memoryview(data)
        if self._unsent and not self._flush():
            raise BlockingIOError
        sent, self._owed = self._owed, 0
        assert sent <= size, "the same bytes come again"
        while sent < size:
            piece = view[sent : sent + PIECE_BYTES]
            self._tls.write(piece)
            encrypted = self._outgoing.read()
            try:
                taken = self.sock.send(encrypted)
            except BlockingIOError:
                taken = 0
            if taken < len(encrypted):
                self._unsent, self._owed = encrypted[taken:], len(piece)
                if not sent:
                    raise BlockingIOError
                break
            sent += len(piece)
        return sent

    def close(self) -> None:
        """Sends the end of the TLS session (close_notify) if there is room for it, and does not wait for the peer's."""
        if self._is_shaken and not self._unsent:
            with suppress(OSError):
                self._tls.unwrap()
            with suppress(OSError):
                self.sock.send(self._outgoing.read())
        self.sock.close()
        self.handshake = self.has_more = None  # which refer to this object

    def _has_more(self) -> bool:
        return self._incoming.pending > 0 or self._tls.pending() > 0

    def _receive(self) -> int:
        """Passes bytes of the socket to OpenSSL. Returns their number; 0 at the end. Raises BlockingIOError."""
        data = self.sock.recv(RECEIVED_BYTES)
        self._silent_bytes += len(data)
        if self._silent_bytes > MOST_SILENT_BYTES:
            raise ConnectionAbortedError("the peer sends TLS, and no data")
        self._incoming.write(data)
        return len(data)

    def _say(self) -> bool:
        """Sends the bytes that TLS produces on its own. Returns True if all were sent; the rest goes before data."""
        self._unsent += self._outgoing.read()
        if self._flush():
            return True
        if len(self._unsent) > 2 * PIECE_BYTES:
            raise ConnectionAbortedError("the peer does not read what TLS sends")
        return False

    def _flush(self) -> bool:
        if self._unsent:
            try:
                self._unsent = self._unsent[self.sock.send(self._unsent) :]
            except BlockingIOError:
                return False
        return not self._unsent

    def _shake(self) -> int:
        while not self._is_shaken:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                if not self._say():
                    return WRITE
                try:
                    if not self._receive():
                        raise ConnectionResetError("the peer hung up in the handshake")
                except BlockingIOError:
                    return READ
            except ssl.SSLError as error:
                with suppress(OSError):
                    self._say()
                raise ProtocolError(why_tls_failed(error, server_side=self._tls.server_side)) from None
            else:
                self._is_shaken = True
        if not self._say():
            return WRITE
        self._silent_bytes = 0
        if self._principal_of is not None:
            certificate = self._tls.getpeercert(binary_form=True)
            if certificate is not None:
                try:
                    self.principal = self._principal_of(certificate)
                except (MalformedName, NoMatchingRule) as error:
                    raise ProtocolError(str(error)) from None
        return NOTHING
