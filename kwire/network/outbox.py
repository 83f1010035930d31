"""The outgoing replies of a connection: those that are being written, and those that the socket has not accepted yet.

A reply is a list of pieces: bytes, and regions of segment files. On a plain transport regions are sent with sendfile,
without passing through Python.
"""

from __future__ import annotations

import socket
from collections import deque

from kwire_protocol.wire import Writer
from kwire_storage.log.log import LogSlice

from kwire.runtime.transport import Bytes, PeerLost, Transport

Piece = Bytes | LogSlice

SEND_CHUNK_BYTES = 128 * 1024
"""The maximum that is sent of a file in one turn, so that a large response does not delay other connections. With half
as much, a reader that keeps up sleeps between the pieces, and waking it is the most costly part of sending."""


SLOW_READER_FACTOR = 4
"""The factor by which a slow reader's send buffer is larger. With 64 KiB, Kafka's own consumer makes the broker wake up
or spin many times for each MiB. But in a large buffer the bytes for a reader that keeps up leave the CPU caches."""

MOST_STEPS = 64
STEPS_WHILE_SLOW = 8
"""A reader counts as slow once pauses outnumber the pieces sent without a pause by MOST_STEPS. With the larger buffer
pauses are rare, so each counts for several: the reader stays slow until almost no pauses occur."""


class Outbox:
    """The sending side of one connection. `writer` collects the replies; `flush` sends them.

    If the transport does not accept everything, call `flush` again when its socket is writable. Each `flush` may
    replace `writer`.

    send_buffer_bytes: the size that the socket's send buffer was set to. If it is 0 or less, the system decides it.
    """

    __slots__ = ("_is_slow_reader", "_send_buffer_bytes", "_slowness", "_transport", "_unsent", "writer")

    def __init__(self, transport: Transport, send_buffer_bytes: int) -> None:
        self.writer = Writer()
        self._transport = transport
        self._send_buffer_bytes = send_buffer_bytes
        self._slowness = 0
        self._is_slow_reader = False
        self._unsent: deque[tuple[Piece, int]] = deque()
        """Pieces from the writer that the socket has not accepted yet, with the flags of each send."""

    def flush(self) -> bool:
        """Sends as much as the socket accepts, at most SEND_CHUNK_BYTES of a region. Returns True if nothing is left.

        Raises PeerLost.
        """
        if self._unsent and not self._send_some():
            return False
        writer = self.writer
        buf = writer.buf
        if not buf:
            return True
        if not writer.attachments:
            sent = self._send(buf, 0)
            if sent == len(buf):
                buf.clear()
                return True
            self._unsent.append((memoryview(buf)[sent:], 0))
            self.writer = Writer()
            return False
        self.writer = Writer()
        pieces = writer.pieces()
        last = len(pieces) - 1
        for number, piece in enumerate(pieces):
            assert isinstance(piece, (bytes, bytearray, memoryview, LogSlice)), "what handlers answer with"
            # With MSG_MORE the kernel may put a reply's head and its records into one TCP segment.
            self._unsent.append((piece, 0 if number == last else socket.MSG_MORE))
        return self._send_some()

    def adapt(self, *, had_to_wait: bool) -> None:
        """Called each time the socket has room again. `had_to_wait`: the broker had nothing else to do meanwhile.

        If that is so most of the time, the reader is slow, and its send buffer is made larger.
        """
        if had_to_wait:
            step = STEPS_WHILE_SLOW if self._is_slow_reader else 1
            self._slowness = min(self._slowness + step, MOST_STEPS)
            if self._slowness == MOST_STEPS and not self._is_slow_reader:
                self._is_slow_reader = True
                self._resize(self._send_buffer_bytes * SLOW_READER_FACTOR)
        else:
            self._slowness = max(self._slowness - 1, 0)
            if self._slowness == 0 and self._is_slow_reader:
                self._is_slow_reader = False
                self._resize(self._send_buffer_bytes)

    def _resize(self, send_buffer_bytes: int) -> None:
        if send_buffer_bytes > 0:
            self._transport.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer_bytes)

    def _send_some(self) -> bool:
        unsent = self._unsent
        while unsent:
            piece, flags = unsent[0]
            if isinstance(piece, LogSlice):
                sent = self._send_slice(piece, flags)
                if sent < piece.size:
                    rest = LogSlice(piece.file, piece.position + sent, piece.size - sent, piece.base_offset)
                    unsent[0] = rest, flags
                    return False
            else:
                sent = self._send(piece, flags)
                if sent < len(piece):
                    unsent[0] = memoryview(piece)[sent:], flags
                    return False
            unsent.popleft()
        return True

    def _send(self, data: Bytes, flags: int) -> int:
        try:
            return self._transport.send(data, flags)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise PeerLost from error

    def _send_slice(self, piece: LogSlice, flags: int) -> int:
        descriptor = piece.file.fileno()
        send_file = self._transport.send_file
        size = min(piece.size, SEND_CHUNK_BYTES)
        try:
            if descriptor is None or send_file is None:  # the disk in memory, or a transport that is not plain
                chunk = piece.file.read(piece.position, size)
                sent = self._transport.send(chunk, socket.MSG_MORE if size < piece.size else flags) if chunk else 0
            else:
                sent = send_file(descriptor, piece.position, size)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise PeerLost from error
        if sent == 0:
            raise PeerLost("the segment is shorter than the reply that names it")
        return sent
