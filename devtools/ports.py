"""Free TCP ports on loopback for servers that need their port before they start.

Binding port 0, closing the socket and reusing the number is a race: until the server binds it, any outgoing connection
may get the same number. So we give out numbers below the range that Linux and macOS use for outgoing connections.

No number is given out twice while a server may still need it, neither here nor by another process: the numbers are in
blocks, and a process holds a block by keeping the block's first port bound. The system lets go of it when the process
ends, in whatever way.
"""

from __future__ import annotations

import random
import socket
import threading
from collections import deque
from collections.abc import Iterable

LOOPBACK = "127.0.0.1"
BLOCK = 50
_BLOCKS = range(15_000, 32_000, BLOCK)
_MOST_HELD = 20
"""The maximum number of blocks of a process: a thousand ports. It leaves some for a dozen other processes, and no test
keeps a port for so long."""

_one_at_a_time = threading.Lock()
_held: set[int] = set()
"""The blocks of this process, by their first ports."""
_waiting: deque[int] = deque()


def free_port() -> int:
    """Returns an unused port on loopback.

    The same port is given out again only after a thousand others, or when every block is taken. Raises OSError if there
    is none.
    """
    with _one_at_a_time:
        for _ in range(len(_BLOCKS) * BLOCK):
            if not _waiting:
                _waiting.extend(_more())
            if _waiting and _bound(port := _waiting.popleft(), shared=True, hold=False):
                return port
    raise OSError(f"no free port between {_BLOCKS.start} and {_BLOCKS.stop}")


def _more() -> Iterable[int]:
    """The ports of one more block, or of all that we hold."""
    for first in random.sample(_BLOCKS, len(_BLOCKS)) if len(_held) < _MOST_HELD else ():
        if _bound(first, shared=False, hold=True):
            _held.add(first)
            return range(first + 1, first + BLOCK)
    return [port for first in _held for port in range(first + 1, first + BLOCK)]


def _bound(port: int, *, shared: bool, hold: bool) -> bool:
    """Returns True if we can bind `port`, and keeps it to the end of the process if `hold` is set.

    A port whose last connections are still ending can be bound with `shared`, as servers do.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, shared)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        if hold:
            probe.detach()
        return True
