"""Kafka's own command line tools for clusters, unmodified, on three nodes."""

from __future__ import annotations

import json
import re
from functools import partial
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from testkit.basics.waiting import eventually
from testkit.java import java_host as tools
from testkit.java.java_host import JavaHost
from testkit.servers.brokers import Cluster, three_nodes

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


def test_who_may_lead_although_it_is_not_in_sync_is_shown(java: JavaHost) -> None:
    with three_nodes() as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        for name, replicas in ((TOPIC, [1, 3]), ("u", [3])):
            made = NewTopic(name, 1, replica_assignment=[replicas], config={"min.insync.replicas": "2"})
            admin.create_topics([made])[name].result(30)
        features = java.succeed(tools.FEATURES, "--bootstrap-server", cluster.bootstrap_servers, "describe").out
        [feature] = [it for it in features.splitlines() if "eligible.leader.replicas.version" in it]
        assert feature.split() == [
            *("Feature:", "eligible.leader.replicas.version", "SupportedMinVersion:", "0", "SupportedMaxVersion:", "1"),
            *("FinalizedVersionLevel:", "1", "Epoch:", feature.split()[-1]),
        ]
        cluster.kill(3)
        at = ("--bootstrap-server", cluster.bootstrap_servers)

        def is_shown(topic: str, expected: list[str]) -> bool:
            line = java.succeed(tools.TOPICS, *at, "--describe", "--topic", topic).lines[1]
            return [field.strip() for field in line.split("\t")[-5:]] == expected

        for topic, expected in (
            (TOPIC, ["Leader: 1", "Replicas: 1,3", "Isr: 1", "Elr: 3", "LastKnownElr:"]),
            ("u", ["Leader: none", "Replicas: 3", "Isr:", "Elr: 3", "LastKnownElr: 3"]),
        ):
            eventually(partial(is_shown, topic, expected), f"node 3 is eligible in {topic}")


def test_replicas_are_verified_to_have_the_same_records() -> None:
    with three_nodes() as cluster:
        fill(cluster, [[1, 2, 3], [2, 3, 1], [3, 1, 2]])
        about = ("--broker-list", cluster.bootstrap_servers, "--topics-include", TOPIC, "--time", "-2")
        with tools.output_of(tools.VERIFY_REPLICAS, *about, "--report-interval-ms", "200") as output:
            reports = [line for line, _ in zip(output, range(5), strict=False)]
    assert reports[0].endswith("verification process is started\n")
    assert re.search(rf"max lag is 0 for partition {TOPIC}-\d at offset \d+ among 3 partitions", reports[-1]), reports
