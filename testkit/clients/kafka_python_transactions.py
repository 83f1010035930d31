"""Transactions of kafka-python."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import attrs
from kafka import TopicPartition
from kafka.errors import InvalidProducerEpochError, KafkaError, ProducerFencedError
from kafka.structs import OffsetAndMetadata

from testkit.clients.kafka_python import SEND_TIMEOUT_S, consuming, producing, reading, take, take_until
from testkit.clients.transactions.client import Producer, Source, Spot, Taken
from testkit.clients.transactions.queries import end_offset


@attrs.define(eq=False)
class _Member:
    consumer: Any
    group: str

    def take(self, count: int) -> list[Taken]:
        return [Taken(it.partition, it.offset, it.value) for it in take(self.consumer, count)]

    @property
    def metadata(self) -> Any:
        """The metadata of this member; in kafka-python 2.2 only the name of its group."""
        return self.consumer.group_metadata() if hasattr(self.consumer, "group_metadata") else self.group


@attrs.define(eq=False)
class _Producer:
    producer: Any

    def begin(self) -> None:
        self.producer.begin_transaction()

    def send(self, topic: str, values: Iterable[bytes], *, partition: int = 0) -> None:
        futures = [self.producer.send(topic, value, partition=partition) for value in values]
        for future in futures:
            future.get(timeout=SEND_TIMEOUT_S)

    def send_offsets(self, offsets: Mapping[Spot, int], source: Source) -> None:
        assert isinstance(source, _Member)
        wanted = {TopicPartition(*spot): OffsetAndMetadata(offset, "", -1) for spot, offset in offsets.items()}
        self.producer.send_offsets_to_transaction(wanted, source.metadata)

    def commit(self) -> None:
        self.producer.commit_transaction()

    def abort(self) -> None:
        self.producer.abort_transaction()


class KafkaPython:
    """The client with the interface of the scenes."""

    errors = (KafkaError,)

    @contextmanager
    def producing(self, bootstrap: str, transactional_id: str, *, timeout_ms: int = 60_000) -> Iterator[Producer]:
        config = {"transactional_id": transactional_id, "transaction_timeout_ms": timeout_ms}
        with producing(bootstrap, **config) as producer:
            producer.init_transactions()
            yield _Producer(producer)

    @contextmanager
    def reading(self, bootstrap: str, group: str, topic: str) -> Iterator[Source]:
        with consuming(bootstrap, topic, group_id=group, isolation_level="read_committed") as consumer:
            yield _Member(consumer, group)

    def values(self, bootstrap: str, topic: str, partitions: Sequence[int], *, committed: bool) -> list[bytes]:
        level = "read_committed" if committed else "read_uncommitted"
        ends = {TopicPartition(topic, it): end_offset(bootstrap, (topic, it), committed=committed) for it in partitions}
        found: list[Any] = []
        with reading(bootstrap, topic, partitions=partitions, isolation_level=level) as consumer:

            def at_the_end() -> bool:
                return all(consumer.position(partition) >= end for partition, end in ends.items())

            take_until(consumer, at_the_end, found, f"the end of {topic}", poll_ms=100)
        return [it.value for it in sorted(found, key=lambda it: (it.partition, it.offset))]

    def is_fenced(self, error: Exception) -> bool:
        return isinstance(error, (ProducerFencedError, InvalidProducerEpochError))
