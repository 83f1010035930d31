"""A tiny blocking client for tests that choose the versions they send, or the bytes on the wire.

`call`, `send_requests` and `answer` are for whole requests, in any version, served or not. `send` and `read_frame` are
for the bytes below that: frames, halves of frames, garbage.
"""

from __future__ import annotations

import socket
from types import TracebackType
from typing import Any, Final, Self

from kwire_protocol.conversation import Conversation, encode_request
from kwire_protocol.conversation import decode_reply as decoded_reply
from kwire_protocol.frames import ReplyBuffer
from kwire_protocol.wire import ApiMessage

from kwire.client.transport import connect_plain_text, parse_addresses

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
    def __init__(self, address: str, *, timeout_s: float = 30.0, client_id: str = "raw") -> None:
        (to,) = parse_addresses(address)
        self.sock = connect_plain_text(to, timeout_s)
        self._conversation = Conversation(client_id=client_id, max_reply_bytes=MAX_REPLY_BYTES, max_in_flight=1000)
        self._frames = ReplyBuffer(MAX_REPLY_BYTES)

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
        """Shuts down the sending side of the socket."""
        try:
            self.sock.shutdown(socket.SHUT_WR)
        except OSError as error:
            raise ConnectionClosed from error

    def read_frame(self) -> memoryview:
        """The next reply without its size. Raises ConnectionClosed, or TimeoutError when nothing comes."""
        while (frame := self._frames.next_frame()) is None:
            self._frames.received(self._receive(self._frames.writable()))
        return frame

    def receive(self, size: int) -> None:
        """Waits for something, and takes up to `size` bytes of it, for a later `answer`."""
        self._conversation.received(self._receive(self._conversation.writable()[:size]))

    def send_requests(self, *requests: tuple[ApiMessage, int]) -> None:
        """Sends requests, each with its version, in one piece."""
        for request, version in requests:
            self._conversation.send(request, version)
        self.send(b"".join(self._conversation.data_to_send()))

    def answer(self) -> Any:
        """The answer to the first request of `send_requests` that has had none."""
        while (reply := self._conversation.next_reply()) is None:
            self._conversation.received(self._receive(self._conversation.writable()))
        return reply.message

    def call(self, request: ApiMessage, version: int) -> Any:
        """The answer to `request`."""
        self.send_requests((request, version))
        return self.answer()

    def is_closed_by_peer(self) -> bool:
        """Waits for the broker to hang up; False if it sends something instead."""
        try:
            return self.sock.recv(1) == b""
        except ConnectionResetError:
            return True

    def _receive(self, room: memoryview) -> int:
        try:
            count = self.sock.recv_into(room)
        except ConnectionResetError as error:
            raise ConnectionClosed from error
        if not count:
            raise ConnectionClosed
        return count
