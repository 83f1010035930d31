"""Kafka's own command line tools for clusters, unmodified, on three nodes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from kwire.testing import Cluster

from . import java_host as tools
from .brokers import KIND
from .java_host import JavaHost
from .waiting import eventually

pytestmark = pytest.mark.skipif(KIND != "kwire", reason="MISSING TEST: nothing starts three nodes of Apache Kafka here")

TOPIC = "t"


def fill(cluster: Cluster, partitions: int, factor: int) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    admin.create_topics([NewTopic(TOPIC, partitions, factor)])[TOPIC].result(30)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    for number in range(100):
        producer.produce(TOPIC, b"%d" % number)
    assert producer.flush(30) == 0


def test_partitions_are_reassigned_and_led_by_their_preferred_leaders_again(java: JavaHost, tmp_path: Path) -> None:
    with Cluster(3) as cluster:
        fill(cluster, 1, 2)
        at = ("--bootstrap-server", cluster.nodes[1].address)
        before = cluster.leader_of(TOPIC, 0)
        wanted = [*sorted({1, 2, 3} - {before}), before]
        plan = tmp_path / "plan.json"
        plan.write_text(
            json.dumps({"version": 1, "partitions": [{"topic": TOPIC, "partition": 0, "replicas": wanted}]})
        )
        started = java.succeed(tools.REASSIGN, *at, "--reassignment-json-file", plan, "--execute")
        assert f"Successfully started partition reassignment for {TOPIC}-0" in started.out

        def is_complete() -> bool:
            verified = java.succeed(tools.REASSIGN, *at, "--reassignment-json-file", plan, "--verify")
            return f"Reassignment of partition {TOPIC}-0 is completed." in verified.out

        eventually(is_complete, "the reassignment is complete")
        listed = java.succeed(tools.REASSIGN, *at, "--list")
        assert "No partition reassignments found." in listed.out
        assert cluster.leader_of(TOPIC, 0) == before, "the order of the replicas alone moves no leader"
        elected = java.succeed(tools.ELECT, *at, "--election-type", "preferred", "--all-topic-partitions")
        assert f"Successfully completed leader election (PREFERRED) for partitions {TOPIC}-0" in elected.out
        assert cluster.leader_of(TOPIC, 0) == wanted[0]


def test_what_is_under_replicated_is_found_and_a_broker_is_forgotten(java: JavaHost) -> None:
    with Cluster(3) as cluster:
        fill(cluster, 3, 3)
        at = ("--bootstrap-server", cluster.nodes[1].address)
        lagging = ("--describe", "--under-replicated-partitions")
        eventually(lambda: java.succeed(tools.TOPICS, *at, *lagging).lines == [], "all replicas are in sync")
        status = java.succeed(tools.QUORUM, *at, "describe", "--status").out
        assert 'CurrentVoters:          [{"id": ' in status
        assert status.count('"id"') == 3
        cluster.kill(3)
        eventually(lambda: len(java.succeed(tools.TOPICS, *at, *lagging).lines) == 3, "node 3 is missed")
        assert "Broker 3 is no longer registered." in java.succeed(tools.CLUSTER, "unregister", *at, "--id", "3").out
        assert java.run(tools.CLUSTER, "unregister", *at, "--id", "3").code == 1
