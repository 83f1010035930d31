"""Nodes of a cluster on ZooKeeper, for tests; and a process that is one until it is killed.

python -m kwire.tests.cluster.zookeeper.nodes CONNECT NODE_ID
"""

from __future__ import annotations

import socket
import sys
import threading
from contextlib import suppress

from kwire.clock import SystemClock
from kwire.cluster.zookeeper.node import ZooKeeperNode
from kwire.config.listeners import Listener
from kwire.config.server import load_config
from kwire.config.zookeeper import ZooKeeperConfig

SESSION_TIMEOUT_MS = 2000


def zookeeper_config(connect: str, **settings: object) -> ZooKeeperConfig:
    """`settings` by their names, with underscores for dots."""
    named = {
        "zookeeper.connect": connect,
        "zookeeper.session.timeout.ms": SESSION_TIMEOUT_MS,
        # A machine with other things to do may take a while.
        "zookeeper.connection.timeout.ms": 20_000,
        **{name.replace("_", "."): value for name, value in settings.items()},
    }
    config = load_config(settings=[f"{name}={value}" for name, value in named.items()]).zookeeper
    assert config is not None
    return config


def join(
    config: ZooKeeperConfig, node_id: int, host: str = "127.0.0.1", *, cluster_id: str | None = None
) -> ZooKeeperNode:
    endpoints = [Listener("PLAINTEXT", host, 9092 + node_id), Listener("OUT", host, 19092 + node_id, "SSL")]
    return ZooKeeperNode.join(config, node_id, endpoints, clock=SystemClock(), rack="r", cluster_id=cluster_id)


class Proxy:
    """A connection to ZooKeeper that can be cut: then nothing gets through until it is healed."""

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets: list[socket.socket] = []
        self._is_cut = False
        self._loses: tuple[int, bool] | None = None
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._listener.getsockname()[1]}"

    def cut(self) -> None:
        with self._lock:
            self._is_cut = True
            sockets, self._sockets = self._sockets, []
        for it in sockets:
            with suppress(OSError):
                it.shutdown(socket.SHUT_RDWR)

    def heal(self) -> None:
        with self._lock:
            self._is_cut = False

    def close(self) -> None:
        self.cut()
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
                far = socket.create_connection(self._target)
                self._sockets += [near, far]
            for pass_on, source, sink in ((self._ask, near, far), (self._answer, far, near)):
                threading.Thread(target=pass_on, args=(source, sink), daemon=True).start()

    def _ask(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while data := client.recv(1 << 20):
                loss = self._loss()
                if loss is not None:
                    # No answer comes back.
                    client.shutdown(socket.SHUT_RDWR)
                if loss is not False:
                    server.sendall(data)
                if loss is not None:
                    break
        _close(client, server)

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
            while data := server.recv(1 << 20):
                client.sendall(data)
        _close(server, client)


def _close(source: socket.socket, sink: socket.socket) -> None:
    """Each direction closes the socket that it reads from; the other one ends with that."""
    for it in (source, sink):
        with suppress(OSError):
            it.shutdown(socket.SHUT_RDWR)
    source.close()


if __name__ == "__main__":
    joined = join(zookeeper_config(sys.argv[1]), int(sys.argv[2]))
    sys.stdout.write("joined\n")
    sys.stdout.flush()
    sys.stdin.read()
