"""How a connection receives and sends bytes. In plain text the socket does it (Kafka's PlaintextTransportLayer).

A transport never waits, and behaves like a non-blocking socket: `recv_into` and `send` raise BlockingIOError instead of
waiting, and another OSError when the peer is lost. So the plain transport is the socket's own methods, without a
wrapper.

A transport that encrypts (`kwire.security.tls.transport`) observes these rules:

* Before anything else the connection calls its `handshake`, until that needs nothing more. After it, a receive waits
  only for input, and a send only for room.
* The processor does not see bytes that were taken from the socket and not handed over yet. `has_more` says whether
  there are such bytes, and the connection receives again.
* The bytes of a file have to pass through it, so it has no `send_file`.
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
    """Sends from a file without copying. Takes its descriptor, the position and the most bytes; returns how many were
    sent, which is 0 at the end of the file. None if the bytes have to be read and passed to `send`."""

    handshake: Callable[[], int] | None
    """Goes on with the handshake. Returns what it waits for, READ or WRITE, or 0 when it is over. Raises ProtocolError
    if the peer cannot be talked to, and another OSError when it is lost. None if there is nothing to negotiate."""

    has_more: Callable[[], bool] | None
    """Whether bytes can be received that the socket has no longer; None if that cannot be."""

    @property
    def principal(self) -> Principal:
        """Whom the transport knows the peer to be, once the handshake is over."""
        ...

    def recv_into(self, room: memoryview, /) -> int:
        """Returns how many bytes were received; 0 at the end of the stream."""
        ...

    def send(self, data: Bytes, flags: int, /) -> int:
        """Returns how many bytes were sent, from the start of `data`. `flags` may be MSG_MORE, which is a hint."""
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
        self.send_file = None  # the descriptor's number may soon be another connection's
        self.sock.close()
