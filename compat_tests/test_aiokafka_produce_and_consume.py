"""Producing and consuming with aiokafka."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest
from aiokafka import TopicPartition, errors

from . import topics
from .aio import consuming, fill, in_a_loop, producing, read_all, reading, send_all, take, values_of
from .brokers import Broker
from .values import numbered
from .waiting import Deadline

CODECS = [None, "gzip", "snappy", "lz4", "zstd"]
BEGAN_MS = 1_700_000_000_000


@pytest.mark.parametrize("acks", [0, 1, "all"])
@pytest.mark.parametrize("codec", CODECS)
@in_a_loop
async def test_records_come_back_as_they_were_sent(
    broker: Broker, topic: str, codec: str | None, acks: int | str
) -> None:
    sent = [(b"key %d" % n, b"value %d " % n * 20, (("header", b"%d" % n),)) for n in range(100)]
    async with producing(broker.bootstrap, compression_type=codec, acks=acks, linger_ms=20) as producer:
        for key, value, headers in sent:
            await producer.send(topic, key=key, value=value, headers=list(headers))
        await producer.flush()
    records = await read_all(broker.bootstrap, topic, len(sent))
    assert [(record.key, record.value, record.headers) for record in records] == sent
    assert [record.offset for record in records] == list(range(len(sent)))


@pytest.mark.parametrize(
    ("key", "value"),
    [(b"key", None), (None, b"value"), (b"", b""), (b"", None)],
    ids=["tombstone", "no key", "empty key and value", "tombstone with an empty key"],
)
@in_a_loop
async def test_null_and_empty_are_kept_apart(
    broker: Broker, topic: str, key: bytes | None, value: bytes | None
) -> None:
    await fill(broker.bootstrap, topic, [value], key=key)
    (record,) = await read_all(broker.bootstrap, topic, 1)
    assert (record.key, record.value) == (key, value)


@in_a_loop
async def test_the_timestamp_of_the_sender_is_kept(broker: Broker, topic: str) -> None:
    await fill(broker.bootstrap, topic, [b"value"], timestamp_ms=BEGAN_MS)
    (record,) = await read_all(broker.bootstrap, topic, 1)
    assert (record.timestamp, record.timestamp_type) == (BEGAN_MS, 0)


@pytest.mark.parametrize("codec", CODECS)
@in_a_loop
async def test_a_topic_with_append_time_gives_the_broker_s_clock(
    broker: Broker, new_topic: Callable[..., str], codec: str | None
) -> None:
    topic = new_topic(config={"message.timestamp.type": "LogAppendTime"})
    before_ms = int(time.time() * 1000)
    async with producing(broker.bootstrap, compression_type=codec, linger_ms=20) as producer:
        told = await send_all(producer, topic, numbered(10), timestamp_ms=1_000)
    after_ms = int(time.time() * 1000)
    records = await read_all(broker.bootstrap, topic, 10)
    assert {record.timestamp_type for record in records} == {1}
    assert all(before_ms <= record.timestamp <= after_ms for record in records)
    assert [metadata.timestamp for metadata in told] == [record.timestamp for record in records]


@in_a_loop
async def test_a_record_above_the_limit_is_refused_and_the_next_one_is_not(broker: Broker, topic: str) -> None:
    async with producing(broker.bootstrap, max_request_size=10_000_000) as producer:
        with pytest.raises(errors.MessageSizeTooLargeError):
            await producer.send_and_wait(topic, bytes(1_100_000))
        await producer.send_and_wait(topic, bytes(1_000_000))
    assert values_of(await read_all(broker.bootstrap, topic, 1)) == [bytes(1_000_000)]


@in_a_loop
async def test_an_idempotent_producer_keeps_the_order_over_many_batches(broker: Broker, topic: str) -> None:
    values = numbered(2_000, size=100)
    async with producing(broker.bootstrap, enable_idempotence=True, max_batch_size=2_000) as producer:
        told = await send_all(producer, topic, values)
    assert [metadata.offset for metadata in told] == list(range(len(values)))
    assert values_of(await read_all(broker.bootstrap, topic, len(values))) == values


@in_a_loop
async def test_producers_to_many_partitions_at_once(broker: Broker, new_topic: Callable[..., str]) -> None:
    topic = new_topic(partitions=10)
    async with producing(broker.bootstrap) as one, producing(broker.bootstrap) as two:
        await asyncio.gather(
            *(send_all(one, topic, numbered(50), partition=partition) for partition in range(5)),
            *(send_all(two, topic, numbered(50), partition=partition) for partition in range(5, 10)),
        )
    records = await read_all(broker.bootstrap, topic, 500, partitions=range(10))
    for partition in range(10):
        assert values_of(record for record in records if record.partition == partition) == numbered(50)


@in_a_loop
async def test_an_unknown_topic_is_made_by_the_first_record(broker: Broker, unique: Callable[[str], str]) -> None:
    topic = unique("auto")
    await fill(broker.bootstrap, topic, [b"first"])
    assert values_of(await read_all(broker.bootstrap, topic, 1)) == [b"first"]


@in_a_loop
async def test_seeks_by_offset_and_to_the_ends(broker: Broker, topic: str) -> None:
    await fill(broker.bootstrap, topic, numbered(20))
    partition = TopicPartition(topic, 0)
    async with reading(broker.bootstrap, topic) as consumer:
        for offset in (7, 19, 0):
            consumer.seek(partition, offset)
            assert [record.offset for record in await take(consumer, 20 - offset)] == list(range(offset, 20))
        await consumer.seek_to_end(partition)
        assert await consumer.position(partition) == 20
        await consumer.seek_to_beginning(partition)
        assert await consumer.position(partition) == 0
        assert await consumer.beginning_offsets([partition]) == {partition: 0}
        assert await consumer.end_offsets([partition]) == {partition: 20}


@in_a_loop
async def test_offsets_for_times_finds_the_first_record_at_or_after(broker: Broker, topic: str) -> None:
    partition = TopicPartition(topic, 0)
    async with producing(broker.bootstrap, linger_ms=50) as producer:
        for time_ms in (50, 10, 70, 30):
            await producer.send(topic, b"value", timestamp_ms=BEGAN_MS + time_ms)
    async with consuming(broker.bootstrap) as consumer:
        for asked_ms, expected in {0: (0, 50), 51: (2, 70), 70: (2, 70), 71: None}.items():
            answer = (await consumer.offsets_for_times({partition: BEGAN_MS + asked_ms}))[partition]
            found = answer and (answer.offset, answer.timestamp - BEGAN_MS)
            assert found == expected, asked_ms


@in_a_loop
async def test_paused_partitions_give_nothing_until_resumed(broker: Broker, new_topic: Callable[..., str]) -> None:
    topic = new_topic(partitions=2)
    for number in range(2):
        await fill(broker.bootstrap, topic, numbered(5), partition=number)
    async with reading(broker.bootstrap, topic, partitions=[0, 1]) as consumer:
        consumer.pause(TopicPartition(topic, 0))
        assert {record.partition for record in await take(consumer, 5)} == {1}
        consumer.resume(TopicPartition(topic, 0))
        assert {record.partition for record in await take(consumer, 5)} == {0}


@in_a_loop
async def test_a_call_gives_no_more_than_max_records(broker: Broker, topic: str) -> None:
    await fill(broker.bootstrap, topic, numbered(30))
    async with reading(broker.bootstrap, topic, max_poll_records=7) as consumer:
        got = 0
        deadline = Deadline()
        while got < 30 and deadline.not_over("30 records"):
            batch = (await consumer.getmany(timeout_ms=1_000)).get(TopicPartition(topic, 0), [])
            assert len(batch) <= 7
            got += len(batch)


@in_a_loop
async def test_the_watermarks_come_with_the_records(broker: Broker, topic: str) -> None:
    await fill(broker.bootstrap, topic, numbered(12))
    async with reading(broker.bootstrap, topic, isolation_level="read_committed") as consumer:
        await take(consumer, 12)
        assert consumer.highwater(TopicPartition(topic, 0)) == 12
        assert consumer.last_stable_offset(TopicPartition(topic, 0)) == 12


@in_a_loop
async def test_a_position_out_of_range_is_an_error_when_nothing_may_be_reset(broker: Broker, topic: str) -> None:
    await fill(broker.bootstrap, topic, numbered(3))
    async with reading(broker.bootstrap, topic, auto_offset_reset="none") as consumer:
        consumer.seek(TopicPartition(topic, 0), 100)
        with pytest.raises(errors.OffsetOutOfRangeError):
            await consumer.getone()


@in_a_loop
async def test_a_waiting_consumer_is_woken_by_a_record(broker: Broker, topic: str) -> None:
    async with reading(broker.bootstrap, topic, fetch_max_wait_ms=20_000) as consumer:
        waiting = asyncio.create_task(consumer.getone())
        done, _ = await asyncio.wait([waiting], timeout=0.2)
        assert not done
        await fill(broker.bootstrap, topic, [b"news"])
        assert (await asyncio.wait_for(waiting, timeout=10)).value == b"news"


@in_a_loop
async def test_many_consumers_of_one_partition_all_get_everything(broker: Broker, topic: str) -> None:
    await fill(broker.bootstrap, topic, numbered(200, size=200))
    everything = await asyncio.gather(*(read_all(broker.bootstrap, topic, 200) for _ in range(8)))
    assert [values_of(records) for records in everything] == [numbered(200, size=200)] * 8


@in_a_loop
async def test_deleted_records_are_skipped(broker: Broker, topic: str) -> None:
    await fill(broker.bootstrap, topic, numbered(10))
    topics.delete_records(broker.bootstrap, topic, 7)
    assert [record.offset for record in await read_all(broker.bootstrap, topic, 3)] == [7, 8, 9]
