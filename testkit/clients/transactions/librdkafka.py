"""confluent-kafka, librdkafka's Python client, as the client of the scenes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import ClassVar

import attrs
import confluent_kafka
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from testkit.basics.waiting import Deadline
from testkit.clients.confluent import CALL_TIMEOUT_S, Acknowledgements, consuming, quiet, reading, take
from testkit.clients.transactions.client import Producer, Source, Spot, Taken
from testkit.raw.groups import CLASSIC


@attrs.define(eq=False)
class _Member:
    consumer: Consumer

    def take(self, count: int) -> list[Taken]:
        return [Taken(it.partition() or 0, it.offset() or 0, it.value() or b"") for it in take(self.consumer, count)]


@attrs.define(eq=False)
class _Producer:
    producer: confluent_kafka.Producer

    def begin(self) -> None:
        self.producer.begin_transaction()

    def send(self, topic: str, values: Iterable[bytes], *, partition: int = 0) -> None:
        acknowledgements, deadline = Acknowledgements(), Deadline()
        for value in values:
            self.producer.produce(topic, value, partition=partition, on_delivery=acknowledgements)
        # Not by flush: a fatal error raised in there meets the callback of the next record, and becomes a SystemError.
        while len(self.producer) and deadline.not_over("acknowledgements"):
            self.producer.poll(0.1)
        for error in acknowledgements.errors:
            raise KafkaException(error)

    def send_offsets(self, offsets: Mapping[Spot, int], source: Source) -> None:
        assert isinstance(source, _Member)
        wanted = [TopicPartition(*spot, offset) for spot, offset in offsets.items()]
        metadata = source.consumer.consumer_group_metadata()
        self.producer.send_offsets_to_transaction(wanted, metadata, CALL_TIMEOUT_S)

    def commit(self) -> None:
        self.producer.commit_transaction(CALL_TIMEOUT_S)

    def abort(self) -> None:
        self.producer.abort_transaction(CALL_TIMEOUT_S)


@attrs.frozen
class Confluent:
    """The client with the interface of the scenes; its members use `protocol`."""

    protocol: str = CLASSIC
    errors: ClassVar = (KafkaException,)

    @contextmanager
    def producing(self, bootstrap: str, transactional_id: str, *, timeout_ms: int = 60_000) -> Iterator[Producer]:
        config = {
            "bootstrap.servers": bootstrap,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": timeout_ms,
            "linger.ms": 1,
            "reconnect.backoff.max.ms": 500,
        }
        producer = confluent_kafka.Producer(config, logger=quiet)
        producer.init_transactions(CALL_TIMEOUT_S)
        yield _Producer(producer)

    @contextmanager
    def reading(self, bootstrap: str, group: str, topic: str) -> Iterator[Source]:
        config = {"group.id": group, "group.protocol": self.protocol, "isolation.level": "read_committed"}
        with consuming(bootstrap, topic, **config) as consumer:
            yield _Member(consumer)

    def values(self, bootstrap: str, topic: str, partitions: Sequence[int], *, committed: bool) -> list[bytes]:
        level = "read_committed" if committed else "read_uncommitted"
        config = {"isolation.level": level, "enable.partition.eof": True, "fetch.wait.max.ms": 20}
        found: list[Message] = []
        unread, deadline = set(partitions), Deadline()
        with reading(bootstrap, topic, partitions=partitions, **config) as consumer:
            while unread and deadline.not_over(f"the end of {topic}; got {len(found)}"):
                for message in consumer.consume(num_messages=500, timeout=0.1):
                    error = message.error()
                    if error is None:
                        found.append(message)
                    elif error.code() == KafkaError._PARTITION_EOF:
                        unread.discard(message.partition())
                    else:
                        raise KafkaException(error)
        return [it.value() or b"" for it in sorted(found, key=lambda it: (it.partition() or 0, it.offset() or 0))]

    def is_fenced(self, error: Exception) -> bool:
        failure: KafkaError = error.args[0]
        return bool(failure.fatal()) or failure.code() == KafkaError._FENCED
