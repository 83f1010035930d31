"""Filling topics and looking into them by another client than Spark's.

The producer sends one request at a time, so that the n-th record given for a partition is the n-th there (idempotence
would promise that too, but librdkafka takes half a second to begin with it), and everything is acknowledged when
`produce` returns: what follows may rely on it being in the broker.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Sequence

import attrs
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.cimpl import NewPartitions

from testkit.basics.waiting import Deadline, eventually
from testkit.raw.topics import admin

Headers = Sequence[tuple[str, str | bytes | None]]

_TIMEOUT_S = 30.0
_QUEUE_RECORDS = 90_000  # The producer takes 100,000 and then refuses.

_quiet = logging.getLogger("testkit.spark.records")
_quiet.setLevel(logging.CRITICAL)


@attrs.frozen
class Record:
    value: bytes | None
    key: bytes | None = None
    partition: int = 0
    headers: Headers = ()
    timestamp_ms: int | None = None


@attrs.frozen
class Written:
    """A record as another consumer finds it."""

    value: bytes | None
    key: bytes | None
    partition: int
    offset: int
    timestamp_ms: int
    headers: list[tuple[str, str | bytes | None]]


def numbered(count: int, *, first: int = 0, partitions: int = 1) -> list[Record]:
    """Records with the values b"0", b"1", ..., distributed round-robin over the partitions."""
    return [Record(str(n).encode(), partition=n % partitions) for n in range(first, first + count)]


def stamped(start_ms: int, seconds: list[int], partition: int = 0) -> list[Record]:
    """A record for each number, that long after `start_ms`; the number is its value."""
    return [Record(str(s).encode(), partition=partition, timestamp_ms=start_ms + s * 1000) for s in seconds]


def an_hour_ago_ms() -> int:
    """A round timestamp to count from: in the past, yet safe from retention."""
    return (int(time.time()) - 3600) * 1000


def produce(bootstrap: str, topic: str, records: Iterable[Record], **config: str | int) -> None:
    """Writes the records and returns when all are acknowledged. `config` is librdkafka's, with _ for the dots."""
    settings = {name.replace("_", "."): value for name, value in config.items()}
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "max.in.flight.requests.per.connection": 1,
            "message.max.bytes": 32 << 20,
            **settings,
        },
        logger=_quiet,
    )
    failures: list[KafkaError] = []

    def delivered(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            failures.append(error)

    for record in records:
        while len(producer) >= _QUEUE_RECORDS:
            producer.poll(0.1)
        producer.produce(
            topic,
            value=record.value,
            key=record.key,
            partition=record.partition,
            headers=list(record.headers),
            timestamp=record.timestamp_ms or 0,  # 0: now
            on_delivery=delivered,
        )
    left = producer.flush(_TIMEOUT_S)
    assert left == 0, f"{left} records were not acknowledged within {_TIMEOUT_S} s"
    assert not failures, f"{topic}: {failures[0]}"


def consume(bootstrap: str, topic: str, *, expected: int | None = None) -> list[Written]:
    """All records of a topic, by partition and offset; waits until `expected` are there if that is given."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reads-without-a-group",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 20,  # It learns of a partition's end by waiting there.
        },
        logger=_quiet,
    )
    found: list[Written] = []
    try:
        partitions = consumer.list_topics(topic, timeout=_TIMEOUT_S).topics[topic].partitions
        consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
        unread = set(partitions)
        deadline = Deadline()
        while unread or (expected is not None and len(found) < expected):
            assert deadline.not_over(f"{expected} records in {topic}; found {len(found)}")
            message = consumer.poll(0.2)
            if message is None:
                continue
            error = message.error()
            if error is None:
                found.append(_written(message))
            elif error.code() == KafkaError._PARTITION_EOF:
                unread.discard(message.partition())
            else:
                raise AssertionError(f"{topic}: {error}")
    finally:
        consumer.close()
    return sorted(found, key=lambda record: (record.partition, record.offset))


def _written(message: Message) -> Written:
    partition, offset, headers = message.partition(), message.offset(), message.headers()
    assert partition is not None
    assert offset is not None
    return Written(
        value=message.value(),
        key=message.key(),
        partition=partition,
        offset=offset,
        timestamp_ms=message.timestamp()[1],
        headers=headers if isinstance(headers, list) else list((headers or {}).items()),
    )


def delete_records(bootstrap: str, topic: str, before: dict[int, int]) -> None:
    """Moves the log start offset of each partition."""
    wanted = [TopicPartition(topic, partition, offset) for partition, offset in before.items()]
    for answer in admin(bootstrap).delete_records(wanted).values():
        answer.result(_TIMEOUT_S)


def add_partitions(bootstrap: str, topic: str, total: int) -> None:
    """Lets the topic grow to `total` partitions, and returns when all are led."""
    client = admin(bootstrap)
    client.create_partitions([NewPartitions(topic, total)])[topic].result(_TIMEOUT_S)

    def led() -> bool:
        partitions = client.list_topics(topic, timeout=_TIMEOUT_S).topics[topic].partitions
        return len(partitions) == total and all(partition.leader >= 0 for partition in partitions.values())

    eventually(led, f"{topic} has {total} partitions")
