"""A compacted topic as a table, and what it must hold after cleanings."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import attrs
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from testkit.basics.waiting import Deadline, eventually
from testkit.clients.confluent import CALL_TIMEOUT_S, consuming, producing, send_all
from testkit.raw import topics
from testkit.servers.brokers import NODES

SEGMENT_MS = 1_000


CONFIG = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0",
    "segment.ms": str(SEGMENT_MS),
    "delete.retention.ms": "0",
}


Row = tuple[int, str, str | None]


@contextmanager
def frequent_cleanings(bootstrap: str) -> Iterator[None]:
    """Makes brokers check for dirt ten times a second; the default is four times a minute."""

    def alter(operation: AlterConfigOpType, value: str | None) -> None:
        entry = ConfigEntry("log.cleaner.backoff.ms", value, incremental_operation=operation)
        client = topics.new_admin(bootstrap)  # one that has met a restart may still forget that broker, and its request
        for node_id in NODES:
            broker = ConfigResource(ResourceType.BROKER, str(node_id), incremental_configs=[entry])
            client.incremental_alter_configs([broker])[broker].result(CALL_TIMEOUT_S)

    alter(AlterConfigOpType.SET, "100")
    yield
    alter(AlterConfigOpType.DELETE, None)


@attrs.define
class Table:
    """A compacted topic of one partition, written segment by segment."""

    bootstrap: str
    topic: str
    # By the records' clock segments become old, so that nobody need wait.
    at_ms: int = attrs.field(factory=lambda: round(time.time() * 1000) - 3_600_000)

    def write(self, *pairs: tuple[str, str | None]) -> None:
        """Writes one batch each, all in one segment, which is not that of the previous write."""
        self.at_ms += 2 * SEGMENT_MS
        with producing(self.bootstrap) as producer:
            for key, value in pairs:
                to = {"key": key.encode(), "timestamp": self.at_ms}
                send_all(producer, self.topic, [None if value is None else value.encode()], **to)

    def rows(self, start: int = 0) -> list[Row]:
        """All that a reader gets from an offset on."""
        with consuming(self.bootstrap, **{"enable.partition.eof": True}) as consumer:
            consumer.list_topics(self.topic, timeout=CALL_TIMEOUT_S)  # spares half a second of waiting for the leader
            consumer.assign([TopicPartition(self.topic, 0, start)])
            return list(to_the_end(consumer))

    def becomes(self, rows: list[Row]) -> None:
        found: list[Row] = []

        def read() -> bool:
            found[:] = self.rows()
            return found == rows

        try:
            eventually(read, f"the topic has {rows}")
        except AssertionError as error:
            raise AssertionError(f"{error}; it has {found}") from None


def to_the_end(consumer: Consumer) -> Iterator[Row]:
    deadline = Deadline()
    while deadline.not_over("the end of the topic"):
        message = consumer.poll(0.1)
        if message is None:
            continue
        error = message.error()
        if error is not None and error.code() == KafkaError._PARTITION_EOF:
            return
        if error is not None:
            raise KafkaException(error)
        offset, key, value = message.offset(), message.key(), message.value()
        assert offset is not None
        yield offset, "" if key is None else key.decode(), None if value is None else value.decode()
