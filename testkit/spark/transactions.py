"""Transactions of confluent-kafka."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import Producer

from testkit.basics.waiting import eventually
from testkit.clients.confluent import quiet
from testkit.clients.transactions.queries import is_stable
from testkit.spark.records import Record
from testkit.spark.tables import Tables

PARTITIONS = 3


_TIMEOUT_S = 20.0


@contextmanager
def transaction(tables: Tables, topic: str, records: list[Record]) -> Iterator[Producer]:
    """An open transaction with these records, all of them acknowledged; it is for the caller to end it."""
    config = {
        "bootstrap.servers": tables.bootstrap,
        "transactional.id": f"{topic}-{records[0].value!r}",
        "linger.ms": 1,
    }
    producer = Producer(config, logger=quiet)
    producer.init_transactions(_TIMEOUT_S)
    producer.begin_transaction()
    for record in records:
        producer.produce(topic, record.value, partition=record.partition)
    assert producer.flush(_TIMEOUT_S) == 0
    yield producer


def commit(tables: Tables, topic: str, records: list[Record]) -> None:
    with transaction(tables, topic, records) as producer:
        producer.commit_transaction(_TIMEOUT_S)
    settle(tables, topic)


def abort(tables: Tables, topic: str, records: list[Record]) -> None:
    with transaction(tables, topic, records) as producer:
        producer.abort_transaction(_TIMEOUT_S)
    settle(tables, topic)


def settle(tables: Tables, topic: str) -> None:
    """Returns when the markers are in, which may be after the producer was answered."""
    spots = [(topic, number) for number in range(PARTITIONS)]
    eventually(lambda: all(is_stable(tables.bootstrap, spot) for spot in spots), "no transaction is open")
