"""The reader of the tellers' bookings, read_committed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import attrs
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

from testkit.clients.confluent import consuming, fetch_metadata
from testkit.kills.bank.books import Books, Half
from testkit.kills.sigkill.load import OF_A_BROKER_AWAY, RECONNECT

_PAUSE_S = 0.02


@attrs.define(eq=False)
class Auditor:
    """Hands `books` what it reads, from the start of every partition."""

    books: Books
    consumer: Consumer
    unread: set[int]
    """Partitions whose end it has not come to yet."""

    @property
    def positions(self) -> dict[int, int]:
        """The next offset to read, by partition."""
        return {it.partition: it.offset for it in self.consumer.position(self.consumer.assignment())}

    def read(self) -> None:
        """Reads some of the available records."""
        for message in self.consumer.consume(500, timeout=_PAUSE_S):
            error = message.error()
            if error is None:
                self.books.see(Half.of(message.value() or b""), time.monotonic())
            elif error.code() == KafkaError._PARTITION_EOF:
                self.unread.discard(message.partition() or 0)
            elif error.code() not in OF_A_BROKER_AWAY:
                self.books.complain(f"the auditor was told {error}")


@contextmanager
def auditing(bootstrap: str, topic: str, partitions: int, books: Books) -> Iterator[Auditor]:
    config = {
        "isolation.level": "read_committed",
        "auto.offset.reset": "error",
        "enable.partition.eof": True,
        "check.crcs": True,
        "fetch.wait.max.ms": 50,
        **RECONNECT,
    }
    with consuming(bootstrap, **config) as consumer:
        fetch_metadata(consumer, topic)
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(partitions)])
        yield Auditor(books, consumer, set(range(partitions)))
