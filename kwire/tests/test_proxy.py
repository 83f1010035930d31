"""The proxy that tests disturb connections with."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from testkit.basics.proxy import Proxy

SOON_S = 0.1
"""What does not come within this is taken not to come: only a test that should fail waits for less."""
PATIENCE_S = 30.0


def echo(listener: socket.socket) -> None:
    def answer(connection: socket.socket) -> None:
        with suppress(OSError), connection:
            while data := connection.recv(100):
                connection.sendall(data)

    with suppress(OSError):
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=answer, args=(connection,), daemon=True).start()


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=echo, args=(listener,), daemon=True).start()
        it = Proxy(f"127.0.0.1:{listener.getsockname()[1]}")
        yield it
        it.close()
        listener.shutdown(socket.SHUT_RDWR)


def connect(proxy: Proxy) -> socket.socket:
    return socket.create_connection(("127.0.0.1", proxy.port), timeout=PATIENCE_S)


def is_closed(client: socket.socket) -> bool:
    try:
        return client.recv(1) == b""
    except ConnectionError:
        return True


def has_nothing(client: socket.socket) -> bool:
    client.settimeout(SOON_S)
    try:
        client.recv(100)
    except TimeoutError:
        return True
    finally:
        client.settimeout(PATIENCE_S)
    return False


def test_it_passes_on_what_it_is_sent(proxy: Proxy) -> None:
    with connect(proxy) as client:
        client.sendall(b"a")
        assert client.recv(10) == b"a"


def test_a_drop_ends_connections_and_lets_new_ones_through(proxy: Proxy) -> None:
    with connect(proxy) as client:
        client.sendall(b"a")
        assert client.recv(10) == b"a"
        proxy.drop()
        assert is_closed(client)
    test_it_passes_on_what_it_is_sent(proxy)


def test_a_cut_ends_new_connections_too_until_it_is_healed(proxy: Proxy) -> None:
    proxy.cut()
    with connect(proxy) as client:
        assert is_closed(client)
    proxy.heal()
    test_it_passes_on_what_it_is_sent(proxy)


@pytest.mark.parametrize("directions", [{}, {"requests": False}, {"answers": False}])
def test_what_is_stalled_comes_when_it_is_healed(proxy: Proxy, directions: dict[str, bool]) -> None:
    proxy.stall(**directions)
    with connect(proxy) as client:
        client.sendall(b"a")
        assert has_nothing(client)
        proxy.heal()
        assert client.recv(10) == b"a"


def test_what_is_stalled_is_lost_if_the_connection_ends(proxy: Proxy) -> None:
    with connect(proxy) as client:
        client.sendall(b"a")
        assert client.recv(10) == b"a"
        proxy.stall(requests=False)
        client.sendall(b"b")
        assert has_nothing(client)
        proxy.drop()
        proxy.heal()
        assert is_closed(client)


def test_a_server_that_does_not_run_is_a_connection_that_ends(proxy: Proxy) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
    nowhere = Proxy(address)
    with connect(nowhere) as client:
        assert is_closed(client)
    nowhere.close()
