"""Connections that come, do one thing and go: so many at once, and for each that goes comes another.

What a visit does is a generator that is given a connected socket, which does not block. It yields what it waits for
(EPOLLIN or EPOLLOUT), closes the socket, and raises BadAnswer when the broker does not answer as it should. Each ends
with a response, so the broker is known to have done all of it too.
"""

from __future__ import annotations

import secrets
import select
import socket
import ssl
import time
from array import array
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from functools import cache

import attrs
from kwire_protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from kwire_protocol.messages.sasl_handshake import SaslHandshakeRequest

from benchmarks.load.answers import BadAnswer, check_api_versions
from benchmarks.load.connection import LOOPBACK
from benchmarks.load.requests import api_versions, decode, encode
from benchmarks.load.tls import client_context
from benchmarks.machine import Meter, Usage
from kwire.security.sasl.scram import SCRAM_SHA_256, ScramClient, ScramMechanism

CONNECT_TIMEOUT_S = 60.0
STALL_S = 60.0
LOOK_EVERY = 64  # visits

_NONCE_BYTES = 18

Visit = Generator[int, None, None]
NewVisit = Callable[[socket.socket], Visit]


@attrs.frozen
class Visited:
    """The figures of a measurement. A latency is that of a visit, from before the connection is made."""

    usage: Usage
    visits: int
    latencies_ns: Sequence[int] = attrs.field(repr=False)


class Visitors:
    def __init__(self, port: int, new_visit: NewVisit, *, at_once: int) -> None:
        self._address = (LOOPBACK, port)
        self._new_visit = new_visit
        self._at_once = at_once
        self._epoll = select.epoll()
        self._here: dict[int, tuple[Visit, int]] = {}  # with the time when it came, by descriptor
        self._latencies_ns = array("q")

    def close(self) -> None:
        """Also the connections of those that are here because another one raised BadAnswer."""
        for visit, _ in self._here.values():
            visit.close()
        self._epoll.close()

    def once(self) -> None:
        """Makes as many visits as come at once, and no others."""
        self._come_and_go(lambda: False)

    def run(self, done: Callable[[], bool]) -> None:
        """Makes visits until `done`, which is called now and then, and all have gone."""
        goes_on, gone = not done(), 0

        def comes_again() -> bool:
            nonlocal goes_on, gone
            gone += 1
            if gone % LOOK_EVERY == 0:
                goes_on = goes_on and not done()
            return goes_on

        if goes_on:
            self._come_and_go(comes_again)

    def _come_and_go(self, comes_again: Callable[[], bool]) -> None:
        for _ in range(self._at_once):
            self._come()
        while self._here:
            events = self._epoll.poll(STALL_S)
            if not events:
                raise BadAnswer(f"no answer within {STALL_S:.0f} s")
            for descriptor, _ in events:
                if self._has_gone(descriptor) and comes_again():
                    self._come()

    def warm(self, meter: Meter, *, cpu_s: float, most_s: float) -> None:
        """Makes visits until the broker has used so much CPU, or so much time has passed."""
        start = meter.read()

        def is_warm() -> bool:
            usage = meter.since(start)
            return usage.cpu_s >= cpu_s or usage.seconds >= most_s

        self.run(is_warm)

    def measure(self, meter: Meter, *, lead_s: float, run_s: float) -> Visited:
        """Measures for `run_s` seconds or a little more, after `lead_s` seconds of the same load."""
        began_s = time.monotonic()
        start = meter.read()
        visited: Visited | None = None
        leads = True

        def is_measured() -> bool:
            nonlocal start, visited, leads
            now_s = time.monotonic()
            if leads and now_s >= began_s + lead_s:
                leads, start = False, meter.read()
                self._latencies_ns = array("q")
            elif not leads and now_s >= start.clock_s + run_s:
                usage = meter.since(start)
                visited = Visited(usage, len(self._latencies_ns), self._latencies_ns[:])
            return visited is not None

        self.run(is_measured)
        assert visited is not None
        return visited

    def _come(self) -> None:
        began_ns = time.perf_counter_ns()
        sock = socket.create_connection(self._address, timeout=CONNECT_TIMEOUT_S)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setblocking(False)
        descriptor = sock.fileno()
        visit = self._new_visit(sock)
        self._epoll.register(descriptor, next(visit))
        self._here[descriptor] = visit, began_ns

    def _has_gone(self, descriptor: int) -> bool:
        visit, began_ns = self._here[descriptor]
        try:
            self._epoll.modify(descriptor, next(visit))
        except StopIteration:  # it has closed the socket, and so left epoll
            del self._here[descriptor]
            self._latencies_ns.append(time.perf_counter_ns() - began_ns)
            return True
        return False


def plain_visit(sock: socket.socket) -> Visit:
    """Sends one ApiVersions."""
    with sock:
        yield from _greet(sock)


def tls_visit(sock: socket.socket) -> Visit:
    """A full handshake, one ApiVersions, and TLS's close_notify, as clients send it."""
    with client_context().wrap_socket(sock, do_handshake_on_connect=False) as secured:
        while True:
            try:
                secured.do_handshake()
            except ssl.SSLWantReadError:
                yield select.EPOLLIN
            else:
                break
        yield from _greet(secured)
        with suppress(ssl.SSLWantReadError):  # it is not waited for
            secured.unwrap()


@attrs.define(eq=False)
class ScramVisit:
    """A login with SCRAM-SHA-256: SaslHandshake, then SaslAuthenticate twice. The broker has to prove that it has the
    user's keys, too. The password is hashed for the first login only, since the same user has the same salt."""

    user: str
    password: str = attrs.field(repr=False)

    def __call__(self, sock: socket.socket) -> Visit:
        with sock:
            client = ScramClient(_REMEMBERING, self.user, self.password, secrets.token_hex(_NONCE_BYTES))
            handshake = decode((yield from _request(sock, _HANDSHAKE)), SaslHandshakeRequest.api_key)
            if handshake.error_code:
                raise BadAnswer(f"SaslHandshake: {handshake.error_code}, there are {handshake.mechanisms}")
            message = client.respond(None)
            while message is not None:
                frame = yield from _request(sock, encode(SaslAuthenticateRequest(message)))
                answer = decode(frame, SaslAuthenticateRequest.api_key)
                if answer.error_code:
                    raise BadAnswer(f"SaslAuthenticate: {answer.error_code} {answer.error_message}")
                message = client.respond(answer.auth_bytes)


class _Remembering(ScramMechanism):
    def salted_password(self, password: str, salt: bytes, iterations: int) -> bytes:
        return _salted_password(password, salt, iterations)


@cache
def _salted_password(password: str, salt: bytes, iterations: int) -> bytes:
    return SCRAM_SHA_256.salted_password(password, salt, iterations)


_REMEMBERING = _Remembering(**attrs.asdict(SCRAM_SHA_256))
_HANDSHAKE = encode(SaslHandshakeRequest(SCRAM_SHA_256.name))
_GREETING = api_versions()
_check_greeting = check_api_versions()
_buffer = bytearray(1 << 14)


def _greet(sock: socket.socket) -> Visit:
    answer = yield from _request(sock, _GREETING)
    _check_greeting(answer, 0, len(answer))


def _request(sock: socket.socket, frame: bytes) -> Generator[int, None, bytearray]:
    """Returns the answer without its size."""
    if sock.send(frame) != len(frame):  # of a few hundred bytes on a new connection
        raise BadAnswer("the broker takes nothing")
    answer = bytearray()
    while True:
        yield select.EPOLLIN
        with suppress(BlockingIOError):
            count = sock.recv_into(_buffer)
            if not count:
                raise BadAnswer("the broker hung up")
            answer += _buffer[:count]
            if len(answer) >= 4 and len(answer) == 4 + int.from_bytes(answer[:4], "big"):
                return answer[4:]
