"""Three nodes as processes, under the load of an idempotent producer, to which bad things happen one after the other.

    with ClusterOfProcesses(folder) as cluster, Load(cluster) as load:
        for fault in faults(seed, 20):
            cluster.suffer(fault)

The load keeps a ledger of what was acknowledged. Afterwards every record of it is there once, in the producer's order,
and the replicas of a partition are the same bytes.
"""

from __future__ import annotations

import hashlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Final, Self

import attrs
from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from compat_tests.waiting import eventually
from devtools.ports import free_port
from kwire.tests.broker_process import BrokerProcess

NODES: Final = (1, 2, 3)
TOPIC: Final = "ledger"
PARTITIONS: Final = 4
SETTINGS: Final = ("min.insync.replicas=2", "replica.lag.time.max.ms=3000", "offsets.topic.num.partitions=3")
LONGEST_PAUSE_S: Final = 1.5
"""Of a process that is stopped (SIGSTOP)."""
BATCH, BATCH_PAUSE_S = 20, 0.01
"""The load: so many records, then a pause."""


@attrs.frozen
class Fault:
    """What happens to a node, and for how long."""

    kind: str
    node_id: int
    lasts_s: float


def faults(seed: int, count: int) -> Iterator[Fault]:
    chance = Random(seed)
    for _ in range(count):
        kind = chance.choice(["SIGKILL", "SIGTERM", "SIGSTOP"])
        lasts_s = chance.uniform(0, LONGEST_PAUSE_S if kind == "SIGSTOP" else 0.3)
        yield Fault(kind, chance.choice(NODES), lasts_s)


class ClusterOfProcesses:
    """Each node keeps its port and its folder over its restarts."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ports = {node_id: free_port() for node_id in NODES}
        self._nodes: dict[int, BrokerProcess] = {}
        self.bootstrap_servers = ",".join(f"127.0.0.1:{port}" for port in self._ports.values())

    def __enter__(self) -> Self:
        with ExitStack() as started:
            started.callback(self.stop)
            for node_id in NODES:
                self._folder_of(node_id).mkdir()
                self._start(node_id)
            self.admin = AdminClient({"bootstrap.servers": self.bootstrap_servers})
            eventually(lambda: len(self.admin.list_topics(timeout=30).brokers) == len(NODES), "all are in service")
            self.admin.create_topics([NewTopic(TOPIC, PARTITIONS, len(NODES))])[TOPIC].result(30)
            self.wait_until_whole()
            started.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        for node in self._nodes.values():
            node.stop()

    def suffer(self, fault: Fault) -> None:
        """Returns when every partition has a leader, and all of its replicas in sync again."""
        node = self._nodes[fault.node_id]
        if fault.kind == "SIGSTOP":
            os.kill(node.pid, signal.SIGSTOP)
            time.sleep(fault.lasts_s)
            os.kill(node.pid, signal.SIGCONT)
        else:
            if fault.kind == "SIGKILL":
                node.kill()
            else:
                assert node.stop() == 0
            time.sleep(fault.lasts_s)
            self._start(fault.node_id)
        self.wait_until_whole()

    def wait_until_whole(self) -> None:
        eventually(self._is_whole, "all replicas of all partitions are in sync", within_s=60)

    def _is_whole(self) -> bool:
        try:
            described = self.admin.list_topics(timeout=10)
        except KafkaException:
            return False
        return len(described.brokers) == len(NODES) and all(
            partition.leader in NODES and len(partition.isrs) == len(partition.replicas)
            for topic in described.topics.values()
            for partition in topic.partitions.values()
        )

    def data_dirs(self) -> list[Path]:
        return [self._folder_of(node_id) / "data" for node_id in NODES]

    def hashes(self) -> list[set[str]]:
        """Of each partition of the ledger, what its replicas have. Call it when the nodes are stopped."""
        return [{_hash(data_dir / f"{TOPIC}-{index}") for data_dir in self.data_dirs()} for index in range(PARTITIONS)]

    def bugs(self) -> list[str]:
        """The tracebacks in the nodes' logs."""
        return [bug for node in self._nodes.values() for bug in node.bugs()]

    def _start(self, node_id: int) -> None:
        folder = self._folder_of(node_id)
        settings = [f"node.id={node_id}", f"kwire.cluster.dir={self._folder / 'cluster'}", *SETTINGS]
        self._nodes[node_id] = BrokerProcess(folder, settings, port=self._ports[node_id])

    def _folder_of(self, node_id: int) -> Path:
        return self._folder / f"node-{node_id}"


def _hash(partition: Path) -> str:
    digest = hashlib.sha256()
    for segment in sorted(partition.glob("*.log")):
        digest.update(segment.read_bytes())
    return digest.hexdigest()


class Load:
    """An idempotent producer in a thread: it writes increasing numbers with acks=all, and keeps the ledger."""

    def __init__(self, cluster: ClusterOfProcesses) -> None:
        self.acknowledged: list[dict[int, bytes]] = [{} for _ in range(PARTITIONS)]
        """The values of each partition, by offset."""
        self.errors: list[str] = []
        self._bootstrap_servers = cluster.bootstrap_servers
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="load")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Waits until everything that was sent is acknowledged, or has failed."""
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self._bootstrap_servers,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 2,
                "message.timeout.ms": 120_000,
                "log_level": 0,
            }
        )
        number = 0
        while not self._is_over.is_set():
            for _ in range(BATCH):
                producer.produce(TOPIC, b"%d" % number, partition=number % PARTITIONS, on_delivery=self._note)
                number += 1
            producer.poll(BATCH_PAUSE_S)
            time.sleep(BATCH_PAUSE_S)
        producer.flush(120)

    def _note(self, error: object, message: Message) -> None:
        index, offset, value = message.partition(), message.offset(), message.value()
        if error is not None or index is None or offset is None or value is None:
            self.errors.append(str(error))
        else:
            self.acknowledged[index][offset] = value


class TransactionalLoad:
    """A transactional producer in a thread: it writes each number to every partition, and commits or aborts that.

    When a transaction fails, it is aborted, or begun anew by a new producer of the same id, as Kafka's clients ask for.
    """

    def __init__(self, cluster: ClusterOfProcesses) -> None:
        self.committed: set[bytes] = set()
        self.aborted: set[bytes] = set()
        self.unknown: set[bytes] = set()
        """A commit of these has failed for good: they are committed everywhere, or nowhere."""
        self._bootstrap_servers = cluster.bootstrap_servers
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="transactions")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        producer = self._new_producer()
        number = 0
        while not self._is_over.is_set():
            value, number = b"%d" % number, number + 1
            try:
                self._write(producer, value, commits=number % 4 != 0)
            except KafkaException as error:
                if error.args[0].txn_requires_abort():
                    try:
                        producer.abort_transaction(60)
                        self.aborted.add(value)
                        continue
                    except KafkaException:
                        pass
                self.unknown.add(value)
                producer = self._new_producer()

    def _new_producer(self) -> Producer:
        while True:
            producer = Producer(
                {"bootstrap.servers": self._bootstrap_servers, "transactional.id": "transfers", "log_level": 0}
            )
            try:
                producer.init_transactions(60)
            except KafkaException:
                continue
            return producer

    def _write(self, producer: Producer, value: bytes, *, commits: bool) -> None:
        producer.begin_transaction()
        for index in range(PARTITIONS):
            producer.produce(TOPIC, value, partition=index)
        if not commits:
            _until_it_is_no_passing_error(lambda: producer.abort_transaction(60))
            self.aborted.add(value)
        else:
            _until_it_is_no_passing_error(lambda: producer.commit_transaction(60))
            self.committed.add(value)


def _until_it_is_no_passing_error(call: Callable[[], object]) -> None:
    while True:
        try:
            call()
        except KafkaException as error:
            if not error.args[0].retriable():
                raise
        else:
            return


def read_all(cluster: ClusterOfProcesses) -> list[dict[int, bytes]]:
    """The committed values of each partition of the ledger, by offset."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "check", "log_level": 0})
    found: list[dict[int, bytes]] = []
    for index in range(PARTITIONS):
        _, end = consumer.get_watermark_offsets(TopicPartition(TOPIC, index), timeout=30)
        consumer.assign([TopicPartition(TOPIC, index, 0)])
        values: dict[int, bytes] = {}
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            (position,) = consumer.position([TopicPartition(TOPIC, index)])
            if position.offset >= end:
                break
            for message in consumer.consume(1000, 1):
                offset, value = message.offset(), message.value()
                assert message.error() is None
                assert offset is not None
                assert value is not None
                values[offset] = value
        found.append(values)
    consumer.close()
    return found
