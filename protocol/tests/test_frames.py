"""Frames come out as they went in, however the bytes arrive, and memory follows the bytes that did arrive."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kwire_protocol.frames import INITIAL_BYTES, ROOM_BYTES, SHRINK_AFTER_FILLS, FrameBuffer
from kwire_protocol.wire import ProtocolError

LIMIT = 1_000_000


def frame(content: bytes) -> bytes:
    return len(content).to_bytes(4, "big") + content


def receive(buffer: FrameBuffer, data: bytes) -> list[bytes]:
    """As a connection does: as much as there is room for, then all frames."""
    frames = []
    while data:
        room = buffer.writable()
        assert len(room) >= ROOM_BYTES
        count = min(len(room), len(data))
        room[:count] = data[:count]
        data = data[count:]
        buffer.received(count)
        while (found := buffer.next_frame()) is not None:
            frames.append(bytes(found))
    return frames


@given(st.lists(st.integers(0, 60_000), max_size=12), st.lists(st.integers(1, 70_000), min_size=1, max_size=12))
def test_frames_do_not_depend_on_how_the_bytes_arrive(sizes: list[int], steps: list[int]) -> None:
    contents = [bytes([i]) * size for i, size in enumerate(sizes)]
    stream = b"".join(map(frame, contents))
    buffer = FrameBuffer(LIMIT)
    frames, at, step = [], 0, 0
    while at < len(stream):
        size = steps[step % len(steps)]
        frames += receive(buffer, stream[at : at + size])
        at, step = at + size, step + 1
    assert frames == contents
    assert buffer.pending == 0


def test_a_claimed_size_allocates_nothing() -> None:
    buffer = FrameBuffer(100_000_000)
    assert receive(buffer, (90_000_000).to_bytes(4, "big") + b"x") == []
    assert buffer.capacity == INITIAL_BYTES


def test_capacity_stays_within_twice_the_bytes_that_arrived() -> None:
    buffer = FrameBuffer(100_000_000)
    stream = frame(bytes(5_000_000))
    for at in range(0, len(stream), 1000):
        receive(buffer, stream[at : at + 1000])
        assert buffer.capacity <= max(INITIAL_BYTES, 2 * (at + 1000 + ROOM_BYTES))


@pytest.mark.parametrize("size", [-1, LIMIT + 1, -(2**31), 2**31 - 1])
def test_a_size_out_of_bounds_is_refused_at_once(size: int) -> None:
    buffer = FrameBuffer(LIMIT)
    with pytest.raises(ProtocolError):
        receive(buffer, size.to_bytes(4, "big", signed=True))


def test_the_limit_may_change_on_the_way() -> None:
    buffer = FrameBuffer(10)
    buffer.max_frame_bytes = 100
    assert receive(buffer, frame(bytes(100))) == [bytes(100)]


def test_a_large_buffer_is_kept_while_it_is_used_and_let_go_after() -> None:
    buffer = FrameBuffer(LIMIT)
    large = frame(bytes(900_000))
    receive(buffer, large)
    capacity = buffer.capacity
    for _ in range(3 * SHRINK_AFTER_FILLS):
        receive(buffer, large)
    assert buffer.capacity == capacity
    for _ in range(8 * SHRINK_AFTER_FILLS):
        receive(buffer, frame(b"small"))
    assert buffer.capacity == INITIAL_BYTES


def test_an_idle_connection_keeps_only_what_is_pending() -> None:
    buffer = FrameBuffer(LIMIT)
    receive(buffer, frame(bytes(900_000)))
    buffer.shrink()
    assert buffer.capacity == 0
    receive(buffer, frame(bytes(900_000)) + frame(b"abc")[:5])
    buffer.shrink()
    assert buffer.capacity == INITIAL_BYTES
    assert receive(buffer, b"bc") == [b"abc"]


def test_a_frame_is_a_writable_slice_that_outlives_its_buffer() -> None:
    buffer = FrameBuffer(LIMIT)
    room = buffer.writable()
    data = frame(b"abc")
    room[: len(data)] = data
    buffer.received(len(data))
    found = buffer.next_frame()
    assert found is not None
    found[0:1] = b"X"
    buffer.shrink()
    assert bytes(found) == b"Xbc"
