"""confluent-kafka (librdkafka)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import attrs
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)
from confluent_kafka import Producer as LibrdkafkaProducer

from testkit.basics.waiting import Deadline
from testkit.clients import confluent
from testkit.clients.records.client import ProducerConfig, ReaderConfig, RecordMetadata, Refused, Sent, Stored


def _stored(message: Message) -> Stored:
    kind, timestamp_ms = message.timestamp()
    partition, offset = message.partition(), message.offset()
    assert partition is not None
    assert offset is not None
    return Stored(
        message.key(),
        message.value(),
        list(message.headers() or []),
        timestamp_ms,
        kind == TIMESTAMP_LOG_APPEND_TIME,
        partition,
        offset,
    )


@attrs.frozen
class _Producer:
    _client: LibrdkafkaProducer

    def send(self, topic: str, records: Iterable[Sent]) -> list[RecordMetadata]:
        acknowledgements = confluent.Acknowledgements()
        for it in records:
            to = {} if it.partition is None else {"partition": it.partition}
            self._client.produce(
                topic,
                it.value,
                key=it.key,
                headers=list(it.headers),
                timestamp=it.timestamp_ms or 0,
                on_delivery=acknowledgements,
                **to,
            )
        assert self._client.flush(confluent.FLUSH_TIMEOUT_S) == 0
        if acknowledgements.errors:
            raise Refused(acknowledgements.errors[0].code())
        return [
            RecordMetadata(it.partition() or 0, -1 if it.offset() is None else int(it.offset() or 0), it.timestamp()[1])
            for it in acknowledgements.taken
        ]

    def settle(self, other_topic: str) -> None:
        pass


@attrs.frozen
class _Reader:
    _client: Consumer
    _topic: str

    def take(self, count: int) -> list[Stored]:
        return [_stored(it) for it in confluent.take(self._client, count)]

    def seek(self, partition: int, offset: int) -> None:
        self._client.seek(TopicPartition(self._topic, partition, offset))

    def seek_to_beginning(self, partition: int) -> None:
        self.seek(partition, OFFSET_BEGINNING)

    def seek_to_end(self, partition: int) -> None:
        # It looks for the end when it fetches next: not an offset, but the end that is known by now.
        self.seek(partition, self.bounds(partition)[1])

    def pause(self, partition: int) -> None:
        self._client.pause([TopicPartition(self._topic, partition)])

    def resume(self, partition: int) -> None:
        self._client.resume([TopicPartition(self._topic, partition)])

    def bounds(self, partition: int) -> tuple[int, int]:
        found = self._client.get_watermark_offsets(
            TopicPartition(self._topic, partition), timeout=confluent.CALL_TIMEOUT_S
        )
        assert found is not None
        begin, end = found
        return int(begin), int(end)

    def at_time(self, partition: int, timestamp_ms: int) -> tuple[int, int | None] | None:
        wanted = TopicPartition(self._topic, partition, timestamp_ms)
        (found,) = self._client.offsets_for_times([wanted], timeout=confluent.CALL_TIMEOUT_S)
        return None if found.offset == OFFSET_END else (found.offset, None)


@attrs.frozen
class Confluent:
    earliest_ms: int = 1
    """It takes 0 for the present."""
    out_of_range: tuple[type[Exception], ...] = (KafkaException,)
    unknown_codes: frozenset[int] = frozenset()

    @contextmanager
    def producing(self, bootstrap: str, config: ProducerConfig) -> Iterator[_Producer]:
        settings = {
            "compression.type": config.codec or "none",
            "acks": config.acks,
            "enable.idempotence": config.is_idempotent,
            "batch.size": config.batch_bytes,
            "message.max.bytes": config.max_request_bytes,
            "linger.ms": 20,
        }
        with confluent.producing(bootstrap, **settings) as client:
            yield _Producer(client)

    @contextmanager
    def reading(
        self, bootstrap: str, topic: str, config: ReaderConfig, *, partitions: Sequence[int] = (0,)
    ) -> Iterator[_Reader]:
        settings: dict[str, Any] = {"auto.offset.reset": "error" if config.reset == "none" else config.reset}
        if config.isolation is not None:
            settings["isolation.level"] = config.isolation
        if config.fetch_bytes is not None:
            settings |= dict.fromkeys(("fetch.message.max.bytes", "fetch.max.bytes"), config.fetch_bytes)
            settings["message.max.bytes"] = config.fetch_bytes  # fetch.max.bytes must not be less
        with confluent.consuming(bootstrap, **settings) as client:
            client.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in partitions])
            _wait_until_it_reads(client, topic, partitions)
            yield _Reader(client, topic)


def _wait_until_it_reads(client: Consumer, topic: str, partitions: Sequence[int]) -> None:
    """A partition can be sought in as soon as the client has begun to fetch it."""
    deadline = Deadline()
    for partition in partitions:
        while deadline.not_over(f"{topic}-{partition} can be sought in"):
            try:
                client.seek(TopicPartition(topic, partition, OFFSET_BEGINNING))
                break
            except KafkaException as error:
                if error.args[0].code() != KafkaError._STATE:
                    raise
