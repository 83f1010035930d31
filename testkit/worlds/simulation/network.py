"""Sockets between hosts: one end sends, and the other one receives later, if the connection is not cut.

A cut holds back the bytes in flight, in one direction; when it is mended, everything arrives, as with TCP. If a process
dies, its system resets its connections. If a machine loses its power, its peers are not notified: their connections
stay until they send something and the machine is up again.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable

import attrs
import trio
from kwire_protocol.wire import Buffer

from kwire.client.transport import Address
from kwire.runtime.transport import Bytes
from kwire.security.principal import ANONYMOUS
from testkit.worlds.simulation.calendar import Calendar

SHORTEST_DELAY_S, LONGEST_DELAY_S = 0.0001, 0.002
WINDOW_BYTES = 64 * 1024
"""The maximum number of bytes that one end has sent and the other one has not received yet."""

PARTIAL_SENDS = 0.02
"""The share of sends that take only a part."""


def _ignore() -> None: ...


@attrs.define(eq=False)
class Host:
    """`network` and `name` make it; `accept` gets what connects to it."""

    name: str
    accept: Callable[[SimSocket], None] | None = None
    """None while no process listens."""
    has_power: bool = True
    sockets: dict[SimSocket, None] = attrs.field(factory=dict)
    usual_slowness: float = 1.0
    """The factor of its delay to that of the nearest hosts, when nothing slows it down."""
    slowness: float = 1.0
    """The same at present."""


@attrs.define(eq=False)
class SimSocket:
    """One end of a connection, as a non-blocking socket behaves."""

    network: Network
    host: Host
    address: Address
    peer_address: Address
    number: int
    peer: SimSocket = attrs.field(init=False)
    on_change: Callable[[], None] = _ignore
    """It may have become readable or writable."""
    _received: bytearray = attrs.field(factory=bytearray)
    _has_ended: bool = False
    """The peer sends nothing more."""
    _error: OSError | None = None
    _is_closed: bool = False
    in_flight: int = 0
    """The number of bytes that this end has sent and the peer has not received yet."""
    on_way: deque[bytes | None] = attrs.field(factory=deque)
    """The bytes from here to the peer; None is the end."""
    arrives_at: float = 0.0
    """The time when the last of them arrive."""

    # As a socket

    def fileno(self) -> int:
        return self.number

    def setblocking(self, _flag: bool) -> None: ...

    def setsockopt(self, *_args: object) -> None: ...

    def getpeername(self) -> Address:
        return self.peer_address

    def getsockname(self) -> Address:
        return self.address

    def recv_into(self, room: memoryview) -> int:
        if self._received:
            size = min(len(room), len(self._received))
            room[:size] = self._received[:size]
            del self._received[:size]
            peer = self.peer
            peer.in_flight -= size
            self.network.calendar.soon(peer._changed)
            return size
        if self._error is not None:
            raise self._error
        if self._has_ended:
            return 0
        raise BlockingIOError

    def send(self, data: Bytes, _flags: int = 0) -> int:
        if self._error is not None:
            raise self._error
        size = min(len(data), WINDOW_BYTES - self.in_flight)
        if size <= 0:
            raise BlockingIOError
        if size > 1 and self.network.random.random() < PARTIAL_SENDS:
            size = self.network.random.randrange(1, size)
            self.network.calendar.after(SHORTEST_DELAY_S, self._changed)
        self.in_flight += size
        self.network.send(self, bytes(memoryview(data)[:size]))
        return size

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self.on_change = _ignore
            self.host.sockets.pop(self, None)
            self.network.send(self, None)

    # As the network sees it

    @property
    def is_readable(self) -> bool:
        return bool(self._received) or self._has_ended or self._error is not None

    @property
    def is_writable(self) -> bool:
        return self.in_flight < WINDOW_BYTES or self._error is not None

    def arrived(self, data: bytes | None) -> None:
        if self._is_closed:
            # Its system answers whatever comes for a socket that is gone.
            if data is not None:
                self.network.reset(self.peer)
            return
        if data is None:
            self._has_ended = True
        else:
            self._received += data
        self._changed()

    def break_off(self) -> None:
        self._error = ConnectionResetError(104, "Connection reset by peer")
        self._changed()

    def _changed(self) -> None:
        if not self._is_closed:
            self.on_change()


@attrs.define(eq=False)
class Network:
    calendar: Calendar
    random: random.Random
    trace: Callable[[str], None]
    hosts: dict[str, Host] = attrs.field(factory=dict)
    _cuts: dict[tuple[str, str], int] = attrs.field(factory=dict)
    """The number of cuts that hold back bytes from one host to another."""
    _held: dict[tuple[str, str], list[Callable[[], None]]] = attrs.field(factory=dict)
    _numbers: int = 0

    def host(self, name: str) -> Host:
        return self.hosts.setdefault(name, Host(name))

    def delay_s(self, source: Host, target: Host) -> float:
        return self.random.uniform(SHORTEST_DELAY_S, LONGEST_DELAY_S) * max(source.slowness, target.slowness)

    def is_cut(self, source: str, target: str) -> bool:
        return bool(self._cuts.get((source, target)))

    def cut(self, ways: Iterable[tuple[str, str]]) -> Callable[[], None]:
        """Returns what mends it."""
        cut = list(ways)
        for way in cut:
            self._cuts[way] = self._cuts.get(way, 0) + 1

        def mend() -> None:
            for way in cut:
                self._cuts[way] -= 1
                if not self._cuts[way]:
                    held = self._held.pop(way, [])
                    for callback in held:
                        callback()

        return mend

    def when_open(self, source: str, target: str, callback: Callable[[], None]) -> None:
        """Calls it now, or when the way is open again."""
        if self.is_cut(source, target):
            self._held.setdefault((source, target), []).append(callback)
        else:
            callback()

    # Bytes

    def send(self, sock: SimSocket, data: bytes | None) -> None:
        target = sock.peer.host
        sock.on_way.append(data)
        sock.arrives_at = max(sock.arrives_at, self.calendar.now + self.delay_s(sock.host, target))
        self.calendar.at(
            sock.arrives_at, lambda: self.when_open(sock.host.name, target.name, lambda: self._arrive(sock))
        )

    def _arrive(self, sock: SimSocket) -> None:
        if sock.on_way:
            data = sock.on_way.popleft()
            peer = sock.peer
            if not peer.host.has_power:
                return
            self.trace(f"{sock.host.name}>{peer.host.name} {sock.number} {-1 if data is None else len(data)}")
            peer.arrived(data)

    def reset(self, sock: SimSocket) -> None:
        """Resets the connection from the other end, and notifies this one."""
        source, target = sock.peer.host, sock.host
        self.calendar.after(
            self.delay_s(source, target), lambda: self.when_open(source.name, target.name, sock.break_off)
        )

    def end(self, host: Host, *, power: bool) -> None:
        """Its process is gone, or its power."""
        host.accept = None
        host.has_power = not power
        sockets, host.sockets = list(host.sockets), {}
        for sock in sockets:
            sock._is_closed = True
            sock.on_change = _ignore
            if power:
                sock.on_way.clear()
            else:
                self.reset(sock.peer)

    # Connecting

    async def connect(self, source: Host, address: Address) -> SimSocket:
        """Raises OSError if nothing listens there. Waits while the connection is cut, or the machine has no power."""
        target = self.hosts[address[0]]
        await self._travel(source, target)
        while not target.has_power:
            await trio.sleep(1.0)
        if target.accept is None:
            await self._travel(target, source)
            raise ConnectionRefusedError(111, "Connection refused")
        self._numbers += 2
        here = SimSocket(self, source, (source.name, 40_000 + self._numbers), address, self._numbers)
        there = SimSocket(self, target, address, here.address, self._numbers + 1)
        here.peer, there.peer = there, here
        target.sockets[there] = None
        target.accept(there)
        try:
            await self._travel(target, source)
        except trio.Cancelled:
            here.close()
            raise
        source.sockets[here] = None
        return here

    async def _travel(self, source: Host, target: Host) -> None:
        await trio.sleep(self.delay_s(source, target))
        if self.is_cut(source.name, target.name):
            opened = trio.Event()
            self.when_open(source.name, target.name, opened.set)
            await opened.wait()


class SimTransport:
    """A connection's transport over such a socket."""

    send_file = None
    handshake = None
    has_more = None
    principal = ANONYMOUS

    def __init__(self, sock: SimSocket) -> None:
        self.sock = sock
        self.recv_into = sock.recv_into
        self.send = sock.send

    def close(self) -> None:
        self.sock.close()


class SimStream:
    """The same for trio's tasks."""

    def __init__(self, sock: SimSocket) -> None:
        self._sock = sock
        self._changed = trio.Event()
        sock.on_change = self._wake

    def _wake(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    async def send_all(self, data: Buffer) -> None:
        rest = memoryview(data)
        while rest:
            await trio.lowlevel.checkpoint_if_cancelled()
            try:
                rest = rest[self._sock.send(rest) :]
            except BlockingIOError:
                await self._changed.wait()

    async def receive_into(self, room: memoryview) -> int:
        while True:
            await trio.lowlevel.checkpoint_if_cancelled()
            try:
                return self._sock.recv_into(room)
            except BlockingIOError:
                await self._changed.wait()

    def close(self) -> None:
        self._sock.close()
