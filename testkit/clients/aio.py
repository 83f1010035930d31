"""aiokafka as the tests use it."""

from __future__ import annotations

import asyncio
import functools
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import Any, ParamSpec, TypeVar

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient

from testkit.basics.waiting import PATIENCE_S, PAUSE_S, Deadline
from testkit.clients.members import shared_out

P = ParamSpec("P")
T = TypeVar("T")


def in_a_loop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Makes a test of a coroutine function."""

    @functools.wraps(test)
    def run(*arguments: P.args, **keywords: P.kwargs) -> None:
        asyncio.run(test(*arguments, **keywords))

    return run


class LoopInThread:
    """An event loop in a thread, between `start` and `stop`. Everything of aiokafka has to be called there."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    @contextmanager
    def entering(self, manager: AbstractAsyncContextManager[T]) -> Iterator[T]:
        entered = self.run(manager.__aenter__())
        try:
            yield entered
        finally:
            self.run(manager.__aexit__(None, None, None))


def module_fixture_of(loop: LoopInThread) -> Callable[[], Iterator[None]]:
    """Returns a fixture that runs the loop while the tests of its module run. Assign it to a name of the module."""

    @pytest.fixture(scope="module", autouse=True)
    def loop_runs() -> Iterator[None]:
        loop.start()
        yield
        loop.stop()

    return loop_runs


@asynccontextmanager
async def producing(bootstrap: str, *, acks: int | str = "all", **config: Any) -> AsyncIterator[AIOKafkaProducer]:
    """A producer whose acknowledged records can be read: the client's own default is acks=1."""
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, acks=acks, **config)
    try:
        await producer.start()
        yield producer
    finally:
        await producer.stop()


@asynccontextmanager
async def consuming(bootstrap: str, *topics: str, **config: Any) -> AsyncIterator[AIOKafkaConsumer]:
    """A consumer from the earliest offset; in a group when `group_id` is given."""
    settings = {
        "bootstrap_servers": bootstrap,
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "fetch_max_wait_ms": 100,
        "heartbeat_interval_ms": 200,
        "retry_backoff_ms": 50,
        **config,
    }
    consumer = AIOKafkaConsumer(*topics, **settings)
    await consumer.start()
    try:
        yield consumer
    finally:
        await consumer.stop()


@asynccontextmanager
async def reading(
    bootstrap: str, topic: str, *, partitions: Iterable[int] = (0,), **config: Any
) -> AsyncIterator[AIOKafkaConsumer]:
    async with consuming(bootstrap, **config) as consumer:
        consumer.assign([TopicPartition(topic, partition) for partition in partitions])
        yield consumer


@asynccontextmanager
async def administering(bootstrap: str) -> AsyncIterator[AIOKafkaAdminClient]:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        yield admin
    finally:
        await admin.close()


async def send_all(producer: AIOKafkaProducer, topic: str, values: Iterable[bytes | None], **to: Any) -> list[Any]:
    futures = [await producer.send(topic, value=value, **to) for value in values]
    return list(await asyncio.gather(*futures))


async def fill(bootstrap: str, topic: str, values: Iterable[bytes | None], **to: Any) -> None:
    async with producing(bootstrap) as producer:
        await send_all(producer, topic, values, **to)


async def take(consumer: AIOKafkaConsumer, count: int) -> list[ConsumerRecord]:
    records: list[ConsumerRecord] = []
    deadline = Deadline()
    while len(records) < count and deadline.not_over(f"{count} records; got {len(records)}"):
        for batch in (await consumer.getmany(timeout_ms=100)).values():
            records += batch
    assert len(records) == count, values_of(records)
    return records


async def read_all(
    bootstrap: str, topic: str, count: int, *, partitions: Iterable[int] = (0,), **config: Any
) -> list[ConsumerRecord]:
    async with reading(bootstrap, topic, partitions=partitions, **config) as consumer:
        return await take(consumer, count)


async def eventually(probe: Callable[[], Any], what: str) -> None:
    """Waits like `waiting.eventually`, without blocking the event loop."""
    end = time.monotonic() + PATIENCE_S
    while not probe():
        assert time.monotonic() < end, f"not within {PATIENCE_S} s: {what}"
        await asyncio.sleep(PAUSE_S)


def owned(consumer: AIOKafkaConsumer) -> list[int]:
    return sorted(partition.partition for partition in consumer.assignment())


async def settle(members: list[AIOKafkaConsumer], partitions: int, *, most: int) -> list[list[int]]:
    """Waits until the members share the partitions of one topic; what each owns. aiokafka joins by itself."""
    await eventually(lambda: shared_out([owned(it) for it in members], partitions, most=most), "a balance")
    return [owned(it) for it in members]


def values_of(records: Iterable[ConsumerRecord]) -> list[bytes | None]:
    return [record.value for record in records]
