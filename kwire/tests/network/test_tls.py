"""A listener with TLS beside its clients: the same answers, handshakes that are never finished, slow readers."""

from __future__ import annotations

import logging
import ssl
import tracemalloc
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio
from kwire_protocol.messages.api_versions import ApiVersionsRequest
from kwire_storage.disk.files import RealDisk
from trio.testing import wait_all_tasks_blocked

from kwire.network.listener_security import ListenerSecurity
from kwire.runtime.tls_transport import TlsTransport
from kwire.runtime.transport import PlainTransport
from kwire.security.tls.contexts import server_context
from kwire.security.tls.settings import TlsSettings
from testkit.raw.simple_requests import fetch, list_end
from testkit.scenes.filling import MIB, fill
from testkit.scenes.server_in_trio import ServerInTrio, TrioClient, with_server
from testkit.scenes.transport_scene import REQUEST_BYTES, REQUESTS, answers_through, produce_some
from testkit.security.tls.certificates import HOST, server_settings
from testkit.security.tls_scene import CONTEXT, UNHURRIED, connect

AUTHENTICATION_TIMEOUT_S = 30


def secure(kwire: ServerInTrio, settings: TlsSettings | None = None) -> None:
    """Gives TLS to the server's only listener."""
    context = server_context(settings or server_settings())
    security = ListenerSecurity(lambda sock: TlsTransport(sock, context))
    kwire.server.securities = {"PLAINTEXT": security}


def test_answers_are_the_same_however_the_encrypted_bytes_are_cut(tmp_path: Path) -> None:
    async def scenario(kwire: ServerInTrio) -> None:
        await produce_some(kwire)
        expected = await answers_through(kwire, PlainTransport)
        secure(kwire)
        for sizes in ((1 << 20,), (1,), (5, 1000), (7, 2, 300)):
            client = await connect(kwire, sizes)
            await client.stream.send_all(REQUEST_BYTES)
            frames = [await client.read_frame() for _ in REQUESTS]
            assert b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames) == expected
            await client.hang_up()
            await wait_all_tasks_blocked()
            assert kwire.connections == 0

    with_server(scenario, settings=UNHURRIED, disks={"/data": RealDisk(tmp_path)})


def test_requests_in_one_record_that_do_not_fit_into_a_turn_are_all_answered() -> None:
    async def scenario(kwire: ServerInTrio) -> None:
        secure(kwire)
        client = await connect(kwire)
        await client.send(*[(list_end(), 6)] * 99)
        for index in range(99):
            assert (await client.read(2, 6))[0] == index
        await kwire.assert_sleeps()

    with_server(scenario, settings=UNHURRIED)


def test_a_fetch_that_nobody_reads_keeps_no_more_than_a_piece_of_it_in_memory(tmp_path: Path) -> None:
    async def scenario(kwire: ServerInTrio) -> None:
        await fill(kwire, 32)
        secure(kwire)
        client = await connect(kwire, receive_buffer_bytes=1 << 16)
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            await client.send((fetch(0), 12), (list_end(), 6))
            await wait_all_tasks_blocked()
            await kwire.assert_sleeps()
            now, most = tracemalloc.get_traced_memory()
            assert now - before < MIB // 2
            assert most - before < MIB
        finally:
            tracemalloc.stop()
        answer = (await client.read(1, 12))[1]
        assert len(answer.responses[0].partitions[0].records) > 30 * MIB
        assert (await client.read(2, 6))[0] == 1

    with_server(scenario, settings=UNHURRIED, disks={"/data": RealDisk(tmp_path)})


def test_a_client_that_is_killed_while_its_reply_is_being_sent_leaves_nothing_behind() -> None:
    async def scenario(kwire: ServerInTrio) -> None:
        await fill(kwire, 8)
        secure(kwire)
        plain = await kwire.connect(receive_buffer_bytes=4096)
        encrypted = trio.SSLStream(plain.stream, CONTEXT, server_hostname=HOST, https_compatible=True)
        client = TrioClient(encrypted)  # type: ignore[arg-type]
        await client.send((fetch(0), 12))
        await wait_all_tasks_blocked()
        assert kwire.connections == 1
        await plain.reset()
        await wait_all_tasks_blocked()
        assert kwire.connections == 0

    with_server(scenario, settings=UNHURRIED)


def first_words() -> bytes:
    """Returns a ClientHello."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        CONTEXT.wrap_bio(incoming, outgoing, server_hostname=HOST).do_handshake()
    return outgoing.read()


@pytest.mark.parametrize("size", [0, 1, 5, 50, -1])
def test_a_handshake_that_is_not_finished_in_time_ends_the_connection(
    size: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(kwire: ServerInTrio) -> None:
        secure(kwire)
        client = await kwire.connect()
        await client.stream.send_all(first_words()[:size])
        await trio.sleep(AUTHENTICATION_TIMEOUT_S - 1)
        assert kwire.connections == 1
        await kwire.assert_sleeps()
        await trio.sleep(1)
        assert kwire.connections == 0

    with_server(scenario)
    assert [it.getMessage().partition(": ")[2] for it in caplog.records if it.levelno >= logging.WARNING] == [
        "not authenticated within kwire.authentication.timeout.ms"
    ]


@pytest.mark.parametrize("leaves", [TrioClient.hang_up, TrioClient.reset])
@pytest.mark.parametrize("size", [0, 50, -1])
def test_a_client_that_disconnects_during_the_handshake_is_not_logged(
    leaves: Callable[[TrioClient], Awaitable[None]], size: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(kwire: ServerInTrio) -> None:
        secure(kwire)
        client = await kwire.connect()
        await client.stream.send_all(first_words()[:size])
        await wait_all_tasks_blocked()
        assert kwire.connections == 1
        await leaves(client)
        await wait_all_tasks_blocked()
        assert kwire.connections == 0

    with_server(scenario, settings=UNHURRIED)
    assert not [it for it in caplog.records if it.levelno >= logging.WARNING]


def test_a_finished_handshake_has_all_the_time_in_the_world() -> None:
    async def scenario(kwire: ServerInTrio) -> None:
        secure(kwire)
        client = await connect(kwire)
        await trio.sleep(2 * AUTHENTICATION_TIMEOUT_S)
        assert (await client.call(ApiVersionsRequest("tests", "1"), 4)).error_code == 0

    with_server(scenario)


async def send_to_plain_text(kwire: ServerInTrio) -> None:
    client = await kwire.connect()
    await client.stream.send_all(first_words())
    assert await client.is_at_end()


async def send_plain_text(kwire: ServerInTrio) -> None:
    secure(kwire)
    client = await kwire.connect()
    await client.stream.send_all(REQUEST_BYTES)
    await wait_all_tasks_blocked()
    assert kwire.connections == 0


@pytest.mark.parametrize(
    ("scenario", "reason"),
    [
        (send_to_plain_text, "it speaks TLS, and this listener does not"),
        (send_plain_text, "it does not speak TLS, but perhaps Kafka's protocol in plain text"),
    ],
)
def test_a_connection_to_the_wrong_listener_is_logged_in_one_line(
    scenario: Callable[[ServerInTrio], Awaitable[None]], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    with_server(scenario)
    (line,) = [it.getMessage() for it in caplog.records if it.levelno >= logging.WARNING]
    assert reason in line
    assert "\n" not in line
