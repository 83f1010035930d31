"""Administering with aiokafka."""

from __future__ import annotations

from collections.abc import Callable

from aiokafka import OffsetAndMetadata, TopicPartition
from aiokafka.admin import NewPartitions, NewTopic, RecordsToDelete

from testkit.basics.values import numbered
from testkit.clients.aio import administering, fill, in_a_loop, reading, take
from testkit.raw import nodes
from testkit.raw.nodes import NODE
from testkit.servers.brokers import NODES, Broker


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
