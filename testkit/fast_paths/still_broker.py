"""A broker with connections, but without sockets and tasks, whose clock the test moves.

Its connections are the real ones, on a transport that keeps the bytes. So a test sees each reply at once, and two
brokers that get the same frames do everything in the same order.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable
from typing import Any, cast

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.frames import BufferPool
from kwire_protocol.kafka_error import KafkaError
from kwire_storage.disk.memory_disk import MemoryDisk

from kwire.config.server import load_config
from kwire.handlers.apis import Api, FastPath, bound_apis
from kwire.handlers.context import Answer
from kwire.handlers.shapes import SessionFetch
from kwire.network.connection import Connection
from kwire.network.decoding import Shapes
from kwire.network.peer_log import PeerLogs
from kwire.node.broker import Broker
from kwire.replicas.table import HostedPartition
from kwire.runtime.processor import Processor, Timer
from kwire.security.principal import ANONYMOUS
from testkit.metadata.harness import FakeClock
from testkit.scenes.internal_topics import FEW_PARTITIONS, create_internal_topics

SETTINGS = (
    *FEW_PARTITIONS,
    "log.segment.delete.delay.ms=0",
    "kwire.log.reserve.bytes=0",
    "auto.create.topics.enable=false",
)


class StillClock(FakeClock):
    """Each part of an id differs from that of the others, too: sessions take their ids from the beginning."""

    def uuid(self) -> bytes:
        self.ids += 1
        return self.ids.to_bytes(4, "big") * 4


class StillSocket:
    """The attributes of a socket that a connection uses."""

    def getsockname(self) -> tuple[str, int]:
        return "127.0.0.1", 9092

    def setsockopt(self, *_: int) -> None: ...


class StillTransport:
    """The peer's bytes are put into `incoming`; the broker's are in `sent`."""

    handshake: Callable[[], int] | None = None
    has_more: Callable[[], bool] | None = None
    send_file: Callable[[int, int, int], int] | None = None
    principal = ANONYMOUS

    def __init__(self) -> None:
        self.sock: Any = StillSocket()
        self.incoming = bytearray()
        self.sent = bytearray()
        self.is_closed = False

    def recv_into(self, room: memoryview) -> int:
        count = min(len(room), len(self.incoming))
        if not count:
            raise BlockingIOError
        room[:count] = self.incoming[:count]
        del self.incoming[:count]
        return count

    def send(self, data: bytes | bytearray | memoryview, _flags: int) -> int:
        self.sent += data
        return len(data)

    def close(self) -> None:
        self.is_closed = True


@attrs.define(eq=False)
class StillProcessor:
    """Runs callbacks and timers when the test calls for it."""

    clock: StillClock
    pauses: int = 0
    ready: dict[Any, Callable[[int], None]] = attrs.field(factory=dict)
    _soon: deque[Callable[[], None]] = attrs.field(factory=deque)
    _timers: dict[Timer, None] = attrs.field(factory=dict)

    @property
    def now(self) -> float:
        return self.clock.time_ms / 1000

    def add(self, sock: Any, on_ready: Callable[[int], None]) -> None:
        self.ready[sock] = on_ready

    def remove(self, sock: Any) -> None:
        self.ready.pop(sock, None)

    def watch(self, sock: Any, events: int) -> None: ...

    def call_soon(self, callback: Callable[[], None]) -> None:
        self._soon.append(callback)

    def start_timer(self, timer: Timer, deadline: float) -> None:
        timer.deadline = deadline
        self._timers[timer] = None

    def settle(self) -> None:
        """Runs everything that is due now."""
        while True:
            while self._soon:
                self._soon.popleft()()
            due = [timer for timer in self._timers if timer.deadline <= self.now]
            if not due:
                return
            for timer in due:
                del self._timers[timer]
                timer.stop()
                timer.callback()


class StillBroker:
    """One broker. `answered_fast` counts the requests that fast paths have answered, by the name of the API."""

    def __init__(self, settings: Iterable[str] = (), *, fast_paths: bool) -> None:
        self.clock = StillClock()
        self.disk = MemoryDisk()
        self.answered_fast: Counter[str] = Counter()
        config = load_config(settings=[*SETTINGS, *settings])
        self.broker = Broker.open(config, self.disk, self.clock)
        create_internal_topics(self.broker)
        self.processor = StillProcessor(self.clock)
        self._apis = bound_apis(self.broker, unstable=False, fast_paths=fast_paths)
        for api in self._apis.values():
            if api.has_fast_path:
                self._count(api)
        self._pool, self._shapes = BufferPool(), Shapes()
        self._logs = PeerLogs(cast(Processor, self.processor), 1_000_000)
        self.connections: dict[str, tuple[Connection, StillTransport]] = {}
        self.lost: dict[tuple[str, int], HostedPartition] = {}
        """Replicas that a test has taken out of the table of partitions."""

    def _count(self, api: Api) -> None:
        api.load()
        of_shape = api.fast_path
        assert of_shape is not None

        def counted(shape: Any) -> Answer | None:
            answer = of_shape(shape)
            if answer is None:
                return None
            name = "fetch in a session" if isinstance(shape, SessionFetch) else api.name

            def count(*arguments: Any) -> Any:
                response = answer(*arguments)
                self.answered_fast[name] += response is not None
                return response

            return count

        fast_path: FastPath = counted
        api.fast_path = fast_path

    def send(self, peer: str, data: bytes) -> tuple[bytes, bool]:
        """Sends bytes on the connection of that peer (a host, # and a name), which is opened again if it was closed.

        Returns what happens at once: the sent bytes, and whether it was closed.
        """
        found = self.connections.get(peer)
        if found is None or found[1].is_closed:
            found = self.connections[peer] = self._connect(peer.partition("#")[0])
        _, transport = found
        transport.incoming += data
        return self._settle(found[1])

    def settle(self) -> list[tuple[bytes, bool]]:
        """Runs what is due, on all connections."""
        return [self._settle(transport) for _, transport in self.connections.values()]

    def _settle(self, transport: StillTransport) -> tuple[bytes, bool]:
        self.processor.settle()
        turns_in_vain = 0
        # Input that ends a wait is received in the turn after it.
        while transport.incoming and turns_in_vain < 2 and transport.sock in self.processor.ready:
            before = len(transport.incoming)
            self.processor.ready[transport.sock](0)
            self.processor.settle()
            turns_in_vain = 0 if len(transport.incoming) < before else turns_in_vain + 1
        sent, transport.sent = bytes(transport.sent), bytearray()
        return sent, transport.is_closed

    def follow_quotas(self) -> None:
        for connection, transport in self.connections.values():
            if not transport.is_closed:
                connection.follow_quotas()

    def _connect(self, host: str) -> tuple[Connection, StillTransport]:
        transport = StillTransport()
        connection = Connection(
            self.broker,
            self._apis,
            transport,
            cast(Processor, self.processor),
            peer=(host, 40_000),
            listener_name="PLAINTEXT",
            pool=self._pool,
            shapes=self._shapes,
            logs=self._logs,
            on_closed=lambda _: None,
            on_starved=lambda: None,
            now=self.processor.now,
        )
        connection.open()
        return connection, transport

    def flush(self) -> None:
        """Runs the flushes that the flusher runs in its threads."""
        pending = self.broker.flusher._requested
        while pending:
            gate, _ = pending.popitem()
            flush = gate.begin()
            try:
                flush.run()
            except OSError as error:
                gate.give_up(flush)
                gate.fail(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)))
            else:
                gate.finish(flush)

    def close(self) -> None:
        for connection, _ in self.connections.values():
            connection.close()
        self.broker.close()
