"""Kafka's own command line tools for clusters, unmodified, on three nodes."""

from __future__ import annotations

import json
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from . import java_host as tools
from .brokers import Cluster, three_nodes
from .java_host import JavaHost
from .waiting import eventually

TOPIC = "t"


def fill(cluster: Cluster, partitions: list[list[int]]) -> None:
    """Makes the topic, with the nodes of each partition, and writes some records."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    admin.create_topics([NewTopic(TOPIC, len(partitions), replica_assignment=partitions)])[TOPIC].result(30)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    for number in range(100):
        producer.produce(TOPIC, b"%d" % number)
    assert producer.flush(30) == 0


def leader(cluster: Cluster) -> int:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    found: int = admin.list_topics(TOPIC, timeout=30).topics[TOPIC].partitions[0].leader
    return found


def written_plan(folder: Path, replicas: list[int]) -> Path:
    path = folder / "plan.json"
    path.write_text(json.dumps({"version": 1, "partitions": [{"topic": TOPIC, "partition": 0, "replicas": replicas}]}))
    return path


def test_partitions_are_reassigned_and_led_by_their_preferred_leaders_again(java: JavaHost, tmp_path: Path) -> None:
    with three_nodes() as cluster:
        fill(cluster, [[1, 2]])
        at = ("--bootstrap-server", cluster.bootstrap_servers)
        plan = ("--reassignment-json-file", written_plan(tmp_path, [3, 1]))
        started = java.succeed(tools.REASSIGN, *at, *plan, "--execute")
        assert f"Successfully started partition reassignment for {TOPIC}-0" in started.out

        def is_complete() -> bool:
            verified = java.succeed(tools.REASSIGN, *at, *plan, "--verify")
            return f"Reassignment of partition {TOPIC}-0 is completed." in verified.out

        eventually(is_complete, "the reassignment is complete")
        listed = java.succeed(tools.REASSIGN, *at, "--list")
        assert "No partition reassignments found." in listed.out
        assert leader(cluster) == 1, "the order of the replicas alone moves no leader"
        elected = java.succeed(tools.ELECT, *at, "--election-type", "preferred", "--topic", TOPIC, "--partition", "0")
        assert f"Successfully completed leader election (PREFERRED) for partitions {TOPIC}-0" in elected.out
        eventually(lambda: leader(cluster) == 3, "the preferred leader leads")


def test_what_is_under_replicated_is_found_and_a_broker_is_forgotten(java: JavaHost) -> None:
    with three_nodes() as cluster:
        fill(cluster, [[1, 2, 3], [2, 3, 1], [3, 1, 2]])
        at = ("--bootstrap-server", cluster.bootstrap_servers)
        lagging = ("--describe", "--under-replicated-partitions")
        eventually(lambda: java.succeed(tools.TOPICS, *at, *lagging).lines == [], "all replicas are in sync")
        status = java.succeed(tools.QUORUM, *at, "describe", "--status").out
        assert 'CurrentVoters:          [{"id": ' in status
        assert status.count('"id"') == 3
        cluster.kill(3)
        at = ("--bootstrap-server", cluster.bootstrap_servers)
        eventually(lambda: len(java.succeed(tools.TOPICS, *at, *lagging).lines) == 3, "node 3 is missed")
        assert "Broker 3 is no longer registered." in java.succeed(tools.CLUSTER, "unregister", *at, "--id", "3").out
        assert java.run(tools.CLUSTER, "unregister", *at, "--id", "3").code == 1
