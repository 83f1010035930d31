"""How the bytes of a connection come and go. In plain text they are the socket's own (Kafka's PlaintextTransportLayer).

A transport never waits, and means what a non-blocking socket means: `recv_into` and `send` raise BlockingIOError where
they would have to wait, and another OSError when the peer is lost. So the plain form is the socket's own methods, with
nothing in front of them.

A form that encrypts has to bear these in mind:

* Once its handshake is over, a receive waits for input and a send for room, and for nothing else.
* What it has received and not handed over yet is not seen by the processor: it asks for its turn itself.
* The bytes of a file have to pass through it, so it has no `send_file`.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from functools import partial
from typing import Protocol

Bytes = bytes | bytearray | memoryview


class PeerLost(Exception):
    """The connection ended while something was being sent or received; nothing to say to anybody."""


class Transport(Protocol):
    """One connection's two streams of bytes."""

    sock: socket.socket
    """What the processor watches. Non-blocking, and connected."""

    send_file: Callable[[int, int, int], int] | None
    """Sends from a file without copying: its descriptor, the position, the most bytes. Returns how many were taken,
    which at the end of the file is 0. None where the bytes have to be read and handed to `send`."""

    def recv_into(self, room: memoryview, /) -> int:
        """How many bytes were received; 0 when the peer has said its last."""
        ...

    def send(self, data: Bytes, flags: int, /) -> int:
        """How many bytes were taken, from the first on. `flags` may say MSG_MORE, and is a hint."""
        ...

    def close(self) -> None: ...


class PlainTransport:
    """Bytes as they are."""

    __slots__ = ("recv_into", "send", "send_file", "sock")

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.recv_into: Callable[[memoryview], int] = sock.recv_into
        self.send: Callable[[Bytes, int], int] = sock.send
        self.send_file: Callable[[int, int, int], int] | None = partial(os.sendfile, sock.fileno())

    def close(self) -> None:
        self.send_file = None  # the descriptor's number may soon be another connection's
        self.sock.close()
