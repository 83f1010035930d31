"""kafka-python as the tests use it, in either of its generations (2.2 and 3.0)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition

from testkit.basics.waiting import Deadline

# How long a send may take. Not waited out unless a test fails.
SEND_TIMEOUT_S = 20.0


@contextmanager
def producing(bootstrap: str, **config: Any) -> Iterator[Any]:
    producer = KafkaProducer(**{"bootstrap_servers": bootstrap, "reconnect_backoff_max_ms": 500, **config})
    with closing(producer):
        yield producer


@contextmanager
def consuming(bootstrap: str, *topics: str, **config: Any) -> Iterator[Any]:
    """A consumer from the earliest offset; in a group when `group_id` is given."""
    settings = {
        "bootstrap_servers": bootstrap,
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "fetch_max_wait_ms": 100,
        "heartbeat_interval_ms": 100,
        "retry_backoff_ms": 50,
        "reconnect_backoff_max_ms": 500,
        **config,
    }
    with closing(KafkaConsumer(*topics, **settings)) as consumer:
        yield consumer


@contextmanager
def administering(bootstrap: str) -> Iterator[Any]:
    with closing(KafkaAdminClient(bootstrap_servers=bootstrap, request_timeout_ms=20_000)) as admin:
        yield admin


@contextmanager
def reading(bootstrap: str, topic: str, *, partitions: Iterable[int] = (0,), **config: Any) -> Iterator[Any]:
    """A consumer without a group, assigned to partitions of a topic."""
    with consuming(bootstrap, **config) as consumer:
        consumer.assign([TopicPartition(topic, partition) for partition in partitions])
        yield consumer


def send_all(producer: Any, topic: str, values: Iterable[bytes | None], **to: Any) -> list[Any]:
    """Sends them, waits for all, and returns their record metadata."""
    futures = [producer.send(topic, value=value, **to) for value in values]
    producer.flush(timeout=SEND_TIMEOUT_S)
    return [future.get(timeout=SEND_TIMEOUT_S) for future in futures]


def fill(bootstrap: str, topic: str, values: Iterable[bytes | None], **to: Any) -> None:
    with producing(bootstrap, acks="all") as producer:
        send_all(producer, topic, values, **to)


def take(consumer: Any, count: int) -> list[Any]:
    """Polls until there are `count` records; fails when there are more."""
    records: list[Any] = []
    take_until(consumer, lambda: len(records) >= count, records, f"{count} records")
    assert len(records) == count, [record.value for record in records]
    return records


POLL_MS = 5_000
"""The timeout of a poll. If kafka-python 3.0 ends a poll while its rejoin is in progress, it may never take the new
assignment: the next poll sees no reason to rejoin. So polls that wait for records wait long.
"""


def take_until(
    consumer: Any, enough: Callable[[], bool], records: list[Any], what: str, *, poll_ms: int = POLL_MS
) -> None:
    """Polls until `enough()`, and appends what comes to `records`."""
    deadline = Deadline()
    while not enough() and deadline.not_over(f"{what}; got {len(records)}"):
        for batch in consumer.poll(timeout_ms=poll_ms).values():
            records += batch


def poll_for_ever(consumer: Any) -> None:
    """Polls until an error is raised."""
    take_until(consumer, lambda: False, [], "an error")


def read_all(bootstrap: str, topic: str, count: int, *, partitions: Iterable[int] = (0,), **config: Any) -> list[Any]:
    """The records of a topic, from its start, which must be `count`."""
    with reading(bootstrap, topic, partitions=partitions, **config) as consumer:
        return take(consumer, count)


def values_of(records: Iterable[Any]) -> list[bytes | None]:
    return [record.value for record in records]
