"""kwire.testing.Cluster: several brokers in the caller's process, which fail when the test wants it."""

from __future__ import annotations

import threading

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from compat_tests.waiting import eventually
from kwire.client.errors import ClientError
from kwire.running import StartError
from kwire.testing import Cluster

ONE_REPLICA = {
    "default.replication.factor": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}

pytest_plugins = ["pytester"]


def create(cluster: Cluster, topic: str, partitions: int, factor: int = 1) -> None:
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
        assert sorted([cluster.leader_of("t", 0), cluster.leader_of("t", 1)]) == [1, 2]


def test_a_cluster_that_was_stopped_leaves_no_thread_behind() -> None:
    before = set(threading.enumerate())
    with Cluster(3) as cluster:
        cluster.kill(1)
        cluster.pause(2)
    eventually(lambda: set(threading.enumerate()) <= before, "all threads have ended")


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
