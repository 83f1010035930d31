"""kafka-reassign-partitions --throttle (KIP-73), unmodified, on three nodes."""

from __future__ import annotations

import json
import random
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

from testkit.basics.waiting import eventually
from testkit.java import java_host as tools
from testkit.java.java_host import JavaHost
from testkit.servers.brokers import Cluster, three_nodes

TOPIC = "t"
LITTLE, MUCH = "1000", "1000000000"
"""Bytes per second."""


def fill(cluster: Cluster) -> None:
    """Some MB on the nodes 1 and 2."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    admin.create_topics([NewTopic(TOPIC, 1, replica_assignment=[[1, 2]])])[TOPIC].result(30)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"})
    for _ in range(40):
        producer.produce(TOPIC, random.randbytes(100_000))
    assert producer.flush(30) == 0


def set_for(cluster: Cluster, kind: ConfigResource.Type, name: str) -> dict[str, str]:
    """The configurations of KIP-73 that are set for a topic or a broker."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    [described] = admin.describe_configs([ConfigResource(kind, name)]).values()
    return {
        it.name: it.value
        for it in described.result(30).values()
        if ".replication.throttled." in it.name and not it.is_default and it.value
    }


def test_a_throttled_reassignment_continues_when_the_limit_is_raised_and_leaves_none(
    java: JavaHost, tmp_path: Path
) -> None:
    with three_nodes() as cluster:
        fill(cluster)
        at = ("--bootstrap-server", cluster.bootstrap_servers)
        path = tmp_path / "plan.json"
        path.write_text(
            json.dumps({"version": 1, "partitions": [{"topic": TOPIC, "partition": 0, "replicas": [3, 2]}]})
        )
        plan = ("--reassignment-json-file", path)
        started = java.succeed(tools.REASSIGN, *at, *plan, "--execute", "--throttle", LITTLE)
        assert "The inter-broker throttle limit was set to 1000 B/s" in started.out
        assert set_for(cluster, ConfigResource.Type.TOPIC, TOPIC) == {
            "leader.replication.throttled.replicas": "0:1,0:2",
            "follower.replication.throttled.replicas": "0:3",
        }
        for node_id in ("1", "2", "3"):
            assert set_for(cluster, ConfigResource.Type.BROKER, node_id) == {
                "leader.replication.throttled.rate": LITTLE,
                "follower.replication.throttled.rate": LITTLE,
            }
        in_progress = java.succeed(tools.REASSIGN, *at, *plan, "--verify").out
        assert f"Reassignment of partition {TOPIC}-0 is still in progress." in in_progress
        assert "Clearing" not in in_progress

        java.succeed(tools.REASSIGN, *at, *plan, "--execute", "--additional", "--throttle", MUCH)

        def is_complete() -> bool:
            """The tool clears the limits if no broker that it calls has a reassignment any more."""
            verified = java.succeed(tools.REASSIGN, *at, *plan, "--verify").out
            return (
                f"Reassignment of partition {TOPIC}-0 is completed." in verified
                and f"Clearing topic-level throttles on topic {TOPIC}" in verified
            )

        eventually(is_complete, "the reassignment is complete")

        def is_left() -> bool:
            return any(
                (
                    set_for(cluster, ConfigResource.Type.TOPIC, TOPIC),
                    *(set_for(cluster, ConfigResource.Type.BROKER, node_id) for node_id in ("1", "2", "3")),
                )
            )

        eventually(lambda: not is_left(), "each broker knows that no limit is left")
