"""kafka-python, of either generation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import attrs
from kafka import TopicPartition, errors

from testkit.clients import kafka_python
from testkit.clients.records.client import ProducerConfig, ReaderConfig, RecordMetadata, Refused, Sent, Stored

_LOG_APPEND_TIME = 1


@attrs.frozen
class _Producer:
    _client: Any

    def send(self, topic: str, records: Iterable[Sent]) -> list[RecordMetadata]:
        futures = [
            self._client.send(
                topic,
                key=it.key,
                value=it.value,
                headers=list(it.headers),
                timestamp_ms=it.timestamp_ms,
                partition=it.partition,
            )
            for it in records
        ]
        self._client.flush(timeout=kafka_python.SEND_TIMEOUT_S)
        try:
            found = [future.get(timeout=kafka_python.SEND_TIMEOUT_S) for future in futures]
        except errors.KafkaError as error:
            raise Refused(error.errno) from error
        return [RecordMetadata(it.partition, it.offset, it.timestamp) for it in found]

    def settle(self, other_topic: str) -> None:
        # kafka-python 2.2 sends what needs no answer only with its next request that needs one.
        self._client.partitions_for(other_topic)


@attrs.frozen
class _Reader:
    _client: Any
    _topic: str

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
            for it in kafka_python.take(self._client, count)
        ]

    def _of(self, partition: int) -> TopicPartition:
        return TopicPartition(self._topic, partition)

    def seek(self, partition: int, offset: int) -> None:
        self._client.seek(self._of(partition), offset)

    def seek_to_beginning(self, partition: int) -> None:
        self._client.seek_to_beginning(self._of(partition))
        assert self._client.position(self._of(partition)) == self.bounds(partition)[0]

    def seek_to_end(self, partition: int) -> None:
        self._client.seek_to_end(self._of(partition))
        assert self._client.position(self._of(partition)) == self.bounds(partition)[1]

    def pause(self, partition: int) -> None:
        self._client.pause(self._of(partition))

    def resume(self, partition: int) -> None:
        self._client.resume(self._of(partition))

    def bounds(self, partition: int) -> tuple[int, int]:
        of = self._of(partition)
        return self._client.beginning_offsets([of])[of], self._client.end_offsets([of])[of]

    def at_time(self, partition: int, timestamp_ms: int) -> tuple[int, int | None] | None:
        found = self._client.offsets_for_times({self._of(partition): timestamp_ms})[self._of(partition)]
        return found and (found.offset, found.timestamp)


@attrs.frozen
class KafkaPython:
    earliest_ms: int = 0
    out_of_range: tuple[type[Exception], ...] = (errors.OffsetOutOfRangeError,)
    unknown_codes: frozenset[int] = frozenset()

    @contextmanager
    def producing(self, bootstrap: str, config: ProducerConfig) -> Iterator[_Producer]:
        with kafka_python.producing(
            bootstrap,
            compression_type=config.codec,
            acks=config.acks,
            enable_idempotence=config.is_idempotent,
            batch_size=config.batch_bytes,
            max_request_size=config.max_request_bytes,
            linger_ms=20,
        ) as client:
            yield _Producer(client)

    @contextmanager
    def reading(
        self, bootstrap: str, topic: str, config: ReaderConfig, *, partitions: Sequence[int] = (0,)
    ) -> Iterator[_Reader]:
        settings: dict[str, Any] = {"auto_offset_reset": config.reset}
        if config.isolation is not None:
            settings["isolation_level"] = config.isolation
        if config.fetch_bytes is not None:
            settings |= dict.fromkeys(("fetch_max_bytes", "max_partition_fetch_bytes"), config.fetch_bytes)
        with kafka_python.reading(bootstrap, topic, partitions=partitions, **settings) as client:
            for partition in partitions:
                client.seek(TopicPartition(topic, partition), 0)
            yield _Reader(client, topic)
