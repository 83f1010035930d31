"""The memory of incomplete frames is bounded over all connections, and none of them waits for ever."""

from __future__ import annotations

from collections import deque

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kwire_protocol.frames import ROOM_BYTES, SCRATCH_BYTES, BufferPool, FrameBuffer, MemoryIsFull

LARGEST = 1 << 20
BOUND = 4 << 20


@attrs.define(eq=False)
class Peer:
    """A connection, and what its peer will still send."""

    frames: FrameBuffer
    to_send: bytearray
    calls: deque[Peer]
    """Those that may try again."""
    is_starved: bool = False
    is_closed: bool = False
    taken: list[int] = attrs.field(factory=list)
    """The sizes of the frames that have arrived whole."""

    def receive(self, most: int) -> None:
        """Receives as a connection does when its socket is readable."""
        while most > 0 and self.to_send:
            try:
                room = self.frames.writable()
            except MemoryIsFull:
                self.is_starved = True
                self.frames.when_there_is_memory(lambda: self.calls.append(self))
                break
            count = min(len(room), len(self.to_send), most)
            room[:count] = self.to_send[:count]
            del self.to_send[:count]
            most -= count
            self.frames.received(count)
            while (frame := self.frames.next_frame()) is not None:
                self.taken.append(len(frame))
        self.frames.release()

    def close(self) -> None:
        self.frames.close()
        self.to_send.clear()
        self.is_starved, self.is_closed = False, True

    def resume(self) -> None:
        self.is_starved = False
        self.receive(SCRATCH_BYTES)


def peers_of(pool: BufferPool, sizes: list[list[int]]) -> list[Peer]:
    calls: deque[Peer] = deque()
    return [
        Peer(FrameBuffer(LARGEST, pool), bytearray(b"".join(it.to_bytes(4, "big") + bytes(it) for it in each)), calls)
        for each in sizes
    ]


def check(pool: BufferPool, peers: list[Peer]) -> None:
    assert pool.used_bytes == sum(it.frames.capacity for it in peers)
    assert pool.used_bytes <= BOUND + 2 * (LARGEST + SCRATCH_BYTES) + len(peers) * 2 * ROOM_BYTES
    if any(it.is_starved for it in peers):
        others = [it for it in peers if not it.is_starved and it.frames.capacity]
        assert others or peers[0].calls, "all wait, and nobody is called"


frame_sizes = st.lists(st.sampled_from([0, 10, ROOM_BYTES, 100_000, 300_000, LARGEST]), max_size=4)


@given(st.lists(frame_sizes, min_size=2, max_size=8), st.data())
def test_the_sum_is_bounded_and_every_frame_arrives(sizes: list[list[int]], data: st.DataObject) -> None:
    pool = BufferPool(max_bytes=BOUND)
    peers = peers_of(pool, sizes)
    for _ in range(data.draw(st.integers(0, 40))):
        peer = peers[data.draw(st.integers(0, len(peers) - 1))]
        if data.draw(st.integers(0, 9)) == 0:
            peer.close()
        elif not peer.is_starved:
            peer.receive(data.draw(st.sampled_from([1, 5_000, 70_000, SCRATCH_BYTES, LARGEST])))
        if data.draw(st.booleans()) and peer.calls:
            called = peer.calls.popleft()
            if called.is_starved:
                called.resume()
        check(pool, peers)
    while any(it.to_send for it in peers):
        before = sum(len(it.to_send) for it in peers)
        while peers[0].calls:
            called = peers[0].calls.popleft()
            if called.is_starved:
                called.resume()
        for peer in peers:
            if not peer.is_starved:
                peer.receive(SCRATCH_BYTES)
        check(pool, peers)
        assert sum(len(it.to_send) for it in peers) < before or peers[0].calls, "nobody continues"
    for peer, size in zip(peers, sizes, strict=True):
        assert peer.is_closed or peer.taken == size
    assert pool.used_bytes == 0
    assert not pool.is_full


def begun(pool: BufferPool, count: int) -> list[Peer]:
    """Makes so many peers that have sent half of a large frame, or what there was memory for."""
    peers = peers_of(pool, [[LARGEST]] * count)
    for peer in peers:
        peer.receive(LARGEST // 2)
    return peers


def test_one_connection_at_a_time_may_exceed_the_bound() -> None:
    pool = BufferPool(max_bytes=BOUND)
    peers = begun(pool, 6)
    # Each takes 2 MiB, so two are within the bound.
    assert [it.is_starved for it in peers] == [False, False, False, True, True, True]
    check(pool, peers)
    peers[2].receive(LARGEST)
    assert peers[2].taken == [LARGEST]
    assert peers[0].calls[0] is peers[3]


def test_connections_that_send_large_frames_without_a_pause_stay_within_the_bound() -> None:
    """The bytes of the next frame follow at once, so the buffer is never empty."""
    pool = BufferPool(max_bytes=BOUND)
    peers = peers_of(pool, [[LARGEST] * 3] * 12)
    while any(it.to_send for it in peers):
        for peer in peers:
            if not peer.is_starved:
                peer.receive(SCRATCH_BYTES)
            check(pool, peers)
        while peers[0].calls:
            peers[0].calls.popleft().resume()
            check(pool, peers)
    assert [it.taken for it in peers] == [[LARGEST] * 3] * 12


def test_those_that_wait_are_called_in_the_order_in_which_they_came() -> None:
    pool = BufferPool(max_bytes=BOUND)
    peers = begun(pool, 6)
    waiting = [it for it in peers if it.is_starved]
    order = []
    while any(it.to_send for it in peers):
        for peer in peers:
            if not peer.is_starved and peer.to_send:
                peer.receive(2 * LARGEST)
                order.append(peer)
        while peers[0].calls:
            called = peers[0].calls.popleft()
            called.is_starved = False
            called.receive(2 * LARGEST)
            if not called.to_send:
                order.append(called)
    assert [it for it in order if it in waiting] == waiting


def test_memory_that_is_enough_for_several_is_not_left_to_the_first() -> None:
    pool = BufferPool(max_bytes=BOUND)
    calls: deque[Peer] = deque()
    size = BOUND - 100
    large = Peer(FrameBuffer(BOUND, pool), bytearray(size.to_bytes(4, "big") + bytes(size // 2)), calls)
    large.receive(BOUND)
    exceeding, *waiting = peers_of(pool, [[LARGEST], [300_000], [300_000], [300_000]])
    for peer in (exceeding, *waiting):
        peer.calls = calls
        peer.receive(100_000)
    assert [it.is_starved for it in (exceeding, *waiting)] == [False, True, True, True]
    large.close()
    for peer in waiting:
        assert calls.popleft() is peer
        peer.resume()
        assert not peer.is_starved


@pytest.mark.parametrize("is_the_one_that_exceeds", [True, False])
def test_connections_that_close_let_the_next_one_continue(is_the_one_that_exceeds: bool) -> None:
    pool = BufferPool(max_bytes=BOUND)
    peers = begun(pool, 6)
    going = [it for it in peers if not it.is_starved]
    for leaving in going[-1:] if is_the_one_that_exceeds else going[:-1]:
        leaving.close()
    assert peers[0].calls[0] is next(it for it in peers if it.is_starved)
    assert pool.used_bytes == sum(it.frames.capacity for it in peers)


def test_requests_that_arrive_whole_do_not_wait_while_memory_is_full() -> None:
    pool = BufferPool(max_bytes=BOUND)
    begun(pool, 4)
    assert pool.is_full
    (small,) = peers_of(pool, [[100] * 5])
    small.receive(LARGEST)
    assert small.taken == [100] * 5


def test_a_frame_in_use_keeps_its_bytes_when_its_connection_closes() -> None:
    pool = BufferPool()
    frames = FrameBuffer(LARGEST, pool)
    content = b"x" * (LARGEST - 1)
    stream = len(content).to_bytes(4, "big") + content
    found = None
    while found is None:
        room = frames.writable()
        count = min(len(room), len(stream))
        room[:count], stream = stream[:count], stream[count:]
        frames.received(count)
        found = frames.next_frame()
    frames.close()
    other = FrameBuffer(LARGEST, pool)
    receive = Peer(other, bytearray((LARGEST).to_bytes(4, "big") + b"y" * LARGEST), deque())
    receive.receive(LARGEST)
    assert bytes(found) == content
