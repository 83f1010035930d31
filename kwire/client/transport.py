"""The transports of a blocking connection to a broker: TCP, in plain text or encrypted."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from kwire_protocol.wire import Buffer

from kwire.client.errors import ConnectionFailed, InvalidAddress
from kwire.security.tls.settings import TlsError

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
"""Connects to an address within the timeout in seconds. Returns a connection that is ready for Kafka's requests. Raises
OSError or a ClientError."""


def connect_plain_text(address: Address, timeout_s: float) -> socket.socket:
    """Returns a TCP connection that sends data at once (TCP_NODELAY)."""
    connection = socket.create_connection(address, timeout=timeout_s)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


NewContext = Callable[[], "ssl.SSLContext"]
"""Returns the context of a connection, with the trusted authorities. A new one each time, because files may change."""


class TlsFailed(ConnectionFailed):
    """The two sides could not agree on TLS, or one does not trust the other."""

    may_pass = False


def connect_tls(new_context: NewContext) -> Connect:
    """A `Connect` over TLS."""

    def connect(address: Address, timeout_s: float) -> Transport:
        try:
            context = new_context()
        except TlsError as error:
            raise TlsFailed(str(error)) from None
        sock = connect_plain_text(address, timeout_s)
        try:
            return context.wrap_socket(sock, server_hostname=address[0])
        except OSError as error:
            raise tls_failure(address, error) from None
        finally:
            sock.close()  # does nothing if the TLS socket has taken it over

    return connect


def tls_failure(address: Address, error: OSError) -> OSError | TlsFailed:
    """Returns the error to raise for a failed handshake: TlsFailed, or `error` itself if the connection failed."""
    import ssl

    where = f"{address[0]}:{address[1]}"
    match error:
        case ssl.SSLCertVerificationError():
            return TlsFailed(f"the certificate of {where} is not trusted: {error.verify_message.rstrip('.')}")
        case ssl.SSLError(reason="WRONG_VERSION_NUMBER" | "HTTP_REQUEST" | "RECORD_LAYER_FAILURE"):
            return TlsFailed(f"{where} does not speak TLS: its listener is in plain text, or it is another server")
        case ssl.SSLError():
            return TlsFailed(f"no TLS with {where}: {(error.reason or str(error)).replace('_', ' ').lower()}")
        case _:
            return error


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
