"""Free TCP ports on loopback for servers that must know their port before they start.

Asking the system for port 0, closing and reusing the number is a race: until the server binds it, any outgoing
connection of the machine may be given the same number. So numbers are drawn below the range from which Linux and
macOS take the ports of outgoing connections, and tried.
"""

from __future__ import annotations

import random
import socket

LOOPBACK = "127.0.0.1"
_FIRST, _LAST = 15_000, 31_999


def free_port() -> int:
    """A port on loopback that nobody listens on now. Kept apart from those drawn before only by chance."""
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
