"""Connections that come and go, against a peer that answers each in its own way."""

from __future__ import annotations

import select
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest
from kwire_protocol.errors import ErrorCode
from kwire_protocol.headers import read_request_header, response_head
from kwire_protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from kwire_protocol.messages.sasl_handshake import SaslHandshakeResponse
from kwire_protocol.wire import ApiMessage, Reader, Writer

from benchmarks.load.answers import BadAnswer
from benchmarks.load.requests import VERSIONS
from benchmarks.load.visits import LOOK_EVERY, NewVisit, ScramVisit, Visit, Visitors, plain_visit
from benchmarks.machine import Cores, Meter
from kwire.security.sasl.exchange import AuthenticationFailed
from kwire.security.sasl.scram import SCRAM_SHA_256, Scram, ScramCredential, credential_of_password

Serve = Callable[[Callable[[], bytes], Callable[[bytes], None]], None]
"""Is given what reads a request, which is empty when there is none, and what sends an answer."""


@contextmanager
def peer(serve: Serve, new_visit: NewVisit, *, at_once: int) -> Iterator[tuple[Visitors, list[int]]]:
    """The list has as many entries as there were connections."""
    came: list[int] = []

    def accept(listener: socket.socket) -> None:
        with suppress(OSError):  # it is closed in the end
            while True:
                sock, address = listener.accept()
                came.append(address[1])
                with sock, sock.makefile("rb") as stream:
                    serve(lambda: stream.read(int.from_bytes(stream.read(4), "big")), sock.sendall)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=accept, args=[listener])
        thread.start()
        visitors = Visitors(listener.getsockname()[1], new_visit, at_once=at_once)
        try:
            yield visitors, came
        finally:
            visitors.close()
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def framed(answer: ApiMessage) -> bytes:
    writer = Writer()
    version = VERSIONS[answer.api_key]
    writer.begin_frame(response_head(answer.api_key, version, 0))
    answer.write(writer, version)
    answer_bytes = writer.getvalue()[4:]
    return len(answer_bytes).to_bytes(4, "big") + answer_bytes


def shout(sock: socket.socket) -> Visit:
    with sock:
        sock.send(bytes([0, 0, 0, 1, 42]))
        yield select.EPOLLIN
        assert sock.recv(1) == b"*"


def echo(read: Callable[[], bytes], send: Callable[[bytes], None]) -> None:
    send(read())


def test_for_each_that_goes_comes_another() -> None:
    answers = iter([False, False, True])
    with peer(echo, shout, at_once=4) as (visitors, came):
        visitors.run(lambda: next(answers))
    assert len(came) == LOOK_EVERY * 2 + 3  # the others of the last four were there already


def test_none_comes_when_all_is_done() -> None:
    with peer(echo, shout, at_once=4) as (visitors, came):
        visitors.run(lambda: True)
    assert came == []


def test_what_is_measured_are_visits_after_the_lead() -> None:
    with peer(echo, shout, at_once=2) as (visitors, came):
        visited = visitors.measure(Meter([], Cores()), lead_s=0.0, run_s=0.0)
    assert len(came) == LOOK_EVERY + 1
    assert visited.visits == len(visited.latencies_ns) == LOOK_EVERY


def test_a_peer_that_hangs_up_is_noticed() -> None:
    with (
        peer(lambda read, send: None, plain_visit, at_once=1) as (visitors, _),
        pytest.raises((BadAnswer, ConnectionError)),
    ):
        visitors.once()


def login_with(password: str) -> Serve:
    """Serves logins of ann, who has that password."""
    credential = credential_of_password(SCRAM_SHA_256, password, salt=b"salt")

    def find(name: str, *, is_token: bool) -> ScramCredential | None:
        return credential if name == "ann" and not is_token else None

    scram = Scram(SCRAM_SHA_256, find, secret=bytes(32), new_nonce=lambda: "more")

    def serve(read: Callable[[], bytes], send: Callable[[bytes], None]) -> None:
        read()
        send(framed(SaslHandshakeResponse(0, [SCRAM_SHA_256.name])))
        exchange = scram.begin()
        while request := read():
            reader = Reader(request)
            version = read_request_header(reader).api_version
            data = SaslAuthenticateRequest.read(reader, version).auth_bytes
            try:
                answer = exchange.respond(data, now_ms=0)
            except AuthenticationFailed:
                send(framed(SaslAuthenticateResponse(ErrorCode.SASL_AUTHENTICATION_FAILED, "wrong")))
            else:
                send(framed(SaslAuthenticateResponse(auth_bytes=answer.data)))

    return serve


def test_a_user_logs_in() -> None:
    with peer(login_with("secret"), ScramVisit("ann", "secret"), at_once=3) as (visitors, came):
        visitors.once()
    assert len(came) == 3


@pytest.mark.parametrize(("user", "password"), [("ann", "another"), ("bob", "secret")])
def test_a_login_that_fails_is_noticed(user: str, password: str) -> None:
    with (
        peer(login_with("secret"), ScramVisit(user, password), at_once=1) as (visitors, _),
        pytest.raises(BadAnswer, match="SaslAuthenticate: 58 wrong"),
    ):
        visitors.once()
