"""Records come back as they were sent, refused ones get Kafka's errors, and a reader seeks to requested positions."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, ClassVar

import pytest
from kwire_protocol.errors import ErrorCode

from testkit.basics.values import numbered
from testkit.clients.records.client import Client, Producer, ProducerConfig, Reader, ReaderConfig, Refused, Sent, Stored
from testkit.raw import topics
from testkit.servers.brokers import Broker

CODECS = [None, "gzip", "snappy", "lz4", "zstd"]
BEGAN_MS = 1_700_000_000_000
DAY_MS = 86_400_000


class _Scenes:
    client: ClassVar[Client]

    def producing(self, broker: Broker, **config: Any) -> AbstractContextManager[Producer]:
        """`config` as in ProducerConfig."""
        return self.client.producing(broker.bootstrap, ProducerConfig(**config))

    def reading(
        self, broker: Broker, topic: str, *, partitions: tuple[int, ...] = (0,), **config: Any
    ) -> AbstractContextManager[Reader]:
        """`config` as in ReaderConfig."""
        return self.client.reading(broker.bootstrap, topic, ReaderConfig(**config), partitions=partitions)

    def fill(self, broker: Broker, topic: str, values: list[bytes], *, partition: int = 0) -> None:
        with self.producing(broker) as producer:
            producer.send(topic, [Sent(value, partition=partition) for value in values])

    def read(self, broker: Broker, topic: str, count: int, *, partitions: tuple[int, ...] = (0,)) -> list[Stored]:
        """The records of a topic, from its start, which must be so many."""
        with self.reading(broker, topic, partitions=partitions) as reader:
            return reader.take(count)

    def code(self, code: ErrorCode) -> ErrorCode:
        """The error that the client reports for this code."""
        return ErrorCode.UNKNOWN_SERVER_ERROR if code in self.client.unknown_codes else code

    def values(self, broker: Broker, topic: str, count: int) -> list[bytes | None]:
        return [it.value for it in self.read(broker, topic, count)]


class ProduceScenes(_Scenes):
    @pytest.mark.parametrize("acks", [0, 1, "all"])
    @pytest.mark.parametrize("codec", CODECS)
    def test_records_come_back_as_they_were_sent(
        self, broker: Broker, new_topic: Callable[..., str], codec: str | None, acks: int | str
    ) -> None:
        topic, another = new_topic(), new_topic()
        sent = [Sent(b"value %d " % n * 20, b"key %d" % n, [("header", b"%d" % n)]) for n in range(100)]
        with self.producing(broker, codec=codec, acks=acks) as producer:
            producer.send(topic, sent)
            producer.settle(another)
            records = self.read(broker, topic, len(sent))
        assert [(it.value, it.key, it.headers) for it in records] == [(it.value, it.key, it.headers) for it in sent]
        assert [it.offset for it in records] == list(range(len(sent)))

    def test_acknowledged_records_have_consecutive_offsets(self, broker: Broker, topic: str) -> None:
        with self.producing(broker) as producer:
            metadata = [it for _ in range(2) for it in producer.send(topic, [Sent(value) for value in numbered(10)])]
        assert [(it.partition, it.offset) for it in metadata] == [(0, number) for number in range(20)]

    @pytest.mark.parametrize(
        ("key", "value"),
        [(b"key", None), (None, b"value"), (b"", b""), (b"", None), ("clé".encode(), b"\x00\xff" * 10)],
        ids=["tombstone", "no key", "empty key and value", "tombstone with an empty key", "any bytes"],
    )
    def test_null_and_empty_are_kept_apart(
        self, broker: Broker, topic: str, key: bytes | None, value: bytes | None
    ) -> None:
        with self.producing(broker) as producer:
            producer.send(topic, [Sent(value, key)])
        (record,) = self.read(broker, topic, 1)
        assert (record.key, record.value) == (key, value)

    @pytest.mark.parametrize(
        "headers",
        [[], [("one", b"")], [("same", b"1"), ("same", b"2"), ("same", b"1")], [("ключ", bytes(range(256)))]],
        ids=["none", "empty value", "repeated in order", "any bytes"],
    )
    def test_headers_come_back_in_order(self, broker: Broker, topic: str, headers: list[tuple[str, bytes]]) -> None:
        with self.producing(broker) as producer:
            producer.send(topic, [Sent(b"value", headers=headers)])
        (record,) = self.read(broker, topic, 1)
        assert record.headers == headers

    def test_the_timestamp_of_the_sender_is_kept(self, broker: Broker, topic: str) -> None:
        times = [BEGAN_MS, 1_500_000_000_123, self.client.earliest_ms, BEGAN_MS + 1]
        with self.producing(broker) as producer:
            producer.send(topic, [Sent(b"value", timestamp_ms=it) for it in times])
        records = self.read(broker, topic, len(times))
        assert [(it.timestamp_ms, it.has_append_time) for it in records] == [(it, False) for it in times]

    @pytest.mark.parametrize("codec", CODECS)
    def test_a_topic_with_append_time_gives_the_broker_s_clock(
        self, broker: Broker, new_topic: Callable[..., str], codec: str | None
    ) -> None:
        topic = new_topic(config={"message.timestamp.type": "LogAppendTime"})
        before_ms = int(time.time() * 1000)
        with self.producing(broker, codec=codec) as producer:
            metadata = producer.send(topic, [Sent(value, timestamp_ms=1_000) for value in numbered(20)])
        after_ms = int(time.time() * 1000)
        records = self.read(broker, topic, 20)
        assert all(it.has_append_time and before_ms <= it.timestamp_ms <= after_ms for it in records)
        assert [it.timestamp_ms for it in records] == [it.timestamp_ms for it in metadata]
        assert [it.value for it in records] == numbered(20)

    def test_a_record_just_below_the_limit_is_taken(self, broker: Broker, topic: str) -> None:
        big = bytes(1_000_000)  # max.message.bytes is 1048588
        with self.producing(broker, max_request_bytes=10_000_000) as producer:
            producer.send(topic, [Sent(b"before"), Sent(big), Sent(b"after")])
        assert self.values(broker, topic, 3) == [b"before", big, b"after"]

    def test_a_record_above_the_limit_is_refused_and_the_next_one_is_not(self, broker: Broker, topic: str) -> None:
        with self.producing(broker, max_request_bytes=10_000_000) as producer:
            with pytest.raises(Refused) as refused:
                producer.send(topic, [Sent(bytes(1_048_600))])
            producer.send(topic, [Sent(b"small")])
        assert refused.value.code == ErrorCode.MESSAGE_TOO_LARGE
        assert self.values(broker, topic, 1) == [b"small"]

    def test_a_topic_has_a_limit_of_its_own(self, broker: Broker, new_topic: Callable[..., str]) -> None:
        topic = new_topic(config={"max.message.bytes": "2000"})
        with self.producing(broker) as producer:
            with pytest.raises(Refused) as refused:
                producer.send(topic, [Sent(bytes(2_000))])
            producer.send(topic, [Sent(bytes(1_900))])
        assert refused.value.code == ErrorCode.MESSAGE_TOO_LARGE

    def test_the_limit_is_for_the_compressed_size(self, broker: Broker, new_topic: Callable[..., str]) -> None:
        topic = new_topic(config={"max.message.bytes": "2000"})
        with self.producing(broker, codec="gzip") as producer:
            producer.send(topic, [Sent(bytes(100_000))])
        assert self.values(broker, topic, 1) == [bytes(100_000)]

    def test_an_unknown_topic_is_made_by_the_first_record(self, broker: Broker, unique: Callable[[str], str]) -> None:
        topic = unique("auto")
        self.fill(broker, topic, [b"first"])
        assert self.values(broker, topic, 1) == [b"first"]

    def test_a_compacted_topic_refuses_a_record_without_a_key(
        self, broker: Broker, new_topic: Callable[..., str]
    ) -> None:
        topic = new_topic(config={"cleanup.policy": "compact"})
        with self.producing(broker) as producer:
            with pytest.raises(Refused) as refused:
                producer.send(topic, [Sent(b"no key")])
            producer.send(topic, [Sent(b"with key", b"key"), Sent(None, b"key")])
        assert refused.value.code == self.code(ErrorCode.INVALID_RECORD)
        assert self.values(broker, topic, 2) == [b"with key", None]

    def test_an_idempotent_producer_keeps_the_order_over_many_batches(self, broker: Broker, topic: str) -> None:
        values = numbered(2_000, size=100)
        with self.producing(broker, is_idempotent=True, batch_bytes=2_000) as producer:
            metadata = producer.send(topic, [Sent(value) for value in values])
        assert [it.offset for it in metadata] == list(range(len(values)))
        assert self.values(broker, topic, len(values)) == values


class ReadScenes(_Scenes):
    def test_a_seek_gives_the_record_at_that_offset_also_inside_a_batch(self, broker: Broker, topic: str) -> None:
        self.fill(broker, topic, numbered(20))
        with self.reading(broker, topic) as reader:
            reader.take(20)
            for offset in (7, 19, 0, 12):
                reader.seek(0, offset)
                assert [it.offset for it in reader.take(20 - offset)] == list(range(offset, 20))

    def test_seeks_to_the_beginning_and_to_the_end(self, broker: Broker, topic: str) -> None:
        self.fill(broker, topic, numbered(5))
        with self.reading(broker, topic) as reader:
            assert reader.bounds(0) == (0, 5)
            reader.seek_to_end(0)
            self.fill(broker, topic, [b"later"])
            assert [it.offset for it in reader.take(1)] == [5]
            topics.delete_records(broker.bootstrap, topic, 2)
            assert reader.bounds(0) == (2, 6)
            reader.seek_to_beginning(0)
            assert [it.offset for it in reader.take(4)] == [2, 3, 4, 5]

    def test_an_empty_topic_has_no_times_and_ends_where_it_begins(self, broker: Broker, topic: str) -> None:
        with self.reading(broker, topic) as reader:
            assert reader.at_time(0, 0) is None
            assert reader.bounds(0) == (0, 0)

    def test_the_first_record_at_or_after_a_time_is_found(self, broker: Broker, topic: str) -> None:
        with self.producing(broker) as producer:
            for day in (0, 1, 1, 3):
                producer.send(topic, [Sent(b"value", timestamp_ms=BEGAN_MS + day * DAY_MS)])
        expected = {-1.0: (0, 0), 0.0: (0, 0), 0.5: (1, 1), 1.0: (1, 1), 2.0: (3, 3), 3.0: (3, 3), 4.0: None}
        in_ms = {int(day * DAY_MS): found and (found[0], found[1] * DAY_MS) for day, found in expected.items()}
        self.finds(broker, topic, in_ms)

    @pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
    def test_a_time_is_looked_for_inside_a_batch_with_times_out_of_order(
        self, broker: Broker, topic: str, codec: str | None
    ) -> None:
        with self.producing(broker, codec=codec) as producer:
            producer.send(topic, [Sent(b"value", timestamp_ms=BEGAN_MS + it) for it in (50, 10, 70, 30, 70)])
        self.finds(broker, topic, {5: (0, 50), 50: (0, 50), 51: (2, 70), 70: (2, 70), 71: None})

    def finds(self, broker: Broker, topic: str, expected: dict[int, tuple[int, int] | None]) -> None:
        """Times since BEGAN_MS. Not every client has the time of what it finds."""
        with self.reading(broker, topic) as reader:
            for after_ms, wanted in expected.items():
                found = reader.at_time(0, BEGAN_MS + after_ms)
                assert (found and found[0]) == (wanted and wanted[0]), after_ms
                if found is not None and wanted is not None and found[1] is not None:
                    assert found[1] == BEGAN_MS + wanted[1], after_ms

    def test_paused_partitions_give_nothing_until_resumed(self, broker: Broker, new_topic: Callable[..., str]) -> None:
        topic = new_topic(partitions=2)
        with self.reading(broker, topic, partitions=(0, 1)) as reader:
            reader.pause(0)
            for partition in (0, 1):
                self.fill(broker, topic, numbered(5), partition=partition)
            assert {it.partition for it in reader.take(5)} == {1}
            reader.resume(0)
            assert {it.partition for it in reader.take(5)} == {0}

    def test_a_position_out_of_range_is_an_error_when_nothing_may_be_reset(self, broker: Broker, topic: str) -> None:
        self.fill(broker, topic, numbered(3))
        with self.reading(broker, topic, reset="none") as reader:
            reader.seek(0, 100)
            with pytest.raises(self.client.out_of_range):
                reader.take(1)

    def test_deleted_records_are_skipped(self, broker: Broker, topic: str) -> None:
        self.fill(broker, topic, numbered(10))
        topics.delete_records(broker.bootstrap, topic, 7)
        assert [it.offset for it in self.read(broker, topic, 3)] == [7, 8, 9]

    def test_a_batch_larger_than_every_limit_of_the_fetch_still_comes(self, broker: Broker, topic: str) -> None:
        values = [bytes(300_000), b"small", bytes(200_000)]
        with self.producing(broker) as producer:
            for value in values:
                producer.send(topic, [Sent(value)])
        with self.reading(broker, topic, fetch_bytes=1_000) as reader:
            assert [it.value for it in reader.take(3)] == values

    @pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
    def test_without_transactions_every_isolation_level_reads_everything(
        self, broker: Broker, topic: str, isolation: str
    ) -> None:
        values = numbered(50)
        with self.producing(broker, is_idempotent=True) as producer:
            producer.send(topic, [Sent(value) for value in values])
        with self.reading(broker, topic, isolation=isolation) as reader:
            assert [it.value for it in reader.take(50)] == values
            assert reader.bounds(0) == (0, 50)
