"""Frames come out as they went in, however the bytes arrive, and memory follows the bytes that did arrive."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kwire_protocol.frames import (
    BEGUN_BYTES,
    LARGEST_EXPECTED_BYTES,
    ROOM_BYTES,
    SCRATCH_BYTES,
    BufferPool,
    FrameBuffer,
)
from kwire_protocol.wire import ProtocolError

LIMIT = 1_000_000


def frame(content: bytes) -> bytes:
    return len(content).to_bytes(4, "big") + content


def buffer_pool_is_overwritten(buffer: FrameBuffer) -> None:
    """Overwrites the scratch buffer as another connection does meanwhile."""
    scratch = buffer._pool.scratch
    scratch[:ROOM_BYTES] = b"\xee" * ROOM_BYTES


def receive(buffer: FrameBuffer, data: bytes) -> list[bytes]:
    """Receives as a connection does: as much as there is room for, then all frames."""
    frames = []
    while data:
        room = buffer.writable()
        assert len(room) >= ROOM_BYTES
        count = min(len(room), len(data))
        room[:count] = data[:count]
        data = data[count:]
        if (whole := buffer.whole_frame(count)) is not None:
            frames.append(bytes(whole))
        else:
            buffer.received(count)
        while (found := buffer.next_frame()) is not None:
            frames.append(bytes(found))
        buffer.release()
        buffer_pool_is_overwritten(buffer)
    return frames


@given(
    st.lists(st.integers(0, 60_000) | st.just(2 * SCRATCH_BYTES), max_size=12),
    st.lists(st.integers(500, 70_000), min_size=1, max_size=12),
)
def test_frames_do_not_depend_on_how_the_bytes_arrive(sizes: list[int], steps: list[int]) -> None:
    contents = [bytes([i]) * size for i, size in enumerate(sizes)]
    stream = b"".join(map(frame, contents))
    buffer = FrameBuffer(LIMIT, BufferPool())
    frames, at, step = [], 0, 0
    while at < len(stream):
        size = steps[step % len(steps)]
        frames += receive(buffer, stream[at : at + size])
        at, step = at + size, step + 1
    assert frames == contents
    assert buffer.pending == 0


def test_bytes_that_are_no_whole_frame_are_left_to_the_buffer() -> None:
    buffer = FrameBuffer(100, BufferPool())
    for data in (frame(b"one") + frame(b"two"), frame(b"one")[:-1], b"\0\0\0", b"\xff\xff\xff\xff", frame(bytes(101))):
        buffer.writable()[: len(data)] = data
        assert buffer.whole_frame(len(data)) is None
    assert buffer.pending == 0
    buffer.writable()[:2] = b"\0\0"
    buffer.received(2)
    # The beginning of another frame is in the buffer.
    buffer.writable()[:7] = frame(b"one")
    assert buffer.whole_frame(7) is None


def test_a_claimed_size_allocates_nothing() -> None:
    buffer = FrameBuffer(100_000_000, BufferPool())
    assert receive(buffer, (90_000_000).to_bytes(4, "big") + b"x") == []
    assert buffer.capacity <= 2 * ROOM_BYTES


def test_capacity_stays_within_twice_the_bytes_that_arrived_or_one_usual_frame() -> None:
    buffer = FrameBuffer(100_000_000, BufferPool())
    stream = frame(bytes(5_000_000))
    for at in range(0, len(stream), 1000):
        receive(buffer, stream[at : at + 1000])
        least = 0 if at + 1000 < BEGUN_BYTES else LARGEST_EXPECTED_BYTES
        assert buffer.capacity <= max(2 * (at + 1000 + ROOM_BYTES), least)


@pytest.mark.parametrize("size", [-1, LIMIT + 1, -(2**31), 2**31 - 1])
def test_a_size_out_of_bounds_is_refused_at_once(size: int) -> None:
    buffer = FrameBuffer(LIMIT, BufferPool())
    with pytest.raises(ProtocolError):
        receive(buffer, size.to_bytes(4, "big", signed=True))


def test_the_limit_may_change_on_the_way() -> None:
    buffer = FrameBuffer(10, BufferPool())
    buffer.max_frame_bytes = 100
    assert receive(buffer, frame(bytes(100))) == [bytes(100)]


def test_frames_that_arrive_whole_need_no_memory_of_the_connections_own() -> None:
    buffer = FrameBuffer(LIMIT, BufferPool())
    for _ in range(10):
        receive(buffer, frame(b"small") * 100)
        assert buffer.capacity == 0


def test_a_buffer_goes_back_to_the_pool_and_serves_the_next_connection() -> None:
    pool = BufferPool()
    one, other = FrameBuffer(LIMIT, pool), FrameBuffer(LIMIT, pool)
    receive(one, frame(bytes(900_000))[:-1])
    assert one.capacity > 900_000
    assert receive(one, b"\0") == [bytes(900_000)]
    assert one.capacity == 0
    before = pool.free_bytes
    receive(other, frame(bytes(900_000)))
    assert pool.free_bytes <= before


def test_a_pool_keeps_no_more_than_it_may() -> None:
    pool = BufferPool(max_free_bytes=1 << 20)
    buffers = [pool.take(1 << 18) for _ in range(10)]
    for buffer in buffers:
        pool.give(buffer)
    assert pool.free_bytes == 1 << 20


@pytest.mark.parametrize("size", [1, ROOM_BYTES, ROOM_BYTES + 1, 100_000, 1 << 20])
def test_a_pool_returns_less_than_twice_the_requested_size(size: int) -> None:
    assert size <= len(BufferPool().take(size)) < 2 * max(size, ROOM_BYTES)


def test_two_connections_that_let_go_do_not_mix_their_bytes() -> None:
    pool = BufferPool()
    one, other = FrameBuffer(LIMIT, pool), FrameBuffer(LIMIT, pool)
    first, second = frame(b"a" * 1000), frame(b"b" * 1000)
    receive(one, first[:500])
    one.release()
    receive(other, second[:700])
    other.release()
    assert receive(one, first[500:]) == [b"a" * 1000]
    one.release()
    assert receive(other, second[700:]) == [b"b" * 1000]


def test_frames_behind_the_one_that_waits_are_kept() -> None:
    pool = BufferPool()
    one, other = FrameBuffer(LIMIT, pool), FrameBuffer(LIMIT, pool)
    room = one.writable()
    data = frame(b"first") + frame(b"second") + frame(b"third")
    room[: len(data)] = data
    one.received(len(data))
    first = one.next_frame()
    assert first is not None
    assert bytes(first) == b"first"
    one.release()
    receive(other, frame(b"x" * 100))
    assert [bytes(it) for it in iter(one.next_frame, None)] == [b"second", b"third"]


def test_a_frame_is_a_writable_slice() -> None:
    buffer = FrameBuffer(LIMIT, BufferPool())
    room = buffer.writable()
    data = frame(b"abc")
    room[: len(data)] = data
    buffer.received(len(data))
    found = buffer.next_frame()
    assert found is not None
    found[0:1] = b"X"
    assert bytes(found) == b"Xbc"
