"""A server of keys for tests, in a thread: it sends the bytes of the test, and then perhaps nothing."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

import attrs

LOOPBACK: Final = "127.0.0.1"


def response(body: bytes, status: str = "200 OK", headers: str = "") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{headers}\r\n".encode() + body


@attrs.define(eq=False)
class KeyServer:
    """A server. `answers` are sent one for each connection, the last one again and again. `requests` are those
    received.
    """

    port: int
    answers: list[bytes]
    closes: bool
    """True if it closes a connection after the answer; otherwise it waits until the client does."""
    requests: list[bytes] = attrs.Factory(list)
    request_received: threading.Semaphore = attrs.Factory(lambda: threading.Semaphore(0))

    def url(self, scheme: str = "http", path: str = "/keys?format=jwks") -> str:
        return f"{scheme}://localhost:{self.port}{path}"


@contextmanager
def key_server(*answers: bytes, closes: bool = True, context: ssl.SSLContext | None = None) -> Iterator[KeyServer]:
    with socket.create_server((LOOPBACK, 0)) as listener:
        server = KeyServer(listener.getsockname()[1], list(answers), closes)
        thread = threading.Thread(target=_serve, args=(server, listener, context))
        thread.start()
        try:
            yield server
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def _serve(server: KeyServer, listener: socket.socket, context: ssl.SSLContext | None) -> None:
    while True:
        try:
            sock = listener.accept()[0]
        except OSError:
            return
        with suppress(OSError):
            if context is not None:
                sock = context.wrap_socket(sock, server_side=True)
            _answer(server, sock)
        sock.close()


def _answer(server: KeyServer, sock: socket.socket) -> None:
    request = b""
    while not request.endswith(b"\r\n\r\n"):
        data = sock.recv(4096)
        if not data:
            return
        request += data
    server.requests.append(request)
    server.request_received.release()
    sock.sendall(server.answers.pop(0) if len(server.answers) > 1 else server.answers[0])
    if not server.closes:
        while sock.recv(4096):
            pass
