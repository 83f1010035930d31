"""Hostile peers before authentication: at listeners of SASL and TLS, over sockets of a `kwire serve`.

Whatever they send, how much, how slowly and how often: it costs little memory, they are disconnected, the log has few
plain lines about it, and a client at another listener is served.
"""

from __future__ import annotations

import itertools
import random
import re
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from typing import NoReturn

import pytest
from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages.api_versions import ApiVersionsRequest
from kwire_protocol.messages.metadata import MetadataRequest
from kwire_protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from kwire_protocol.messages.sasl_handshake import SaslHandshakeRequest
from kwire_protocol.wire import ApiMessage

from devtools.ports import LOOPBACK, free_port
from devtools.suite.tiers import small_and_full
from testkit.raw.client import ConnectionClosed, RawClient, decoded_reply, framed, request_frame
from testkit.raw.fuzz.driver import SLOWEST_ROUND_S, HealthyClient
from testkit.security.tls.certificates import issued, trusted
from testkit.servers.broker_process import BrokerProcess

MIB = 1024 * 1024
MAX_TOKEN_BYTES = 524_288
"""sasl.server.max.receive.size, by default."""
MANY = 100
MANY_MORE = 10_000
"""Of each attack, in make soak."""
CORRELATION_ID = 7
METADATA = request_frame(MetadataRequest([]), 9, correlation_id=CORRELATION_ID)
AT_ONCE = 8
LOG_LINE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d [A-Z]+ +\S")
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
BOTH = ("sasl_plaintext", "sasl_ssl")
SETTINGS = (
    "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256",
    *(f'listener.name.{it}.plain.sasl.jaas.config={PLAIN} required user_a="b";' for it in BOTH),
    *(f"listener.name.{it}.scram-sha-256.sasl.jaas.config={SCRAM} required;" for it in BOTH),
    "ssl.keystore.type=PEM",
    "connection.failed.authentication.delay.ms=50",
)
LISTENERS = ("PLAINTEXT", "SASL_PLAINTEXT", "SSL", "SASL_SSL")

numbers = itertools.count(1)

Attack = Callable[[RawClient, random.Random], None]


@pytest.fixture(scope="module")
def addresses() -> dict[str, str]:
    return {name: f"{LOOPBACK}:{free_port()}" for name in LISTENERS}


@pytest.fixture(scope="module")
def broker(addresses: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    folder = tmp_path_factory.mktemp("logins")
    key_store = folder / "server.pem"
    key_store.write_text(issued(LOOPBACK).pem)
    listeners = ",".join(f"{name}://{address}" for name, address in addresses.items())
    settings = [f"listeners={listeners}", f"ssl.keystore.location={key_store}", *SETTINGS]
    with BrokerProcess(folder, settings, port=None) as running:
        yield running
        assert running.is_running
        assert running.bugs() == []
        for line in running.log().splitlines():
            assert LOG_LINE.match(line), line
            assert line.isprintable(), line
            assert len(line) <= 1000, line


@pytest.fixture
def healthy(broker: BrokerProcess, addresses: dict[str, str]) -> Iterator[HealthyClient]:
    """A client that works in plain text."""
    with HealthyClient(addresses["PLAINTEXT"], f"healthy-{next(numbers)}") as client:
        yield client
        before = client.rounds
        while client.rounds < before + 3:
            assert client.is_alive(), client.error
    assert client.slowest_s < SLOWEST_ROUND_S


@pytest.fixture
def client(broker: BrokerProcess, addresses: dict[str, str]) -> Iterator[RawClient]:
    """A client of the listener of SASL."""
    with RawClient(addresses["SASL_PLAINTEXT"]) as client:
        yield client


@pytest.mark.parametrize("size", [-1, -(2**31), MAX_TOKEN_BYTES + 1, 2**31 - 1])
def test_a_size_that_no_login_has_closes_the_connection_before_anything_else_comes(
    client: RawClient, size: int
) -> None:
    client.send(size.to_bytes(4, "big", signed=True))
    assert client.is_closed_by_peer()


def test_logins_that_are_only_begun_cost_what_has_arrived(
    broker: BrokerProcess, addresses: dict[str, str], healthy: HealthyClient
) -> None:
    resident, descriptors = broker.resident_bytes(), broker.open_descriptors()
    token = request_frame(SaslAuthenticateRequest(bytes(MAX_TOKEN_BYTES - 100)), 2)
    with ExitStack() as stack:
        for _ in range(MANY):
            silent = stack.enter_context(RawClient(addresses["SASL_PLAINTEXT"]))
            silent.call(SaslHandshakeRequest("PLAIN"), 1)
            silent.send(token[:1000])
        while healthy.rounds < 20:
            assert healthy.is_alive()
        assert broker.resident_bytes() - resident < 20 * MIB
    with RawClient(addresses["PLAINTEXT"]) as other:
        other.call(ApiVersionsRequest(), 0)
    assert broker.open_descriptors() < descriptors + 20


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_tokens_as_large_as_they_may_be_are_refused_and_given_back(
    broker: BrokerProcess, addresses: dict[str, str], healthy: HealthyClient, mechanism: str
) -> None:
    token = b"n,,n=" + b"a" * (MAX_TOKEN_BYTES - 200) + b",r=" + b"b" * 50
    if mechanism == "PLAIN":
        token = b"\0" + b"a" * (MAX_TOKEN_BYTES - 200) + b"\0c"
    resident = broker.resident_bytes()
    for _ in range(20):
        with RawClient(addresses["SASL_PLAINTEXT"]) as client:
            client.call(SaslHandshakeRequest(mechanism), 1)
            with suppress(ConnectionClosed):
                answer = client.call(SaslAuthenticateRequest(token), 2)
                if mechanism == "SCRAM-SHA-256" and answer.error_code == ErrorCode.NONE:
                    continue  # every name gets a salt: an unknown user looks like any other
                assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
                assert len(answer.error_message or "") < 1000
    assert broker.resident_bytes() - resident < 20 * MIB


@pytest.mark.parametrize(
    "request_",
    [SaslHandshakeRequest("PLAIN"), SaslHandshakeRequest("GSSAPI"), ApiVersionsRequest(), SaslAuthenticateRequest(b"")],
    ids=["handshakes", "handshakes for nothing", "versions", "empty tokens"],
)
def test_a_conversation_without_end_is_ended(client: RawClient, healthy: HealthyClient, request_: ApiMessage) -> None:
    with pytest.raises(ConnectionClosed):
        request_repeatedly(client, request_frame(request_, 0))


def request_repeatedly(client: RawClient, frame: bytes) -> None:
    for _ in range(1000):
        client.send(frame)
        client.read_frame()


def test_handshakes_that_are_only_begun_cost_what_has_arrived(
    broker: BrokerProcess, addresses: dict[str, str], healthy: HealthyClient
) -> None:
    resident = broker.resident_bytes()
    hello = client_hello()
    with ExitStack() as stack:
        for number in range(MANY):
            silent = stack.enter_context(RawClient(addresses["SSL"]))
            silent.send(hello[: len(hello) - number % 2])
        while healthy.rounds < 20:
            assert healthy.is_alive()
        assert broker.resident_bytes() - resident < 30 * MIB


def test_a_client_that_sends_within_tls_and_never_reads_is_not_served_any_longer(
    broker: BrokerProcess, addresses: dict[str, str], healthy: HealthyClient
) -> None:
    resident = broker.resident_bytes()
    with RawClient(addresses["SSL"]) as deaf:
        deaf.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        with_tls(deaf).sock.settimeout(1.0)
        questions = request_frame(ApiVersionsRequest(), 0) * 1000
        with pytest.raises(TimeoutError):
            send_for_ever(deaf, questions)
        before = healthy.rounds
        while healthy.rounds < before + 20:
            assert healthy.is_alive()
        assert broker.resident_bytes() - resident < 20 * MIB


def send_for_ever(client: RawClient, data: bytes) -> NoReturn:
    while True:
        client.send(data)


def test_a_request_may_come_byte_by_byte_within_tls(broker: BrokerProcess, addresses: dict[str, str]) -> None:
    with RawClient(addresses["SSL"]) as client:
        with_tls(client)
        for byte in METADATA:
            client.send(bytes([byte]))
        assert decoded_reply(client.read_frame(), 3, 9)[0] == CORRELATION_ID


def test_a_token_may_come_byte_by_byte(client: RawClient) -> None:
    client.call(SaslHandshakeRequest("PLAIN"), 1)
    for byte in request_frame(SaslAuthenticateRequest(b"\0a\0b"), 2):
        client.send(bytes([byte]))
    assert client.read_frame() is not None
    assert client.call(ApiVersionsRequest(), 0).error_code == 0


def strange_names(client: RawClient, chance: random.Random) -> None:
    """Sends names that must not fool a reader of the log."""
    name = chance.choice([b"\n2026-01-01 00:00:00 INFO   a is an administrator", b"\x1b[2J", b"\xff\xfe", b"a" * 5000])
    client.call(SaslHandshakeRequest("PLAIN"), 1)
    client.call(SaslAuthenticateRequest(b"\0" + name + b"\0x"), 2)


def strange_mechanisms(client: RawClient, chance: random.Random) -> None:
    client.call(SaslHandshakeRequest(chance.choice(["", "\n", "PLAIN\0", "x" * 10_000, "../../etc"])), 1)


def garbage(client: RawClient, chance: random.Random) -> None:
    client.send(framed(chance.randbytes(chance.choice([0, 1, 10, 1000, 100_000]))))
    client.read_frame()


def wrong_passwords(client: RawClient, chance: random.Random) -> None:
    client.call(SaslHandshakeRequest("PLAIN"), 1)
    answer = client.call(SaslAuthenticateRequest(b"\0a\0" + chance.randbytes(8).hex().encode()), 2)
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


def half_a_conversation(client: RawClient, chance: random.Random) -> None:
    """Sends SCRAM up to the proof of the password."""
    client.call(SaslHandshakeRequest("SCRAM-SHA-256"), 1)
    client.call(SaslAuthenticateRequest(b"n,,n=a,r=" + chance.randbytes(12).hex().encode()), 2)


def hang_up_at_once(client: RawClient, chance: random.Random) -> None:
    client.send(request_frame(SaslHandshakeRequest("PLAIN"), 1)[: chance.randrange(10)])


def all_at_once(client: RawClient, chance: random.Random) -> None:
    """Sends all without waiting for an answer, and something that is not allowed behind it."""
    login = SaslHandshakeRequest("PLAIN")
    parts: list[ApiMessage] = [login, SaslAuthenticateRequest(b"\0a\0wrong"), SaslAuthenticateRequest(b"\0a\0b")]
    client.send(b"".join(request_frame(part, 1) for part in parts) * chance.choice([1, 100]))
    while True:
        client.read_frame()


def trusting() -> ssl.SSLContext:
    return ssl.create_default_context(cadata=trusted())


def with_tls(client: RawClient) -> RawClient:
    client.sock = trusting().wrap_socket(client.sock, server_hostname=LOOPBACK)
    return client


def client_hello() -> bytes:
    """Returns the first message of a TLS client."""
    outgoing = ssl.MemoryBIO()
    machine = trusting().wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=LOOPBACK)
    with suppress(ssl.SSLWantReadError):
        machine.do_handshake()
    return outgoing.read()


def no_tls(client: RawClient, chance: random.Random) -> None:
    client.send(chance.choice([METADATA, b"GET / HTTP/1.1\r\n\r\n", chance.randbytes(100), bytes(100)]))
    client.end()
    while client.sock.recv(1 << 16):  # an alert, or nothing
        pass


def a_bent_hello(client: RawClient, chance: random.Random) -> None:
    hello = bytearray(client_hello())
    for _ in range(chance.choice([1, 2, 8])):
        hello[chance.randrange(len(hello))] ^= 1 << chance.randrange(8)
    client.send(hello)
    client.end()
    while client.sock.recv(1 << 16):
        pass


def half_a_hello(client: RawClient, chance: random.Random) -> None:
    hello = client_hello()
    client.send(hello[: chance.randrange(len(hello))])


def a_hello_and_no_more(client: RawClient, chance: random.Random) -> None:
    client.send(client_hello())
    client.sock.recv(chance.choice([1, 100, 1 << 16]))


def an_old_protocol(client: RawClient, chance: random.Random) -> None:
    """Offers TLS 1.1 as the version of a hello, and nothing newer."""
    hello = b"\x03\x02" + chance.randbytes(32) + b"\0" + b"\0\x02\xc0\x09" + b"\x01\0"
    handshake = b"\x01" + len(hello).to_bytes(3, "big") + hello
    client.send(b"\x16\x03\x01" + len(handshake).to_bytes(2, "big") + handshake)
    while client.sock.recv(1 << 16):
        pass


def garbage_beneath(client: RawClient, chance: random.Random) -> None:
    """Sends unencrypted bytes after a handshake in good order."""
    beneath = client.sock.dup()
    with_tls(client)
    with beneath:
        beneath.sendall(chance.randbytes(100))
        while beneath.recv(1 << 16):
            pass


def garbage_within(client: RawClient, chance: random.Random) -> None:
    garbage(with_tls(client), chance)


def wrong_passwords_within(client: RawClient, chance: random.Random) -> None:
    wrong_passwords(with_tls(client), chance)


def gone_without_a_word(client: RawClient, chance: random.Random) -> None:
    """Sends a request and ends without reading, and without a close_notify."""
    with_tls(client).send(METADATA)


ATTACKS: dict[str, tuple[Attack, ...]] = {
    "SASL_PLAINTEXT": (
        strange_names,
        strange_mechanisms,
        garbage,
        wrong_passwords,
        half_a_conversation,
        hang_up_at_once,
        all_at_once,
    ),
    "SSL": (
        no_tls,
        a_bent_hello,
        half_a_hello,
        a_hello_and_no_more,
        an_old_protocol,
        garbage_beneath,
        garbage_within,
        gone_without_a_word,
    ),
    "SASL_SSL": (garbage_beneath, garbage_within, wrong_passwords_within),
}


@small_and_full
@pytest.mark.parametrize(
    ("listener", "attack"),
    [
        pytest.param(listener, attack, id=f"{listener} {attack.__name__.replace('_', ' ')}")
        for listener, attacks in ATTACKS.items()
        for attack in attacks
    ],
)
def test_many_attacks_at_once_leave_nothing_behind(
    broker: BrokerProcess,
    addresses: dict[str, str],
    healthy: HealthyClient,
    listener: str,
    attack: Attack,
    *,
    full: bool,
) -> None:
    count = MANY_MORE if full else MANY
    resident, descriptors = broker.resident_bytes(), broker.open_descriptors()
    lines_before = len(broker.log().splitlines())
    run_at_once(addresses[listener], attack, count)
    with RawClient(addresses[listener]) as other:
        (with_tls(other) if listener.endswith("SSL") else other).call(ApiVersionsRequest(), 0)
    assert broker.resident_bytes() - resident < 20 * MIB
    assert broker.open_descriptors() < descriptors + 20
    # That it was closed, and that it was denied to log in.
    assert len(broker.log().splitlines()) - lines_before <= 2 * count


def run_at_once(address: str, attack: Attack, count: int) -> None:
    """Runs `count` times in all. Raises an error of any run, other than a closed connection."""
    failures: list[BaseException] = []

    def run(seed: int) -> None:
        chance = random.Random(seed)
        try:
            for _ in range(count // AT_ONCE):
                with RawClient(address) as client, suppress(ConnectionClosed, ConnectionError, ssl.SSLError):
                    attack(client, chance)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(seed,)) for seed in range(AT_ONCE)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
