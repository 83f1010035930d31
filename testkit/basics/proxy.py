"""A TCP connection that can be disturbed: a proxy between a client and a server.

proxy = Proxy("127.0.0.1:9092")   # clients connect to proxy.address
proxy.cut()                       # nothing gets through, until
proxy.heal()
"""

from __future__ import annotations

import socket
import threading
from contextlib import suppress


class Proxy:
    """Passes on what it is sent, in two threads for each connection."""

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets: list[socket.socket] = []
        self._is_cut = False
        self._ignores_next = False
        self._loses: tuple[int, bool] | None = None
        self._lock = threading.Lock()
        self._requests, self._answers = threading.Event(), threading.Event()
        """Set while they are delivered."""
        self.heal()
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def drop(self) -> None:
        """Ends all connections; new ones get through."""
        with self._lock:
            sockets, self._sockets = self._sockets, []
        for it in sockets:
            with suppress(OSError):
                it.shutdown(socket.SHUT_RDWR)

    def cut(self) -> None:
        """Ends all connections, and new ones at once, until `heal`."""
        with self._lock:
            self._is_cut = True
        self.drop()

    def stall(self, *, requests: bool = True, answers: bool = True) -> None:
        """Keeps and accepts connections, and delivers nothing in these directions until `heal`."""
        for gate, is_closed in ((self._requests, requests), (self._answers, answers)):
            if is_closed:
                gate.clear()

    def ignore_next(self) -> None:
        """Accepts the next connection, keeps it open, and never answers on it."""
        with self._lock:
            self._ignores_next = True

    def heal(self) -> None:
        with self._lock:
            self._is_cut = False
        self._requests.set()
        self._answers.set()

    def close(self) -> None:
        self.cut()
        self._requests.set()
        self._answers.set()
        # close() alone does not wake the thread that waits for connections.
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def lose(self, after: int, *, is_done: bool) -> None:
        """Ends the connection at the client's request of that number from now on, without an answer.

        With `is_done` the server gets the request.
        """
        with self._lock:
            self._loses = (after, is_done)

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                if self._is_cut:
                    near.close()
                    continue
                if self._ignores_next:
                    self._ignores_next = False
                    self._sockets.append(near)
                    threading.Thread(target=self._ignore, args=(near,), daemon=True).start()
                    continue
                try:
                    far = socket.create_connection(self._target)
                except OSError:  # the server does not run
                    near.close()
                    continue
                self._sockets += [near, far]
            for pass_on, source, sink in ((self._forward_requests, near, far), (self._answer, far, near)):
                threading.Thread(target=pass_on, args=(source, sink), daemon=True).start()

    def _ignore(self, client: socket.socket) -> None:
        with suppress(OSError):
            while client.recv(1 << 16):
                pass
        self._close(client, client)

    def _forward_requests(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while data := client.recv(1 << 16):
                self._requests.wait()
                loss = self._loss()
                if loss is not None:
                    # No answer comes back.
                    client.shutdown(socket.SHUT_RDWR)
                if loss is not False:
                    server.sendall(data)
                if loss is not None:
                    break
        self._requests.wait()
        self._close(client, server)

    def _loss(self) -> bool | None:
        """None: none; otherwise whether the server gets the request."""
        with self._lock:
            if self._loses is None:
                return None
            left, is_done = self._loses
            self._loses = (left - 1, is_done) if left else None
            return None if left else is_done

    def _answer(self, server: socket.socket, client: socket.socket) -> None:
        with suppress(OSError):
            while data := server.recv(1 << 16):
                self._answers.wait()
                client.sendall(data)
        self._answers.wait()
        self._close(server, client)

    def _close(self, source: socket.socket, sink: socket.socket) -> None:
        """Each direction closes the socket that it reads from; the other one ends with that."""
        for it in (source, sink):
            with suppress(OSError):
                it.shutdown(socket.SHUT_RDWR)
        source.close()
        with self._lock, suppress(ValueError):
            self._sockets.remove(source)
