"""Splits a stream of bytes into frames: an int32 size, then as many bytes.

Made for `recv_into`: the connection receives into `writable()`, says how much came with `received(n)`, and takes
frames with `next_frame()` until there is none. A frame is a slice of the buffer, writable and without a copy, and
lasts until the next `writable()`.

    +----------- capacity -------------+
    | taken | frame | half a frame | room |
            ^start                 ^stop

Memory follows the bytes that arrived, never a size that was only claimed: a full buffer doubles. A buffer that has
been more than twice too large for a while is let go again; an idle connection can let go of it at once with
`shrink()`."""

from __future__ import annotations

from struct import Struct

from kwire_protocol.wire import ProtocolError

INITIAL_BYTES = 32 * 1024
ROOM_BYTES = 16 * 1024  # the least room that a receive gets: fewer system calls
SHRINK_AFTER_FILLS = 64  # so many times emptied without need of half the buffer

_SIZE = Struct(">i")


class FrameBuffer:
    """`max_frame_bytes` may be changed at any time: a connection is held shorter until it has authenticated."""

    __slots__ = ("_buf", "_largest", "_small_fills", "_start", "_stop", "_view", "max_frame_bytes")

    def __init__(self, max_frame_bytes: int) -> None:
        self.max_frame_bytes = max_frame_bytes
        self._buf = bytearray()
        self._view = memoryview(self._buf)
        self._start = 0
        self._stop = 0
        self._largest = 0
        self._small_fills = 0

    @property
    def pending(self) -> int:
        """Bytes received that have not been taken as a frame."""
        return self._stop - self._start

    @property
    def capacity(self) -> int:
        return len(self._buf)

    def writable(self) -> memoryview:
        """Room of at least ROOM_BYTES to receive into. Frames taken before are no longer valid."""
        capacity = len(self._buf)
        if self._start == self._stop:
            self._start = self._stop = 0
            if capacity > INITIAL_BYTES:
                capacity = self._settle(capacity)
            elif not capacity:
                self._replace(INITIAL_BYTES)
        elif capacity - self._stop < ROOM_BYTES:
            self._make_room(capacity)
        return self._view[self._stop :]

    def received(self, count: int) -> None:
        self._stop += count

    def next_frame(self) -> memoryview | None:
        """The next whole frame without its size, or None. ProtocolError as soon as a size is seen to be wrong."""
        start = self._start + 4
        if start > self._stop:
            return None
        (size,) = _SIZE.unpack_from(self._buf, start - 4)
        end: int = start + size
        if size < 0 or size > self.max_frame_bytes:
            raise ProtocolError(f"a frame claims {size} bytes; the limit is {self.max_frame_bytes}")
        if end > self._stop:
            return None
        if size > self._largest:
            self._largest = size
        self._start = end
        return self._view[start:end]

    def shrink(self) -> None:
        """For a connection that falls idle: keeps what an unfinished frame needs. Frames taken are no longer valid."""
        pending = self.pending
        if not pending:
            self._replace(0)
        elif len(self._buf) > max(INITIAL_BYTES, 2 * pending):
            self._replace(max(INITIAL_BYTES, pending))

    def _settle(self, capacity: int) -> int:
        """The buffer is empty: has it been too large for a while?"""
        if 2 * (self._largest + 4) > capacity:
            self._small_fills = 0
            self._largest = 0
        else:
            self._small_fills += 1
            if self._small_fills > SHRINK_AFTER_FILLS:
                capacity = max(INITIAL_BYTES, capacity // 2)
                self._replace(capacity)
                self._small_fills = 0
                self._largest = 0
        return capacity

    def _make_room(self, capacity: int) -> None:
        """Something is pending and the room behind it is short: move it to the front if that is enough, else double."""
        pending = self._stop - self._start
        if 2 * pending <= capacity and capacity - pending >= ROOM_BYTES:
            self._view[:pending] = self._view[self._start : self._stop]
            self._start, self._stop = 0, pending
        else:
            self._replace(max(2 * pending, pending + ROOM_BYTES, INITIAL_BYTES))

    def _replace(self, capacity: int) -> None:
        """A new buffer, not a resized one: slices of the old one may still be alive."""
        pending = self._view[self._start : self._stop]
        self._buf = bytearray(capacity)
        self._view = memoryview(self._buf)
        self._view[: len(pending)] = pending
        self._start, self._stop = 0, len(pending)
