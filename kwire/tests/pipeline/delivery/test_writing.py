"""Partitions and batches of records: keys as Kafka's Java client sends them, the others in large batches."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import attrs
import pytest
from kwire_protocol.records import Record

from kwire.client.cluster import TopicPartition
from kwire.pipeline.delivery import writing
from kwire.pipeline.delivery.partitioning import murmur2, partition_of
from kwire.pipeline.delivery.writing import RecordWriter
from testkit.fakes.brokers import FakeBrokers


@pytest.mark.parametrize(
    ("key", "hash_"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
        (b"", 275646681),
    ],
)
def test_keys_are_hashed_as_by_kafkas_clients(key: bytes, hash_: int) -> None:
    assert murmur2(key) == hash_ % (1 << 32)
    assert partition_of(key, 10) == (hash_ & 0x7FFFFFFF) % 10


@attrs.define(eq=False)
class FakeProducer:
    """A producer that keeps what it is given."""

    rounds: list[dict[TopicPartition, int]] = attrs.field(factory=list)
    values: dict[TopicPartition, list[bytes | None]] = attrs.field(factory=lambda: defaultdict(list))

    def produce(self, batches: Mapping[TopicPartition, Sequence[Record]]) -> None:
        self.rounds.append({at: len(records) for at, records in batches.items()})
        for at, records in batches.items():
            self.values[at] += [it.value for it in records]


def writer(producer: FakeProducer, **options: int) -> RecordWriter:
    brokers = FakeBrokers(leaders={"t": [1, 1, 1], "u": [1]})
    return RecordWriter(brokers.cluster(), producer, **options)  # type: ignore[arg-type]


def test_order_is_kept_in_each_partition_over_several_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "GATHERED_BYTES", 2000)
    producer = FakeProducer()
    it = writer(producer, batch_bytes=300)
    for number in range(100):
        it.add("t", number % 2, Record(value=b"%d" % number))
    it.flush()
    assert producer.values[TopicPartition("t", 0)] == [b"%d" % n for n in range(0, 100, 2)]
    assert producer.values[TopicPartition("t", 1)] == [b"%d" % n for n in range(1, 100, 2)]
    assert len(producer.rounds) > 5
    assert max(max(sizes.values()) for sizes in producer.rounds) < 10
    assert it.records == 100


def test_records_without_keys_fill_a_batch_and_continue_in_the_next_partition() -> None:
    producer = FakeProducer()
    it = writer(producer, first_partition=2, batch_bytes=10 * 132)
    for _ in range(30):
        it.add("t", None, Record(value=bytes(100)))
        it.add("u", None, Record(value=b"x"))
    it.flush()
    assert next(iter(producer.values)) == TopicPartition("t", 2)
    assert {at: len(values) for at, values in producer.values.items()} == {
        TopicPartition("t", 2): 10,
        TopicPartition("t", 0): 10,
        TopicPartition("t", 1): 10,
        TopicPartition("u", 0): 30,
    }


def checksum(*records: Record) -> int:
    it = writer(FakeProducer())
    for record in records:
        it.add("t", 0, record)
    return it.checksum


def test_the_checksum_depends_on_the_records_and_not_on_their_timestamps() -> None:
    first, second = Record(0, 1, b"k", b"v"), Record(0, 1, b"k", b"w")
    known = checksum(first, second)
    assert known == checksum(first._replace(timestamp=99), second)
    others = [
        checksum(second, first),
        checksum(first),
        checksum(first, second, second),
        checksum(first._replace(key=None), second),
        checksum(first._replace(key=b"kv", value=b""), second),
        checksum(first._replace(headers=(("a", b"1"),)), second),
    ]
    assert len({known, *others}) == len(others) + 1
