"""`kwire serve --nodes`: several brokers under one command, which starts them again and stops them."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs
import pytest
from kwire_protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from kwire_protocol.messages.find_coordinator import FindCoordinatorRequest
from kwire_protocol.messages.metadata import MetadataRequest

from kwire.config.definition import ConfigSource
from kwire.metadata.image import ConfigResourceType
from kwire.names.topic_names import internal_replication_factors
from kwire.share.coordinator.state import SharePartitionKey
from testkit.basics.waiting import eventually
from testkit.raw.client import RawClient

TIMEOUT_S = 60
SERVE = [sys.executable, "-m", "kwire", "serve", "--listen", "127.0.0.1:0"]


@attrs.frozen
class Nodes:
    process: subprocess.Popen[str]
    addresses: list[str]
    log: Path

    def in_service(self) -> list[int]:
        """Returns the nodes in service, according to the last node."""
        with RawClient(self.addresses[-1]) as client:
            return sorted(it.node_id for it in client.call(MetadataRequest([]), 9).brokers)

    def pids(self, node_id: int) -> list[int]:
        """Returns the ids of the processes that run as this node."""
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            try:
                words = (process / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue  # it has just ended
            if f"--set=node.id={node_id}".encode() in words and str(self.log.parent).encode() in b" ".join(words):
                found.append(int(process.name))
        return found


@contextmanager
def serving(folder: Path, *arguments: str) -> Iterator[Nodes]:
    log = folder / "log"
    with log.open("wb") as stderr:
        process = subprocess.Popen(
            [*SERVE, "--data-dir", str(folder / "data"), *arguments], stdout=subprocess.PIPE, stderr=stderr, text=True
        )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        match = re.search(r"listening on (.+) \((\d+) nodes, cluster \S+, data in ", line)
        assert match is not None, (line, log.read_text())
        yield Nodes(process, match[1].split(", "), log)
    finally:
        process.terminate()
        process.communicate(timeout=TIMEOUT_S)


@pytest.mark.more
def test_nodes_are_one_cluster_and_one_that_was_killed_is_started_again(tmp_path: Path) -> None:
    with serving(tmp_path, "--nodes", "2", "--metrics-listen", "127.0.0.1:0") as nodes:
        assert len(nodes.addresses) == 2
        assert len(set(re.findall(r"metrics are at http://127.0.0.1:(\d+)/", nodes.log.read_text()))) == 2
        eventually(lambda: nodes.in_service() == [1, 2], "both are in service")
        (first,) = nodes.pids(1)
        os.kill(first, signal.SIGKILL)
        eventually(lambda: nodes.in_service() == [2], "its end is noticed")
        eventually(lambda: nodes.in_service() == [1, 2], "it was started again")
        assert nodes.pids(1) != [first]
        nodes.process.send_signal(signal.SIGINT)
        assert nodes.process.wait(TIMEOUT_S) == 0
    log = nodes.log.read_text()
    assert "node 1 ended (SIGKILL); starting it again" in log
    lines = [line for line in log.splitlines() if line.endswith("stopped")]
    assert [line.partition(" | ")[0] for line in lines] == ["node 2", "node 1"], "one after the other"
    assert sorted(it.name for it in (tmp_path / "data").iterdir()) == ["cluster", "node-1", "node-2"]


@pytest.mark.more
def test_nodes_have_and_report_one_copy_of_each_internal_topic_by_default(tmp_path: Path) -> None:
    with serving(tmp_path, "--nodes", "2", "--set", "transaction.state.log.replication.factor=2") as nodes:
        eventually(lambda: nodes.in_service() == [1, 2], "both are in service")
        resource = DescribeConfigsResource(ConfigResourceType.BROKER, "1", list(internal_replication_factors(1)))
        share_partition = SharePartitionKey("group", b"t" * 16, 0).text
        with RawClient(nodes.addresses[0]) as client:
            entries = client.call(DescribeConfigsRequest([resource]), 4).results[0].configs
            share = FindCoordinatorRequest(key_type=2, coordinator_keys=[share_partition])
            assert client.call(share, 6).coordinators[0].error_code == 0
    assert {it.name: (it.value, it.config_source) for it in entries} == {
        "offsets.topic.replication.factor": ("1", ConfigSource.DEFAULT_CONFIG),
        "share.coordinator.state.topic.replication.factor": ("1", ConfigSource.DEFAULT_CONFIG),
        "transaction.state.log.replication.factor": ("2", ConfigSource.STATIC_BROKER_CONFIG),
    }


@pytest.mark.more
def test_no_node_outlives_a_supervisor_that_was_killed(tmp_path: Path) -> None:
    with serving(tmp_path, "--nodes", "2") as nodes:
        assert nodes.pids(1)
        assert nodes.pids(2)
        nodes.process.kill()
        eventually(lambda: not nodes.pids(1) and not nodes.pids(2), "they have stopped")


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs the command in that folder, to its end."""
    return subprocess.run(
        [*SERVE, *arguments], capture_output=True, text=True, timeout=TIMEOUT_S, check=False, cwd=folder
    )


def test_a_node_that_cannot_start_ends_all_and_its_error_is_printed(tmp_path: Path) -> None:
    (tmp_path / "node-2").touch()  # where its folder is to be
    done = run(tmp_path, "--nodes", "2", "--data-dir", str(tmp_path))
    assert done.returncode == 1
    assert "node 2 | Error: cannot open the log dir" in done.stderr
    assert done.stderr.endswith("Error: node 2 did not start\n")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--nodes", "0"], "--nodes takes a number from 1 to 64, or auto: '0' is neither"),
        (["--nodes", "many"], "--nodes takes a number from 1 to 64, or auto: 'many' is neither"),
        (["--nodes", "2", "--set", "node.id=3"], "node.id is different for each node, and --nodes chooses it"),
        (["--nodes", "2", "--metrics-listen", "9404"], "'9404' is not an address to listen on: write host:port"),
        (["--nodes", "2", "--set", "kwire.metrics.listen=a:1"], "kwire.metrics.listen is different for each node"),
        (["--nodes", "2", "--listen", "127.0.0.1:1"], "--nodes takes one --listen"),
        (["--nodes", "2", "--data-dir", "a", "--data-dir", "b"], "--nodes takes one --data-dir"),
    ],
)
def test_what_the_nodes_cannot_share_is_refused_in_one_line(tmp_path: Path, arguments: list[str], why: str) -> None:
    done = run(tmp_path, *arguments)
    assert done.returncode == 2
    assert why in done.stderr
    assert "Traceback" not in done.stderr


def test_the_folder_of_a_single_broker_is_refused(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").touch()
    done = run(tmp_path, "--nodes", "2", "--data-dir", str(tmp_path))
    assert done.returncode == 2
    assert "is the folder of a single broker: start it without --nodes" in done.stderr
