"""Producing with confluent-kafka: records come back as they were sent, and wrong ones get Kafka's errors."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME, KafkaError

from testkit.basics.values import numbered
from testkit.clients.confluent import error_of, fill, offsets_of, producing, read_all, refusal_of, send_all, values_of
from testkit.raw import topics
from testkit.servers.brokers import Broker

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
MESSAGE_MAX_BYTES = 1_048_588


def test_a_record_may_have_neither_key_nor_value(broker: Broker, topic: str) -> None:
    fill(broker.bootstrap, topic, [None])
    (record,) = read_all(broker.bootstrap, topic, 1)
    assert (record.key(), record.value()) == (None, None)


def test_a_header_may_have_no_value_or_an_empty_one(broker: Broker, topic: str) -> None:
    headers = [("null", None), ("empty", b""), ("same", b"1"), ("same", b"2"), ("", b"no name")]
    fill(broker.bootstrap, topic, [b"value"], headers=headers)
    (record,) = read_all(broker.bootstrap, topic, 1)
    assert record.headers() == headers


@pytest.mark.parametrize("times", ["CreateTime", "LogAppendTime"])
def test_a_change_of_the_timestamp_type_holds_for_what_comes_after(broker: Broker, topic: str, times: str) -> None:
    other = "LogAppendTime" if times == "CreateTime" else "CreateTime"
    topics.configure(broker.bootstrap, topic, {"message.timestamp.type": times})
    fill(broker.bootstrap, topic, [b"before"], timestamp=1_000)
    topics.configure(broker.bootstrap, topic, {"message.timestamp.type": other})
    fill(broker.bootstrap, topic, [b"after"], timestamp=1_000)
    kinds = [record.timestamp()[0] for record in read_all(broker.bootstrap, topic, 2)]
    number = {"CreateTime": TIMESTAMP_CREATE_TIME, "LogAppendTime": TIMESTAMP_LOG_APPEND_TIME}
    assert kinds == [number[times], number[other]]


def test_a_timestamp_too_far_from_now_is_refused_where_the_topic_has_limits(
    broker: Broker, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(config={"message.timestamp.before.max.ms": "60000", "message.timestamp.after.max.ms": "60000"})
    now_ms = int(time.time() * 1000)
    with producing(broker.bootstrap) as producer:
        for late_by_ms in (-3_600_000, 3_600_000):
            error = refusal_of(producer, topic, b"value", timestamp=now_ms + late_by_ms)
            assert error.code() == KafkaError.INVALID_TIMESTAMP
        send_all(producer, topic, [b"now"], timestamp=now_ms)


def test_records_up_to_the_limit_are_taken_and_above_refused(broker: Broker, topic: str) -> None:
    # A batch has 61 bytes of header, and a record 11 around a value of this size.
    overhead = 61 + 11
    with producing(broker.bootstrap, **{"message.max.bytes": 2_000_000}) as producer:
        biggest = bytes(MESSAGE_MAX_BYTES - overhead)
        send_all(producer, topic, [biggest])
        assert refusal_of(producer, topic, biggest + b"x").code() == KafkaError.MSG_SIZE_TOO_LARGE
        send_all(producer, topic, [b"small"])
    assert values_of(read_all(broker.bootstrap, topic, 2)) == [biggest, b"small"]


def test_a_raised_limit_takes_large_records(broker: Broker, new_topic: Callable[..., str]) -> None:
    topic = new_topic(config={"max.message.bytes": "12000000"})
    big = bytes(range(256)) * 40_000
    with producing(broker.bootstrap, **{"message.max.bytes": 12_000_000}) as producer:
        send_all(producer, topic, [big])
    assert values_of(read_all(broker.bootstrap, topic, 1)) == [big]


def test_a_lowered_limit_holds_from_the_next_batch(broker: Broker, topic: str) -> None:
    with producing(broker.bootstrap) as producer:
        send_all(producer, topic, [bytes(5_000)])
        topics.configure(broker.bootstrap, topic, {"max.message.bytes": "1000"})
        assert refusal_of(producer, topic, bytes(5_000)).code() == KafkaError.MSG_SIZE_TOO_LARGE


def test_an_idempotent_producer_numbers_its_batches_without_gaps(broker: Broker, topic: str) -> None:
    values = numbered(3_000, size=100)
    with producing(broker.bootstrap, **{"enable.idempotence": True, "batch.num.messages": 50}) as producer:
        delivered = send_all(producer, topic, values)
    assert offsets_of(delivered) == list(range(len(values)))
    assert values_of(read_all(broker.bootstrap, topic, len(values))) == values


def test_several_idempotent_producers_do_not_disturb_each_other(broker: Broker, topic: str) -> None:
    values = [[b"%d of %d" % (number, sender) for number in range(200)] for sender in range(3)]
    config: dict[str, Any] = {"enable.idempotence": True, "batch.num.messages": 20}
    with (
        producing(broker.bootstrap, **config) as one,
        producing(broker.bootstrap, **config) as two,
        producing(broker.bootstrap, **config) as three,
    ):
        for number in range(200):
            for producer, own in zip((one, two, three), values, strict=True):
                producer.produce(topic, value=own[number])
    records = values_of(read_all(broker.bootstrap, topic, 600))
    for own in values:
        assert [value for value in records if value in own] == own


@pytest.mark.parametrize("name", ["with/slash", "with space", "..", "x" * 250], ids=["slash", "space", "dots", "long"])
def test_no_topic_is_made_with_an_invalid_name(broker: Broker, name: str) -> None:
    with producing(broker.bootstrap, **{"message.timeout.ms": 10_000}) as producer:
        assert refusal_of(producer, name, b"value").code() == KafkaError.TOPIC_EXCEPTION
    assert name not in topics.names(broker.bootstrap)


def test_a_partition_that_is_not_there_is_an_error(broker: Broker, topic: str) -> None:
    with producing(broker.bootstrap) as producer:
        send_all(producer, topic, [b"value"])
        assert error_of(lambda: producer.produce(topic, b"value", partition=7)) == KafkaError._UNKNOWN_PARTITION


@pytest.mark.parametrize("codec", [codec for codec in CODECS if codec != "none"])
def test_a_topic_may_recompress(broker: Broker, new_topic: Callable[..., str], codec: str) -> None:
    topic = new_topic(config={"compression.type": codec})
    values = numbered(50, size=100)
    for sent_with in ("none", codec, "lz4"):
        with producing(broker.bootstrap, **{"compression.type": sent_with}) as producer:
            send_all(producer, topic, values)
    assert values_of(read_all(broker.bootstrap, topic, 150)) == values * 3


def test_no_more_in_sync_replicas_are_required_than_there_are(broker: Broker, new_topic: Callable[..., str]) -> None:
    topic = new_topic(config={"min.insync.replicas": "2"})
    with producing(broker.bootstrap, acks="all", retries=0) as producer:
        send_all(producer, topic, [b"value"])
    assert values_of(read_all(broker.bootstrap, topic, 1)) == [b"value"]


def test_clients_do_not_write_to_the_offsets_topic(broker: Broker) -> None:
    with producing(broker.bootstrap) as producer:
        error = refusal_of(producer, "__consumer_offsets", b"value", partition=0)
    assert error.code() == KafkaError.TOPIC_EXCEPTION
