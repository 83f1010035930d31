"""Records of each client, read by every other client: codecs, keys, headers, timestamps."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from testkit.clients import aio, confluent, kafka_python
from testkit.servers.brokers import Broker

Record = tuple[bytes | None, bytes | None, list[tuple[str, bytes]], int]

BEGAN_MS = 1_700_000_000_000
RECORDS: list[Record] = [
    (b"key %d" % n, None if n % 7 == 0 else b"value %d " % n * 30, [("a", b"%d" % n), ("a", b"")], BEGAN_MS + n)
    for n in range(200)
]
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


def write_with_kafka_python(bootstrap: str, topic: str, codec: str) -> None:
    with kafka_python.producing(bootstrap, compression_type=None if codec == "none" else codec, linger_ms=20) as it:
        for key, value, headers, time_ms in RECORDS:
            it.send(topic, key=key, value=value, headers=headers, timestamp_ms=time_ms)
        it.flush(timeout=kafka_python.SEND_TIMEOUT_S)


def write_with_confluent(bootstrap: str, topic: str, codec: str) -> None:
    with confluent.producing(bootstrap, **{"compression.type": codec}) as it:
        for key, value, headers, time_ms in RECORDS:
            it.produce(topic, key=key, value=value, headers=headers, timestamp=time_ms)


def write_with_aiokafka(bootstrap: str, topic: str, codec: str) -> None:
    async def write() -> None:
        async with aio.producing(bootstrap, compression_type=None if codec == "none" else codec, linger_ms=20) as it:
            for key, value, headers, time_ms in RECORDS:
                await it.send(topic, key=key, value=value, headers=headers, timestamp_ms=time_ms)
            await it.flush()

    asyncio.run(write())


def read_with_kafka_python(bootstrap: str, topic: str) -> list[Record]:
    found = kafka_python.read_all(bootstrap, topic, len(RECORDS))
    return [(it.key, it.value, list(it.headers), it.timestamp) for it in found]


def read_with_confluent(bootstrap: str, topic: str) -> list[Record]:
    found: Any = confluent.read_all(bootstrap, topic, len(RECORDS))
    return [(it.key(), it.value(), it.headers(), it.timestamp()[1]) for it in found]


def read_with_aiokafka(bootstrap: str, topic: str) -> list[Record]:
    found = asyncio.run(aio.read_all(bootstrap, topic, len(RECORDS)))
    return [(it.key, it.value, list(it.headers), it.timestamp) for it in found]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(
    "write",
    [write_with_kafka_python, write_with_confluent, write_with_aiokafka],
    ids=["kafka-python", "confluent-kafka", "aiokafka"],
)
def test_every_client_reads_what_one_wrote(
    broker: Broker, topic: str, write: Callable[[str, str, str], None], codec: str
) -> None:
    write(broker.bootstrap, topic, codec)
    for read in (read_with_kafka_python, read_with_confluent, read_with_aiokafka):
        assert read(broker.bootstrap, topic) == RECORDS, read.__name__


def test_batches_of_different_codecs_and_clients_lie_in_one_partition(broker: Broker, topic: str) -> None:
    writers = (write_with_kafka_python, write_with_confluent, write_with_aiokafka)
    for codec, write in zip(CODECS, writers * 2, strict=False):
        write(broker.bootstrap, topic, codec)
    count = len(RECORDS) * len(CODECS)
    with confluent.reading(broker.bootstrap, topic) as consumer:
        assert confluent.offsets_of(confluent.take(consumer, count)) == list(range(count))
    with kafka_python.reading(broker.bootstrap, topic) as consumer:
        assert [it.value for it in kafka_python.take(consumer, count)] == [it[1] for it in RECORDS] * len(CODECS)
