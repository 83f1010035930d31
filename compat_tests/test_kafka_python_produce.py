"""Producing with kafka-python: what is sent comes back as it was, what cannot be taken gets Kafka's errors."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from kafka import errors

from .brokers import Broker
from .kafka_python import SEND_TIMEOUT_S, fill, producing, read_all, send_all, values_of
from .values import numbered

CODECS = [None, "gzip", "snappy", "lz4", "zstd"]
CREATE_TIME, LOG_APPEND_TIME = 0, 1


@pytest.mark.parametrize("acks", [0, 1, "all"])
@pytest.mark.parametrize("codec", CODECS)
def test_records_come_back_as_they_were_sent(
    broker: Broker, new_topic: Callable[..., str], codec: str | None, acks: int | str
) -> None:
    topic, another = new_topic(), new_topic()
    sent = [(b"key %d" % n, b"value %d " % n * 20, [("header", b"%d" % n)]) for n in range(100)]
    with producing(broker.bootstrap, compression_type=codec, acks=acks, linger_ms=20) as producer:
        for key, value, headers in sent:
            producer.send(topic, key=key, value=value, headers=headers)
        producer.flush(timeout=SEND_TIMEOUT_S)
        # kafka-python 2.2 sends what needs no answer only with its next request that needs one.
        producer.partitions_for(another)
        records = read_all(broker.bootstrap, topic, len(sent))
    assert [(record.key, record.value, record.headers) for record in records] == sent
    assert [record.offset for record in records] == list(range(len(sent)))


def test_acknowledged_records_have_consecutive_offsets(broker: Broker, topic: str) -> None:
    with producing(broker.bootstrap, acks="all", linger_ms=5) as producer:
        first = send_all(producer, topic, numbered(10))
        second = send_all(producer, topic, numbered(10))
    assert [metadata.offset for metadata in first + second] == list(range(20))
    assert {(metadata.topic, metadata.partition) for metadata in first + second} == {(topic, 0)}


@pytest.mark.parametrize(
    ("key", "value"),
    [(b"key", None), (None, b"value"), (b"", b""), (b"", None), ("clé".encode(), b"\x00\xff" * 10)],
    ids=["tombstone", "no key", "empty key and value", "tombstone with an empty key", "any bytes"],
)
def test_null_and_empty_are_kept_apart(broker: Broker, topic: str, key: bytes | None, value: bytes | None) -> None:
    with producing(broker.bootstrap) as producer:
        producer.send(topic, key=key, value=value).get(timeout=SEND_TIMEOUT_S)
    (record,) = read_all(broker.bootstrap, topic, 1)
    assert (record.key, record.value) == (key, value)


@pytest.mark.parametrize(
    "headers",
    [[], [("one", b"")], [("same", b"1"), ("same", b"2"), ("same", b"1")], [("ключ", bytes(range(256)))]],
    ids=["none", "empty value", "repeated in order", "any bytes"],
)
def test_headers_come_back_in_order(broker: Broker, topic: str, headers: list[tuple[str, bytes]]) -> None:
    with producing(broker.bootstrap) as producer:
        producer.send(topic, value=b"value", headers=headers).get(timeout=SEND_TIMEOUT_S)
    (record,) = read_all(broker.bootstrap, topic, 1)
    assert record.headers == headers


def test_the_timestamp_of_the_sender_is_kept(broker: Broker, topic: str) -> None:
    stamps = [1_700_000_000_000, 1_500_000_000_123, 0, 1_700_000_000_001]
    with producing(broker.bootstrap, linger_ms=20) as producer:
        for stamp in stamps:
            producer.send(topic, value=b"value", timestamp_ms=stamp)
        producer.flush(timeout=SEND_TIMEOUT_S)
    records = read_all(broker.bootstrap, topic, len(stamps))
    assert [record.timestamp for record in records] == stamps
    assert {record.timestamp_type for record in records} == {CREATE_TIME}


def test_a_topic_with_append_time_gives_the_broker_s_clock(broker: Broker, new_topic: Callable[..., str]) -> None:
    topic = new_topic(config={"message.timestamp.type": "LogAppendTime"})
    before_ms = int(time.time() * 1000)
    with producing(broker.bootstrap, acks="all") as producer:
        told = producer.send(topic, value=b"value", timestamp_ms=1_000).get(timeout=SEND_TIMEOUT_S)
    after_ms = int(time.time() * 1000)
    (record,) = read_all(broker.bootstrap, topic, 1)
    assert before_ms <= record.timestamp <= after_ms
    assert record.timestamp_type == LOG_APPEND_TIME
    assert told.timestamp == record.timestamp


@pytest.mark.parametrize("codec", CODECS)
def test_append_time_holds_for_every_record_of_a_batch(
    broker: Broker, new_topic: Callable[..., str], codec: str | None
) -> None:
    topic = new_topic(config={"message.timestamp.type": "LogAppendTime"})
    with producing(broker.bootstrap, acks="all", linger_ms=50, compression_type=codec) as producer:
        told = send_all(producer, topic, numbered(20), timestamp_ms=1_000)
    records = read_all(broker.bootstrap, topic, 20)
    assert [record.timestamp for record in records] == [metadata.timestamp for metadata in told]
    assert values_of(records) == numbered(20)


def test_a_record_just_below_the_limit_is_taken(broker: Broker, topic: str) -> None:
    big = bytes(1_000_000)  # max.message.bytes is 1048588
    fill(broker.bootstrap, topic, [b"before", big, b"after"])
    assert values_of(read_all(broker.bootstrap, topic, 3)) == [b"before", big, b"after"]


def test_a_record_above_the_limit_is_refused_and_the_next_one_is_not(broker: Broker, topic: str) -> None:
    with producing(broker.bootstrap, acks="all", enable_idempotence=False, max_request_size=10_000_000) as producer:
        with pytest.raises(errors.MessageSizeTooLargeError):
            producer.send(topic, value=bytes(1_048_600)).get(timeout=SEND_TIMEOUT_S)
        send_all(producer, topic, [b"small"])
    assert values_of(read_all(broker.bootstrap, topic, 1)) == [b"small"]


def test_a_topic_has_a_limit_of_its_own(broker: Broker, new_topic: Callable[..., str]) -> None:
    topic = new_topic(config={"max.message.bytes": "2000"})
    with producing(broker.bootstrap, acks="all", enable_idempotence=False) as producer:
        with pytest.raises(errors.MessageSizeTooLargeError):
            producer.send(topic, value=bytes(2_000)).get(timeout=SEND_TIMEOUT_S)
        send_all(producer, topic, [bytes(1_900)])


def test_the_limit_is_for_the_compressed_size(broker: Broker, new_topic: Callable[..., str]) -> None:
    topic = new_topic(config={"max.message.bytes": "2000"})
    with producing(broker.bootstrap, acks="all", compression_type="gzip") as producer:
        send_all(producer, topic, [bytes(100_000)])
    assert values_of(read_all(broker.bootstrap, topic, 1)) == [bytes(100_000)]


def test_sending_to_an_unknown_topic_creates_it(broker: Broker, unique: Callable[[str], str]) -> None:
    topic = unique("auto")
    fill(broker.bootstrap, topic, [b"first"])
    assert values_of(read_all(broker.bootstrap, topic, 1)) == [b"first"]


def test_a_compacted_topic_refuses_a_record_without_a_key(broker: Broker, new_topic: Callable[..., str]) -> None:
    topic = new_topic(config={"cleanup.policy": "compact"})
    with producing(broker.bootstrap, acks="all", enable_idempotence=False) as producer:
        with pytest.raises(errors.InvalidRecordError):
            producer.send(topic, value=b"no key").get(timeout=SEND_TIMEOUT_S)
        producer.send(topic, key=b"key", value=b"with key").get(timeout=SEND_TIMEOUT_S)
    assert values_of(read_all(broker.bootstrap, topic, 1)) == [b"with key"]


def test_records_go_to_the_partition_that_the_sender_chose(broker: Broker, new_topic: Callable[..., str]) -> None:
    topic = new_topic(partitions=3)
    with producing(broker.bootstrap) as producer:
        for partition in range(3):
            send_all(producer, topic, [b"for %d" % partition], partition=partition)
    for partition in range(3):
        records = read_all(broker.bootstrap, topic, 1, partitions=[partition])
        assert values_of(records) == [b"for %d" % partition]


def test_one_key_stays_in_one_partition(broker: Broker, new_topic: Callable[..., str]) -> None:
    topic = new_topic(partitions=4)
    with producing(broker.bootstrap, linger_ms=5) as producer:
        for number in range(80):
            producer.send(topic, key=b"key %d" % (number % 8), value=b"%06d" % number)
        producer.flush(timeout=SEND_TIMEOUT_S)
    records = read_all(broker.bootstrap, topic, 80, partitions=range(4))
    homes = {(record.key, record.partition) for record in records}
    assert len(homes) == 8
    for key, _ in homes:
        own = [record.value for record in records if record.key == key]
        assert own == sorted(own)


def test_an_idempotent_producer_keeps_the_order_over_many_batches(broker: Broker, topic: str) -> None:
    values = numbered(2_000, size=100)
    with producing(broker.bootstrap, enable_idempotence=True, acks="all", batch_size=2_000) as producer:
        told = send_all(producer, topic, values)
    assert [metadata.offset for metadata in told] == list(range(len(values)))
    assert values_of(read_all(broker.bootstrap, topic, len(values))) == values
