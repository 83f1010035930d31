"""A broker as a process of the simulation: it starts, stops, is killed or loses its power, and starts again."""

from __future__ import annotations

import contextvars
import logging
import random
import socket
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, TypeVarTuple, cast

import attrs
import trio
from kwire_storage.disk.faulty_disk import FaultyDisk
from kwire_storage.disk.medium import EVERYTHING, NOTHING_UNSYNCED, persisted_part

from kwire.client.transport import Address
from kwire.cluster.membership import NodeIdTakenError
from kwire.config.server import load_config
from kwire.network.server import BoundListener, Server
from kwire.node.broker import Broker
from kwire.node.running import hand_over, run
from kwire.runtime import workers
from kwire.runtime.loop import Loop
from kwire.runtime.processor import Processor
from kwire.runtime.workers import Worker
from testkit.worlds.simulation.calendar import Calendar
from testkit.worlds.simulation.eligibility import End
from testkit.worlds.simulation.keeper import Keeper, SimMembership
from testkit.worlds.simulation.network import Host, Network, SimSocket, SimStream, SimTransport
from testkit.worlds.simulation.processor import SimProcessor

log = logging.getLogger(__name__)

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

PORT = 9092
FOLDER = "/data"
BEGAN_MS = 1_700_000_000_000

RUNNING: contextvars.ContextVar[Process] = contextvars.ContextVar("RUNNING")
"""The process whose code runs."""


@attrs.define
class SimClock:
    """`jump_ms`: how far the machine's clock is off. Deadlines do not see it."""

    calendar: Calendar
    random: random.Random
    jump_ms: int = 0

    def now_ms(self) -> int:
        return BEGAN_MS + self.jump_ms + int(self.calendar.now * 1000)

    def monotonic_ms(self) -> int:
        return int(self.calendar.now * 1000)

    def uuid(self) -> bytes:
        return bytes([self.random.randrange(0xF0)]) + self.random.randbytes(15)

    def draw(self, bound: int) -> int:
        return self.random.randrange(bound)


@attrs.define(eq=False)
class Process:
    """One start of a node."""

    node: Node
    is_dead: bool = False
    broker: Broker = attrs.field(init=False)
    membership: SimMembership = attrs.field(init=False)
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    ended: trio.Event = attrs.field(factory=trio.Event)

    def call(self, callback: Callable[[], object]) -> None:
        """Calls it as its own code, unless the process is dead."""
        if self.is_dead:
            return
        if RUNNING.get(None) is self:
            callback()
        else:
            contextvars.copy_context().run(self._run, callback)

    def _run(self, callback: Callable[[], object]) -> None:
        RUNNING.set(self)
        callback()


async def in_thread(
    worker: Worker, work: Callable[[*Ts], T], *args: *Ts, limiter: Any = None, abandon_on_cancel: bool = False
) -> T:
    """Replaces `workers.run`: the thread waits for its disk, works in no time, and waits again."""
    process = RUNNING.get()
    with trio.CancelScope(shield=True):
        await trio.sleep(process.node.disk_delay_s())
        with workers.working_as(worker):
            result = work(*args)
        await trio.sleep(process.node.disk_delay_s())
    return result


@attrs.define(eq=False)
class Node:
    node_id: int
    calendar: Calendar
    network: Network
    keeper: Keeper
    random: random.Random
    settings: Sequence[str]
    nursery: trio.Nursery
    trace: Callable[[str], None]
    disk: FaultyDisk = attrs.field(factory=FaultyDisk)
    clock: SimClock = attrs.field(init=False)
    process: Process | None = None
    starts: int = 0
    ended: End = End.KILLED
    """The way in which its last process ended; before the first one, it has no data either."""
    disk_slowness: float = 1.0

    def __attrs_post_init__(self) -> None:
        self.clock = SimClock(self.calendar, self.random)

    @property
    def host(self) -> Host:
        return self.network.host(f"n{self.node_id}")

    @property
    def address(self) -> Address:
        return self.host.name, PORT

    def disk_delay_s(self) -> float:
        return self.random.uniform(0.00005, 0.002) * self.disk_slowness

    # Life and death

    def start(self) -> bool:
        """False if it cannot now: try again later."""
        assert self.process is None
        process = Process(self)
        loop = Loop()
        try:
            membership = SimMembership.join(self.keeper, self.node_id, self.host, loop, process.call)
        except (OSError, NodeIdTakenError) as error:
            self.trace(f"node {self.node_id} cannot join: {error}")
            return False
        config = load_config(
            data_dirs=[FOLDER],
            settings=[f"node.id={self.node_id}", f"listeners=PLAINTEXT://{self.host.name}:{PORT}", *self.settings],
        )
        process.membership = membership
        try:
            process.broker = Broker.open(config, {FOLDER: self.disk}, self.clock, membership=membership, loop=loop)
        except OSError as error:
            self.trace(f"node {self.node_id} cannot start: {error}")
            self.disk = self.disk.kill()
            # The mark of a clean stop is gone, and power that was lost stays lost.
            self.ended = End.KILLED if self.ended is End.CLEAN else self.ended
            return False
        for peers in process.broker.all_peers:
            peers.connect = self._open_stream
        self.process = process
        self.starts += 1
        self.host.has_power = True
        process.call(lambda: self.nursery.start_soon(self._serve, process))
        return True

    async def _serve(self, process: Process) -> None:
        broker = process.broker
        processor = SimProcessor(self.calendar, process.call)
        listener = BoundListener("PLAINTEXT", self.host.name, PORT, cast(socket.socket, None))
        server = Server(broker, [], cast(Processor, processor), new_transport=cast(Any, SimTransport))

        def on_ready() -> None:
            def accept(sock: SimSocket) -> None:
                process.call(lambda: server._start(cast(socket.socket, sock), sock.getpeername(), listener))

            self.host.accept = accept

        try:
            with process.scope:
                broker.on_fatal = process.scope.cancel
                await run(broker, server, connect=cast(Any, self._connect), on_ready=on_ready)
        finally:
            if process.is_dead:
                broker.log_dirs.abandon()
            else:
                self.trace(f"node {self.node_id} ends: {broker.fatal}")
                self.network.end(self.host, power=False)
                broker.close()
                self.disk = self.disk.kill()
                self.ended = End.CLEAN
                self.process = None
                process.is_dead = True
                process.membership.die()
            process.ended.set()

    async def _connect(self, address: Address) -> SimTransport:
        return SimTransport(await self.network.connect(self.host, address))

    async def _open_stream(self, address: Address) -> SimStream:
        return SimStream(await self.network.connect(self.host, address))

    async def stop(self) -> None:
        """Stops it as SIGTERM does."""
        process = self.process
        if process is None:
            return

        async def run() -> None:
            await hand_over(process.broker)
            process.scope.cancel()

        process.call(lambda: self.nursery.start_soon(run))
        await process.ended.wait()

    def kill(self, *, power: bool = False) -> None:
        process = self.process
        if process is None:
            return
        process.is_dead = True
        self.process = None
        self.ended = End.WITHOUT_POWER if power else End.KILLED
        process.membership.die()
        self.network.end(self.host, power=power)
        if power:
            fate = self.random.choice([NOTHING_UNSYNCED, EVERYTHING, persisted_part(0.5)])
            self.disk = self.disk.crash(fate)
        else:
            self.disk = self.disk.kill()
        process.scope.cancel()
