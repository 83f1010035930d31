"""A server that does what a broker cannot avoid, and nothing else; see limits.py.

python -m benchmarks.bare_server sink-large|sink-small|sendfile PORT FILE
"""

from __future__ import annotations

import os
import select
import socket
import sys

from crc32c import crc32c

# Without the size in front: what a broker answers to the same requests.
ANSWER_BYTES = {"sink-large": 217, "sink-small": 52, "sendfile": 1 << 20}

_ROOM_BYTES = 4 << 20
_READ_BYTES = 1 << 16


class Sink:
    """A connection whose frames go to a file."""

    def __init__(self, sock: socket.socket, file: int, answer_bytes: int) -> None:
        self._socket = sock
        self._file = file
        self._head = answer_bytes.to_bytes(4, "big")
        self._rest = bytes(answer_bytes - 4)
        self._buffer = bytearray(_ROOM_BYTES)
        self._view = memoryview(self._buffer)
        self._end = 0

    def serve(self) -> bool:
        """Reads once and deals with what is complete; False when the peer has gone."""
        buffer, view, end = self._buffer, self._view, self._end
        large = 4 + int.from_bytes(buffer[:4], "big") if end >= 4 else 0
        count = self._socket.recv_into(view[end : large if large > end + _READ_BYTES else end + _READ_BYTES])
        if not count:
            return False
        end += count
        at = 0
        answers: list[bytes | memoryview] = []
        while end - at >= 4:
            stop = at + 4 + int.from_bytes(buffer[at : at + 4], "big")
            if stop > end:
                break
            frame = view[at + 4 : stop]
            crc32c(frame)
            os.write(self._file, frame)
            answers += [self._head, frame[4:8], self._rest]
            at = stop
        if answers:
            self._socket.sendall(b"".join(answers))
            buffer[: end - at] = view[at:end]
            end -= at
        self._end = end
        return True


class Sender:
    """A connection whose frames are answered with pieces of a file."""

    def __init__(self, sock: socket.socket, file: int, answer_bytes: int) -> None:
        self._socket = sock
        self._file = file
        self._answer_bytes = answer_bytes
        self._last = os.fstat(file).st_size - answer_bytes
        self._offset = 0
        self._received = b""

    def serve(self) -> bool:
        data = self._socket.recv(_READ_BYTES)
        if not data:
            return False
        self._received += data
        while len(self._received) >= 4 + (size := int.from_bytes(self._received[:4], "big")):
            self._answer(self._received[8:12])
            self._received = self._received[4 + size :]
        return True

    def _answer(self, correlation_id: bytes) -> None:
        rest = self._answer_bytes - 4
        self._socket.sendall(self._answer_bytes.to_bytes(4, "big") + correlation_id, socket.MSG_MORE)
        sent = 0
        while sent < rest:
            sent += os.sendfile(self._socket.fileno(), self._file, self._offset + sent, rest - sent)
        self._offset = (self._offset + self._answer_bytes) % self._last


def main(kind: str, port: int, path: str) -> None:
    flags = os.O_RDONLY if kind == "sendfile" else os.O_WRONLY | os.O_CREAT | os.O_APPEND
    file = os.open(path, flags, 0o600)
    peer_class = Sender if kind == "sendfile" else Sink
    peers: dict[int, tuple[socket.socket, Sender | Sink]] = {}
    epoll = select.epoll()
    with socket.create_server(("127.0.0.1", port)) as listener:
        epoll.register(listener, select.EPOLLIN)
        while True:
            for descriptor, _ in epoll.poll():
                if descriptor == listener.fileno():
                    sock, _ = listener.accept()
                    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    peers[sock.fileno()] = sock, peer_class(sock, file, ANSWER_BYTES[kind])
                    epoll.register(sock, select.EPOLLIN)
                elif not peers[descriptor][1].serve():
                    epoll.unregister(descriptor)
                    peers.pop(descriptor)[0].close()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
