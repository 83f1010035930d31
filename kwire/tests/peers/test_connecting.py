"""Connections between brokers, with and without TLS. Clients, whose threads block, get the same errors."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock

from kwire.client.async_connection import AsyncBrokerConnection
from kwire.client.connection import BrokerConnection
from kwire.client.errors import ConnectionFailed, TlsFailed
from kwire.client.security import ClientSecurity
from kwire.client.transport import Address, NewContext
from kwire.network.listener_security import ListenerSecurity
from kwire.peers.connecting import connect_with, over_streams
from kwire.runtime.tls_transport import TlsTransport
from kwire.security.tls.contexts import client_context, server_context
from kwire.security.tls.settings import TlsError
from testkit.raw.simple_requests import fetch, produce
from testkit.scenes.server_in_trio import ServerInTrio, with_server
from testkit.security.tls.certificates import HOST, client_settings, issued, server_settings, settings_of
from testkit.security.tls_scene import UNHURRIED

Serve = Callable[[socket.socket], None]


def trusting() -> ssl.SSLContext:
    return client_context(client_settings())


def trusting_the_newest_version() -> ssl.SSLContext:
    return client_context(attrs.evolve(client_settings(), enabled_protocols=("TLSv1.3",)))


@contextmanager
def listening(serve: Serve) -> Iterator[Address]:
    """Serves the connections, one after the other, in a thread."""
    with socket.create_server((HOST, 0)) as listener:

        def accept() -> None:
            while True:
                try:
                    sock, _ = listener.accept()
                except OSError:
                    return
                with sock, suppress(OSError):
                    serve(sock)

        thread = threading.Thread(target=accept)
        thread.start()
        try:
            yield HOST, listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def speak_tls(sock: socket.socket, host: str = HOST, by: str = "one", **changed: Any) -> None:
    settings = attrs.evolve(settings_of(issued(host, by=by)), **changed)
    with server_context(settings).wrap_socket(sock, server_side=True):
        pass


def speak_plain_text(sock: socket.socket) -> None:
    sock.recv(1)
    sock.sendall(b"\0\0\0\x04abcd")
    sock.recv(1 << 20)


def hang_up(sock: socket.socket) -> None:
    sock.recv(1 << 20)


def unusable() -> None:
    raise TlsError("ssl.keystore.location cannot be read")


def failure_of_a_thread(address: Address, security: ClientSecurity) -> ConnectionFailed:
    with pytest.raises(ConnectionFailed) as failed:
        BrokerConnection(address, connect=security.connect)
    return failed.value


def failure_of_a_task(address: Address, security: ClientSecurity) -> ConnectionFailed:
    with pytest.raises(ConnectionFailed) as failed:
        trio.run(partial(AsyncBrokerConnection.open, address, connect=over_streams(connect_with(security))))
    return failed.value


@pytest.mark.parametrize("failure", [failure_of_a_thread, failure_of_a_task])
@pytest.mark.parametrize(
    ("serve", "new_context", "message"),
    [
        (
            partial(speak_tls, by="two"),
            trusting,
            "no TLS with {}: its certificate is not accepted: unable to get local issuer certificate",
        ),
        (
            partial(speak_tls, host="a.test"),
            trusting,
            "no TLS with {}: its certificate is not accepted: IP address mismatch, certificate is not valid for "
            "'127.0.0.1'",
        ),
        (
            speak_plain_text,
            trusting,
            "no TLS with {}: it does not speak TLS: its listener is in plain text, or it is another server",
        ),
        (
            partial(speak_tls, enabled_protocols=("TLSv1.2",)),
            trusting_the_newest_version,
            "no TLS with {}: it has no version of TLS in common with us: see ssl.enabled.protocols",
        ),
        (hang_up, unusable, "ssl.keystore.location cannot be read"),
    ],
    ids=["stranger", "another host", "plain text", "old version", "unusable settings"],
)
def test_the_error_names_why_there_is_no_tls(
    failure: Callable[[Address, ClientSecurity], ConnectionFailed], serve: Serve, new_context: NewContext, message: str
) -> None:
    with listening(serve) as address:
        failed = failure(address, ClientSecurity(new_context))
    assert (type(failed), failed.message) == (TlsFailed, message.format(f"{address[0]}:{address[1]}"))
    assert not failed.may_pass


@pytest.mark.parametrize("failure", [failure_of_a_thread, failure_of_a_task])
def test_a_broker_that_is_not_there_cannot_be_reached(
    failure: Callable[[Address, ClientSecurity], ConnectionFailed],
) -> None:
    with listening(hang_up) as address:
        pass
    failed = failure(address, ClientSecurity(trusting))
    message = f"cannot reach {address[0]}:{address[1]}: Connection refused"
    assert (type(failed), failed.message) == (ConnectionFailed, message)


def test_a_handshake_that_takes_too_long_is_left() -> None:
    hung_up = threading.Event()

    def be_silent(sock: socket.socket) -> None:
        while sock.recv(1 << 20):
            pass
        hung_up.set()

    async def main(address: Address) -> None:
        connect = over_streams(connect_with(ClientSecurity(trusting)))
        with pytest.raises(ConnectionFailed, match=r"cannot reach .*: it timed out"):
            await AsyncBrokerConnection.open(address, 5, connect=connect)

    with listening(be_silent) as address:
        trio.run(main, address, clock=MockClock(autojump_threshold=0))
        assert hung_up.wait(30)


def test_large_requests_and_answers_arrive_whole_over_tls() -> None:
    values = [bytes([65 + number]) * 900_000 for number in range(4)]

    async def scenario(server: ServerInTrio) -> None:
        context = server_context(server_settings())
        server.server.securities = {"PLAINTEXT": ListenerSecurity(lambda sock: TlsTransport(sock, context))}
        address = HOST, server.server.listeners[0].port
        connect = over_streams(connect_with(ClientSecurity(trusting)))
        async with await AsyncBrokerConnection.open(address, 1e9, connect=connect) as connection:
            for value in values:
                await connection.call(produce(value), at_most=12)
            answer = await connection.call(fetch(0, max_bytes=1 << 23), at_most=12)
            records = bytes(answer.responses[0].partitions[0].records)
        assert [value in records for value in values] == [True] * 4

    with_server(scenario, settings=UNHURRIED)
