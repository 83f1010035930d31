"""A tiny blocking client for tests that must say exactly which bytes go over the wire.

Whole requests go through the generated messages; everything below that (frames, halves of frames, garbage) is bytes.
"""

from __future__ import annotations

import socket
from types import TracebackType
from typing import Any, Final, Self

from kwire_protocol.conversation import decode_reply as decoded_reply
from kwire_protocol.conversation import encode_request
from kwire_protocol.frames import ReplyBuffer
from kwire_protocol.wire import ApiMessage

from kwire.client.transport import connect_plain_text, parse_addresses, receive_frame

MAX_REPLY_BYTES: Final = 256 * 1024 * 1024

__all__ = ["ConnectionClosed", "RawClient", "decoded_reply", "framed", "request_frame"]


class ConnectionClosed(Exception):
    """The broker hung up."""


def framed(body: bytes | bytearray) -> bytes:
    return len(body).to_bytes(4, "big") + body


def request_frame(
    request: ApiMessage, version: int, *, correlation_id: int = 1, client_id: str | None = "raw"
) -> bytes:
    """A request with its header, and its size in front."""
    return encode_request(request, version, correlation_id=correlation_id, client_id=client_id)


class RawClient:
    def __init__(self, address: str, *, timeout_s: float = 30.0) -> None:
        (to,) = parse_addresses(address)
        self.sock = connect_plain_text(to, timeout_s)
        self._received = ReplyBuffer(MAX_REPLY_BYTES)
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

    def read_frame(self) -> memoryview:
        """The next reply without its size. Raises ConnectionClosed, or TimeoutError when nothing comes."""
        try:
            return receive_frame(self.sock, self._received)
        except ConnectionResetError as error:
            raise ConnectionClosed from error

    def receive(self, size: int) -> None:
        """Waits for something, and takes up to `size` bytes of it, for a later `read_frame`."""
        try:
            count = self.sock.recv_into(self._received.writable()[:size])
        except ConnectionResetError as error:
            raise ConnectionClosed from error
        if not count:
            raise ConnectionClosed
        self._received.received(count)

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
