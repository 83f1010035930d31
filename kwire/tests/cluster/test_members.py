"""One cluster of several brokers in the local form: brokers in service, leaders, and refusals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from kwire_protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kwire_protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kwire_protocol.messages.find_coordinator import FindCoordinatorRequest
from kwire_protocol.messages.metadata import MetadataRequest
from kwire_protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kwire_protocol.records import Record, build_batch
from kwire_storage.disk.files import RealDisk

from kwire.cluster.local.file_systems import file_system_of
from kwire.cluster.local.metadata_log import LOCK
from kwire.node.running import StartError
from kwire.testing import Broker
from testkit.basics.waiting import eventually
from testkit.cluster.local_cluster import ALONE, LocalCluster, local_cluster
from testkit.raw.client import RawClient
from testkit.servers.broker_process import BrokerProcess


def create(cluster: LocalCluster, node_id: int, topic: str, partitions: int) -> None:
    with RawClient(cluster.nodes[node_id].address) as client:
        answer = client.call(CreateTopicsRequest([CreatableTopic(topic, partitions, 1)]), 7).topics[0]
        assert (answer.error_code, answer.error_message) == (0, None)


def test_what_one_broker_creates_all_brokers_serve(tmp_path: Path) -> None:
    with local_cluster(tmp_path, 1, 2, 3) as cluster:
        eventually(lambda: cluster.in_service(1) == [1, 2, 3], "all nodes are in service")
        create(cluster, 2, "t", 6)
        eventually(lambda: all(len(cluster.leaders(it, "t")) == 6 for it in cluster.nodes), "they know the topic")
        assert sorted(cluster.leaders(1, "t")) == [1, 1, 2, 2, 3, 3]
        for index, leader in enumerate(cluster.leaders(3, "t")):
            with RawClient(cluster.nodes[leader].address) as client:
                batch = build_batch([Record(0, 0, b"k", b"v")])
                data = TopicProduceData("t", partition_data=[PartitionProduceData(index, batch)])
                answer = client.call(ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[data]), 9)
                assert answer.responses[0].partition_responses[0].error_code == 0
                fetch = FetchRequest(max_wait_ms=0, topics=[FetchTopic("t", partitions=[FetchPartition(index)])])
                assert client.call(fetch, 12).responses[0].partitions[0].high_watermark == 1


def test_every_broker_returns_the_same_coordinator_of_a_group(tmp_path: Path) -> None:
    with local_cluster(tmp_path, 1, 2) as cluster:
        eventually(lambda: cluster.in_service(1) == cluster.in_service(2) == [1, 2], "all nodes are in service")
        found: list[dict[str, int]] = []
        for broker in cluster.nodes.values():
            with RawClient(broker.address) as client:
                names = [f"group {number}" for number in range(20)]
                request = FindCoordinatorRequest(key_type=0, coordinator_keys=names)
                eventually(lambda: client.call(request, 4).coordinators[0].error_code == 0, "there are coordinators")  # noqa: B023
                found.append({it.key: it.node_id for it in client.call(request, 4).coordinators})
        assert found[0] == found[1]
        assert set(found[0].values()) == {1, 2}


def test_a_broker_that_stops_is_out_of_service_at_once_and_back_when_it_is_back(tmp_path: Path) -> None:
    with local_cluster(tmp_path, 1, 2, 3) as cluster:
        eventually(lambda: cluster.in_service(1) == [1, 2, 3], "all nodes are in service")
        create(cluster, 1, "t", 3)
        before = cluster.leaders(1, "t")
        cluster.stop(2)
        eventually(lambda: cluster.in_service(1) == cluster.in_service(3) == [1, 3], "node 2 has stopped")
        eventually(lambda: 2 not in cluster.leaders(3, "t"), "node 2 leads nothing")
        eventually(lambda: cluster.fenced(3) == [2], "node 2 is fenced")
        assert not any(it.is_fenced for it in cluster.describe(3, fenced=False).brokers)
        cluster.start(2)
        eventually(lambda: cluster.leaders(1, "t") == before, "node 2 leads again")
        eventually(lambda: cluster.in_service(3) == [1, 2, 3], "all know it")


def test_another_node_controls_the_cluster_when_the_controller_was_killed(tmp_path: Path) -> None:
    folder = tmp_path / "cluster"
    with BrokerProcess(
        _made(tmp_path / "first"), ["node.id=7", f"kwire.cluster.dir={folder}", *(f"{k}={v}" for k, v in ALONE.items())]
    ) as first:
        eventually(lambda: "node 7 is the controller" in first.log(), "it is the only node")
        with local_cluster(tmp_path, 1, 2) as cluster:
            eventually(lambda: cluster.in_service(1) == cluster.in_service(2) == [1, 2, 7], "all nodes are in service")
            first.kill()
            eventually(lambda: cluster.in_service(1) == cluster.in_service(2) == [1, 2], "node 7 was fenced")


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def test_a_node_that_does_not_run_is_fenced_when_the_cluster_starts_without_it(tmp_path: Path) -> None:
    with local_cluster(tmp_path, 1, 2) as cluster:
        eventually(lambda: cluster.in_service(1) == [1, 2], "all nodes are in service")
    with local_cluster(tmp_path, 1) as cluster:
        eventually(lambda: cluster.in_service(1) == [1], "node 2 does not run")


def test_the_metadata_are_the_same_after_all_brokers_were_away(tmp_path: Path) -> None:
    with local_cluster(tmp_path, 1, 2) as cluster:
        eventually(lambda: cluster.in_service(1) == [1, 2], "all nodes are in service")
        create(cluster, 2, "t", 4)
        leaders, cluster_id = cluster.leaders(2, "t"), cluster.describe(1).cluster_id
    with local_cluster(tmp_path, 2, 1) as cluster:
        eventually(lambda: cluster.leaders(1, "t") == leaders, f"{leaders} lead again")
        assert cluster.describe(2).cluster_id == cluster_id


def test_a_process_that_was_stopped_and_continues_still_leads(tmp_path: Path) -> None:
    # Only the end of a process is its death here: nobody has to guess from silence.
    folder = tmp_path / "cluster"
    settings = ["node.id=7", f"kwire.cluster.dir={folder}"]
    with BrokerProcess(_made(tmp_path / "first"), settings) as first, local_cluster(tmp_path, 1) as cluster:
        eventually(lambda: cluster.in_service(1) == [1, 7], "all nodes are in service")
        lock = RealDisk(str(folder)).lock(LOCK, wait=True)
        # It must not stop with the lock in its hands: then all would wait for it.
        os.kill(first.pid, signal.SIGSTOP)
        eventually(lambda: _is_stopped(first.pid), "it has stopped")
        lock.release()
        create(cluster, 1, "t", 2)
        os.kill(first.pid, signal.SIGCONT)
        eventually(lambda: sorted(cluster.leaders(1, "t")) == [1, 7], "both lead")
        with RawClient(first.address) as client:
            eventually(lambda: len(client.call(MetadataRequest([]), 12).brokers) == 2, "both brokers are listed")


def _is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


# What is refused


def start(folder: Path, node_id: int, cluster: Path) -> None:
    settings = {"node.id": str(node_id), "kwire.cluster.dir": str(cluster)}
    with Broker(data_dir=folder / "data", settings=settings):
        pass


def test_a_node_id_that_is_taken_is_refused(tmp_path: Path) -> None:
    with local_cluster(tmp_path, 1), pytest.raises(StartError, match="node 1 of this cluster is running already"):
        start(tmp_path, 1, tmp_path / "cluster")


def test_the_folder_of_another_cluster_is_refused_and_stays_as_it_is(tmp_path: Path) -> None:
    start(tmp_path, 1, tmp_path / "one")
    with pytest.raises(StartError, match="the folder belongs to cluster .*, and this cluster is "):
        start(tmp_path, 1, tmp_path / "another")
    start(tmp_path, 1, tmp_path / "one")


def test_the_folder_of_a_broker_without_a_cluster_is_refused(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path / "data", settings={"kwire.cluster.id": "cluster-of-a-kind"}):
        pass
    settings = {"kwire.cluster.dir": str(tmp_path / "c"), "kwire.cluster.id": "cluster-of-a-kind"}
    with pytest.raises(StartError, match="it belongs to a broker that is not part of a cluster"):
        Broker(data_dir=tmp_path / "data", settings=settings).start()
    with Broker(data_dir=tmp_path / "data"):
        pass


def test_the_folder_of_a_cluster_s_node_is_not_started_without_the_cluster(tmp_path: Path) -> None:
    with local_cluster(tmp_path, 1) as cluster:
        eventually(lambda: cluster.in_service(1) == [1], "it is in service")
        create(cluster, 1, "t", 1)
    with pytest.raises(
        StartError, match="start it with the kwire.cluster.dir, or the zookeeper.connect, of that cluster"
    ):
        Broker(data_dir=tmp_path / "node-1", settings={"node.id": "1"}).start()
    with local_cluster(tmp_path, 1) as cluster:
        eventually(lambda: cluster.leaders(1, "t") == [1], "and the topic is there")


def test_the_refusals_of_a_start_are_one_line_each(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "kwire", "serve", "--listen", "127.0.0.1:0", "--data-dir", str(tmp_path / "other")]
    with local_cluster(tmp_path, 1):
        settings = ["--set", "node.id=1", "--set", f"kwire.cluster.dir={tmp_path / 'cluster'}"]
        done = subprocess.run([*command, *settings], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert done.stderr == ("Error: node 1 of this cluster is running already: stop it, or choose another node.id\n")


MOUNTS = """\
22 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw
30 22 0:40 / /shares/my\\040share rw,relatime shared:2 - nfs4 server:/export rw
31 30 0:41 / /shares/my\\040share/local rw - tmpfs tmpfs rw
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/", "ext4"),
        ("/shares/my", "ext4"),
        ("/shares/my share", "nfs4"),
        ("/shares/my share/cluster", "nfs4"),
        ("/shares/my shares", "ext4"),
        ("/shares/my share/local/cluster", "tmpfs"),
    ],
)
def test_the_file_system_of_a_folder_is_that_of_the_innermost_mount(path: str, kind: str) -> None:
    assert file_system_of(path, MOUNTS) == kind
