"""The data of a broker after it was stopped, or killed, and started again. One restart for all tests of a kind."""

from __future__ import annotations

import asyncio
from typing import Any

import attrs
import pytest
from confluent_kafka import ConsumerGroupState, ConsumerGroupTopicPartitions, TopicCollection, TopicPartition
from confluent_kafka.admin import ConfigResource, ConfigSource, OffsetSpec, ResourceType

from testkit.basics.values import numbered
from testkit.clients import aio, confluent, kafka_python
from testkit.clients.confluent import CALL_TIMEOUT_S, consuming, offsets_of, producing, read_all, send_all, values_of
from testkit.raw import topics
from testkit.raw.groups import CONSUMER
from testkit.servers.brokers import RestartableBroker

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
BEGAN_MS = 1_700_000_000_000
KEPT_FOR_MS = "9876543210123"
"""Longer than it is since then. A broker that is not restarted looks for old records meanwhile."""
TIMEOUT = {"request_timeout": CALL_TIMEOUT_S}


@attrs.frozen
class World:
    """A broker that was restarted, and the names of what was made before."""

    broker: RestartableBroker
    how: str
    topic_id: str

    @property
    def bootstrap(self) -> str:
        return self.broker.bootstrap

    def name(self, what: str) -> str:
        return f"before-{self.how}-{what}"


@pytest.fixture(scope="module", params=["stop", "kill"])
def world(request: pytest.FixtureRequest, restartable_broker: RestartableBroker) -> World:
    broker, how = restartable_broker, str(request.param)
    world = World(broker, how, "")
    _prepare(world)
    before = attrs.evolve(world, topic_id=_id_of(world, world.name("records")))
    if how == "stop":
        broker.restart()
    else:
        broker.kill_and_restart()
    return before


def _prepare(world: World) -> None:
    bootstrap, name = world.bootstrap, world.name
    topics.create(bootstrap, name("records"), partitions=2, config={"retention.ms": KEPT_FOR_MS})
    for codec in CODECS:
        with producing(bootstrap, **{"compression.type": codec}) as producer:
            for number, value in enumerate(numbered(100, size=100)):
                producer.produce(name("records"), value, key=b"key", partition=0, timestamp=BEGAN_MS + number)
    topics.create(bootstrap, name("append-time"), config={"message.timestamp.type": "LogAppendTime"})
    confluent.fill(bootstrap, name("append-time"), numbered(3))
    topics.create(bootstrap, name("trimmed"))
    confluent.fill(bootstrap, name("trimmed"), numbered(10))
    topics.delete_records(bootstrap, name("trimmed"), 6)
    topics.create(bootstrap, name("grown"))
    topics.grow(bootstrap, name("grown"), 3)
    topics.create(bootstrap, name("deleted"))
    topics.delete(bootstrap, name("deleted"))
    topics.create(bootstrap, name("reborn"))
    confluent.fill(bootstrap, name("reborn"), [b"first life"])
    topics.delete(bootstrap, name("reborn"))
    topics.create(bootstrap, name("reborn"))
    confluent.fill(bootstrap, name("reborn"), [b"second life"])
    with consuming(bootstrap, **{"group.id": name("committed")}) as consumer:
        wanted = [TopicPartition(name("records"), 0, 42, "a note"), TopicPartition(name("records"), 1, 0)]
        consumer.commit(offsets=wanted, asynchronous=False)
    with consuming(bootstrap, name("records"), **{"group.id": name("members")}) as consumer:
        confluent.take_until(consumer, lambda: bool(consumer.assignment()), [], "an assignment")
        consumer.commit(offsets=[TopicPartition(name("records"), 0, 7)], asynchronous=False)
    with consuming(bootstrap, name("records"), **{"group.id": name("moderns"), "group.protocol": CONSUMER}) as consumer:
        confluent.take_until(consumer, lambda: bool(consumer.assignment()), [], "an assignment")
        consumer.commit(offsets=[TopicPartition(name("records"), 0, 7)], asynchronous=False)
    with consuming(bootstrap, **{"group.id": name("deleted-group")}) as consumer:
        consumer.commit(offsets=[TopicPartition(name("records"), 0, 1)], asynchronous=False)
    topics.admin(bootstrap).delete_consumer_groups([name("deleted-group")])[name("deleted-group")].result()


def _id_of(world: World, topic: str) -> str:
    futures = topics.admin(world.bootstrap).describe_topics(TopicCollection([topic]), **TIMEOUT)
    return str(futures[topic].result().topic_id)


def _offset(world: World, topic: str, spec: OffsetSpec) -> int:
    partition = TopicPartition(world.name(topic), 0)
    # A new client: one that still has the leader's epoch from before the restart would be fenced.
    admin = topics.new_admin(world.bootstrap)  # kept until the answer is there, which never comes otherwise
    futures = admin.list_offsets({partition: spec}, **TIMEOUT)
    return int(futures[partition].result().offset)


def test_confluent_reads_every_record(world: World) -> None:
    records = read_all(world.bootstrap, world.name("records"), 500)
    assert values_of(records) == numbered(100, size=100) * 5
    assert offsets_of(records) == list(range(500))


def test_kafka_python_reads_every_record(world: World) -> None:
    records = kafka_python.read_all(world.bootstrap, world.name("records"), 500)
    assert [record.value for record in records] == numbered(100, size=100) * 5


def test_aiokafka_reads_every_record(world: World) -> None:
    records = asyncio.run(aio.read_all(world.bootstrap, world.name("records"), 500))
    assert [record.value for record in records] == numbered(100, size=100) * 5


def test_new_records_follow_the_old_ones(world: World) -> None:
    topic = world.name("append-time")
    with producing(world.bootstrap) as producer:
        delivered = send_all(producer, topic, [b"after"])
    assert offsets_of(delivered) == [3]
    assert values_of(read_all(world.bootstrap, topic, 4)) == [*numbered(3), b"after"]


def test_offsets_are_found_by_time(world: World) -> None:
    partition = TopicPartition(world.name("records"), 0, BEGAN_MS + 99)
    with consuming(world.bootstrap) as consumer:
        (found,) = consumer.offsets_for_times([partition], timeout=CALL_TIMEOUT_S)
    assert found.offset == 99
    assert _offset(world, "records", OffsetSpec.max_timestamp()) == 99


def test_the_log_still_starts_and_ends_where_it_did(world: World) -> None:
    assert _offset(world, "records", OffsetSpec.earliest()) == 0
    assert _offset(world, "records", OffsetSpec.latest()) == 500
    assert _offset(world, "trimmed", OffsetSpec.latest()) == 10
    if world.how == "stop":  # Kafka writes the log's start down now and then, so a crash may bring records back
        assert _offset(world, "trimmed", OffsetSpec.earliest()) == 6


def test_a_topic_keeps_its_id_partitions_and_configs(world: World) -> None:
    assert _id_of(world, world.name("records")) == world.topic_id
    admin = topics.admin(world.bootstrap)
    assert len(admin.list_topics(timeout=CALL_TIMEOUT_S).topics[world.name("records")].partitions) == 2
    assert len(admin.list_topics(timeout=CALL_TIMEOUT_S).topics[world.name("grown")].partitions) == 3
    resource = ConfigResource(ResourceType.TOPIC, world.name("records"))
    entry: Any = admin.describe_configs([resource], **TIMEOUT)[resource].result()["retention.ms"]
    assert (entry.value, entry.source) == (KEPT_FOR_MS, ConfigSource.DYNAMIC_TOPIC_CONFIG.value)


def test_a_deleted_topic_stays_away(world: World) -> None:
    assert world.name("deleted") not in topics.names(world.bootstrap)


def test_a_topic_that_was_made_again_has_only_its_new_records(world: World) -> None:
    assert values_of(read_all(world.bootstrap, world.name("reborn"), 1)) == [b"second life"]


def test_commits_are_kept_with_their_metadata(world: World) -> None:
    topic = world.name("records")
    with consuming(world.bootstrap, **{"group.id": world.name("committed")}) as consumer:
        partitions = [TopicPartition(topic, number) for number in range(2)]
        found = consumer.committed(partitions, timeout=CALL_TIMEOUT_S)
    assert [(it.offset, it.metadata or "") for it in found] == [(42, "a note"), (0, "")]


@pytest.mark.parametrize("group", ["members", "moderns"])
def test_a_group_continues_where_it_committed(world: World, group: str) -> None:
    config: dict[str, Any] = {"group.id": world.name(group)}
    if group == "moderns":
        config["group.protocol"] = CONSUMER
    else:
        config["session.timeout.ms"] = 6_000
    with consuming(world.bootstrap, world.name("records"), **config) as consumer:
        assert offsets_of(confluent.take(consumer, 493))[0] == 7


def test_groups_without_members_are_empty(world: World) -> None:
    admin = topics.admin(world.bootstrap)
    name = world.name("committed")
    listing = admin.list_consumer_groups(**TIMEOUT).result().valid
    assert {it.group_id: it.state for it in listing}[name] == ConsumerGroupState.EMPTY
    request = ConsumerGroupTopicPartitions(name)
    found = admin.list_consumer_group_offsets([request], **TIMEOUT)[name].result()
    assert sorted(it.offset for it in found.topic_partitions) == [0, 42]


def test_a_deleted_group_stays_away(world: World) -> None:
    listing = topics.admin(world.bootstrap).list_consumer_groups(**TIMEOUT).result().valid
    assert world.name("deleted-group") not in {it.group_id for it in listing}
