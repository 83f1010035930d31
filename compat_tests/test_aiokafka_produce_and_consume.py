"""Producing and consuming with aiokafka."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from aiokafka import TopicPartition

from testkit.basics.values import numbered
from testkit.basics.waiting import Deadline
from testkit.clients.aio import fill, in_a_loop, producing, read_all, reading, send_all, take, values_of
from testkit.servers.brokers import Broker


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
