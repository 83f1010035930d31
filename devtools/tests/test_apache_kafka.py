"""Apache Kafka starts, keeps its data and its address over a restart and a kill, and leaves nothing behind."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time

import pytest

from devtools.apache_kafka import ApacheKafka, ApacheKafkaError, dump_log, run_tool
from devtools.apache_kafka_cluster import ApacheKafkaCluster
from devtools.places import REPOSITORY

pytestmark = pytest.mark.more  # Apache Kafka runs in Java.

TOOLS = "org.apache.kafka.tools"
QUICK_RETURN = {"broker.session.timeout.ms": 1500, "broker.heartbeat.interval.ms": 250}


@pytest.mark.soak
def test_data_and_address_outlive_a_stop_and_a_kill() -> None:
    with ApacheKafka(settings={"num.partitions": 2, **QUICK_RETURN}) as kafka:
        to_broker = ("--bootstrap-server", kafka.bootstrap)
        run_tool(f"{TOOLS}.ConsoleProducer", *to_broker, "--topic", "t", "--sync", input="one\ntwo\n")
        bootstrap, first_pid = kafka.bootstrap, kafka.pid
        kafka.stop()
        assert not kafka.running
        kafka.restart()
        kafka.kill()
        kafka.restart(settings={"log.retention.hours": 24})
        assert (kafka.bootstrap, kafka.running) == (bootstrap, True)
        assert kafka.pid != first_pid

        consumer = f"{TOOLS}.consumer.ConsoleConsumer"
        read = run_tool(consumer, *to_broker, "--topic", "t", "--from-beginning", "--max-messages", "2")
        assert sorted(read.stdout.split()) == ["one", "two"]
        described = run_tool(f"{TOOLS}.TopicCommand", *to_broker, "--describe", "--topic", "t")
        assert "PartitionCount: 2" in described.stdout
        dumped = "".join(dump_log(log, "--deep-iteration") for log in kafka.data_dir.glob("t-*/*.log"))
        assert dumped.count("| offset: ") == 2
    assert not kafka.running
    assert not kafka.folder.exists()


@pytest.mark.soak
def test_three_are_one_cluster_that_loses_a_node() -> None:
    with ApacheKafkaCluster(settings=QUICK_RETURN) as cluster:
        nodes = list(cluster.nodes.values())
        to_brokers = ("--bootstrap-server", cluster.bootstrap_servers)
        topic = ("--create", "--topic", "t", "--replication-factor", "3")
        run_tool(f"{TOOLS}.TopicCommand", *to_brokers, *topic)
        cluster.kill(1)
        assert cluster.bootstrap_servers == f"{nodes[1].bootstrap},{nodes[2].bootstrap}"
        to_brokers = ("--bootstrap-server", cluster.bootstrap_servers)
        run_tool(f"{TOOLS}.ConsoleProducer", *to_brokers, "--topic", "t", "--sync", input="one\n")
        consumer = f"{TOOLS}.consumer.ConsoleConsumer"
        read = run_tool(consumer, *to_brokers, "--topic", "t", "--from-beginning", "--max-messages", "1")
        assert read.stdout.split() == ["one"]
    assert not any(node.running or node.folder.exists() for node in nodes)


ORPHAN = """
import os, signal
from devtools.apache_kafka import ApacheKafka
kafka = ApacheKafka()
kafka.start()
print(kafka.pid, kafka.folder, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.soak
def test_it_does_not_outlive_a_killed_parent() -> None:
    done = subprocess.run([sys.executable, "-c", ORPHAN], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    pid, folder = done.stdout.split()
    shutil.rmtree(folder)
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            os.kill(int(pid), 0)
        except ProcessLookupError:
            return
        time.sleep(0.02)
    pytest.fail("Apache Kafka still runs")


def test_a_start_that_fails_reports_the_reason() -> None:
    kafka = ApacheKafka(settings={"num.partitions": "many"})
    with pytest.raises(ApacheKafkaError, match=r"many.*num\.partitions"):
        kafka.start()
    kafka.close()


def test_a_tool_that_fails_reports_the_reason() -> None:
    with pytest.raises(ApacheKafkaError, match="nonsense"):
        run_tool(f"{TOOLS}.TopicCommand", "--nonsense")
