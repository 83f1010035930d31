"""How bytes reach a broker: plain TCP. TLS and SASL will be other implementations of `Connect`."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Protocol

from kwire_protocol.wire import Buffer

from kwire.client.errors import InvalidAddress

Address = tuple[str, int]


class Transport(Protocol):
    """The socket methods that the client uses. Each raises OSError, or TimeoutError if it took too long."""

    def settimeout(self, value: float | None, /) -> None:
        """The seconds that the next `sendall` or `recv_into` may take."""

    def sendall(self, data: Buffer, /) -> None: ...

    def recv_into(self, buffer: memoryview, /) -> int:
        """Returns the number of bytes received; 0 if the peer has closed the connection."""
        ...

    def close(self) -> None: ...


Connect = Callable[[Address, float], Transport]
"""Address and seconds to a connection that is ready for Kafka's requests. Raises OSError or a ClientError."""


def connect_plain_text(address: Address, timeout_s: float) -> socket.socket:
    """A TCP connection that sends data at once (TCP_NODELAY)."""
    connection = socket.create_connection(address, timeout=timeout_s)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def parse_addresses(text: str) -> list[Address]:
    """HOST:PORT, or several separated by commas; IPv6 addresses in brackets. Raises InvalidAddress."""
    addresses = []
    for part in text.split(","):
        host, _, port = part.strip().rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 1 << 16:
            raise InvalidAddress(f"{part.strip()!r} is not HOST:PORT, such as 127.0.0.1:9092")
        addresses.append((host, int(port)))
    return addresses
