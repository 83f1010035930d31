"""Consumers that read from the replica in their rack (KIP-392), on three nodes in the racks a, b and c."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import attrs
import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from testkit.basics.waiting import Deadline, eventually
from testkit.clients.confluent import reading
from testkit.java.java_host import JavaHost
from testkit.servers.brokers import Cluster, three_nodes

TOPIC = "t"
SETTINGS = {
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
    "transaction.state.log.num.partitions": "1",
    "offsets.topic.num.partitions": "1",
}
RACKS = {1: {"broker.rack": "a"}, 2: {"broker.rack": "b"}, 3: {"broker.rack": "c"}}
LEADER, NEXT_LEADER, FOLLOWER = 1, 2, 3


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """Node 1 leads the only partition, and is followed by 2 and 3."""
    with three_nodes(SETTINGS, RACKS) as nodes:
        admin = AdminClient({"bootstrap.servers": nodes.bootstrap_servers})
        topic = NewTopic(TOPIC, 1, replica_assignment=[[LEADER, NEXT_LEADER, FOLLOWER]])
        admin.create_topics([topic])[TOPIC].result(30)
        yield nodes


def written(cluster: Cluster, numbers: range) -> list[str]:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    values = [f"{number:03}" for number in numbers]
    for value in values:
        producer.produce(TOPIC, value, partition=0)
    assert producer.flush(30) == 0
    return values


def transacted(cluster: Cluster, numbers: range) -> list[str]:
    """Transactions of five records, of which every other one is aborted. Returns what is committed."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "x"})
    producer.init_transactions(30)
    committed = []
    for first in range(numbers.start, numbers.stop, 5):
        producer.begin_transaction()
        values = [f"{number:03}" for number in range(first, first + 5)]
        for value in values:
            producer.produce(TOPIC, value, partition=0)
        assert producer.flush(30) == 0
        if first % 2:
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
            committed += values
    return committed


@attrs.define
class Places:
    """The broker that librdkafka reads from, and the leader, in its last statistics."""

    read_from: int = -1
    leader: int = -1

    def note(self, statistics: str) -> None:
        partition = json.loads(statistics)["topics"].get(TOPIC, {}).get("partitions", {}).get("0")
        if partition is not None:
            self.read_from, self.leader = partition["broker"], partition["leader"]


@contextmanager
def reader(cluster: Cluster, places: Places, **config: Any) -> Iterator[Consumer]:
    about = {"client.rack": "c", "statistics.interval.ms": 50, "stats_cb": places.note, **config}
    with reading(cluster.bootstrap_servers, TOPIC, **about) as consumer:
        yield consumer


def read(consumer: Consumer, count: int) -> list[str]:
    values: list[str] = []
    deadline = Deadline()
    while len(values) < count and deadline.not_over(f"record {len(values) + 1} of {count}"):
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            values.append(message.value().decode())
    return values


def polled_until(consumer: Consumer, places: Places, wanted: Places) -> None:
    def as_wanted() -> bool:
        assert consumer.poll(0.05) is None, "there is nothing more to read"
        return places == wanted

    eventually(as_wanted, f"librdkafka is at {wanted}")


def test_librdkafka_goes_to_the_follower_in_its_rack_and_stays_when_the_leader_dies(cluster: Cluster) -> None:
    first = written(cluster, range(100))
    places = Places()
    with reader(cluster, places) as consumer:
        assert read(consumer, 100) == first
        polled_until(consumer, places, Places(FOLLOWER, LEADER))
        cluster.kill(LEADER)
        more = written(cluster, range(100, 200))
        assert read(consumer, 100) == more
        polled_until(consumer, places, Places(FOLLOWER, NEXT_LEADER))


def test_librdkafka_goes_back_to_the_leader_when_its_follower_dies(cluster: Cluster) -> None:
    first = written(cluster, range(100))
    places = Places()
    with reader(cluster, places) as consumer:
        assert read(consumer, 100) == first
        polled_until(consumer, places, Places(FOLLOWER, LEADER))
        cluster.kill(FOLLOWER)
        more = written(cluster, range(100, 200))
        assert read(consumer, 100) == more
        polled_until(consumer, places, Places(LEADER, LEADER))


def test_librdkafka_gets_committed_records_only_from_a_follower(cluster: Cluster) -> None:
    committed = transacted(cluster, range(30))
    places = Places()
    with reader(cluster, places, **{"isolation.level": "read_committed"}) as consumer:
        assert read(consumer, len(committed)) == committed
        polled_until(consumer, places, Places(FOLLOWER, LEADER))
        more = transacted(cluster, range(100, 130))
        assert read(consumer, len(more)) == more
        polled_until(consumer, places, Places(FOLLOWER, LEADER))


def test_the_java_consumer_reads_from_the_follower_in_its_rack(cluster: Cluster, java: JavaHost) -> None:
    values = written(cluster, range(100))

    def read_by_java() -> bool:
        ended = java.succeed("RackReader", cluster.bootstrap_servers, TOPIC, "c", "read_uncommitted", "100")
        assert ended.lines[:100] == values
        return ended.lines[100:] == [f"from {FOLLOWER}"]

    eventually(read_by_java, "the leader knows that its follower has all")
    ended = java.succeed("RackReader", cluster.bootstrap_servers, TOPIC, "nowhere", "read_uncommitted", "100")
    assert ended.lines == [*values, "from -1"]


def test_the_java_consumer_gets_committed_records_only_from_a_follower(cluster: Cluster, java: JavaHost) -> None:
    committed = transacted(cluster, range(30))
    count = str(len(committed))

    def read_by_java() -> bool:
        ended = java.succeed("RackReader", cluster.bootstrap_servers, TOPIC, "c", "read_committed", count)
        assert ended.lines[: len(committed)] == committed
        return ended.lines[len(committed) :] == [f"from {FOLLOWER}"]

    eventually(read_by_java, "the leader knows that its follower has all")
