"""kwire.testing.Cluster: several brokers in the caller's process, which fail when the test makes them."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import partial

import pytest
from confluent_kafka import Consumer, ElectionType, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kwire_protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from kwire_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from kwire_protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from kwire_protocol.records import Record, build_batch
from kwire_storage.disk.memory_disk import MemoryDisk

from kwire.client.connection import BrokerConnection as ClientConnection
from kwire.client.errors import ClientError
from kwire.client.transport import parse_addresses
from kwire.node.running import StartError
from kwire.testing import Cluster
from testkit.basics.waiting import eventually
from testkit.clients.share_consumers import get, make, sharing
from testkit.raw.nodes import wait_until_led

ONE_REPLICA = {
    "default.replication.factor": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}

pytest_plugins = ["pytester"]


def create(cluster: Cluster, topic: str, partitions: int, factor: int = 1) -> None:
    """Returns when every broker has the topic: `leader_of` sends to any of them."""
    create_at_one(cluster, topic, partitions, factor)
    wait_until_led(cluster.bootstrap_servers, topic, partitions)


def create_at_one(cluster: Cluster, topic: str, partitions: int, factor: int = 1) -> None:
    """Returns when the broker of the request has the topic. Others may be cut off."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    admin.create_topics([NewTopic(topic, partitions, factor)])[topic].result(30)


def test_what_a_killed_broker_had_is_there_when_it_is_back() -> None:
    with Cluster(3, settings=ONE_REPLICA) as cluster:
        create(cluster, "t", 3)
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
        for index in range(3):
            producer.produce("t", b"%d" % index, partition=index)
        assert producer.flush(30) == 0
        leader = cluster.leader_of("t", 0)
        cluster.kill(leader)
        eventually(lambda: cluster.leader_of("t", 0) == -1, "its end is noticed")
        assert {cluster.leader_of("t", 1), cluster.leader_of("t", 2)} == {1, 2, 3} - {leader}
        cluster.restart(leader)
        eventually(lambda: cluster.leader_of("t", 0) == leader, "it leads again")
        consumer = Consumer(
            {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest"}
        )
        consumer.subscribe(["t"])
        found = [message.value() for message in consumer.consume(3, 30) if message.error() is None]
        consumer.close()
    assert sorted(found) == [b"0", b"1", b"2"]


def test_a_paused_broker_is_alive_and_answers_later() -> None:
    with Cluster(2, settings=ONE_REPLICA) as cluster:
        create(cluster, "t", 2)
        cluster.pause(1)
        assert sorted([cluster.leader_of("t", 0), cluster.leader_of("t", 1)]) == [1, 2]
        cluster.go_on(1)
        cluster.restart(1)
        wait_until_led(cluster.bootstrap_servers, "t", 2)
        assert sorted([cluster.leader_of("t", 0), cluster.leader_of("t", 1)]) == [1, 2]


def threads() -> set[threading.Thread]:
    """Returns threads without those that trio keeps for ten seconds for reuse."""
    return {it for it in threading.enumerate() if not it.name.startswith("Trio thread")}


def test_a_cluster_that_was_stopped_leaves_no_thread_behind() -> None:
    before = threads()
    with Cluster(3) as cluster:
        cluster.kill(1)
        cluster.pause(2)
    eventually(lambda: threads() <= before, "all threads have ended")


def test_what_cannot_start_or_is_not_there_is_an_error() -> None:
    with Cluster(2) as cluster:
        cluster.nodes[2].stop()
        lock = cluster.nodes[2].disk.lock(".lock")
        with pytest.raises(StartError, match="another broker is using the log dir"):
            cluster.restart(2)
        lock.release()
    with Cluster(1) as cluster, pytest.raises(ClientError, match="topic t: UNKNOWN_TOPIC_OR_PARTITION"):
        cluster.leader_of("t", 0)


def test_the_fixture_starts_a_cluster_with_the_settings_of_the_marker(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.kwire_settings({"default.replication.factor": "1"})
        def test_it(kwire_cluster):
            assert len(kwire_cluster.nodes) == 3
            assert kwire_cluster.nodes[2].settings["default.replication.factor"] == "1"
        """
    )
    pytester.runpytest_inprocess().assert_outcomes(passed=1)


# Replicas


def delivered(
    cluster: Cluster,
    topic: str,
    values: list[bytes],
    *,
    partition: int = 0,
    timeout_ms: int = 15_000,
    bootstrap: str | None = None,
) -> list[bytes]:
    """Returns those that all replicas in sync have acknowledged."""
    found: list[bytes] = []

    def note(error: object, message: Message) -> None:
        if error is None:
            value = message.value()
            assert value is not None
            found.append(value)

    settings = {"bootstrap.servers": bootstrap or cluster.bootstrap_servers, "acks": "all", "enable.idempotence": True}
    producer = Producer({**settings, "message.timeout.ms": timeout_ms})
    for value in values:
        producer.produce(topic, value, partition=partition, on_delivery=note)
    producer.flush(30)
    return found


def read(cluster: Cluster, topic: str, count: int, *, partition: int = 0) -> list[bytes | None]:
    consumer = Consumer(
        {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest"}
    )
    consumer.assign([TopicPartition(topic, partition, 0)])
    found = [message.value() for message in consumer.consume(count, 30)]
    consumer.close()
    return found


def test_what_all_replicas_have_acknowledged_outlives_each_leader_in_turn() -> None:
    values = [b"%d" % number for number in range(300)]
    with Cluster(3, settings={"min.insync.replicas": "2"}) as cluster:
        create(cluster, "t", 1, 3)
        for node_id in (1, 2, 3):
            part = values[(node_id - 1) * 100 : node_id * 100]
            assert delivered(cluster, "t", part) == part
            leader = cluster.leader_of("t", 0)
            cluster.kill(leader)
            eventually(lambda: cluster.leader_of("t", 0) not in (-1, leader), "another one leads")  # noqa: B023
            cluster.restart(leader)
            eventually(lambda: in_sync(cluster, "t") == [1, 2, 3], "all are in sync again")
        assert read(cluster, "t", 300) == values


def in_sync(cluster: Cluster, topic: str, partition: int = 0) -> list[int]:
    described = AdminClient({"bootstrap.servers": cluster.bootstrap_servers}).list_topics(topic, timeout=30)
    return sorted(described.topics[topic].partitions[partition].isrs)


def test_followers_of_a_new_leader_do_not_wait_for_other_fetches_to_end() -> None:
    # Their connections wait for data of other topics, for longer than a producer waits.
    with Cluster(3, settings={"replica.fetch.wait.max.ms": "25000", "replica.lag.time.max.ms": "120000"}) as cluster:
        for topic in ("t", "u"):
            create(cluster, topic, 1, 3)
            assert delivered(cluster, topic, [b"first"]) == [b"first"]
        cluster.kill(cluster.leader_of("t", 0))
        assert delivered(cluster, "t", [b"second"]) == [b"second"]


def test_a_partition_is_moved_to_other_brokers_with_all_that_it_has() -> None:
    values = [b"%d" % number for number in range(100)]
    with Cluster(3) as cluster:
        create(cluster, "t", 1, 1)
        assert delivered(cluster, "t", values) == values
        others = sorted({1, 2, 3} - {cluster.leader_of("t", 0)})
        cluster.move("t", 0, others)
        assert cluster.leader_of("t", 0) == others[0]
        eventually(lambda: in_sync(cluster, "t") == others, "all brokers know it")
        assert read(cluster, "t", 100) == values


def test_a_broker_whose_disk_was_replaced_copies_what_it_had_from_the_leaders() -> None:
    values = [b"%d" % number for number in range(100)]
    with Cluster(3, settings={"min.insync.replicas": "2"}) as cluster:
        create(cluster, "t", 1, 3)
        assert delivered(cluster, "t", values) == values
        replaced = cluster.leader_of("t", 0)
        cluster.kill(replaced)
        cluster.nodes[replaced].disk = MemoryDisk()
        cluster.restart(replaced)
        eventually(lambda: in_sync(cluster, "t") == [1, 2, 3], "all are in sync again")
        for node_id in {1, 2, 3} - {replaced}:
            cluster.kill(node_id)
            eventually(lambda: node_id not in in_sync(cluster, "t"), "it is noticed")  # noqa: B023
        eventually(lambda: cluster.leader_of("t", 0) == replaced, "the replaced one leads")
        with ClientConnection(parse_addresses(cluster.nodes[replaced].address)[0]) as connection:
            request = ListOffsetsRequest(topics=[ListOffsetsTopic("t", [ListOffsetsPartition(0, timestamp=-1)])])
            answer: ListOffsetsResponse = connection.call(request)
        assert answer.topics[0].partitions[0].offset == 100


def test_a_disk_that_was_replaced_does_not_start_over_if_nobody_else_has_what_it_had() -> None:
    with Cluster(2, settings=ONE_REPLICA) as cluster:
        create(cluster, "t", 1, 1)
        assert delivered(cluster, "t", [b"a"]) == [b"a"]
        replaced = cluster.leader_of("t", 0)
        cluster.kill(replaced)
        kept, cluster.nodes[replaced].disk = cluster.nodes[replaced].disk, MemoryDisk()
        cluster.restart(replaced)
        assert delivered(cluster, "t", [b"b"], timeout_ms=1_500) == []
        cluster.kill(replaced)
        cluster.nodes[replaced].disk = kept
        cluster.restart(replaced)
        assert read(cluster, "t", 1) == [b"a"]


def test_a_cluster_whose_brokers_were_all_killed_serves_again() -> None:
    values = [b"%d" % number for number in range(100)]
    with Cluster(3, settings={"min.insync.replicas": "2"}) as cluster:
        create(cluster, "t", 3, 3)
        assert delivered(cluster, "t", values) == values
        for node_id in (2, 1, 3):
            cluster.kill(node_id)
        for node_id in (1, 2, 3):
            cluster.restart(node_id)
        eventually(lambda: in_sync(cluster, "t") == [1, 2, 3], "all are in sync again")
        assert delivered(cluster, "t", [b"more"]) == [b"more"]
        assert read(cluster, "t", 101) == [*values, b"more"]


def test_a_write_that_too_few_replicas_have_is_refused() -> None:
    with Cluster(2, settings={"min.insync.replicas": "2"}) as cluster:
        create(cluster, "t", 1, 2)
        assert delivered(cluster, "t", [b"a"]) == [b"a"]
        cluster.kill(3 - cluster.leader_of("t", 0))
        eventually(lambda: len(in_sync(cluster, "t")) == 1, "the killed one has left the ISR")
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all", "retries": 0})
        errors: list[object] = []
        producer.produce("t", b"b", on_delivery=lambda error, _: errors.append(error))
        producer.flush(30)
        assert "NOT_ENOUGH_REPLICAS" in str(errors)


# Cut off


def is_in_sync(cluster: Cluster, topic: str, partition: int) -> bool:
    return in_sync(cluster, topic, partition) == sorted(cluster.nodes)


def elect_preferred_leaders(cluster: Cluster, topic: str, partitions: Sequence[int]) -> None:
    """Returns when each broker leads a partition again."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    wanted = [TopicPartition(topic, it) for it in partitions]
    errors = admin.elect_leaders(ElectionType.PREFERRED, wanted).result(30).values()
    assert [it for it in errors if it is not None and it.code() != ErrorCode.ELECTION_NOT_NEEDED] == []
    eventually(lambda: {cluster.leader_of(topic, it) for it in partitions} == cluster.nodes.keys(), "each broker leads")


def leader_by(cluster: Cluster, node_id: int, topic: str) -> int:
    """Returns the leader according to that broker."""
    with ClientConnection(parse_addresses(cluster.nodes[node_id].address)[0]) as connection:
        answer: MetadataResponse = connection.call(MetadataRequest([MetadataRequestTopic(name=topic)]))
    return answer.topics[0].partitions[0].leader_id


def code_of_a_write(cluster: Cluster, node_id: int, topic: str, *, acks: int, timeout_ms: int = 500) -> ErrorCode:
    batch = memoryview(bytearray(build_batch([Record(value=b"from the old leader")])))
    data = TopicProduceData(topic, partition_data=[PartitionProduceData(0, batch)])
    with ClientConnection(parse_addresses(cluster.nodes[node_id].address)[0]) as connection:
        answer: ProduceResponse = connection.call(ProduceRequest(None, acks, timeout_ms, [data]), at_most=9)
    return ErrorCode(answer.responses[0].partition_responses[0].error_code)


def test_a_leader_that_is_cut_off_acknowledges_nothing_that_is_lost() -> None:
    values = [b"%d" % number for number in range(300)]
    with Cluster(3, settings={"min.insync.replicas": "2", "replica.lag.time.max.ms": "2000"}) as cluster:
        create(cluster, "t", 1, 3)
        leader = cluster.leader_of("t", 0)
        assert delivered(cluster, "t", values[:100]) == values[:100]

        cluster.cut_off(leader)
        eventually(lambda: cluster.leader_of("t", 0) not in (-1, leader), "another one leads")
        assert leader_by(cluster, leader, "t") == leader, "it does not know"
        assert code_of_a_write(cluster, leader, "t", acks=1) == ErrorCode.NONE
        assert code_of_a_write(cluster, leader, "t", acks=-1) in (
            ErrorCode.REQUEST_TIMED_OUT,
            ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        )
        others = [node.address for node_id, node in cluster.nodes.items() if node_id != leader]
        assert delivered(cluster, "t", values[100:200], bootstrap=",".join(others)) == values[100:200]

        cluster.reconnect(leader)
        eventually(lambda: in_sync(cluster, "t") == [1, 2, 3], "it follows")
        assert leader_by(cluster, leader, "t") != leader
        assert delivered(cluster, "t", values[200:]) == values[200:]
        assert read(cluster, "t", 300) == values
        with ClientConnection(parse_addresses(cluster.nodes[leader].address)[0]) as connection:
            request = ListOffsetsRequest(topics=[ListOffsetsTopic("t", [ListOffsetsPartition(0, timestamp=-1)])])
            answer: ListOffsetsResponse = connection.call(request)
        assert answer.topics[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_producer_continues_while_a_broker_is_cut_off_and_comes_back() -> None:
    partitions = (0, 1, 2)
    sent: dict[int, list[bytes]] = {partition: [] for partition in partitions}
    acknowledged: dict[int, list[bytes]] = {partition: [] for partition in partitions}

    def note(error: object, message: Message) -> None:
        assert error is None, error
        value, partition = message.value(), message.partition()
        assert value is not None
        assert partition is not None
        acknowledged[partition].append(value)

    with Cluster(3, settings={"min.insync.replicas": "2"}) as cluster:
        create(cluster, "t", len(partitions), 3)
        # A leader that is cut off answers when the request's time is up. Only the others know the new leader.
        patience = {
            "request.timeout.ms": 500,
            "topic.metadata.refresh.interval.ms": 200,
            "enable.sparse.connections": False,
        }
        producer = Producer(
            {"bootstrap.servers": cluster.bootstrap_servers, "acks": "all", "enable.idempotence": True, **patience}
        )

        def send() -> None:
            for partition, values in sent.items():
                values.append(b"%d" % len(values))
                producer.produce("t", values[-1], partition=partition, on_delivery=note)

        def is_acknowledged(count: int) -> bool:
            """Sends more meanwhile.

            librdkafka requests metadata from the broker with which it exchanged bytes last, by the second. A producer
            that waits for the broker that is cut off alone would never learn of the new leader.
            """
            send()
            producer.poll(0)
            return all(len(values) >= count for values in acknowledged.values())

        for node_id in (1, 2, 3):
            for is_cut_off in (True, False):
                (cluster.cut_off if is_cut_off else cluster.reconnect)(node_id)
                for _ in range(20):
                    send()
                eventually(partial(is_acknowledged, len(sent[0])), f"acknowledged, with broker {node_id}", pause_s=0.05)
            for partition in partitions:
                eventually(partial(is_in_sync, cluster, "t", partition), f"all replicas of {partition} are in sync")
            elect_preferred_leaders(cluster, "t", partitions)
        assert producer.flush(30) == 0
        assert acknowledged == sent
        for partition in partitions:
            assert read(cluster, "t", len(sent[partition]), partition=partition) == sent[partition]


def test_a_broker_that_is_cut_off_changes_nothing_and_may_end_so() -> None:
    with Cluster(3) as cluster:
        cluster.cut_off(2)
        cluster.cut_off(2)
        with ClientConnection(parse_addresses(cluster.nodes[2].address)[0]) as connection:
            (refused,) = connection.call(CreateTopicsRequest([CreatableTopic("t", 1, 1)])).topics
        assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert "the test has cut off this broker from its cluster" in refused.error_message
        create_at_one(cluster, "u", 1, 2)
        cluster.kill(2)
        cluster.restart(2)
        wait_until_led(cluster.bootstrap_servers, "u", 1)
        assert leader_by(cluster, 2, "u") == cluster.leader_of("u", 0)
        cluster.cut_off(3)
        cluster.restart(3)
        cluster.cut_off(1)


@pytest.mark.parametrize("count", [1, 2])
def test_a_share_group_gets_its_records_on_as_few_brokers_as_there_are(count: int) -> None:
    with Cluster(count) as cluster:
        create(cluster, "t", 2)
        values = [b"%d" % number for number in range(20)]
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
        for number, value in enumerate(values):
            producer.produce("t", value, partition=number % 2)
        assert producer.flush(30) == 0
        group = make(cluster.nodes[1].address, "g")
        with sharing(cluster.bootstrap_servers, group, "t") as consumer:
            records = get(consumer, len(values))
            assert sorted(record.value() or b"" for record in records) == sorted(values)
            consumer.commit_sync()
        with sharing(cluster.bootstrap_servers, group, "t") as consumer:
            producer.produce("t", b"last", partition=0)
            assert producer.flush(30) == 0
            assert [record.value() for record in get(consumer, 1)] == [b"last"]
