"""`kwire cluster` as a process of its own, over real nodes of the local form."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from kwire_protocol.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from kwire_protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kwire_protocol.records import Record, build_batch

from testkit.basics.waiting import eventually
from testkit.cluster.local_cluster import LocalCluster, local_cluster
from testkit.raw.client import RawClient


def run(cluster: LocalCluster, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs the command against node 1."""
    command = [sys.executable, "-m", "kwire", "cluster", *arguments, "--bootstrap-server", cluster.nodes[1].address]
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)


def rows(done: subprocess.CompletedProcess[str], kind: str) -> list[Any]:
    return [it for line in done.stdout.splitlines() if (it := json.loads(line))["type"] == kind]


def create(cluster: LocalCluster, topic: str, *replicas: int) -> None:
    """Creates a topic of one partition."""
    wanted = CreatableTopic(topic, -1, -1, assignments=[CreatableReplicaAssignment(0, list(replicas))])
    with RawClient(cluster.nodes[1].address) as client:
        assert client.call(CreateTopicsRequest([wanted]), 7).topics[0].error_code == 0


def produce(cluster: LocalCluster, node_id: int, topic: str) -> None:
    data = [
        TopicProduceData(topic, partition_data=[PartitionProduceData(0, build_batch([Record(0, 0, b"", b"v" * 2000)]))])
    ]
    with RawClient(cluster.nodes[node_id].address) as client:
        answer = client.call(ProduceRequest(acks=1, timeout_ms=5000, topic_data=data), 9)
        assert answer.responses[0].partition_responses[0].error_code == 0


def test_the_life_of_a_cluster_is_shown(tmp_path: Path) -> None:
    with local_cluster(tmp_path, 1, 2) as cluster:
        eventually(lambda: cluster.in_service(1) == [1, 2], "all nodes are in service")
        create(cluster, "t", 2)
        well = run(cluster, "status", "--json")
        assert (well.returncode, well.stderr) == (0, "")
        nodes = [(it["node_id"], it["state"], it["leads"], it["replicas"]) for it in rows(well, "node")]
        assert nodes == [(1, "in_service", 0, 0), (2, "in_service", 1, 1)]
        assert [it["controller"] for it in rows(well, "node")].count(True) == 1

        cluster.stop(2)
        eventually(lambda: cluster.in_service(1) == [1], "node 2 is not in service")
        offline = run(cluster, "status", "--json")
        assert offline.returncode == 1
        assert [it["state"] for it in rows(offline, "node")] == ["in_service", "fenced"]
        assert [(it["topic"], it["leader_id"]) for it in rows(offline, "partition")] == [("t", None)]

        refused = run(cluster, "forget", "2", "--yes")
        assert (refused.returncode, "no other broker has all records of t-0" in refused.stderr) == (1, True)
        assert run(cluster, "forget", "2", "--yes", "--force").stdout == "broker 2 is forgotten\n"
        assert [it["state"] for it in rows(run(cluster, "status", "--json"), "node")] == ["in_service", "missing"]

        cluster.start(2)
        eventually(lambda: cluster.in_service(1) == [1, 2], "node 2 is back")
        eventually(lambda: run(cluster, "status").returncode == 0, "the partition has a leader")


def test_a_partition_is_moved_and_its_reassignment_is_shown_and_cancelled_where_it_is_not_complete(
    tmp_path: Path,
) -> None:
    with local_cluster(tmp_path, 1, 2) as cluster:
        eventually(lambda: cluster.in_service(1) == [1, 2], "all nodes are in service")
        create(cluster, "t", 1)
        eventually(lambda: cluster.leaders(1, "t") == [1], "it has a leader")
        produce(cluster, 1, "t")
        unconfirmed = run(cluster, "move", "t-0", "--to", "3,1")
        assert unconfirmed.returncode == 1
        assert "Broker 3 copies 2.0 KiB from broker 1." in unconfirmed.stdout
        refused = run(cluster, "move", "t-0", "--to", "3,1", "--yes")
        assert (refused.returncode, "INVALID_REPLICA_ASSIGNMENT" in refused.stderr) == (1, True)
        assert len(refused.stderr.splitlines()) == 1

        cluster.stop(2)  # so that it does not catch up
        eventually(lambda: cluster.in_service(1) == [1], "node 2 is not in service")
        begun = run(cluster, "move", "t-0", "--to", "2,1", "--yes")
        assert (begun.returncode, begun.stdout) == (0, "moving t-0 to 2,1\n")
        (found,) = rows(run(cluster, "reassignments", "--json"), "reassignment")
        assert (found["replicas"], found["adding"], found["copied_bytes"], found["percent"]) == ([2, 1], [2], 0, 0)
        assert found["total_bytes"] > 2000
        assert run(cluster, "status").returncode == 0
        assert run(cluster, "move", "t-0", "--cancel", "--yes").returncode == 0
        assert run(cluster, "reassignments").stdout == "no reassignment is in progress\n"
        again = run(cluster, "move", "t-0", "--cancel", "--yes")
        assert (again.returncode, "NO_REASSIGNMENT_IN_PROGRESS" in again.stderr) == (1, True)


def test_a_preferred_leader_that_is_not_in_service_is_not_elected(tmp_path: Path) -> None:
    with local_cluster(tmp_path, 1, 2) as cluster:
        eventually(lambda: cluster.in_service(1) == [1, 2], "all nodes are in service")
        create(cluster, "t", 1)
        eventually(lambda: cluster.leaders(1, "t") == [1], "it has a leader")
        assert run(cluster, "elect").stdout == "every partition is led by its preferred leader\n"
        assert run(cluster, "elect", "--unclean").stdout == "every partition has a leader\n"
        cluster.stop(2)
        eventually(lambda: cluster.in_service(1) == [1], "node 2 is not in service")
        assert run(cluster, "move", "t-0", "--to", "2,1", "--yes").returncode == 0
        failed = run(cluster, "elect", "--topic", "t", "--json")
        assert failed.returncode == 1
        (found,) = rows(failed, "election")
        assert (found["leader_before"], found["leader_id"]) == (1, 1)
        assert "PREFERRED_LEADER_NOT_AVAILABLE" in found["problem"]
