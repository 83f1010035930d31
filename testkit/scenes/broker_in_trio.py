"""A broker without sockets, under trio's mock clock: handlers are called with decoded requests.

`call` takes a request and returns the response, both through their bytes in the given version, so that a test in every
version also shows that the version can express our answer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any

import attrs
import trio
import trio.testing
from kwire_protocol.messages import APIS as MESSAGES
from kwire_protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kwire_protocol.wire import ApiMessage, Reader, Uuid, Writer
from kwire_storage.disk.files import Disk
from kwire_storage.disk.memory_disk import MemoryDisk

from kwire.config.server import load_config
from kwire.handlers.apis import APIS
from kwire.handlers.context import Context
from kwire.metadata.controller.topics.topic_creation import create_topics
from kwire.node.broker import Broker
from kwire.runtime.futures import Future, at_once
from testkit.scenes.internal_topics import FEW_PARTITIONS, create_internal_topics

START_MS = 1_700_000_000_000


class TrioClock:
    """The clocks go with trio's, which the tests let jump."""

    def __init__(self) -> None:
        self._ids = 0
        self.wall_ahead_ms = 0
        """The milliseconds by which a test has set the wall clock forward."""

    def now_ms(self) -> int:
        return START_MS + self.wall_ahead_ms + self.monotonic_ms()

    def monotonic_ms(self) -> int:
        return round(trio.current_time() * 1000)

    def uuid(self) -> bytes:
        self._ids += 1
        return self._ids.to_bytes(16, "big")

    def draw(self, bound: int) -> int:
        return 0


@attrs.define(eq=False)
class InTrio:
    """One broker and everything a test does with it."""

    broker: Broker
    waited: int = 0
    """The number of requests that had to wait."""

    async def call(self, request: ApiMessage, version: int, *, client_id: str | None = "app") -> Any:
        api = APIS[request.api_key]
        assert version in api.versions
        context = Context("127.0.0.1", "127.0.0.1", 9092, api_version=version, api_key=api.key, client_id=client_id)
        message = MESSAGES[request.api_key]
        answer = api.handler(self.broker)(_over_the_wire(message.request_class, request, version), context)
        response = await self._finish(answer) if isinstance(answer, Coroutine) else answer
        return _over_the_wire(message.response_class, response, version)

    async def _finish(self, handling: Coroutine[Future[Any], None, ApiMessage]) -> ApiMessage:
        """Drives a handler that waits as its connection would."""
        while True:
            try:
                future = handling.send(None)
            except StopIteration as answered:
                response: ApiMessage = answered.value
                return response
            self.waited += 1
            was_set = trio.Event()
            future.when_set(was_set.set)
            await was_set.wait()

    def create_topic(self, name: str, partitions: int = 2) -> Uuid:
        at_once(self.broker.metadata.change(create_topics, CreateTopicsRequest([CreatableTopic(name, partitions, 1)])))
        return self.broker.metadata.image.topics[name].topic_id


def _over_the_wire(kind: Any, message: Any, version: int) -> Any:
    writer = Writer()
    message.write(writer, version)
    # A connection receives into its own memory, in which a batch is given its offset.
    reader = Reader(memoryview(bytearray(writer.getvalue())))
    decoded = kind.read(reader, version)
    assert reader.remaining == 0
    return decoded


def with_broker(
    scenario: Callable[[InTrio], Awaitable[None]],
    *,
    settings: Iterable[str] = (),
    disk: Disk | None = None,
    coordinates: bool = True,
    make_clock: Callable[[], TrioClock] = TrioClock,
    runs_groups: bool = True,
) -> Disk:
    """Runs `scenario` against a broker; returns the disk of the stopped broker.

    `runs_groups`: the group service runs, too. `coordinates`: the topics of groups and transactions exist.
    """
    store = disk or MemoryDisk()

    async def main() -> None:
        config = load_config(settings=[*FEW_PARTITIONS, *settings], listen=["127.0.0.1:0"])
        broker = Broker.open(config, store, make_clock())
        if coordinates:
            create_internal_topics(broker)
        try:
            async with trio.open_nursery() as nursery:
                if runs_groups:
                    nursery.start_soon(broker.groups.runtime.run)
                await trio.testing.wait_all_tasks_blocked()
                await scenario(InTrio(broker))
                nursery.cancel_scope.cancel()
        finally:
            broker.close()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    return store
