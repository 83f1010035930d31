"""A load that costs little: requests encoded once, sent over and over on C connections with D in flight on each.

The broker's ceiling shows only when the client is not the bottleneck, so this one does hardly anything:

* All requests lie on one tape, in a ring, with their correlation ids on them. A connection is a position on the tape;
  to send any number of requests is to send one slice. The nodes of a cluster have a tape each.
* Of an answer it compares the correlation id (answers come in the order of the requests), has one check look at it,
  and is done. The clock is read once for all that arrived together.
* Of a large answer only the head is looked at; the kernel throws the rest away unread (MSG_TRUNC). Over TLS (tls.py)
  it has to be deciphered first, and what is sent is enciphered each time: there the load costs as much as a broker.

The broker's CPU is read at the first and the last moment of what is measured, while requests stay in flight.
"""

from __future__ import annotations

import select
import socket
import time
from array import array
from collections import deque
from collections.abc import Callable, Sequence
from struct import Struct

import attrs

from benchmarks.load.answers import BadAnswer, Check
from benchmarks.load.connection import LOOPBACK
from benchmarks.load.tls import TlsSocket
from benchmarks.machine import Meter, Usage

WHOLE_BYTES = 1 << 16  # answers up to this size are looked at when they are complete
HEAD_BYTES = 1 << 10  # of larger ones, so much
STALL_S = 60.0

_BUFFER_BYTES = 1 << 18
_LOOK_EVERY_S = 0.25
_NO_END = 1 << 62
_SIZE_AND_ID = Struct(">ii")


@attrs.frozen
class Played:
    """The figures of a measurement."""

    usage: Usage
    requests: int
    bytes_in: int
    bytes_out: int
    latencies_ns: Sequence[int] = attrs.field(repr=False)


def percentiles_ms(latencies_ns: Sequence[int], *shares: float) -> list[float]:
    ordered = sorted(latencies_ns)
    last = len(ordered) - 1
    return [ordered[min(int(len(ordered) * share), last)] / 1e6 if ordered else 0.0 for share in shares]


class Tape:
    """Requests that carry 0, 1, 2, ... as correlation ids, one behind the other; behind the last comes the first."""

    def __init__(self, requests: Sequence[bytes]) -> None:
        self.bytes = memoryview(b"".join(requests))
        self.length = len(requests)
        self._starts = [0]
        for request in requests:
            self._starts.append(self._starts[-1] + len(request))

    def position(self, number: int) -> int:
        """Returns the position of request `number`; numbers and positions continue from ring to ring."""
        rings, number = divmod(number, self.length)
        return rings * len(self.bytes) + self._starts[number]


class _Lane:
    """A connection and its place in its tape."""

    __slots__ = (
        "check",
        "cursor",
        "expected",
        "goal",
        "has_more",
        "head",
        "requested",
        "sent_ns",
        "skip",
        "socket",
        "tape",
        "writing",
    )

    def __init__(self, sock: socket.socket, tape: Tape, check: Check, first: int) -> None:
        self.socket = sock
        self.tape = tape
        self.check = check
        self.requested = self.expected = first  # numbers of the next request and, modulo the tape, of the next answer
        self.cursor = self.goal = tape.position(first)  # positions: sent so far, to be sent
        self.sent_ns: deque[int] = deque()  # of the requests in flight
        self.head = b""  # of an answer that is not complete
        self.skip = 0  # bytes of a large answer that are still to come
        self.writing = False
        # Bytes that TLS has deciphered and not returned yet; epoll does not see them.
        self.has_more = sock.pending if isinstance(sock, TlsSocket) else None


def connect(port: int, count: int) -> list[socket.socket]:
    sockets = []
    for _ in range(count):
        sock = socket.create_connection((LOOPBACK, port), timeout=STALL_S)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setblocking(False)
        sockets.append(sock)
    return sockets


class Replayer:
    """Plays a tape over connections, each of which begins at another place of it. `close` leaves the sockets open."""

    def __init__(self, sockets: Sequence[socket.socket], requests: Sequence[bytes], check: Check, depth: int) -> None:
        self._depth = depth
        self._epoll = select.epoll()
        self._lanes: dict[int, _Lane] = {}
        self.add(sockets, requests, check)
        self._buffer = bytearray(_BUFFER_BYTES)
        self._view = memoryview(self._buffer)
        self._waste = bytearray(1 << 22)  # never written to: its size limits how much is thrown away at once
        self._left = 0
        self._in_flight = 0
        self._answers = self._bytes_in = self._bytes_out = 0
        self._latencies_ns = array("q")

    def add(self, sockets: Sequence[socket.socket], requests: Sequence[bytes], check: Check) -> None:
        """Plays another tape as well, over connections of its own: each node of a cluster has requests of its own."""
        tape = Tape(requests)
        for index, sock in enumerate(sockets):
            self._lanes[sock.fileno()] = _Lane(sock, tape, check, index * len(requests) // len(sockets))
            self._epoll.register(sock, select.EPOLLIN)

    def close(self) -> None:
        self._epoll.close()

    def send(self, count: int) -> None:
        """Sends so many requests and waits for their answers."""
        self._begin(count)
        self._finish()

    def warm(self, meter: Meter, *, cpu_s: float, most_s: float) -> None:
        """Plays until the broker has used so much CPU, or so much time has passed."""
        start, look_s = meter.read(), 0.0

        def warm(now_s: float) -> bool:
            nonlocal look_s
            if now_s < look_s:
                return False
            look_s = now_s + _LOOK_EVERY_S
            usage = meter.since(start)
            return usage.cpu_s >= cpu_s or usage.seconds >= most_s

        self._begin(_NO_END)
        self._until(warm)
        self._finish()

    def measure(self, meter: Meter, *, lead_s: float, run_s: float) -> Played:
        """Measures for `run_s` seconds, after `lead_s` seconds of the same load."""
        self._begin(_NO_END)
        self._until_passed(lead_s)
        before = self._answers, self._bytes_in, self._bytes_out
        self._latencies_ns = array("q")
        start = meter.read()
        self._until_passed(run_s)
        usage = meter.since(start)
        after = self._answers, self._bytes_in, self._bytes_out
        latencies, self._latencies_ns = self._latencies_ns, array("q")
        self._finish()
        requests, bytes_in, bytes_out = (b - a for a, b in zip(before, after, strict=True))
        return Played(usage, requests, bytes_in, bytes_out, latencies)

    def _begin(self, count: int) -> None:
        self._left = count
        now_ns = time.perf_counter_ns()
        for lane in self._lanes.values():
            self._send_more(lane, self._depth, now_ns)

    def _finish(self) -> None:
        """Sends nothing more, unless a count is to be reached, and waits for all answers."""
        if self._left > _NO_END >> 1:
            self._left = 0
        while self._in_flight:
            self._turn()

    def _until_passed(self, seconds: float) -> None:
        end_s = time.monotonic() + seconds
        self._until(lambda now_s: now_s >= end_s)

    def _until(self, done: Callable[[float], bool]) -> None:
        while not done(time.monotonic()):
            self._turn()

    def _turn(self) -> None:
        events = self._epoll.poll(STALL_S)
        if not events:
            raise BadAnswer(f"no answer within {STALL_S:.0f} s")
        for descriptor, event in events:
            lane = self._lanes[descriptor]
            if event & select.EPOLLOUT:
                self._flush(lane)
            if event & ~select.EPOLLOUT:
                self._receive(lane)
                while lane.has_more is not None and lane.has_more():
                    self._receive(lane)

    def _send_more(self, lane: _Lane, count: int, now_ns: int) -> None:
        count = min(count, self._left)
        if count:
            self._left -= count
            self._in_flight += count
            lane.sent_ns.extend([now_ns] * count)
            lane.requested += count
            lane.goal = lane.tape.position(lane.requested)
            self._flush(lane)

    def _flush(self, lane: _Lane) -> None:
        tape = lane.tape.bytes
        length = len(tape)
        while lane.cursor < lane.goal:
            at = lane.cursor % length
            try:
                sent = lane.socket.send(tape[at : min(at + lane.goal - lane.cursor, length)])
            except BlockingIOError:
                break
            lane.cursor += sent
            self._bytes_out += sent
        blocked = lane.cursor < lane.goal
        if blocked != lane.writing:
            lane.writing = blocked
            self._epoll.modify(lane.socket, select.EPOLLIN | (select.EPOLLOUT if blocked else 0))

    def _receive(self, lane: _Lane) -> None:
        """Reads once, and sends as many requests as answers were completed."""
        try:
            completed = self._skip(lane) if lane.skip else self._take(lane)
        except BlockingIOError:  # half a record of TLS, or one that is TLS's own
            return
        if completed:
            now_ns = time.perf_counter_ns()
            sent_ns, note = lane.sent_ns, self._latencies_ns.append
            for _ in range(completed):
                note(now_ns - sent_ns.popleft())
            self._answers += completed
            self._in_flight -= completed
            self._send_more(lane, completed, now_ns)

    def _skip(self, lane: _Lane) -> int:
        count = lane.socket.recv_into(self._waste, min(lane.skip, len(self._waste)), socket.MSG_TRUNC)
        if not count:
            raise BadAnswer("the broker hung up")
        self._bytes_in += count
        lane.skip -= count
        return not lane.skip

    def _take(self, lane: _Lane) -> int:
        buffer, kept = self._buffer, len(lane.head)
        if kept:
            buffer[:kept] = lane.head
        count = lane.socket.recv_into(self._view[kept:])
        if not count:
            raise BadAnswer("the broker hung up")
        self._bytes_in += count
        at, end, completed = 0, kept + count, 0
        while end - at >= 8:
            size, correlation_id = _SIZE_AND_ID.unpack_from(buffer, at)
            here = end - at - 4
            if here < size and (size <= WHOLE_BYTES or here < HEAD_BYTES):
                break
            if correlation_id != lane.expected:
                raise BadAnswer(f"an answer with correlation id {correlation_id}, not {lane.expected}")
            lane.expected = (correlation_id + 1) % lane.tape.length
            lane.check(buffer, at + 4, size)
            if here < size:
                lane.skip = size - here
                at = end
                break
            completed += 1
            at += 4 + size
        lane.head = bytes(self._view[at:end])
        return completed
