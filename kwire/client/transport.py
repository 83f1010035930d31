"""The transports of a blocking connection to a broker: TCP, in plain text or encrypted."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from kwire_protocol.wire import Buffer, ProtocolError

from kwire.client.errors import InvalidAddress

if TYPE_CHECKING:
    import ssl

Address = tuple[str, int]


class Transport(Protocol):
    """The socket methods that the client uses. Each raises OSError, or TimeoutError if it took too long."""

    def settimeout(self, value: float | None, /) -> None:
        """Sets the timeout in seconds of the next `sendall` or `recv_into`."""

    def sendall(self, data: Buffer, /) -> None: ...

    def recv_into(self, buffer: memoryview, /) -> int:
        """Returns the number of bytes received; 0 if the peer has closed the connection."""
        ...

    def close(self) -> None: ...


Connect = Callable[[Address, float], Transport]
"""Connects to an address within the timeout in seconds. Returns a connection that is ready for Kafka's requests.

Raises OSError, ProtocolError (no TLS with the broker), TlsError (the settings cannot be used).
"""


def connect_plain_text(address: Address, timeout_s: float) -> socket.socket:
    """Returns a TCP connection that sends data at once (TCP_NODELAY)."""
    connection = socket.create_connection(address, timeout=timeout_s)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


NewContext = Callable[[], "ssl.SSLContext"]
"""Returns the context of a connection, with the trusted authorities. A new one each time, because files may change."""


def connect_tls(new_context: NewContext) -> Connect:
    """A `Connect` over TLS."""

    def connect(address: Address, timeout_s: float) -> Transport:
        # Here, so that a client in plain text does not load TLS.
        import ssl

        from kwire.security.tls.failures import why_tls_failed

        context = new_context()
        sock = connect_plain_text(address, timeout_s)
        try:
            return context.wrap_socket(sock, server_hostname=address[0])
        except ssl.SSLError as error:
            raise ProtocolError(why_tls_failed(error, server_side=False)) from None
        finally:
            sock.close()  # does nothing if the TLS socket has taken it over

    return connect


def parse_addresses(text: str) -> list[Address]:
    """Parses HOST:PORT, or several separated by commas; IPv6 addresses in brackets. Raises InvalidAddress."""
    addresses = []
    for part in text.split(","):
        host, _, port = part.strip().rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 1 << 16:
            raise InvalidAddress(f"{part.strip()!r} is not HOST:PORT, such as 127.0.0.1:9092")
        addresses.append((host, int(port)))
    return addresses
