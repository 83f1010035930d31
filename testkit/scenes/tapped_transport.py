"""A transport that hands on what it likes: bytes cut anywhere, sockets that are full at any moment, no sendfile."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Iterator
from itertools import cycle

from kwire.runtime.transport import Bytes, PlainTransport
from kwire.security.principal import ANONYMOUS

NO_LIMIT = 1 << 30


class TappedTransport:
    """A transport that receives and sends at most its sizes at once, one after the other; at a 0 it has to wait."""

    handshake: Callable[[], int] | None = None
    has_more: Callable[[], bool] | None = None
    principal = ANONYMOUS

    def __init__(self, sock: socket.socket, receives: Iterable[int], sends: Iterable[int]) -> None:
        self.sock = sock
        self.send_file: Callable[[int, int, int], int] | None = None
        self.received = bytearray()
        self.sent = bytearray()
        self._plain = PlainTransport(sock)
        self._receives: Iterator[int] = cycle(receives)
        self._sends: Iterator[int] = cycle(sends)

    def recv_into(self, room: memoryview, /) -> int:
        size = next(self._receives)
        if not size:
            raise BlockingIOError
        count = self._plain.recv_into(room[:size])
        self.received += room[:count]
        return count

    def send(self, data: Bytes, flags: int, /) -> int:
        size = next(self._sends)
        if not size:
            raise BlockingIOError
        count = self._plain.send(memoryview(data)[:size], flags)
        self.sent += data[:count]
        return count

    def close(self) -> None:
        self._plain.close()


def tap(
    taps: list[TappedTransport], *, receives: Iterable[int] = (NO_LIMIT,), sends: Iterable[int] = (NO_LIMIT,)
) -> Callable[[socket.socket], TappedTransport]:
    """Returns a function for `Server.new_transport`: the transports that it makes are added to `taps`."""

    def new_transport(sock: socket.socket) -> TappedTransport:
        taps.append(TappedTransport(sock, receives, sends))
        return taps[-1]

    return new_transport
