"""Free TCP ports on loopback for servers that must know their port before they start.

Binding port 0, closing the socket and reusing the number is a race: until the server binds it, any outgoing connection
may get the same number. So we try random numbers below the range that Linux and macOS use for outgoing connections.
"""

from __future__ import annotations

import random
import socket

LOOPBACK = "127.0.0.1"
_FIRST, _LAST = 15_000, 31_999


def free_port() -> int:
    """A free port on loopback. Two calls may return the same port, but that is unlikely."""
    for _ in range(200):
        port = random.randint(_FIRST, _LAST)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((LOOPBACK, port))
            except OSError:
                continue
            return port
    raise OSError(f"no free port between {_FIRST} and {_LAST}")
