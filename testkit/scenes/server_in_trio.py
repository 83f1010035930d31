"""A server and its clients in one trio loop: real sockets, a virtual clock, and access to the server's state.

`wait_all_tasks_blocked` is the end of everything that a test has started, except for deadlines. The processor is the
thread's loop and trio its guest, as in a broker. Two things are added: trio's clock jumps to the next deadline when
nothing is to be done, and the processor's work counts as a task's work, or else trio would ignore it.
"""

from __future__ import annotations

import logging
import math
import socket
import struct
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, TypeVar

import attrs
import trio
from kwire_protocol.conversation import Conversation, Reply
from kwire_protocol.frames import ReplyBuffer
from kwire_protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kwire_protocol.wire import ApiMessage
from kwire_storage.disk.files import Disk
from kwire_storage.disk.memory_disk import MemoryDisk
from outcome import Outcome, capture
from trio.testing import MockClock, wait_all_tasks_blocked

from kwire.config.server import load_config
from kwire.metadata.controller.topics.topic_creation import create_topics
from kwire.network.listener_security import securities_of
from kwire.network.server import Server
from kwire.node.broker import Broker
from kwire.node.running import bind_all, listen_all, run
from kwire.replicas.partition import Partition
from kwire.runtime.clock import Clock
from kwire.runtime.futures import Future, at_once
from kwire.runtime.loop import Loop
from kwire.runtime.processor import Processor, Timer
from kwire.runtime.workers import Worker
from testkit.raw.client import MAX_REPLY_BYTES
from testkit.raw.simple_requests import join
from testkit.scenes.broker_in_trio import TrioClock
from testkit.scenes.internal_topics import FEW_PARTITIONS, create_internal_topics

T = TypeVar("T")


@attrs.define(eq=False)
class TrioClient:
    """A raw client that waits as a task."""

    stream: trio.SocketStream
    _conversation: Conversation = attrs.field(factory=lambda: Conversation(first_correlation_id=0))
    _replies: deque[Reply] = attrs.field(factory=deque)
    """The received replies that were not read."""
    _frames: ReplyBuffer = attrs.field(factory=lambda: ReplyBuffer(MAX_REPLY_BYTES))

    async def send(self, *requests: tuple[ApiMessage, int]) -> None:
        """Sends requests, each with its version, in one piece; their correlation ids count from 0."""
        for request, version in requests:
            self._conversation.send(request, version)
        await self.stream.send_all(b"".join(self._conversation.data_to_send()))

    def send_now(self, request: tuple[ApiMessage, int]) -> None:
        """Sends in one step: no other task runs before it is out."""
        self._conversation.send(*request)
        data = b"".join(self._conversation.data_to_send())
        assert self._socket.send(data) == len(data)

    async def read(self, api_key: int, version: int) -> tuple[int, Any]:
        """Correlation id and message of the next reply, which must be one to such a request."""
        while not self._replies:
            assert await self._receive(), "the server hung up"
        ticket, message = self._replies.popleft()
        assert (ticket.api_key, ticket.version) == (api_key, version)
        return ticket.correlation_id, message

    async def read_frame(self) -> bytes:
        """The answer to what was sent by hand, over `stream`, without its size."""
        while (frame := self._frames.next_frame()) is None:
            assert await self._receive_into(self._frames), "the server hung up"
        return bytes(frame)

    async def call(self, request: ApiMessage, version: int) -> Any:
        await self.send((request, version))
        return (await self.read(request.api_key, version))[1]

    async def is_at_end(self) -> bool:
        """Waits for the server to hang up; False if it sends something instead."""
        try:
            return not self._replies and not await self._receive()
        except trio.BrokenResourceError:  # a reset: it had not read all that we sent
            return True

    @property
    def has_answer(self) -> bool:
        """True if anything can be read."""
        try:
            return bool(self._replies) or bool(self._socket.recv(1, socket.MSG_PEEK))
        except BlockingIOError:
            return False

    async def hang_up(self) -> None:
        await self.stream.aclose()

    async def reset(self) -> None:
        """Resets the connection, as a process that is killed with unread data in its socket: the other end gets an
        error.
        """
        self.stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        await self.stream.aclose()

    @property
    def _socket(self) -> socket.socket:
        # trio's own wraps it, and has no recv that does not wait.
        inner = self.stream.socket._sock  # type: ignore[attr-defined]
        assert isinstance(inner, socket.socket)
        return inner

    async def _receive(self) -> int:
        """Returns the number of bytes received; 0 at the end."""
        count = await self._receive_into(self._conversation)
        while (reply := self._conversation.next_reply()) is not None:
            self._replies.append(reply)
        return count

    async def _receive_into(self, buffer: Conversation | ReplyBuffer) -> int:
        room = buffer.writable()
        data = await self.stream.receive_some(len(room))
        room[: len(data)] = data
        buffer.received(len(data))
        return len(data)


@attrs.define(eq=False)
class ServerInTrio:
    """A running server with topic `t`; clients of `connect` are closed at the end."""

    broker: Broker
    server: Server
    processor: _WatchedProcessor
    stop: Callable[[], None]
    _clients: AsyncExitStack

    async def assert_sleeps(self) -> None:
        """Asserts that the processor sleeps, and does not get the same event again and again."""
        worked = self.processor.worked
        await trio.sleep(1)
        assert self.processor.worked - worked < 10

    async def connect(self, *, receive_buffer_bytes: int | None = None) -> TrioClient:
        sock = trio.socket.socket()
        if receive_buffer_bytes is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        await sock.connect(("127.0.0.1", self.server.listeners[0].port))
        client = TrioClient(trio.SocketStream(sock))
        await self._clients.enter_async_context(client.stream)
        return client

    async def member_that_is_asked_to_rejoin(self) -> tuple[TrioClient, str]:
        """The group's first member, and its id: until it joins again, others that join wait."""
        client = await self.connect()
        answer = await client.call(join(), 3)
        assert answer.error_code == 0
        return client, answer.member_id

    @property
    def partition(self) -> Partition:
        return self.broker.partitions.find("t", 0)

    @property
    def connections(self) -> int:
        return len(self.server.connections)


def with_server(
    scenario: Callable[[ServerInTrio], Awaitable[None]],
    *,
    settings: Iterable[str] = (),
    listen: str = "127.0.0.1:0",
    disks: Mapping[str, Disk] | None = None,
    wall_clock: Clock | None = None,
    loop: Loop | None = None,
) -> None:
    """Runs `scenario` with a server, and stops that. Any error inside a connection fails it.

    `disks` are log dirs, by their paths; without them it has one that is new. Trio's clock does not wait for worker
    threads: with `WithoutWorkers` as `loop` no time passes while metadata change.
    """
    clock = MockClock(autojump_threshold=0)
    defaults = [
        *FEW_PARTITIONS,
        "offsets.topic.num.partitions=1",
        "group.initial.rebalance.delay.ms=0",
        "kwire.spin.us=0",
    ]
    folders = disks if disks is not None else {"/data": MemoryDisk()}
    config = load_config(settings=[*defaults, *settings], listen=[listen], data_dirs=list(folders))

    async def main() -> None:
        broker = Broker.open(config, folders, wall_clock or TrioClock(), loop=loop)
        try:
            at_once(broker.metadata.change(create_topics, CreateTopicsRequest([CreatableTopic("t", 1, 1)])))
            create_internal_topics(broker)
            securities = securities_of(broker)  # before there is a socket that would stay open
            listeners = bind_all(config)
            listen_all(config, listeners)
            server = Server(broker, listeners, processor, securities=securities)
            async with trio.open_nursery() as nursery, AsyncExitStack() as clients:
                nursery.start_soon(processor.keep_trio_awake)
                nursery.start_soon(run, broker, server)
                await wait_all_tasks_blocked()
                await scenario(ServerInTrio(broker, server, processor, nursery.cancel_scope.cancel, clients))
                nursery.cancel_scope.cancel()
            assert server.connections == {}
        finally:
            broker.close()

    processor = _WatchedProcessor()
    bugs = _Bugs(logging.ERROR)
    logging.getLogger("kwire").addHandler(bugs)
    try:
        processor.host(main, clock=clock)
    finally:
        processor.close()
        logging.getLogger("kwire").removeHandler(bugs)
    assert bugs.messages == []


class WithoutWorkers(Loop):
    """Does the work of a worker thread at once."""

    def in_worker(self, worker: Worker, work: Callable[[], T]) -> Future[Outcome[T]]:
        future: Future[Outcome[T]] = Future()
        future.set(capture(work))
        return future


class _WatchedProcessor(Processor):
    """While it has something to do, a task of trio's has, too."""

    def __init__(self) -> None:
        super().__init__()
        self.worked = 0
        """The number of ready sockets and requested calls so far."""
        self._to_be_called = 0
        self._news = trio.Event()

    async def keep_trio_awake(self) -> None:
        while True:
            self._news = trio.Event()
            if not self._to_be_called:
                with trio.CancelScope(deadline=self._timers[0][0] if self._timers else math.inf):
                    await self._news.wait()
            await trio.lowlevel.checkpoint()

    def call_soon(self, callback: Callable[[], object]) -> None:
        super().call_soon(partial(self._call, callback))
        self._to_be_called += 1
        self._work()

    def _call(self, callback: Callable[[], object]) -> None:
        self._to_be_called -= 1
        callback()

    def start_timer(self, timer: Timer, deadline: float) -> None:
        super().start_timer(timer, deadline)
        self._news.set()

    def _turn(self, events: list[tuple[int, int]], now: float) -> None:
        if events:
            self._work()
        elif not self._to_be_called:
            self.pauses += 1
        super()._turn(events, now)

    def _work(self) -> None:
        self.worked += 1
        self._news.set()


class _Bugs(logging.Handler):
    """A connection catches all errors; they are in the log."""

    def __init__(self, level: int) -> None:
        super().__init__(level)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(self.format(record))
