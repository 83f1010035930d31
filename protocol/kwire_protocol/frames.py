"""Splits a stream of bytes into frames: an int32 size, then as many bytes.

Made for `recv_into`: the connection receives into `writable()`, reports the number of bytes with `received(n)`, and
takes frames with `next_frame()` until there is none. If the bytes are exactly one frame, `whole_frame(n)` is cheaper. A
frame is a slice of the buffer: it is writable, not copied, and valid until the next `writable()` or `release()`.

    +----------- capacity -------------+
    | taken | frame | half a frame | room |
            ^start                 ^stop

The connections of a thread share a `BufferPool`. They receive into its scratch buffer first, so a connection that is
silent, or whose requests arrive whole, has no memory of its own. An incomplete frame moves into a buffer from the pool,
which is returned when the frame is taken. Before a connection waits for anything it calls `release`, which leaves the
scratch buffer to the others.

Memory grows with the bytes that have arrived, not with a claimed size: a full buffer doubles. When BEGUN_BYTES have
arrived, the buffer gets the claimed size, up to LARGEST_EXPECTED_BYTES; its pages cost nothing until bytes arrive.

All buffers together are bounded by the pool's `max_bytes` (Kafka's SimpleMemoryPool, queued.max.request.bytes). A
connection that needs more than that waits. One connection at a time may exceed the bound until its frame is complete,
so there is always one that continues.

A broker has processed a frame before it receives again. A client has not: it reads the records of a fetch while the
next one arrives. `ReplyBuffer` is for clients: it has the same interface, and its frames stay valid.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from mmap import mmap
from struct import Struct
from typing import Final

import attrs

from kwire_protocol.wire import ProtocolError

SCRATCH_BYTES: Final = 256 * 1024
ROOM_BYTES: Final = 16 * 1024  # the least room that a receive gets: fewer system calls
BEGUN_BYTES: Final = 64 * 1024  # the bytes of a frame after which its claimed size is trusted
MAX_FREE_BYTES: Final = 16 << 20  # the maximum size of the unused buffers in a pool
LARGEST_EXPECTED_BYTES: Final = 4 << 20  # a larger frame gets no room before it arrives
MAPPED_BYTES: Final = 32 * 1024  # from this size on, a dropped buffer goes back to the system
AHEAD_BYTES: Final = 64 * 1024  # the bytes of small replies that are received at once

_TLS_HANDSHAKES: Final = range(0x160300, 0x160305)  # the first three bytes of TLS, from SSL 3.0 to TLS 1.3

_SIZE = Struct(">i")


Buffer = bytearray | mmap


class MemoryIsFull(Exception):
    """The pool has no memory left for more of this frame. See `FrameBuffer.when_there_is_memory`."""


@attrs.define(eq=False)
class BufferPool:
    """Buffers with sizes of powers of two. The last one returned is reused first: it is still in the CPU caches.

    A large buffer is mapped: untouched pages take no memory, and dropping it returns the rest to the system.

    `max_bytes` bounds the buffers in use. Beyond it there are the frame of the connection that may exceed it, the one
    that took the last bytes, and twice ROOM_BYTES for each other connection with an incomplete frame.
    """

    max_bytes: int = sys.maxsize
    max_free_bytes: int = MAX_FREE_BYTES
    scratch: memoryview = attrs.field(factory=lambda: memoryview(bytearray(SCRATCH_BYTES)))
    used_bytes: int = attrs.field(default=0, init=False)
    """The bytes in buffers that connections hold."""
    is_full: bool = attrs.field(default=False, init=False)
    """True if the bound is reached, or connections wait for memory."""
    _free: dict[int, list[Buffer]] = attrs.field(factory=dict, init=False)
    _free_bytes: int = attrs.field(default=0, init=False)
    _waiting: dict[FrameBuffer, Callable[[], None]] = attrs.field(factory=dict, init=False)
    """The waiting connections, in the order in which they began to wait."""
    _called: set[FrameBuffer] = attrs.field(factory=set, init=False)
    """The connections that no longer wait, but have not continued yet."""
    _exceeding: FrameBuffer | None = attrs.field(default=None, init=False)
    """The connection that may exceed the bound. There is one whenever others wait."""

    @property
    def free_bytes(self) -> int:
        """The size in bytes of the unused buffers, without the scratch buffer."""
        return self._free_bytes

    def take(self, size: int) -> Buffer:
        """Returns a buffer of at least `size` bytes and less than twice as many. Its content is arbitrary.

        Raises MemoryError.
        """
        capacity = _rounded(size)
        free = self._free.get(capacity)
        if free:
            self._free_bytes -= capacity
            buffer = free.pop()
        else:
            buffer = bytearray(capacity) if capacity < MAPPED_BYTES else _mapped(capacity)
        self.used_bytes += capacity
        if self.used_bytes >= self.max_bytes:
            self.is_full = True
        return buffer

    def give(self, buffer: Buffer) -> None:
        """Returns a buffer to the pool. Above `max_free_bytes` it is dropped."""
        if self._free_bytes + len(buffer) <= self.max_free_bytes:
            self._free_bytes += len(buffer)
            self._free.setdefault(len(buffer), []).append(buffer)
        self.drop(buffer)

    def drop(self, buffer: Buffer) -> None:
        """Counts a buffer as no longer used. Its memory is freed when nothing refers to it."""
        self.used_bytes -= len(buffer)
        if self.is_full:
            self._call_next()

    def admits(self, frames: FrameBuffer, more: int) -> bool:
        """Returns True if `frames` may take so many bytes more. If not, it must wait."""
        if frames is self._exceeding:
            return True
        was_called = frames in self._called
        self._called.discard(frames)
        if was_called:
            if self.used_bytes < self.max_bytes:  # as in Kafka, the last bytes are enough for a whole request
                return True
        elif not self._waiting and self.used_bytes + more <= self.max_bytes:
            return True
        if self._exceeding is None:
            self._exceeding = frames
            return True
        return False

    def wait(self, frames: FrameBuffer, call: Callable[[], None]) -> None:
        """Calls `call` when `frames`, which was not admitted, may try again."""
        self._waiting[frames] = call
        self.is_full = True

    def forget(self, frames: FrameBuffer) -> None:
        """Notes that `frames` neither waits any more nor exceeds the bound."""
        self._waiting.pop(frames, None)
        self._called.discard(frames)
        if frames is self._exceeding:
            self._exceeding = None
        if self.is_full:
            self._call_next()

    def turn_ended(self, frames: FrameBuffer) -> None:
        """Called when `frames` has all the memory that it needs in this turn, so that the next one may try."""
        self._called.discard(frames)
        if not self._called:
            self._call_next()

    def _call_next(self) -> None:
        """Calls the first that waits, if there is memory for it or if it may exceed the bound now."""
        if self._waiting and (self._exceeding is None or self.used_bytes < self.max_bytes):
            frames = next(iter(self._waiting))
            call = self._waiting.pop(frames)
            if self._exceeding is None:
                self._exceeding = frames
            else:
                self._called.add(frames)
            call()
        self.is_full = bool(self._waiting) or self.used_bytes >= self.max_bytes


def _rounded(size: int) -> int:
    """The size of the buffer that has room for so many bytes."""
    return 1 << (max(size, ROOM_BYTES) - 1).bit_length()


def _mapped(capacity: int) -> mmap:
    try:
        return mmap(-1, capacity)
    except OSError as error:
        raise MemoryError(f"no memory for a buffer of {capacity} bytes: {error.strerror}") from error


class FrameBuffer:
    """`max_frame_bytes` may change at any time: the limit is lower until a connection has authenticated."""

    __slots__ = (
        "_expected",
        "_is_admitted",
        "_own",
        "_pool",
        "_start",
        "_stop",
        "_view",
        "completed",
        "max_frame_bytes",
    )

    def __init__(self, max_frame_bytes: int, pool: BufferPool) -> None:
        self.max_frame_bytes = max_frame_bytes
        self._pool = pool
        self._own: Buffer | None = None
        self._is_admitted = False
        """True if the pool has admitted the buffer for the incomplete frame; that of an earlier frame is not."""
        self._view = pool.scratch
        self._start = 0
        self._stop = 0
        self.completed = 0
        """The count of frames that were taken from a buffer of this connection's own."""
        self._expected = 0
        """The size of the last frame if it did not fit into the scratch buffer: the next one may be as large."""

    @property
    def pending(self) -> int:
        """Bytes received that have not been taken as a frame."""
        return self._stop - self._start

    @property
    def capacity(self) -> int:
        """The size in bytes of this connection's own buffer."""
        return 0 if self._own is None else len(self._own)

    def writable(self) -> memoryview:
        """Returns a buffer of at least ROOM_BYTES to receive into. Frames taken before are no longer valid.

        Raises MemoryIsFull if the rest of an incomplete frame must wait.
        """
        if self._start == self._stop:
            self._start = self._stop = 0
            if self._own is not None:
                self._give_back()
            if self._pool.is_full:
                return self._view[:ROOM_BYTES]
            if self._expected:
                self._move(self._expected)
        elif len(self._view) - self._stop < ROOM_BYTES or self._own is None:
            self._make_room()
        return self._view[self._stop :]

    def whole_frame(self, count: int) -> memoryview | None:
        """Returns the frame that so many bytes in `writable()` are, if they are exactly one, as most requests are.

        If not, returns None: call `received`, and `next_frame` has the frames.
        """
        if count > 4 and self._own is None and not self._stop:
            size = _SIZE.unpack_from(self._view)[0]
            if size == count - 4 and size <= self.max_frame_bytes:
                return self._view[4:count]
        return None

    def received(self, count: int) -> None:
        self._stop += count

    def next_frame(self) -> memoryview | None:
        """The next whole frame without its size, or None. ProtocolError as soon as a size is seen to be wrong."""
        start = self._start + 4
        if start > self._stop:
            return None
        (size,) = _SIZE.unpack_from(self._view, start - 4)
        end: int = start + size
        if size < 0 or size > self.max_frame_bytes:
            raise ProtocolError(_refusal(size, self.max_frame_bytes))
        if end > self._stop:
            return None
        self._start = end
        if self._own is not None:
            self._expected = min(size + 4, LARGEST_EXPECTED_BYTES) if size >= SCRATCH_BYTES else 0
            self._is_admitted = False
            self.completed += 1
            self._pool.forget(self)
        return self._view[start:end]

    def when_there_is_memory(self, call: Callable[[], None]) -> None:
        """Calls `call` once, when `writable` may succeed after it has raised MemoryIsFull."""
        self._pool.wait(self, call)

    def close(self) -> None:
        """Drops the received bytes. A frame that is still in use keeps its memory."""
        self._start = self._stop = 0
        if self._own is not None:
            own, self._own, self._view = self._own, None, self._pool.scratch
            self._pool.drop(own)
        self._pool.forget(self)

    def release(self) -> None:
        """Releases the scratch buffer to other connections, and returns unused buffers; must be called before any wait.

        Frames taken before are no longer valid.
        """
        if self._start == self._stop:
            self._start = self._stop = 0
            if self._own is not None:
                self._give_back()
            return
        if self._own is None:
            self._move(self.pending)
        elif self._pool.is_full:
            wanted = self.pending + ROOM_BYTES
            # Beyond the bound, the next frame does not inherit the memory of the one before.
            if self._is_admitted or self._pool.used_bytes <= self._pool.max_bytes:
                wanted = self._wanted(wanted)
            if _rounded(wanted) < len(self._own):
                self._move(wanted)
        if self._pool.is_full:
            self._pool.turn_ended(self)

    def _give_back(self) -> None:
        assert self._own is not None
        own, self._own, self._view = self._own, None, self._pool.scratch
        self._pool.give(own)

    def _make_room(self) -> None:
        """Moves the pending bytes to the front if that is enough, else into a buffer twice as large."""
        pending = self._stop - self._start
        capacity = self.capacity
        if 2 * pending <= capacity and capacity - pending >= ROOM_BYTES:
            self._view[:pending] = self._view[self._start : self._stop]
            self._start, self._stop = 0, pending
            return
        wanted = self._wanted(pending + ROOM_BYTES if self._own is None else max(2 * pending, pending + ROOM_BYTES))
        if not self._pool.admits(self, _rounded(wanted) - self.capacity):
            raise MemoryIsFull
        self._is_admitted = True
        self._move(wanted)

    def _wanted(self, capacity: int) -> int:
        """The capacity for the frame whose beginning has arrived: all of it, unless it is unusually large.

        If it had to wait for more memory later, it would hold its buffer meanwhile, and many such frames would leave
        too little to complete any.
        """
        if self.pending < BEGUN_BYTES:
            return capacity
        size: int = _SIZE.unpack_from(self._view, self._start)[0]
        return max(capacity, min(size + 4, LARGEST_EXPECTED_BYTES))

    def _move(self, capacity: int) -> None:
        """Moves the pending bytes into another buffer of this connection's own."""
        pending = self._view[self._start : self._stop]
        own = self._pool.take(max(capacity, len(pending) + ROOM_BYTES))
        view = memoryview(own)
        view[: len(pending)] = pending
        before, self._own, self._view = self._own, own, view
        self._start, self._stop = 0, len(pending)
        if before is not None:
            self._pool.give(before)


def _refusal(size: int, limit: int) -> str:
    """The reason why a frame of that size is refused. The first bytes of a TLS handshake are a very large size."""
    if size >> 8 in _TLS_HANDSHAKES:
        return "it speaks TLS, and this listener does not: a client of it needs a security.protocol without SSL"
    return f"a frame claims {size} bytes; the limit is {limit}"


class ReplyBuffer:
    """Frames that stay valid: each has its own memory, which lives as long as a slice of it is referenced.

    Small frames are received together, `AHEAD_BYTES` at once, and copied out. If only the beginning of a frame has
    arrived, it gets a buffer of its size, and the rest is received there, so a large frame is never copied whole. A
    claimed size gets at most LARGEST_EXPECTED_BYTES, or the size of the largest frame so far; above that the buffer
    doubles as it fills.
    """

    __slots__ = ("_ahead", "_filled", "_frame", "_largest", "_size", "_start", "_stop", "max_frame_bytes")

    def __init__(self, max_frame_bytes: int) -> None:
        self.max_frame_bytes = max_frame_bytes
        self._ahead = memoryview(bytearray(AHEAD_BYTES))
        self._start = 0
        self._stop = 0
        self._frame: memoryview | None = None
        """The frame that is being received; `_filled` bytes of `_size` have arrived."""
        self._filled = 0
        self._size = 0
        self._largest = LARGEST_EXPECTED_BYTES

    @property
    def pending(self) -> int:
        """Bytes received that have not been taken as a frame."""
        return self._stop - self._start + (0 if self._frame is None else 4 + self._filled)

    @property
    def capacity(self) -> int:
        """The size in bytes of the buffers for frames that have not been taken."""
        return len(self._ahead) + (0 if self._frame is None else len(self._frame))

    def writable(self) -> memoryview:
        """Returns a buffer of at least one byte to receive into."""
        if self._frame is not None:
            if self._filled == len(self._frame) < self._size:
                grown = memoryview(bytearray(min(self._size, 2 * self._filled)))
                grown[: self._filled] = self._frame
                self._frame = grown
            if self._filled < self._size:
                return self._frame[self._filled :]
        if self._start == self._stop:
            self._start = self._stop = 0
        elif len(self._ahead) - self._stop < ROOM_BYTES:
            self._make_room()
        return self._ahead[self._stop :]

    def received(self, count: int) -> None:
        if self._frame is not None and self._filled < self._size:
            self._filled += count
        else:
            self._stop += count

    def next_frame(self) -> memoryview | None:
        """The next whole frame without its size, or None. ProtocolError as soon as a size is seen to be wrong."""
        frame = self._frame
        if frame is not None:
            if self._filled < self._size:
                return None
            self._frame = None
            self._largest = max(self._largest, self._size)
            return frame
        start = self._start + 4
        if start > self._stop:
            return None
        (size,) = _SIZE.unpack_from(self._ahead, start - 4)
        if size < 0 or size > self.max_frame_bytes:
            raise ProtocolError(f"a reply of {size} bytes; the limit is {self.max_frame_bytes}")
        end: int = start + size
        if end <= self._stop:
            self._start = end
            return memoryview(bytearray(self._ahead[start:end]))
        there = self._stop - start
        self._frame = memoryview(bytearray(min(size, max(self._largest, there))))
        self._frame[:there] = self._ahead[start : self._stop]
        self._filled, self._size = there, size
        self._start = self._stop = 0
        return None

    def _make_room(self) -> None:
        """Moves the pending bytes to the front, of a larger buffer only if the caller has left frames in it."""
        pending = self._ahead[self._start : self._stop]
        room = len(self._ahead)
        while room - len(pending) < ROOM_BYTES:
            room *= 2
        ahead = memoryview(bytearray(room))
        ahead[: len(pending)] = pending
        self._ahead = ahead
        self._start, self._stop = 0, len(pending)
