"""How bytes reach a broker: plain TCP. What speaks TLS, or logs in by SASL first, will be another `Connect`."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Protocol

from kwire_protocol.wire import Buffer

from kwire.client.errors import InvalidAddress

Address = tuple[str, int]


class Transport(Protocol):
    """What of a socket the client uses. Each of them raises OSError, and TimeoutError when it took too long."""

    def settimeout(self, value: float | None, /) -> None:
        """Seconds that the next `sendall` or `recv_into` may take."""

    def sendall(self, data: Buffer, /) -> None: ...

    def recv_into(self, buffer: memoryview, /) -> int:
        """How many bytes came; 0 when the peer has closed the connection."""
        ...

    def close(self) -> None: ...


Connect = Callable[[Address, float], Transport]
"""Address and seconds to a connection that is ready for Kafka's requests. Raises OSError or a ClientError."""


def connect_plain_text(address: Address, timeout_s: float) -> socket.socket:
    """A TCP connection that sends what it is given at once."""
    connection = socket.create_connection(address, timeout=timeout_s)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def parse_addresses(text: str) -> list[Address]:
    """HOST:PORT, or several with commas; an IPv6 address in brackets. Raises InvalidAddress."""
    addresses = []
    for part in text.split(","):
        host, _, port = part.strip().rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 1 << 16:
            raise InvalidAddress(f"{part.strip()!r} is not HOST:PORT, such as 127.0.0.1:9092")
        addresses.append((host, int(port)))
    return addresses
