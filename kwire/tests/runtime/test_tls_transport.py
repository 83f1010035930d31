"""A transport with TLS beside its peer: handshakes, bytes both ways, and errors about peers that fail."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from contextlib import suppress

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kwire_protocol.wire import ProtocolError

from kwire.runtime.poll import READ
from kwire.runtime.tls_transport import MOST_SILENT_BYTES, PIECE_BYTES, RECEIVED_BYTES, TlsTransport
from kwire.security.principal import ANONYMOUS, Principal
from kwire.security.tls.contexts import client_context, server_context
from kwire.security.tls.names import subject_of
from kwire.security.tls.principals import MappingRules
from kwire.security.tls.settings import TlsSettings
from testkit.security.tls.certificates import HOST, authority, client_settings, server_settings


@attrs.define(eq=False)
class Pair:
    """A server's transport and a client's, over a pair of sockets."""

    server: TlsTransport
    client: TlsTransport

    def shake(self) -> None:
        """Runs both sides, in turns. Raises what either raises."""
        waiting = [self.client, self.server]
        for _ in range(20):
            for transport in list(waiting):
                assert transport.handshake is not None
                if not transport.handshake():
                    waiting.remove(transport)
            if not waiting:
                return
        raise AssertionError("the handshake does not end")

    def close(self) -> None:
        self.server.close()
        self.client.close()


def new_pair(server: TlsSettings | None = None, client: TlsSettings | None = None, rules: str = "DEFAULT") -> Pair:
    near, far = socket.socketpair()
    near.setblocking(False)
    far.setblocking(False)
    return Pair(
        TlsTransport(
            near, server_context(server or server_settings()), principal_of=MappingRules.parse(rules).principal_of
        ),
        TlsTransport(far, client_context(client or client_settings()), server_side=False, server_hostname=HOST),
    )


@pytest.fixture
def pair() -> Iterator[Pair]:
    made = new_pair()
    made.shake()
    yield made
    made.close()


def received(transport: TlsTransport, size: int = 1 << 20) -> bytes:
    """Returns all that is there."""
    room = memoryview(bytearray(size))
    data = b""
    with suppress(BlockingIOError):
        while count := transport.recv_into(room):
            data += room[:count]
    return data


def refusal(server: TlsSettings, client: TlsSettings) -> str:
    """Returns the server's error about a client with which a handshake fails, on either side."""
    made = new_pair(server, client)
    try:
        for _ in range(10):
            assert made.client.handshake is not None
            assert made.server.handshake is not None
            with suppress(ProtocolError):
                made.client.handshake()
            try:
                assert made.server.handshake(), "it was let in"
            except ProtocolError as error:
                return str(error)
    finally:
        made.close()
    raise AssertionError("the handshake does not end")


def error_about(data: bytes) -> str:
    """Returns the server's error about a peer that sends this instead of a handshake."""
    near, far = socket.socketpair()
    near.setblocking(False)
    transport = TlsTransport(near, server_context(server_settings()))
    with far:
        far.sendall(data)
        assert transport.handshake is not None
        try:
            with pytest.raises(ProtocolError) as error:
                transport.handshake()
        finally:
            transport.close()
    return str(error.value)


def test_bytes_go_both_ways_and_end(pair: Pair) -> None:
    assert pair.client.send(b"question", 0) == 8
    assert received(pair.server) == b"question"
    assert pair.server.send(memoryview(b"answer"), socket.MSG_MORE) == 6
    assert received(pair.client) == b"answer"
    pair.client.close()
    assert pair.server.recv_into(memoryview(bytearray(10))) == 0


def test_nothing_to_receive_is_no_end(pair: Pair) -> None:
    with pytest.raises(BlockingIOError):
        pair.server.recv_into(memoryview(bytearray(10)))


def test_a_connection_that_is_cut_without_a_word_ends_as_well(pair: Pair) -> None:
    pair.client.sock.shutdown(socket.SHUT_WR)
    assert pair.server.recv_into(memoryview(bytearray(10))) == 0


def test_what_did_not_fit_into_the_room_is_known_to_be_there(pair: Pair) -> None:
    assert pair.server.has_more is not None
    pair.client.send(b"0123456789", 0)
    assert not pair.server.has_more()
    room = memoryview(bytearray(4))
    assert (pair.server.recv_into(room), bytes(room)) == (4, b"0123")
    assert pair.server.has_more()
    assert received(pair.server) == b"456789"
    assert not pair.server.has_more()


@settings(max_examples=30, deadline=None)
@given(sizes=st.lists(st.integers(1, 200_000), min_size=1, max_size=6), rooms=st.lists(st.integers(1, 100_000)))
def test_what_is_sent_while_the_socket_is_full_arrives_once_and_in_order(sizes: list[int], rooms: list[int]) -> None:
    made = new_pair()
    made.shake()
    made.server.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    expected = b"".join(bytes([index]) * size for index, size in enumerate(sizes))
    left, arrived, turn = memoryview(expected), b"", 0
    while len(arrived) < len(expected):
        with suppress(BlockingIOError):
            while left:
                # As the outbox does: the same bytes once more, though perhaps at another place.
                left = left[made.server.send(bytes(left[:131_072]), 0) :]
        arrived += received(made.client, rooms[turn % len(rooms)] if rooms else 1 << 20)
        turn += 1
    assert arrived == expected
    made.close()


def test_a_full_socket_takes_whole_pieces_and_no_more_memory(pair: Pair) -> None:
    pair.server.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65536)
    sent = pair.server.send(bytes(4 << 20), 0)
    assert 0 < sent < 4 << 20
    assert sent % PIECE_BYTES == 0
    with pytest.raises(BlockingIOError):
        pair.server.send(bytes(4 << 20), 0)


def fill(sock: socket.socket) -> None:
    with suppress(BlockingIOError):
        while True:
            sock.send(bytes(100_000))


def test_a_full_socket_raises_what_one_without_tls_does(pair: Pair) -> None:
    fill(pair.server.sock)
    with pytest.raises(BlockingIOError):
        pair.server.send(b"a", 0)


class Chatter(ssl.SSLObject):
    """A TLS object whose peer sends no data, but for example a request for new keys, which has an answer."""

    def __init__(self, answers: ssl.MemoryBIO | None = None) -> None:
        self._answers = answers

    def read(self, len: int = 1024, buffer: object = None) -> bytes:  # noqa: A002 - as it is there
        if self._answers is not None:
            self._answers.write(bytes(PIECE_BYTES))
        raise ssl.SSLWantReadError

    def unwrap(self) -> None:
        raise OSError


def test_who_talks_and_sends_no_data_gets_a_piece_of_each_turn_and_is_cut_off_soon(pair: Pair) -> None:
    pair.server._tls = Chatter()
    pair.client.sock.setblocking(True)
    for _ in range(MOST_SILENT_BYTES // RECEIVED_BYTES):
        pair.client.sock.sendall(bytes(2 * RECEIVED_BYTES))
        with pytest.raises(BlockingIOError):
            pair.server.recv_into(memoryview(bytearray(10)))
    with pytest.raises(ConnectionAbortedError, match="and no data"):
        pair.server.recv_into(memoryview(bytearray(10)))


def test_who_talks_and_does_not_read_what_is_answered_is_cut_off_soon(pair: Pair) -> None:
    pair.server._tls = Chatter(pair.server._outgoing)
    fill(pair.server.sock)
    pair.client.sock.send(b"a")
    with pytest.raises(BlockingIOError):
        pair.server.recv_into(memoryview(bytearray(10)))
    pair.client.sock.send(b"a")
    with pytest.raises(ConnectionAbortedError, match="does not read what TLS sends"):
        pair.server.recv_into(memoryview(bytearray(10)))


def test_a_handshake_has_a_limit() -> None:
    near, far = socket.socketpair()
    near.setblocking(False)
    transport = TlsTransport(near, server_context(server_settings()))
    fragment = b"\x16\x03\x01\x40\x00" + bytes(16384)
    hello = b"\x16\x03\x01\x40\x00\x01\x01\xff\xff" + bytes(16380)  # of 128 KiB
    far.setblocking(False)
    with far:
        with suppress(ProtocolError, ConnectionAbortedError):
            for data in (hello, *[fragment] * 20):
                far.send(data)
                assert transport.handshake is not None
                assert transport.handshake() == READ
            raise AssertionError("the handshake never ends")
        transport.close()


def test_a_close_is_sent_to_the_peer(pair: Pair) -> None:
    assert received(pair.client) == b""  # a ticket, which is no data
    pair.server.close()
    assert pair.client.sock.recv(1000)  # encrypted words, and then the end
    assert not pair.client.sock.recv(1000)


def test_a_close_waits_for_nobody(pair: Pair) -> None:
    with suppress(BlockingIOError):
        while True:
            pair.server.send(bytes(100_000), 0)
    pair.server.close()  # there is no room to say so
    assert pair.server.sock.fileno() == -1


def test_a_handshake_may_come_byte_by_byte() -> None:
    near, far = socket.socketpair()
    near.setblocking(False)
    transport = TlsTransport(near, server_context(server_settings()))
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_context(client_settings()).wrap_bio(incoming, outgoing, server_hostname=HOST)
    far.setblocking(False)
    is_shaken = False
    with far:
        for _ in range(10):
            with suppress(ssl.SSLWantReadError):
                client.do_handshake()
            for byte in outgoing.read():
                far.send(bytes([byte]))
                assert not is_shaken
                assert transport.handshake is not None
                waits_for = transport.handshake()
                is_shaken = not waits_for
                assert waits_for in (0, READ)
            with suppress(BlockingIOError):
                incoming.write(far.recv(65536))
            if is_shaken:
                break
        assert is_shaken
        transport.close()


def test_a_peer_that_hangs_up_in_the_handshake_is_lost() -> None:
    near, far = socket.socketpair()
    near.setblocking(False)
    transport = TlsTransport(near, server_context(server_settings()))
    far.sendall(b"\x16\x03\x01\x02\x00\x01\x00")
    far.close()
    assert transport.handshake is not None
    with pytest.raises(OSError):
        transport.handshake()
    transport.close()


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\0\0\0\x0e\0\x12\0\x03\0\0\0\1\0\4test", "perhaps Kafka's protocol in plain text"),
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "but HTTP"),
        (b"CONNECT x:1 HTTP/1.1\r\n\r\n", "but HTTP"),
        (b"\xff" * 100, "it does not speak TLS"),
        (b"SSH-2.0-OpenSSH_9.2p1\r\n", "it does not speak TLS"),
    ],
)
def test_peers_that_do_not_speak_tls_are_reported_in_one_clear_line(data: bytes, reason: str) -> None:
    line = error_about(data)
    assert reason in line
    assert "security.protocol=SSL" in line
    assert "\n" not in line


def test_garbage_in_the_form_of_tls_is_refused() -> None:
    assert "handshake failed" in error_about(b"\x16\x03\x01\x00\x04\xff\xff\xff\xff")


@pytest.mark.parametrize(
    ("server", "client", "reason"),
    [
        (server_settings(client_auth="required"), client_settings(), "it has no certificate, and ssl.client.auth"),
        (
            server_settings(client_auth="required"),
            client_settings("eve", by="two"),
            "its certificate is not accepted: unable to get local issuer certificate",
        ),
        (
            server_settings(client_auth="requested"),
            client_settings("eve", by="two"),
            "its certificate is not accepted",
        ),
        (
            server_settings(),
            attrs.evolve(client_settings(), truststore_certificates=authority("two").cert_pem.bytes().decode()),
            "it does not accept our certificate (unknown ca)",
        ),
        (
            server_settings(enabled_protocols=("TLSv1.3",)),
            attrs.evolve(client_settings(), enabled_protocols=("TLSv1.2",)),
            "it has no version of TLS in common with us",
        ),
        (
            server_settings(cipher_suites=("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",)),
            attrs.evolve(client_settings(), cipher_suites=("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",)),
            "it has no cipher suite in common with us",
        ),
    ],
)
def test_a_handshake_that_fails_is_reported_in_one_clear_line(
    server: TlsSettings, client: TlsSettings, reason: str
) -> None:
    line = refusal(server, client)
    assert reason in line
    assert "\n" not in line


def test_a_client_learns_that_a_certificate_is_for_another_host() -> None:
    made = new_pair()
    made.client.close()
    near, far = socket.socketpair()
    near.setblocking(False)
    far.setblocking(False)
    made.server.close()
    made = Pair(
        TlsTransport(near, server_context(server_settings())),
        TlsTransport(far, client_context(client_settings()), server_side=False, server_hostname="elsewhere"),
    )
    with pytest.raises(ProtocolError, match="Hostname mismatch"):
        made.shake()
    made.close()


def test_a_certificate_names_the_client() -> None:
    made = new_pair(server_settings(client_auth="required"), client_settings("alice"))
    made.shake()
    assert made.server.principal.type == "User"
    assert made.server.principal.name.startswith("CN=alice,OU=")
    made.close()


def test_rules_make_a_name_of_the_certificates() -> None:
    made = new_pair(
        server_settings(client_auth="requested"), client_settings("alice"), rules=r"RULE:^CN=(\w+),.*$/$1/U"
    )
    made.shake()
    assert made.server.principal == Principal("User", "ALICE")
    made.close()


def test_without_a_certificate_a_client_is_anonymous() -> None:
    made = new_pair(server_settings(client_auth="requested"))
    made.shake()
    assert made.server.principal is ANONYMOUS
    made.close()


def test_a_certificate_whose_name_cannot_be_read_is_refused() -> None:
    def malformed(certificate: bytes) -> Principal:
        return Principal("User", subject_of(certificate[:100]))

    made = new_pair(server_settings(client_auth="required"), client_settings("alice"))
    made.server._principal_of = malformed
    with pytest.raises(ProtocolError, match="an element is longer than what it is in"):
        made.shake()
    made.close()


def test_a_name_that_no_rule_applies_to_is_refused() -> None:
    made = new_pair(server_settings(client_auth="required"), client_settings("alice"), rules="RULE:CN=bob/bob/")
    with pytest.raises(ProtocolError, match=r"no rule of ssl.principal.mapping.rules .* applies to 'CN=alice"):
        made.shake()
    made.close()


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_a_resumed_session_is_the_same_clients(version: str) -> None:
    context = server_context(server_settings(client_auth="required", enabled_protocols=(version,)))
    mine = client_context(client_settings("alice"))
    principals, reused, session = [], [], None
    for _ in range(2):
        near, far = socket.socketpair()
        near.setblocking(False)
        server = TlsTransport(near, context, principal_of=MappingRules.parse("DEFAULT").principal_of)
        client = mine.wrap_socket(far, server_hostname=HOST, session=session, do_handshake_on_connect=False)
        client.setblocking(False)
        waiting = True
        while waiting:
            with suppress(ssl.SSLWantReadError):
                client.do_handshake()
            assert server.handshake is not None
            waiting = bool(server.handshake())
        with suppress(ssl.SSLWantReadError):
            client.do_handshake()
        server.send(b"x", 0)
        assert client.recv(1) == b"x"
        principals.append(server.principal)
        reused.append(client.session_reused)
        session = client.session
        client.close()
        server.close()
    assert reused == [False, True]
    assert principals[0] == principals[1] != ANONYMOUS
