"""kwire's own client, kwire.client, against whatever broker is under test."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from kwire_protocol.records import Record

from kwire.client.cluster import Cluster, TopicPartition
from kwire.client.connection import BrokerConnection
from kwire.client.errors import Refused, TopicExists, UnknownTopic
from kwire.client.fetching import OffsetOutOfRange, PartitionReader, TopicReplaced
from kwire.client.groups import (
    CommittedOffset,
    GroupHasMembers,
    commit_offsets,
    fetch_offsets,
    list_consumer_groups,
)
from kwire.client.offsets import EARLIEST, LATEST, IsolationLevel, list_offsets
from kwire.client.producing import Producer, ProducerFenced
from kwire.client.topics import (
    NewTopic,
    alter_topic_configs,
    create_partitions,
    create_topics,
    describe_topic_configs,
    topic_overrides,
)
from testkit.basics.waiting import eventually
from testkit.clients import confluent
from testkit.clients.transactions.hanging import leave_hanging
from testkit.raw import topics
from testkit.servers import brokers

TIMEOUT_S = 60.0


@pytest.fixture
def cluster(broker: brokers.Broker) -> Iterator[Cluster]:
    with Cluster(broker.bootstrap, timeout_s=TIMEOUT_S) as connected:
        yield connected


def test_a_cluster_returns_its_id_its_nodes_and_its_topics(cluster: Cluster, topic: str) -> None:
    assert cluster.cluster_id == cluster.metadata(None).cluster_id
    assert cluster.cluster_id
    assert cluster.node_ids() == list(brokers.NODES)
    assert cluster.topic(topic).leaders.keys() == {0}
    assert cluster.leader(TopicPartition(topic, 0)) in brokers.NODES
    assert any(cluster.topic(topic).topic_id)
    with pytest.raises(UnknownTopic):
        cluster.topic(f"{topic}-not")


def test_topics_are_created_with_configurations(cluster: Cluster, unique: Callable[[str], str]) -> None:
    name, other = unique("topic"), unique("topic")
    create_topics(cluster, [NewTopic(name, 3, 1, {"retention.ms": "4711"}), NewTopic(other)])
    assert list_offsets(cluster, name, LATEST) == {0: 0, 1: 0, 2: 0}
    configs = describe_topic_configs(cluster, [name, other])
    assert configs[name]["retention.ms"] == "4711"
    assert configs[other]["retention.ms"] != "4711"
    with pytest.raises(TopicExists):
        create_topics(cluster, [NewTopic(name)])
    with pytest.raises(Refused, match="INVALID_CONFIG"):
        create_topics(cluster, [NewTopic(unique("topic"), configs={"no.such.thing": "1"})])
    with pytest.raises(UnknownTopic):
        describe_topic_configs(cluster, [unique("topic")])


def test_configurations_that_were_set_are_distinguished_from_defaults_and_changed(
    cluster: Cluster, new_topic: Callable[..., str], unique: Callable[[str], str]
) -> None:
    topic = new_topic(config={"retention.ms": "4711", "cleanup.policy": "compact"})
    assert topic_overrides(cluster, [topic]) == {topic: {"retention.ms": "4711", "cleanup.policy": "compact"}}
    alter_topic_configs(cluster, topic, {"max.message.bytes": "5000"}, removed=["cleanup.policy"])
    wanted = {topic: {"retention.ms": "4711", "max.message.bytes": "5000"}}
    eventually(lambda: topic_overrides(cluster, [topic]) == wanted, "the configurations are as they were set")
    with pytest.raises(Refused, match="INVALID_CONFIG"):
        alter_topic_configs(cluster, topic, {"retention.ms": "soon"})
    with pytest.raises(UnknownTopic):
        alter_topic_configs(cluster, unique("topic"), {"retention.ms": "1"})


def test_a_topic_grows_to_a_number_of_partitions(cluster: Cluster, topic: str, unique: Callable[[str], str]) -> None:
    create_partitions(cluster, topic, 3)
    assert list_offsets(cluster, topic, LATEST) == {0: 0, 1: 0, 2: 0}
    create_partitions(cluster, topic, 2)
    assert len(cluster.topic(topic).leaders) == 3
    with pytest.raises(UnknownTopic):
        create_partitions(cluster, unique("topic"), 2)


def test_groups_are_listed_and_one_with_members_takes_no_offsets_from_others(
    broker: brokers.Broker, cluster: Cluster, topic: str, group: str, unique: Callable[[str], str]
) -> None:
    only_offsets = unique("group")
    commit_offsets(cluster, only_offsets, {TopicPartition(topic, 0): 0})
    with confluent.consuming(broker.bootstrap, topic, **{"group.id": group}) as member:
        eventually(lambda: member.poll(0.1) is None and member.assignment(), "the member has its partition")
        assert {group, only_offsets} <= set(list_consumer_groups(cluster))
        with pytest.raises(GroupHasMembers):
            commit_offsets(cluster, group, {TopicPartition(topic, 0): 0})


def test_offsets_are_committed_by_no_member(cluster: Cluster, new_topic: Callable[..., str], group: str) -> None:
    topic = new_topic(partitions=2)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    assert fetch_offsets(cluster, group) == {}
    commit_offsets(cluster, group, {first: 5, second: CommittedOffset(7, "why")})
    assert fetch_offsets(cluster, group) == {first: CommittedOffset(5), second: CommittedOffset(7, "why")}
    assert fetch_offsets(cluster, group, [second], require_stable=True) == {second: CommittedOffset(7, "why")}
    commit_offsets(cluster, group, {first: 6})
    assert fetch_offsets(cluster, group, [first]) == {first: CommittedOffset(6)}
    with pytest.raises(UnknownTopic):
        commit_offsets(cluster, group, {TopicPartition(f"{topic}-not", 0): 1})


def test_a_read_committed_end_is_the_last_stable_offset(
    broker: brokers.Broker, cluster: Cluster, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(partitions=2)
    leave_hanging(broker.bootstrap, (topic, 1))
    assert list_offsets(cluster, topic, EARLIEST) == {0: 0, 1: 0}
    assert list_offsets(cluster, topic, LATEST) == {0: 0, 1: 1}
    assert list_offsets(cluster, topic, LATEST, isolation_level=IsolationLevel.READ_COMMITTED) == {0: 0, 1: 0}
    assert list_offsets(cluster, topic, 0, partitions=[0]) == {}


def read(
    cluster: Cluster, topic: str, start: int = 0, stop: int | None = None, *, committed: bool = False
) -> list[Record]:
    """Up to the end there is now. What is committed is waited for: its marker may come after the answer."""
    level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
    if stop is None:
        stop = list_offsets(cluster, topic, LATEST)[0]
    with PartitionReader(cluster, TopicPartition(topic, 0), start, stop, isolation_level=level) as reader:
        return list(reader.records())


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_what_a_client_wrote_is_read(broker: brokers.Broker, cluster: Cluster, topic: str, codec: str) -> None:
    values = [b"%d" % number * 50 for number in range(500)]
    with confluent.producing(broker.bootstrap, **{"compression.type": codec, "batch.num.messages": 70}) as producer:
        confluent.send_all(producer, topic, values)
    found = read(cluster, topic)
    assert [(it.offset, it.value) for it in found] == list(enumerate(values))
    assert read(cluster, topic, 123, 345) == found[123:345]


def test_committed_data_is_without_what_was_aborted(broker: brokers.Broker, cluster: Cluster, topic: str) -> None:
    with confluent.producing(broker.bootstrap, **{"transactional.id": topic}) as producer:
        producer.init_transactions()
        for number in range(6):
            producer.begin_transaction()
            confluent.send_all(producer, topic, [b"%d" % number] * 2)
            if number % 2:
                producer.abort_transaction()
            else:
                producer.commit_transaction()
    confluent.fill(broker.bootstrap, topic, [b"plain"])
    committed = read(cluster, topic, committed=True)
    assert [it.value for it in committed] == [b"0", b"0", b"2", b"2", b"4", b"4", b"plain"]
    assert len(read(cluster, topic)) == 13
    for start in range(18):
        assert read(cluster, topic, start, committed=True) == [it for it in committed if it.offset >= start]


def test_what_retention_took_is_out_of_range(broker: brokers.Broker, cluster: Cluster, topic: str) -> None:
    confluent.fill(broker.bootstrap, topic, [b"v"] * 10)
    topics.delete_records(broker.bootstrap, topic, 4)
    assert [it.offset for it in read(cluster, topic, 4)] == [4, 5, 6, 7, 8, 9]
    for start, stop in ((3, 10), (11, 12)):
        with pytest.raises(
            OffsetOutOfRange, match=f"offset {start} of {topic}-0 is out of range: it has 4 up to, .*10"
        ):
            read(cluster, topic, start, stop)


def test_a_topic_that_was_made_again_is_another(broker: brokers.Broker, cluster: Cluster, topic: str) -> None:
    was = cluster.topic(topic).topic_id
    topics.delete(broker.bootstrap, topic)
    topics.create(broker.bootstrap, topic)
    confluent.fill(broker.bootstrap, topic, [b"v"])
    with (
        PartitionReader(cluster, TopicPartition(topic, 0), 0, 1, topic_id=was) as reader,
        pytest.raises(TopicReplaced),
    ):
        list(reader.records())


def test_a_reader_waits_for_a_broker_that_restarts(restartable_broker: brokers.RestartableBroker) -> None:
    name = "restarted-while-it-is-read"
    with Cluster(restartable_broker.bootstrap, timeout_s=TIMEOUT_S) as cluster:
        create_topics(cluster, [NewTopic(name, 1)])
        confluent.fill(restartable_broker.bootstrap, name, [b"%d" % number * 1000 for number in range(200)])
        seen = []
        with PartitionReader(cluster, TopicPartition(name, 0), 0, 200, fetch_bytes=30_000) as reader:
            for it in reader.records():
                seen.append(it.offset)
                if len(seen) == 50:
                    restartable_broker.kill_and_restart()
        assert seen == list(range(200))


def records(*values: bytes) -> list[Record]:
    return [Record(value=value, timestamp=1_700_000_000_000) for value in values]


@pytest.mark.parametrize("codec", range(5))
def test_what_a_producer_writes_is_what_clients_read(
    broker: brokers.Broker, cluster: Cluster, new_topic: Callable[..., str], codec: int
) -> None:
    topic = new_topic(partitions=2)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    producer = Producer(cluster, compression=codec)
    assert producer.produce({first: records(b"1", b"2"), second: records(b"3")}) == {first: 0, second: 0}
    assert producer.write(first, records(*[b"%d" % number * 100 for number in range(50)]), batch_bytes=2000) == 2
    values = confluent.values_of(confluent.read_all(broker.bootstrap, topic, 53, partitions=[0, 1]))
    values.remove(b"3")
    assert values == [b"1", b"2", *(b"%d" % number * 100 for number in range(50))]


@pytest.fixture(params=["transaction version 2", "before"])
def protocol(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers serve both protocols. A client that sees no features in ApiVersions uses the older one."""
    if request.param == "before":
        monkeypatch.setattr(BrokerConnection, "features", {})


@pytest.mark.usefixtures("protocol")
def test_transactions_commit_and_abort_with_their_offsets(
    cluster: Cluster, new_topic: Callable[..., str], group: str
) -> None:
    topic = new_topic(partitions=2)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    producer = Producer(cluster, transactional_id=topic)
    producer.init()
    for number in range(4):
        producer.begin()
        producer.produce({first: records(b"%d" % number), second: records(b"x")})
        producer.produce({first: records(b"%d again" % number)})
        producer.add_offsets(group, {first: 10 * number})
        if number % 2:
            producer.abort()
        else:
            producer.commit()
    assert [it.value for it in read(cluster, topic, committed=True)] == [b"0", b"0 again", b"2", b"2 again"]
    assert fetch_offsets(cluster, group, require_stable=True) == {first: CommittedOffset(20)}


@pytest.mark.usefixtures("protocol")
def test_a_failed_transaction_is_aborted_and_done_again(cluster: Cluster, new_topic: Callable[..., str]) -> None:
    topic = new_topic(config={"max.message.bytes": "1000"})
    at = TopicPartition(topic, 0)
    producer = Producer(cluster, transactional_id=topic)
    producer.init()
    for before in ([b"lost"], []):
        producer.begin()
        for value in before:
            producer.produce({at: records(value)})
        with pytest.raises(Refused, match="MESSAGE_TOO_LARGE"):
            producer.produce({at: records(b"x" * 2000)})
        producer.abort()
        with producer.transaction():
            producer.produce({at: records(b"kept")})
    assert [it.value for it in read(cluster, topic, committed=True)] == [b"kept", b"kept"]


@pytest.mark.usefixtures("protocol")
def test_a_newer_producer_fences_the_older(cluster: Cluster, topic: str) -> None:
    at = TopicPartition(topic, 0)
    older, newer = (Producer(cluster, transactional_id=topic) for _ in range(2))
    older.init()
    older.begin()
    older.produce({at: records(b"lost")})
    newer.init()
    with pytest.raises(ProducerFenced):
        older.produce({at: records(b"late")})
    with newer.transaction():
        newer.produce({at: records(b"kept")})
    assert [it.value for it in read(cluster, topic, committed=True)] == [b"kept"]


@pytest.mark.usefixtures("protocol")
def test_a_zombie_does_not_commit(cluster: Cluster, topic: str) -> None:
    at = TopicPartition(topic, 0)
    older, newer = (Producer(cluster, transactional_id=topic) for _ in range(2))
    older.init()
    older.begin()
    older.produce({at: records(b"lost")})
    newer.init()
    with pytest.raises(ProducerFenced):
        older.commit()
    assert read(cluster, topic, committed=True) == []


def test_a_producer_continues_after_a_kill_of_the_broker(restartable_broker: brokers.RestartableBroker) -> None:
    name = "written-over-a-kill"
    with Cluster(restartable_broker.bootstrap, timeout_s=TIMEOUT_S) as cluster:
        create_topics(cluster, [NewTopic(name, 1)])
        producer = Producer(cluster, transactional_id=name)
        producer.init()
        for number in range(6):
            with producer.transaction():
                producer.produce({TopicPartition(name, 0): records(b"%d" % number)})
                if number == 2:
                    restartable_broker.kill_and_restart()
        assert [it.value for it in read(cluster, name, committed=True)] == [b"%d" % number for number in range(6)]
