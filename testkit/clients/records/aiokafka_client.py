"""aiokafka, whose event loop has a thread of its own, so that the scenes can call it as any other client."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import attrs
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError, OffsetOutOfRangeError
from kwire_protocol.errors import ErrorCode

from testkit.clients import aio
from testkit.clients.records.client import ProducerConfig, ReaderConfig, RecordMetadata, Refused, Sent, Stored

_LOG_APPEND_TIME = 1


@attrs.frozen
class _Producer:
    _client: AIOKafkaProducer
    _loop: aio.LoopInThread

    def send(self, topic: str, records: Iterable[Sent]) -> list[RecordMetadata]:
        return self._loop.run(self._send(topic, records))

    async def _send(self, topic: str, records: Iterable[Sent]) -> list[RecordMetadata]:
        futures = [
            await self._client.send(
                topic,
                key=it.key,
                value=it.value,
                headers=list(it.headers),
                timestamp_ms=it.timestamp_ms,
                partition=it.partition,
            )
            for it in records
        ]
        try:
            found = await asyncio.gather(*futures)
        except KafkaError as error:
            raise Refused(error.errno) from error
        return [RecordMetadata(it.partition, it.offset, it.timestamp) for it in found if it is not None]

    def settle(self, other_topic: str) -> None:
        pass


@attrs.frozen
class _Reader:
    _client: AIOKafkaConsumer
    _topic: str
    _loop: aio.LoopInThread

    def take(self, count: int) -> list[Stored]:
        return [
            Stored(
                it.key,
                it.value,
                list(it.headers),
                it.timestamp,
                it.timestamp_type == _LOG_APPEND_TIME,
                it.partition,
                it.offset,
            )
            for it in self._loop.run(aio.take(self._client, count))
        ]

    def _of(self, partition: int) -> TopicPartition:
        return TopicPartition(self._topic, partition)

    def _call(self, call: Coroutine[Any, Any, Any]) -> Any:
        return self._loop.run(call)

    def seek(self, partition: int, offset: int) -> None:
        async def seek() -> None:
            self._client.seek(self._of(partition), offset)

        self._call(seek())

    def seek_to_beginning(self, partition: int) -> None:
        self._call(self._client.seek_to_beginning(self._of(partition)))
        assert self._call(self._client.position(self._of(partition))) == self.bounds(partition)[0]

    def seek_to_end(self, partition: int) -> None:
        self._call(self._client.seek_to_end(self._of(partition)))
        assert self._call(self._client.position(self._of(partition))) == self.bounds(partition)[1]

    def pause(self, partition: int) -> None:
        async def pause() -> None:
            self._client.pause(self._of(partition))

        self._call(pause())

    def resume(self, partition: int) -> None:
        async def resume() -> None:
            self._client.resume(self._of(partition))

        self._call(resume())

    def bounds(self, partition: int) -> tuple[int, int]:
        of = self._of(partition)
        begins, ends = self._call(self._client.beginning_offsets([of])), self._call(self._client.end_offsets([of]))
        return begins[of], ends[of]

    def at_time(self, partition: int, timestamp_ms: int) -> tuple[int, int | None] | None:
        found = self._call(self._client.offsets_for_times({self._of(partition): timestamp_ms}))[self._of(partition)]
        return found and (found.offset, found.timestamp)


@attrs.frozen
class Aiokafka:
    _loop: aio.LoopInThread
    earliest_ms: int = 0
    out_of_range: tuple[type[Exception], ...] = (OffsetOutOfRangeError,)
    unknown_codes: frozenset[int] = frozenset({ErrorCode.INVALID_RECORD})

    @contextmanager
    def producing(self, bootstrap: str, config: ProducerConfig) -> Iterator[_Producer]:
        client = aio.producing(
            bootstrap,
            compression_type=config.codec,
            acks=config.acks,
            enable_idempotence=config.is_idempotent,
            max_batch_size=config.batch_bytes,
            max_request_size=config.max_request_bytes,
            linger_ms=20,
        )
        with self._loop.entering(client) as producer:
            yield _Producer(producer, self._loop)

    @contextmanager
    def reading(
        self, bootstrap: str, topic: str, config: ReaderConfig, *, partitions: Sequence[int] = (0,)
    ) -> Iterator[_Reader]:
        settings: dict[str, Any] = {"auto_offset_reset": config.reset}
        if config.isolation is not None:
            settings["isolation_level"] = config.isolation
        if config.fetch_bytes is not None:
            settings |= dict.fromkeys(("fetch_max_bytes", "max_partition_fetch_bytes"), config.fetch_bytes)
        client = aio.reading(bootstrap, topic, partitions=partitions, **settings)
        with self._loop.entering(client) as consumer:
            reader = _Reader(consumer, topic, self._loop)
            for partition in partitions:
                reader.seek(partition, 0)
            yield reader
