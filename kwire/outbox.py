"""What a connection sends: replies that are being written, and those that the peer has not taken yet.

A reply is a list of pieces: bytes, and regions of segment files that go out by sendfile without passing through Python.
"""

from __future__ import annotations

import os
import socket
from collections import deque

from kwire_protocol.wire import Writer
from kwire_storage.log import LogSlice

Piece = bytes | bytearray | memoryview | LogSlice

SEND_CHUNK_BYTES = 128 * 1024
"""No more of a file is sent in one turn, so that a large answer lets the other connections go on. With half as much the
reader, who keeps pace, sleeps between the pieces; waking it is the dearest part of sending."""


class PeerLost(Exception):
    """The connection ended while something was being sent or read; nothing to say to anybody."""


class Outbox:
    """The sending half of one non-blocking socket. `writer` takes the replies; `flush` sends them.

    Where the socket cannot take everything, `flush` is to be called again when it can be written. A new `writer` may
    stand in the place of the last after each.
    """

    __slots__ = ("_sock", "_unsent", "writer")

    def __init__(self, sock: socket.socket) -> None:
        self.writer = Writer()
        self._sock = sock
        self._unsent: deque[tuple[Piece, int]] = deque()
        """What was taken from the writer and not yet by the socket, with the flags of each send."""

    def flush(self) -> bool:
        """Sends what the socket takes, but of files no more than is due to one turn; whether nothing is left.

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
            # While more follows, the kernel may put a reply's head and its records into one segment.
            self._unsent.append((piece, 0 if number == last else socket.MSG_MORE))
        return self._send_some()

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

    def _send(self, data: bytes | bytearray | memoryview, flags: int) -> int:
        try:
            return self._sock.send(data, flags)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise PeerLost from error

    def _send_slice(self, piece: LogSlice, flags: int) -> int:
        descriptor = piece.file.fileno()
        size = min(piece.size, SEND_CHUNK_BYTES)
        try:
            if descriptor is None:  # the disk in memory
                chunk = piece.file.read(piece.position, size)
                sent = self._sock.send(chunk, socket.MSG_MORE if size < piece.size else flags) if chunk else 0
            else:
                sent = os.sendfile(self._sock.fileno(), descriptor, piece.position, size)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise PeerLost from error
        if sent == 0:
            raise PeerLost("the segment is shorter than the reply that names it")
        return sent
