"""Connections that come and go, more of them than the broker may have: idle ones, and those that stop in the middle.

They come in waves, and each stays for a short time. During a wave all clients wait for a connection; between two waves
those that have work to do get one.
"""

from __future__ import annotations

import errno
import random
import selectors
import socket
import struct
import time
from collections.abc import Callable
from contextlib import suppress

import attrs
from kwire_protocol.messages.api_versions import ApiVersionsRequest
from kwire_protocol.messages.metadata import MetadataRequest

from kwire.client.transport import parse_addresses
from testkit.everything_at_once.worker import Reporter
from testkit.raw.client import request_frame

_WAVE_S, _LULL_S = (0.5, 2.0), (0.5, 1.5)
_STAYS_S = (0.0, 1.0)
_POLL_S = 0.01
_MOST_PER_POLL = 40
_RESET = struct.pack("ii", 1, 0)
"""SO_LINGER: the end of the connection is a reset."""

_REQUEST = request_frame(ApiVersionsRequest(), 0)
_METADATA = request_frame(MetadataRequest(topics=None), 1)
# The bytes that each kind sends once connected. The broker answers whole requests, and waits for the rest of others.
_FIRST_BYTES: dict[str, bytes] = {
    "idle": b"",
    "half a size": _REQUEST[:2],
    "half a request": _REQUEST[: len(_REQUEST) // 2],
    "a long request that does not come": (1 << 20).to_bytes(4, "big") + bytes(100),
    "a request": _REQUEST,
    "a request and a half": _REQUEST + _METADATA[:-3],
    "requests whose answers it leaves": _METADATA * 20,
}


@attrs.frozen
class Order:
    bootstrap: str
    most: int
    """The number of connections that are open, or wait to be, at a time."""
    seed: int

    def __call__(self, reporter: Reporter) -> PassersBy:
        return PassersBy(self, reporter)


@attrs.define(eq=False)
class _Connection:
    sock: socket.socket
    kind: str
    leaves_s: float
    is_connected: bool = False
    is_answered: bool = False


@attrs.define(eq=False)
class PassersBy:
    order: Order
    reporter: Reporter
    _random: random.Random = attrs.field(init=False)
    _address: tuple[str, int] = attrs.field(init=False)
    _open: set[_Connection] = attrs.field(factory=set)
    _selector: selectors.BaseSelector = attrs.field(factory=selectors.DefaultSelector)

    def __attrs_post_init__(self) -> None:
        self._random = random.Random(self.order.seed)
        (self._address,) = parse_addresses(self.order.bootstrap)

    def step(self) -> None:
        """A wave, and the time until the next one."""
        wave_ends_s = time.monotonic() + self._random.uniform(*_WAVE_S)
        self._poll_until(wave_ends_s, self._let_come)
        self._poll_until(time.monotonic() + self._random.uniform(*_LULL_S), lambda: None)

    def _poll_until(self, end_s: float, do: Callable[[], None]) -> None:
        while time.monotonic() < end_s and not self.reporter.is_stopped:
            do()
            for key, _ in self._selector.select(_POLL_S):
                self._check_connection(key.data)
            now = time.monotonic()
            for connection in [it for it in self._open if it.leaves_s <= now]:
                self._end(connection)

    def _let_come(self) -> None:
        for _ in range(min(self.order.most - len(self._open), self._random.randrange(1, _MOST_PER_POLL))):
            self._begin()

    def _begin(self) -> None:
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        sock.setblocking(False)
        began = sock.connect_ex(self._address)
        if began not in (0, errno.EINPROGRESS):
            sock.close()
            return
        kind = self._random.choice(list(_FIRST_BYTES))
        connection = _Connection(sock, kind, time.monotonic() + self._random.uniform(*_STAYS_S))
        self._open.add(connection)
        self._selector.register(sock, selectors.EVENT_WRITE, connection)

    def _check_connection(self, connection: _Connection) -> None:
        sock = connection.sock
        try:
            if not connection.is_connected:
                failed = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                if failed:
                    raise OSError(failed, "not connected")
                connection.is_connected = True
                sock.send(_FIRST_BYTES[connection.kind])
                self._selector.modify(sock, selectors.EVENT_READ, connection)
            elif not sock.recv(1 << 16):
                raise ConnectionResetError
            else:
                connection.is_answered = True
                if connection.kind == "requests whose answers it leaves":
                    self._selector.unregister(sock)
        except BlockingIOError:
            pass
        except OSError:
            self._end(connection)  # while the broker is away, or is killed

    def _end(self, connection: _Connection) -> None:
        self._open.remove(connection)
        with suppress(KeyError):
            self._selector.unregister(connection.sock)
        if self._random.random() < 0.3:
            connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        connection.sock.close()
        if connection.is_answered:
            self.reporter.count("passers-by who were answered")
        elif connection.is_connected:
            self.reporter.count("passers-by who were not answered")

    def settle(self) -> None:
        for connection in list(self._open):
            self._end(connection)

    def judge(self) -> None:
        pass

    def leave(self) -> None:
        pass

    def close(self) -> None:
        self.settle()
        self._selector.close()
