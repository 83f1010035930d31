"""The transport of a connection, which receives and sends bytes (Kafka's PlaintextTransportLayer, in plain text).

A transport never waits, and behaves like a non-blocking socket: `recv_into` and `send` raise BlockingIOError instead of
waiting, and another OSError when the peer is lost. So the plain transport has the socket's own methods, without a
wrapper.

A transport that encrypts (`kwire.runtime.tls_transport`) observes these rules:

* Before anything else the connection calls its `handshake`, until that needs nothing more. After it, a receive waits
  only for input, and a send only for room.
* The processor does not detect bytes that were read from the socket and not passed on yet. `has_more` returns True if
  there are such bytes, and the connection receives again.
* The bytes of a file must pass through it, so it has no `send_file`.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from functools import partial
from typing import Protocol

from kwire.security.principal import ANONYMOUS, Principal

Bytes = bytes | bytearray | memoryview


class PeerLost(Exception):
    """The connection ended during a send or a receive. This is not logged."""


class Transport(Protocol):
    """One connection's two streams of bytes."""

    sock: socket.socket
    """The socket that the processor watches. Non-blocking, and connected."""

    send_file: Callable[[int, int, int], int] | None
    """Sends from a file without copying. Takes its descriptor, the position and the maximum number of bytes; returns
    the number that was sent, which is 0 at the end of the file. None if the bytes must be read and passed to `send`.
    """

    handshake: Callable[[], int] | None
    """Continues the handshake. Returns the event that it waits for, READ or WRITE, or 0 when it is over. Raises
    ProtocolError if the handshake fails, and another OSError when the peer is lost. None if there is no handshake."""

    has_more: Callable[[], bool] | None
    """Returns True if the transport has buffered bytes that the socket has no longer; None if it never has any."""

    @property
    def principal(self) -> Principal:
        """The peer's principal according to the transport, after the handshake."""
        ...

    def recv_into(self, room: memoryview, /) -> int:
        """Returns the number of bytes that were received; 0 at the end of the stream."""
        ...

    def send(self, data: Bytes, flags: int, /) -> int:
        """Returns the number of bytes that were sent, from the start of `data`. `flags` may be MSG_MORE, a hint."""
        ...

    def close(self) -> None: ...


NewTransport = Callable[[socket.socket], Transport]
"""Makes the transport of an accepted socket, which is non-blocking."""


class PlainTransport:
    """Bytes without encryption."""

    __slots__ = ("recv_into", "send", "send_file", "sock")

    handshake: Callable[[], int] | None = None
    has_more: Callable[[], bool] | None = None
    principal = ANONYMOUS

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.recv_into: Callable[[memoryview], int] = sock.recv_into
        self.send: Callable[[Bytes, int], int] = sock.send
        self.send_file: Callable[[int, int, int], int] | None = partial(os.sendfile, sock.fileno())

    def close(self) -> None:
        self.send_file = None  # another connection may soon have the descriptor's number
        self.sock.close()
