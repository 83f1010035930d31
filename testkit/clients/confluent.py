"""confluent-kafka (librdkafka) as the tests use it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from testkit.basics.waiting import PAUSE_S, Deadline

FLUSH_TIMEOUT_S = 20.0
CALL_TIMEOUT_S = 20.0
LEAVING_S = 2.0
_METADATA_TIMEOUT_S = 5.0

# librdkafka reports lost connections to standard error; tests that stop the broker expect them.
quiet = logging.getLogger("testkit.librdkafka")
quiet.setLevel(logging.CRITICAL)


@contextmanager
def producing(bootstrap: str, **config: Any) -> Iterator[Producer]:
    settings = {"bootstrap.servers": bootstrap, "linger.ms": 5, "reconnect.backoff.max.ms": 500, **config}
    producer = Producer(settings, logger=quiet)
    if config.get("enable.idempotence"):
        # librdkafka requests a producer id at once, finds no connection yet, and tries again half a second later. After
        # another request it has a connection.
        fetch_metadata(producer)
    yield producer
    producer.flush(FLUSH_TIMEOUT_S)


def fetch_metadata(client: Consumer | Producer, topic: str | None = None) -> None:
    """Makes a client connect and fetch the topic's leaders, so that it need not wait later.

    Returns without them if no broker answers: one may be down at this moment.
    """
    with suppress(KafkaException):
        client.list_topics(*(() if topic is None else (topic,)), timeout=_METADATA_TIMEOUT_S)


@contextmanager
def consuming(bootstrap: str, *topics: str, **config: Any) -> Iterator[Consumer]:
    """A consumer from the earliest offset; subscribed when topics are given.

    With `group.protocol` consumer, the broker decides the heartbeat interval.
    """
    heartbeats = {} if config.get("group.protocol") == "consumer" else {"heartbeat.interval.ms": 200}
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": "confluent-without-a-group",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "fetch.wait.max.ms": 100,
        **heartbeats,
        "topic.metadata.refresh.interval.ms": 500,
        "reconnect.backoff.max.ms": 500,
        **config,
    }
    consumer = Consumer(settings, logger=quiet)
    try:
        if topics:
            consumer.subscribe(list(topics))
        yield consumer
    finally:
        if topics and "group.instance.id" not in config:  # a static member that closes remains in its group
            leave(consumer)
        consumer.close()


def leave(consumer: Consumer) -> None:
    """Leaves the group of a consumer that has subscribed, and handles the rebalances that are under way.

    If it closes while its partitions change, it may wait for ever (librdkafka's issue 4884).
    """
    with suppress(RuntimeError, KafkaException):  # it is closed, or has met a fatal error
        consumer.unsubscribe()
        deadline = time.monotonic() + LEAVING_S
        while consumer.assignment() and time.monotonic() < deadline:
            consumer.poll(PAUSE_S)


@contextmanager
def reading(bootstrap: str, topic: str, *, partitions: Iterable[int] = (0,), **config: Any) -> Iterator[Consumer]:
    """A consumer that is assigned to partitions of a topic, from their start."""
    with consuming(bootstrap, **config) as consumer:
        # Otherwise librdkafka does not have the leader, and requests the metadata half a second later.
        consumer.list_topics(topic, timeout=CALL_TIMEOUT_S)
        consumer.assign([TopicPartition(topic, number, confluent_kafka.OFFSET_BEGINNING) for number in partitions])
        yield consumer


class Acknowledgements:
    """Remembers what became of each record that was produced with it as `on_delivery`."""

    def __init__(self) -> None:
        self.taken: list[Message] = []
        self.errors: list[KafkaError] = []

    def __call__(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.taken.append(message)
        else:
            self.errors.append(error)

    @property
    def count(self) -> int:
        return len(self.taken) + len(self.errors)


def send_all(producer: Producer, topic: str, values: Iterable[bytes | None], **to: Any) -> list[Message]:
    """Produces them, waits for all, and returns what was acknowledged."""
    acknowledgements = Acknowledgements()
    for value in values:
        producer.produce(topic, value=value, on_delivery=acknowledgements, **to)
    assert producer.flush(FLUSH_TIMEOUT_S) == 0
    assert acknowledgements.errors == []
    return acknowledgements.taken


def refusal_of(producer: Producer, topic: str, value: bytes | None, **to: Any) -> KafkaError:
    """The error with which a record is refused."""
    acknowledgements = Acknowledgements()
    producer.produce(topic, value=value, on_delivery=acknowledgements, **to)
    assert producer.flush(FLUSH_TIMEOUT_S) == 0
    (error,) = acknowledgements.errors
    return error


def fill(bootstrap: str, topic: str, values: Iterable[bytes | None], **to: Any) -> None:
    with producing(bootstrap) as producer:
        send_all(producer, topic, values, **to)


def take(consumer: Consumer, count: int) -> list[Message]:
    """Polls until there are `count` records; fails on errors and when there are more."""
    records: list[Message] = []
    take_until(consumer, lambda: len(records) >= count, records, f"{count} records")
    assert len(records) == count, values_of(records)
    return records


def take_until(consumer: Consumer, enough: Callable[[], bool], records: list[Message], what: str) -> None:
    deadline = Deadline()
    while not enough() and deadline.not_over(f"{what}; got {len(records)}"):
        for message in consumer.consume(num_messages=500, timeout=0.1):
            if (error := message.error()) is not None:
                raise KafkaException(error)
            records.append(message)


def error_of_reading(consumer: Consumer) -> KafkaError:
    """The error that polling comes to."""
    deadline = Deadline()
    while deadline.not_over("an error"):
        message = consumer.poll(0.1)
        if message is not None and (error := message.error()) is not None:
            return error
    raise AssertionError("unreachable")


def read_all(
    bootstrap: str, topic: str, count: int, *, partitions: Iterable[int] = (0,), **config: Any
) -> list[Message]:
    """The records of a topic, from its start, which must be `count`."""
    with reading(bootstrap, topic, partitions=partitions, **config) as consumer:
        return take(consumer, count)


def values_of(records: Iterable[Message]) -> list[bytes | None]:
    return [record.value() for record in records]


def offsets_of(records: Iterable[Message]) -> list[int | None]:
    return [record.offset() for record in records]


def is_of_a_downgraded_group(error: KafkaError) -> bool:
    """Returns True for the error that ends a member of the consumer protocol whose session is over.

    If only members of the classic protocol are left, the group becomes classic. The next heartbeat of the member gets
    GROUP_ID_NOT_FOUND then, from Apache Kafka too, and librdkafka takes that for fatal.
    """
    return bool(error.code() == KafkaError._FATAL) and "group id does not exist" in error.str()


def error_of(call: Callable[[], Any]) -> int:
    """The code of the error that the call raises."""
    try:
        call()
    except KafkaException as exception:
        return int(exception.args[0].code())
    raise AssertionError("no error")


def group_of(consumer: Consumer) -> list[int]:
    return sorted(partition.partition for partition in consumer.assignment())
