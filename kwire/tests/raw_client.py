"""A tiny blocking client for tests that must say exactly which bytes go over the wire.

Whole requests go through the generated messages; everything below that (frames, halves of frames, garbage) is bytes.
"""

from __future__ import annotations

import socket
from types import TracebackType
from typing import Any, Self

from kwire_protocol.headers import RequestHeader, read_response_header, write_request_header
from kwire_protocol.messages import APIS
from kwire_protocol.wire import ApiMessage, Reader, Writer

MAX_REPLY_BYTES = 256 * 1024 * 1024


class ConnectionClosed(Exception):
    """The broker hung up."""


def framed(body: bytes | bytearray) -> bytes:
    return len(body).to_bytes(4, "big") + body


def request_frame(
    request: ApiMessage,
    version: int,
    *,
    correlation_id: int = 1,
    client_id: str | None = "raw",
    size: int | None = None,
) -> bytes:
    """A request with its header, and its size in front."""
    writer = Writer()
    write_request_header(writer, RequestHeader(request.api_key, version, correlation_id, client_id))
    request.write(writer, version)
    return framed(writer.getvalue())


def decoded_reply(reply: bytes, api_key: int, version: int) -> tuple[int, Any]:
    """Correlation id and message; every byte of the reply must belong to it."""
    reader = Reader(memoryview(reply))
    correlation_id = read_response_header(reader, api_key, version)
    message = APIS[api_key].response_class.read(reader, version)
    assert reader.remaining == 0, f"{reader.remaining} bytes behind {message!r}"
    return correlation_id, message


class RawClient:
    def __init__(self, address: str, *, timeout_s: float = 30.0) -> None:
        host, _, port = address.rpartition(":")
        self.sock = socket.create_connection((host, int(port)), timeout=timeout_s)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = bytearray()
        self._correlation_id = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self.sock.close()

    def send(self, data: bytes | bytearray) -> None:
        try:
            self.sock.sendall(data)
        except (BrokenPipeError, ConnectionResetError) as error:
            raise ConnectionClosed from error

    def end(self) -> None:
        """Tells the broker that nothing more will come."""
        try:
            self.sock.shutdown(socket.SHUT_WR)
        except OSError as error:
            raise ConnectionClosed from error

    def read_frame(self) -> bytes:
        """The next reply without its size. Raises ConnectionClosed, or TimeoutError when nothing comes."""
        size = int.from_bytes(self._take(4), "big", signed=True)
        assert 4 <= size <= MAX_REPLY_BYTES, f"a reply of {size} bytes"
        return self._take(size)

    def receive(self, size: int) -> None:
        """Waits for something, and takes up to `size` bytes of it, for a later `read_frame`."""
        try:
            data = self.sock.recv(size)
        except ConnectionResetError as error:
            raise ConnectionClosed from error
        if not data:
            raise ConnectionClosed
        self._received += data

    def _take(self, size: int) -> bytes:
        received = self._received
        while len(received) < size:
            self.receive(1 << 16)
        taken = bytes(received[:size])
        del received[:size]
        return taken

    def call(self, request: ApiMessage, version: int) -> Any:
        """The answer to `request`."""
        self._correlation_id += 1
        self.send(request_frame(request, version, correlation_id=self._correlation_id))
        correlation_id, response = decoded_reply(self.read_frame(), request.api_key, version)
        assert correlation_id == self._correlation_id
        return response

    def is_closed_by_peer(self) -> bool:
        """Waits for the broker to hang up; False if it says something instead."""
        try:
            return self.sock.recv(1) == b""
        except ConnectionResetError:
            return True
