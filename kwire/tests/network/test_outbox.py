"""The sending half of a connection, on real sockets that take little: every byte, in order, however slow the reader."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kwire_protocol.writer import OWN_PIECE_BYTES
from kwire_storage.disk.files import Disk, File, RealDisk
from kwire_storage.disk.memory_disk import MemoryDisk
from kwire_storage.log.log import LogSlice

from kwire.network.outbox import SEND_CHUNK_BYTES, Outbox
from kwire.runtime.transport import PeerLost, PlainTransport

SEGMENT = random.Random(1).randbytes(3 * SEND_CHUNK_BYTES)
SMALL_BUFFER_BYTES = 4096
MUCH_BYTES = 300_000
"""More than the small buffer takes at once, whatever the system makes of its size."""


@attrs.define(eq=False)
class Link:
    """An outbox on one end of a connection, what was put into it, and what has come out at the other end."""

    near: socket.socket
    far: socket.socket
    outbox: Outbox
    expected: bytearray = attrs.field(factory=bytearray)
    received: bytearray = attrs.field(factory=bytearray)

    def reply(self, *pieces: bytes | LogSlice) -> None:
        """Writes a reply as a connection does: its size in front, so that it never begins with an attachment."""
        contents = [piece.read() if isinstance(piece, LogSlice) else piece for piece in pieces]
        writer = self.outbox.writer
        writer.begin_frame()
        for piece in pieces:
            writer.attach(piece)
        writer.end_frame()
        self.expected += sum(map(len, contents)).to_bytes(4, "big") + b"".join(contents)

    def read(self, size: int = 1 << 30) -> int:
        """Takes up to `size` bytes of what has arrived. Returns how much it was."""
        before = len(self.received)
        while len(self.received) - before < size:
            try:
                data = self.far.recv(min(1 << 16, size - len(self.received) + before))
            except BlockingIOError:
                break
            if not data:
                break
            self.received += data
        return len(self.received) - before

    def flush_to_the_end(self) -> int:
        """Flushes and reads by turns. Returns how often the socket did not take everything."""
        blocked = 0
        while not self.outbox.flush():
            blocked += 1
            assert self.read(), "nothing is left to read, and yet the outbox reports that it is not done"
        self.read()
        assert self.received == self.expected
        return blocked


def linked() -> Link:
    near, far = socket.socketpair()
    near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SMALL_BUFFER_BYTES)
    near.setblocking(False)
    far.setblocking(False)
    return Link(near, far, Outbox(PlainTransport(near), 65536))


@pytest.fixture
def link() -> Iterator[Link]:
    link = linked()
    with link.near, link.far:
        yield link


@pytest.fixture(scope="module", params=["memory", "disk"])
def segment(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> File:
    folder = tmp_path_factory.mktemp("segment")
    return segment_on(MemoryDisk() if request.param == "memory" else RealDisk(folder))


def segment_on(disk: Disk) -> File:
    file = disk.open_append("segment")
    file.append(SEGMENT)
    return file


def part(file: File, position: int, size: int) -> LogSlice:
    return LogSlice(file, position, size, 0)


def test_a_reply_that_fits_is_sent_at_once_and_nothing_is_left(link: Link) -> None:
    link.reply(b"an answer")
    assert link.outbox.flush()
    link.read()
    assert link.received == b"\0\0\0\x09an answer"
    assert link.outbox.flush()
    assert link.read() == 0


def test_several_replies_leave_together(link: Link) -> None:
    for number in range(10):
        link.reply(b"%d" % number)
    assert link.outbox.flush()
    link.read()
    assert link.received == link.expected


@pytest.mark.parametrize("size", [OWN_PIECE_BYTES - 1, OWN_PIECE_BYTES, MUCH_BYTES])
def test_bytes_arrive_whole_whether_they_are_copied_or_attached(link: Link, size: int) -> None:
    link.reply(b"head", random.Random(2).randbytes(size), b"tail")
    link.flush_to_the_end()


def test_what_the_socket_does_not_take_follows_when_it_was_read(link: Link) -> None:
    # Many small answers, none of them attached: the plain buffer alone.
    for number in range(MUCH_BYTES // 1000):
        link.reply(b"%d" % number * 300)
    assert link.flush_to_the_end() > 1


def test_a_flush_that_finds_the_socket_still_full_loses_and_doubles_nothing(link: Link) -> None:
    link.reply(random.Random(3).randbytes(MUCH_BYTES))
    assert [link.outbox.flush() for _ in range(5)] == [False] * 5
    link.flush_to_the_end()


def test_replies_that_are_queued_behind_a_blocked_one_keep_their_order(link: Link, segment: File) -> None:
    link.reply(b"1" * MUCH_BYTES)
    assert not link.outbox.flush()
    link.reply(b"2")
    assert not link.outbox.flush()
    link.reply(b"3", part(segment, 5, MUCH_BYTES), b"3")
    assert not link.outbox.flush()
    link.reply(b"4" * OWN_PIECE_BYTES)
    link.reply(b"5")
    link.flush_to_the_end()


def test_a_range_of_a_segment_is_sent_with_what_stands_around_it(link: Link, segment: File) -> None:
    link.reply(b"head", part(segment, 1, 1000), b"between", part(segment, 2000, 1), b"tail")
    link.reply(b"next")
    assert link.outbox.flush()
    link.read()
    assert link.received == link.expected


def test_a_large_range_of_a_segment_arrives_whole(link: Link, segment: File) -> None:
    link.reply(b"head", part(segment, 7, len(SEGMENT) - 7), b"tail")
    assert link.flush_to_the_end() > 1


def test_no_more_than_a_chunk_of_a_segment_leaves_in_one_flush(link: Link, segment: File) -> None:
    link.near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    link.reply(part(segment, 0, len(SEGMENT)))
    assert not link.outbox.flush()
    assert 0 < link.read() <= 4 + SEND_CHUNK_BYTES
    link.flush_to_the_end()


def test_bytes_of_a_memoryview_count_from_where_the_socket_stopped(link: Link) -> None:
    view = memoryview(random.Random(4).randbytes(MUCH_BYTES + 10))[10:]
    writer = link.outbox.writer
    writer.begin_frame()
    writer.attach(view)
    writer.end_frame()
    link.expected += len(view).to_bytes(4, "big") + view
    assert link.flush_to_the_end() > 1


def test_a_segment_shorter_than_the_reply_that_names_it_ends_the_connection(link: Link, tmp_path: Path) -> None:
    # Bytes in its place would be taken for records, and what follows for another answer.
    file = segment_on(RealDisk(tmp_path))
    link.reply(b"head", part(file, 0, 1000))
    file.truncate(400)
    with pytest.raises(PeerLost, match="shorter"):
        link.flush_to_the_end()


def test_so_does_one_on_the_disk_in_memory(link: Link) -> None:
    file = segment_on(MemoryDisk())
    link.reply(b"head", part(file, 0, 1000))
    file.truncate(400)
    with pytest.raises(PeerLost):
        link.flush_to_the_end()


def test_a_peer_that_is_gone_is_lost_to_bytes(link: Link) -> None:
    link.far.close()
    link.reply(b"to nobody")
    with pytest.raises(PeerLost):
        link.outbox.flush()


def test_a_peer_that_is_gone_is_lost_to_segments(link: Link, segment: File) -> None:
    # Blocked with the segment alone left, so that it is the segment's sending that fails.
    link.reply(part(segment, 0, len(SEGMENT)))
    assert not link.outbox.flush()
    link.far.close()
    with pytest.raises(PeerLost):
        link.outbox.flush()


def test_a_peer_that_leaves_in_the_middle_of_a_reply_is_lost(link: Link) -> None:
    link.reply(b"x" * MUCH_BYTES)
    assert not link.outbox.flush()
    link.read(1000)
    link.far.close()
    with pytest.raises(PeerLost):
        link.outbox.flush()


PIECES = st.one_of(
    st.binary(max_size=50),
    st.integers(OWN_PIECE_BYTES, 20_000).map(bytes),
    # Where it begins, and how long it is: a range of the segment.
    st.tuples(st.integers(0, 100_000), st.integers(0, 200_000)),
)
STEPS = st.one_of(
    st.lists(PIECES, max_size=4),  # a reply
    st.just("flush"),
    st.integers(1, 100_000),  # the peer reads so many bytes
)


@settings(max_examples=60)
@given(steps=st.lists(STEPS, max_size=25))
def test_whatever_is_written_flushed_and_read_arrives_in_order(
    segment: File, steps: list[list[bytes | tuple[int, int]] | str | int]
) -> None:
    link = linked()
    with link.near, link.far:
        for step in steps:
            if isinstance(step, list):
                link.reply(*(part(segment, *it) if isinstance(it, tuple) else it for it in step))
            elif isinstance(step, int):
                link.read(step)
            else:
                link.outbox.flush()
        link.flush_to_the_end()


# The send buffer


def sized_link(send_buffer_bytes: int) -> tuple[Outbox, socket.socket]:
    sock = socket.socket()
    if send_buffer_bytes > 0:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer_bytes)
    return Outbox(PlainTransport(sock), send_buffer_bytes), sock


def adapted(outbox: Outbox, sock: socket.socket, *kinds: tuple[bool, int]) -> int:
    """Returns its send buffer after room came back so many times, each time after a pause or not."""
    for had_to_wait, times in kinds:
        for _ in range(times):
            outbox.adapt(had_to_wait=had_to_wait)
    return sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)


def test_a_slow_reader_has_a_larger_send_buffer_until_it_keeps_pace_again() -> None:
    outbox, sock = sized_link(16384)
    with sock:
        at_first = adapted(outbox, sock)
        assert adapted(outbox, sock, (False, 100), (True, 63)) == at_first
        assert adapted(outbox, sock, (True, 1)) == 4 * at_first
        assert adapted(outbox, sock, (True, 100), (False, 63)) == 4 * at_first
        assert adapted(outbox, sock, (False, 1)) == at_first


def test_a_pause_now_and_then_changes_no_send_buffer() -> None:
    outbox, sock = sized_link(16384)
    with sock:
        at_first = adapted(outbox, sock)
        assert adapted(outbox, sock, *[(True, 1), (False, 1)] * 100) == at_first
        assert adapted(outbox, sock, (True, 64)) == 4 * at_first
        assert adapted(outbox, sock, *[(True, 1), (False, 8)] * 100) == 4 * at_first


def test_a_send_buffer_that_is_left_to_the_system_stays_there() -> None:
    outbox, sock = sized_link(-1)
    with sock:
        at_first = adapted(outbox, sock)
        assert adapted(outbox, sock, (True, 100)) == at_first
