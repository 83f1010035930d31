"""Transactions of aiokafka. Its event loop has a thread of its own, so that the scenes can call it as any other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import ClassVar

import attrs
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaError, ProducerFenced

from testkit.basics.waiting import Deadline
from testkit.clients import aio
from testkit.clients.transactions.client import Client, Producer, Source, Spot, Taken
from testkit.clients.transactions.queries import end_offset
from testkit.clients.transactions.restarts import RestartScenes
from testkit.clients.transactions.scenes import TransactionScenes

_loop = aio.LoopInThread()
loop_runs = aio.module_fixture_of(_loop)


@attrs.define(eq=False)
class _Member:
    consumer: AIOKafkaConsumer
    group: str

    def take(self, count: int) -> list[Taken]:
        return [Taken(it.partition, it.offset, it.value) for it in _loop.run(aio.take(self.consumer, count))]


@attrs.define(eq=False)
class _Producer:
    producer: AIOKafkaProducer

    def begin(self) -> None:
        _loop.run(self.producer.begin_transaction())

    def send(self, topic: str, values: Iterable[bytes], *, partition: int = 0) -> None:
        _loop.run(aio.send_all(self.producer, topic, values, partition=partition))

    def send_offsets(self, offsets: Mapping[Spot, int], source: Source) -> None:
        assert isinstance(source, _Member)
        wanted = {TopicPartition(*spot): offset for spot, offset in offsets.items()}
        _loop.run(self.producer.send_offsets_to_transaction(wanted, source.group))

    def commit(self) -> None:
        _loop.run(self.producer.commit_transaction())

    def abort(self) -> None:
        _loop.run(self.producer.abort_transaction())


class _AioKafka:
    errors = (KafkaError,)

    @contextmanager
    def producing(self, bootstrap: str, transactional_id: str, *, timeout_ms: int = 60_000) -> Iterator[Producer]:
        config = {"transactional_id": transactional_id, "transaction_timeout_ms": timeout_ms}
        with _loop.entering(aio.producing(bootstrap, **config)) as producer:
            yield _Producer(producer)

    @contextmanager
    def reading(self, bootstrap: str, group: str, topic: str) -> Iterator[Source]:
        config = {"group_id": group, "isolation_level": "read_committed"}
        with _loop.entering(aio.consuming(bootstrap, topic, **config)) as consumer:
            yield _Member(consumer, group)

    def values(self, bootstrap: str, topic: str, partitions: Sequence[int], *, committed: bool) -> list[bytes]:
        ends = {TopicPartition(topic, it): end_offset(bootstrap, (topic, it), committed=committed) for it in partitions}
        return [it.value for it in _loop.run(_read(bootstrap, ends, committed))]

    def is_fenced(self, error: Exception) -> bool:
        return isinstance(error, ProducerFenced)


async def _read(bootstrap: str, ends: Mapping[TopicPartition, int], committed: bool) -> list[ConsumerRecord]:
    """Everything below the end offsets, by partition and offset."""
    level = "read_committed" if committed else "read_uncommitted"
    found: list[ConsumerRecord] = []
    deadline = Deadline()
    async with aio.consuming(bootstrap, isolation_level=level) as consumer:
        consumer.assign(list(ends))
        while deadline.not_over(f"the ends {ends}; got {len(found)}"):
            if all([await consumer.position(partition) >= end for partition, end in ends.items()]):
                break
            for batch in (await consumer.getmany(timeout_ms=50)).values():
                found += batch
    return sorted(found, key=lambda it: (it.partition, it.offset))


class TestTransactions(TransactionScenes):
    client: ClassVar[Client] = _AioKafka()


class TestTransactionsOverARestart(RestartScenes):
    client: ClassVar[Client] = _AioKafka()
