"""Groups and administration with aiokafka."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, OffsetAndMetadata, TopicPartition, errors
from aiokafka.admin import NewPartitions, NewTopic, RecordsToDelete
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

from testkit.basics.values import numbered
from testkit.clients.aio import administering, consuming, eventually, fill, in_a_loop, reading, take, values_of
from testkit.clients.members import member_process, shared_out
from testkit.raw import nodes, topics
from testkit.raw.nodes import NODE
from testkit.servers.brokers import NODES, Broker

ASSIGNORS = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
}
QUICK = {"session_timeout_ms": 1_000}


def owned(consumer: AIOKafkaConsumer) -> list[int]:
    return sorted(partition.partition for partition in consumer.assignment())


async def settle(members: list[AIOKafkaConsumer], partitions: int, *, most: int) -> list[list[int]]:
    """Waits until the members share the partitions of one topic; what each owns. aiokafka joins by itself."""
    await eventually(lambda: shared_out([owned(it) for it in members], partitions, most=most), "a balance")
    return [owned(it) for it in members]


@pytest.mark.parametrize("strategy", ASSIGNORS)
@in_a_loop
async def test_members_that_join_and_leave_share_the_partitions(
    broker: Broker, new_topic: Callable[..., str], group: str, strategy: str
) -> None:
    topic = new_topic(partitions=6)
    config = {"group_id": group, "partition_assignment_strategy": [ASSIGNORS[strategy]]}
    async with AsyncExitStack() as stack:
        members = [await stack.enter_async_context(consuming(broker.bootstrap, topic, **config))]
        await settle(members, 6, most=6)
        members.append(await stack.enter_async_context(consuming(broker.bootstrap, topic, **config)))
        await settle(members, 6, most=3)
        members.append(await stack.enter_async_context(consuming(broker.bootstrap, topic, **config)))
        await settle(members, 6, most=2)
        await members.pop(0).stop()
        await settle(members, 6, most=3)


@in_a_loop
async def test_the_partitions_of_a_crashed_member_go_to_the_others(
    broker: Broker, new_topic: Callable[..., str], group: str
) -> None:
    topic = new_topic(partitions=4)
    with member_process("aiokafka", broker.bootstrap, group, topic, **QUICK) as other:
        async with consuming(broker.bootstrap, topic, group_id=group, **QUICK) as survivor:
            await eventually(lambda: other.owns(2) and len(owned(survivor)) == 2, "two members")
            other.kill()
            await settle([survivor], 4, most=4)


@in_a_loop
async def test_a_static_member_that_comes_back_gets_what_it_had(
    broker: Broker, new_topic: Callable[..., str], group: str
) -> None:
    topic = new_topic(partitions=4)
    config: dict[str, Any] = {"group_id": group, "session_timeout_ms": 20_000}
    async with consuming(broker.bootstrap, topic, **config, group_instance_id="one") as one:
        async with consuming(broker.bootstrap, topic, **config, group_instance_id="two") as two:
            before = await settle([one, two], 4, most=2)
        async with consuming(broker.bootstrap, topic, **config, group_instance_id="two") as two:
            assert await settle([one, two], 4, most=2) == before


@in_a_loop
async def test_a_group_goes_on_where_it_committed(broker: Broker, topic: str, group: str) -> None:
    await fill(broker.bootstrap, topic, numbered(10))
    async with consuming(broker.bootstrap, topic, group_id=group, max_poll_records=4) as consumer:
        assert values_of(await take(consumer, 4)) == numbered(10)[:4]
        await consumer.commit()
    async with consuming(broker.bootstrap, topic, group_id=group) as consumer:
        assert values_of(await take(consumer, 6)) == numbered(10)[4:]


@in_a_loop
async def test_leaving_commits_what_was_read_when_that_is_wanted(broker: Broker, topic: str, group: str) -> None:
    await fill(broker.bootstrap, topic, numbered(5))
    async with consuming(broker.bootstrap, topic, group_id=group, enable_auto_commit=True) as consumer:
        await take(consumer, 5)
    async with consuming(broker.bootstrap, group_id=group) as consumer:
        assert await consumer.committed(TopicPartition(topic, 0)) == 5


@in_a_loop
async def test_commits_of_several_partitions_are_kept_and_the_rest_have_none(
    broker: Broker, new_topic: Callable[..., str], group: str
) -> None:
    topic = new_topic(partitions=3)
    async with reading(broker.bootstrap, topic, partitions=range(3), group_id=group) as consumer:
        await consumer.commit({TopicPartition(topic, 0): OffsetAndMetadata(5, "note"), TopicPartition(topic, 2): 7})
        found = [await consumer.committed(TopicPartition(topic, number)) for number in range(3)]
    assert found == [5, None, 7]


@in_a_loop
async def test_a_member_whose_place_was_taken_may_not_commit(
    broker: Broker, new_topic: Callable[..., str], group: str
) -> None:
    topic = new_topic(partitions=2)
    config = {"group_id": group, "group_instance_id": "the-one"}
    async with consuming(broker.bootstrap, topic, **config) as first:
        await settle([first], 2, most=2)
        async with consuming(broker.bootstrap, topic, **config) as second:
            await settle([second], 2, most=2)
            with pytest.raises(errors.KafkaError):
                await first.commit({TopicPartition(topic, 0): 1})


@in_a_loop
async def test_a_pattern_takes_in_a_topic_that_is_made_later(
    broker: Broker, unique: Callable[[str], str], group: str
) -> None:
    family = unique("family")
    topics.create(broker.bootstrap, f"{family}-first")
    await fill(broker.bootstrap, f"{family}-first", [b"from the first"])
    async with consuming(broker.bootstrap, group_id=group, metadata_max_age_ms=300) as consumer:
        consumer.subscribe(pattern=f"^{family}-.*")
        assert values_of(await take(consumer, 1)) == [b"from the first"]
        await consumer.commit()
        topics.create(broker.bootstrap, f"{family}-second")
        await fill(broker.bootstrap, f"{family}-second", [b"from the second"])
        assert values_of(await take(consumer, 1)) == [b"from the second"]


@in_a_loop
async def test_many_members_join_at_once(broker: Broker, new_topic: Callable[..., str], group: str) -> None:
    topic = new_topic(partitions=10)
    async with AsyncExitStack() as stack:
        contexts = [consuming(broker.bootstrap, topic, group_id=group) for _ in range(10)]
        members = list(await asyncio.gather(*(stack.enter_async_context(context) for context in contexts)))
        assert sorted(await settle(members, 10, most=1)) == [[number] for number in range(10)]


@in_a_loop
async def test_topics_are_created_described_grown_and_deleted(broker: Broker, unique: Callable[[str], str]) -> None:
    topic = unique("topic")
    async with administering(broker.bootstrap) as admin:
        await admin.create_topics([NewTopic(topic, 2, 1)])
        nodes.wait_until_led(broker.bootstrap, topic, 2)
        assert topic in await admin.list_topics()
        await admin.create_partitions({topic: NewPartitions(3)})
        nodes.wait_until_led(broker.bootstrap, topic, 3)
        (found,) = await admin.describe_topics([topic])
        assert len(found["partitions"]) == 3
        await admin.delete_topics([topic])
        nodes.wait_until_gone(broker.bootstrap, topic)
        assert topic not in await admin.list_topics()


@in_a_loop
async def test_the_cluster_is_described(broker: Broker) -> None:
    async with administering(broker.bootstrap) as admin:
        cluster = await admin.describe_cluster()
    addresses = {node["node_id"]: f"{node['host']}:{node['port']}" for node in cluster["brokers"]}
    assert sorted(addresses) == list(NODES)
    assert addresses[NODE] == broker.bootstrap
    assert cluster["controller_id"] in NODES


@in_a_loop
async def test_groups_are_listed_with_their_offsets(broker: Broker, topic: str, group: str) -> None:
    partition = TopicPartition(topic, 0)
    async with reading(broker.bootstrap, topic, group_id=group) as consumer:
        await consumer.commit({partition: OffsetAndMetadata(3, "note")})
    async with administering(broker.bootstrap) as admin:
        assert group in {name for name, *_ in await admin.list_consumer_groups()}
        offsets = await admin.list_consumer_group_offsets(group)
    assert offsets == {partition: OffsetAndMetadata(3, "note")}


@in_a_loop
async def test_records_are_deleted(broker: Broker, topic: str) -> None:
    await fill(broker.bootstrap, topic, numbered(6))
    partition = TopicPartition(topic, 0)
    async with administering(broker.bootstrap) as admin:
        assert await admin.delete_records({partition: RecordsToDelete(4)}) == {partition: 4}
    async with reading(broker.bootstrap, topic) as consumer:
        assert [record.offset for record in await take(consumer, 2)] == [4, 5]
