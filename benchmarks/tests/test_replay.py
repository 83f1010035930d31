"""The load against a peer that answers in every way that a stream of bytes allows."""

from __future__ import annotations

import socket
import ssl
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

import pytest

from benchmarks.load.answers import BadAnswer
from benchmarks.load.replay import HEAD_BYTES, WHOLE_BYTES, Replayer, Tape
from benchmarks.load.tls import connect_tls
from kwire.security.tls.dev_certificates import DevAuthority

REQUESTS = [
    (4 + len(rest)).to_bytes(4, "big") + number.to_bytes(4, "big") + rest
    for number, rest in enumerate([b"a", b"bc", b""])
]


class Peer:
    """Answers each request of a connection with what `answer` makes of its correlation id."""

    def __init__(self, sock: socket.socket, answer: Callable[[int], bytes], piece_bytes: int) -> None:
        self.sock = sock
        self.answer = answer
        self.piece_bytes = piece_bytes
        self.received: list[int] = []

    def serve(self) -> None:
        stream = self.sock.makefile("rb")
        with stream, self.sock:
            while size := stream.read(4):
                self.received.append(int.from_bytes(stream.read(int.from_bytes(size, "big"))[:4], "big"))
                data = self.answer(self.received[-1])
                for at in range(0, len(data), self.piece_bytes):
                    self.sock.sendall(data[at : at + self.piece_bytes])


def connected() -> tuple[socket.socket, socket.socket]:
    """Returns both ends of a TCP connection: throwing bytes away unread works with no other kind."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ours = socket.create_connection(listener.getsockname())
        return ours, listener.accept()[0]


@contextmanager
def peers(
    count: int, answer: Callable[[int], bytes], piece_bytes: int = 1 << 20
) -> Iterator[tuple[list[socket.socket], list[Peer]]]:
    pairs = [connected() for _ in range(count)]
    served = [Peer(theirs, answer, piece_bytes) for _, theirs in pairs]
    threads = [threading.Thread(target=peer.serve) for peer in served]
    with ExitStack() as stack:
        for (ours, _), thread in zip(pairs, threads, strict=True):
            ours.setblocking(False)
            stack.callback(thread.join)
            stack.enter_context(ours)
            thread.start()
        yield [ours for ours, _ in pairs], served


def answer_of(size: int) -> Callable[[int], bytes]:
    return lambda number: size.to_bytes(4, "big") + number.to_bytes(4, "big") + bytes(size - 4)


@contextmanager
def tls_peers(answer: Callable[[int], bytes], piece_bytes: int) -> Iterator[tuple[list[socket.socket], list[Peer]]]:
    """One, over TLS. `piece_bytes` make a record."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.NamedTemporaryFile() as keystore:
        keystore.write(DevAuthority.new().server())
        keystore.flush()
        context.load_cert_chain(keystore.name)
    served: list[Peer] = []

    def serve(listener: socket.socket) -> None:
        peer = Peer(context.wrap_socket(listener.accept()[0], server_side=True), answer, piece_bytes)
        served.append(peer)
        peer.serve()

    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        thread = threading.Thread(target=serve, args=[listener])
        stack.callback(thread.join)
        thread.start()
        sockets = connect_tls(listener.getsockname()[1], 1)
        yield [stack.enter_context(sock) for sock in sockets], served


class Seen:
    """A check that keeps what it was shown."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def __call__(self, buffer: bytearray, start: int, size: int) -> None:
        assert len(buffer) >= start + min(size, HEAD_BYTES)
        self.sizes.append(size)


def play(sockets: Sequence[socket.socket], seen: Seen, count: int, depth: int = 2) -> None:
    replayer = Replayer(sockets, REQUESTS, seen, depth)
    try:
        replayer.send(count)
    finally:
        replayer.close()


@pytest.mark.parametrize("size", [4, 50, 1000])
@pytest.mark.parametrize("piece_bytes", [1, 3, 7, 1 << 20])
def test_answers_in_pieces_are_put_together(size: int, piece_bytes: int) -> None:
    seen = Seen()
    with peers(1, answer_of(size), piece_bytes) as (sockets, (peer,)):
        play(sockets, seen, 10)
    assert seen.sizes == [size] * 10
    assert peer.received == [0, 1, 2, 0, 1, 2, 0, 1, 2, 0]


@pytest.mark.parametrize("size", [WHOLE_BYTES, WHOLE_BYTES + 1, 300_000, 5_000_000])
def test_of_large_answers_only_the_head_is_looked_at_and_the_rest_skipped(size: int) -> None:
    seen = Seen()
    with peers(1, answer_of(size)) as (sockets, (peer,)):
        play(sockets, seen, 4)
    assert seen.sizes == [size] * 4
    assert peer.received == [0, 1, 2, 0]


@pytest.mark.parametrize("piece_bytes", [1000, 1 << 14, 1 << 20])
@pytest.mark.parametrize("size", [4, 1000, WHOLE_BYTES, WHOLE_BYTES + 1, 300_000, 5_000_000])
def test_it_plays_over_tls_too(size: int, piece_bytes: int) -> None:
    seen = Seen()
    with tls_peers(answer_of(size), piece_bytes) as (sockets, served):
        play(sockets, seen, 4)
    assert seen.sizes == [size] * 4
    assert served[0].received == [0, 1, 2, 0]


def test_answers_that_share_a_record_of_tls_are_all_taken() -> None:
    first, second = answer_of(70_000)(0), answer_of(20)(1)
    seen = Seen()
    # The peer sends both at once, when it has the second request.
    with tls_peers(lambda number: first + second if number else b"", 1 << 20) as (sockets, _):
        play(sockets, seen, 2)
    assert seen.sizes == [70_000, 20]


def test_each_connection_begins_elsewhere_on_the_tape() -> None:
    seen = Seen()
    with peers(3, answer_of(20)) as (sockets, served):
        play(sockets, seen, 6, depth=1)
    assert [peer.received[0] for peer in served] == [0, 1, 2]
    assert sum(len(peer.received) for peer in served) == len(seen.sizes) == 6


def test_each_node_of_a_cluster_gets_its_own_requests() -> None:
    one, other = Seen(), Seen()
    with peers(1, answer_of(20)) as (ours, (first,)), peers(1, answer_of(30)) as (theirs, (second,)):
        replayer = Replayer(ours, REQUESTS, one, depth=1)
        replayer.add(theirs, REQUESTS[:2], other)
        replayer.send(12)
        replayer.close()
    assert set(one.sizes) == {20}
    assert set(other.sizes) == {30}
    assert first.received == [number % 3 for number in range(len(one.sizes))]
    assert second.received == [number % 2 for number in range(len(other.sizes))]
    assert len(one.sizes) + len(other.sizes) == 12


def test_an_answer_to_another_request_is_refused() -> None:
    with (
        peers(1, lambda number: answer_of(20)(number + 1)) as (sockets, _),
        pytest.raises(BadAnswer, match="correlation id 1, not 0"),
    ):
        play(sockets, Seen(), 1)


def test_a_peer_that_hangs_up_is_noticed() -> None:
    ours, theirs = connected()
    with ours:
        theirs.close()
        with pytest.raises((BadAnswer, ConnectionError)):
            play([ours], Seen(), 1)


def test_positions_on_a_tape_continue_from_ring_to_ring() -> None:
    tape = Tape(REQUESTS)
    length = sum(map(len, REQUESTS))
    assert [tape.position(number) for number in range(5)] == [0, 9, 19, length, length + 9]
