"""The brokers of the tests: how each is started, stopped and killed.

`KWIRE_COMPAT` chooses:

* `kwire` (the default): the shared broker is `kwire.testing.Broker`, in a thread of this process, as users of that
  package have it. The restartable one is a `kwire serve` process, since only a process can be killed.
* `serve`: both are `kwire serve` processes. Quicker where a client written in Python would share the interpreter
  with the broker.
* `kafka`: both are Apache Kafka, from its jars. `KWIRE_COMPAT_VERSION` is its version: that of devtools if not set.
* `cluster` and `kafka-cluster`: both are node 1 of three, `kwire serve` processes or Apache Kafkas. Topics have a
  replica on each node by default. Only node 1 is stopped and killed.

All get the same settings, so that a test describes Kafka and not the settings of one of them.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sysconfig
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Protocol

import attrs

from devtools import apache_kafka
from devtools.ports import free_port
from testkit.basics.waiting import eventually
from testkit.raw import groups, nodes

KIND = os.environ.get("KWIRE_COMPAT", "kwire")
KINDS = ("kwire", "serve", "kafka", "cluster", "kafka-cluster")
IS_KAFKA = KIND.startswith("kafka")
IS_CLUSTER = KIND.endswith("cluster")
KAFKA_VERSION = os.environ.get("KWIRE_COMPAT_VERSION", apache_kafka.VERSION)
IS_4_4 = not IS_KAFKA or KAFKA_VERSION == "4.4.0"
"""True if the brokers have the features of Apache Kafka 4.4."""
NODES = (1, 2, 3) if IS_CLUSTER else (1,)
"""Their ids. Tests connect to the first."""

_ONLY_FOR_CLUSTERS = {"default.replication.factor": "3", "min.insync.replicas": "2"}
SETTINGS_OF_ONE = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
    # Members of the newer kinds of groups learn of changes with their next heartbeat; by default every 5 s.
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.min.session.timeout.ms": "500",
    "group.consumer.assignment.interval.ms": "0",
    "group.share.heartbeat.interval.ms": "200",
    "group.share.min.heartbeat.interval.ms": "100",
    "group.share.min.session.timeout.ms": "500",
    "group.share.assignment.interval.ms": "0",
    "group.share.min.record.lock.duration.ms": "1000",
    "group.streams.heartbeat.interval.ms": "200",
    "group.streams.min.heartbeat.interval.ms": "100",
    "group.streams.min.session.timeout.ms": "500",
    "group.streams.assignment.interval.ms": "0",
    "group.streams.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "4",
    "share.coordinator.snapshot.update.records.per.snapshot": "5",
    "share.coordinator.state.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
}
SETTINGS = {**(_ONLY_FOR_CLUSTERS if IS_CLUSTER else {}), **SETTINGS_OF_ONE}
# Apache Kafka waits for the broker's session to end before it lets a killed broker in again; 9 s by default.
# And it looks for transactions that have timed out every so often only; by default every 10 s.
_ONLY_FOR_KAFKA = {
    "broker.session.timeout.ms": "1500",
    "broker.heartbeat.interval.ms": "250",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
}

_STOP_WITHIN_S = 30.0


class Broker(Protocol):
    """A running broker."""

    @property
    def bootstrap(self) -> str:
        """`host:port`."""

    @property
    def data_dir(self) -> Path: ...

    @property
    def settings(self) -> dict[str, str]:
        """The settings of its start besides its defaults."""


class RestartableBroker(Broker, Protocol):
    """A broker that comes back on the same port with the same log dir."""

    @property
    def log_file(self) -> Path:
        """The log. Apache Kafka begins a new one at each start."""

    @property
    def metadata_dir(self) -> Path:
        """The folder with the metadata log: its log dir, or what the nodes of kwire's cluster share."""

    def restart(self) -> None:
        """Stops it, and starts it."""

    def stop(self) -> None:
        """Ends it with SIGTERM."""

    def kill(self) -> None:
        """Ends it with SIGKILL."""

    def start(self) -> None:
        """Starts it again after `stop` or `kill`."""

    def kill_and_restart(self) -> None: ...

    def begin_stop(self) -> None:
        """SIGTERM, without waiting for the end: `kill` follows."""

    def begin_start(self) -> None:
        """Begins a start without waiting until it serves: `kill` follows."""


class Cluster(Protocol):
    """Nodes with the ids 1, 2 and 3, for tests that need more than one."""

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of those that run."""

    def kill(self, node_id: int) -> None:
        """Ends a node with SIGKILL, or as that would."""

    def restart(self, node_id: int) -> None:
        """Starts a node again, which is stopped first if it runs."""


class KwireServe:
    """A `kwire serve` process. `exit_code` is that of the last one that was stopped or killed."""

    kwire: Sequence[str] = (str(Path(sysconfig.get_path("scripts"), "kwire")),)
    """The command, without its arguments."""

    def __init__(
        self,
        root: Path,
        settings: dict[str, str],
        *more_folders: Path,
        port: int = 0,
        own_settings: Mapping[str, str] | None = None,
    ) -> None:
        """Keeps data and log below `root`; a port of 0 stands for a free one.

        own_settings: those that make it a node of a cluster.
        """
        self.settings = settings
        self._own_settings = own_settings or {}
        self.exit_code: int | None = None
        self.data_dir = root / "data"
        self.data_dirs = [self.data_dir, *more_folders]
        self.metadata_dir = Path(self._own_settings.get("kwire.cluster.dir", self.data_dir))
        self.log_file = root / "kwire.log"
        self._port = port or free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self._port}"

    @property
    def pid(self) -> int | None:
        """None while it does not run."""
        process = self._process
        return process.pid if process is not None and process.poll() is None else None

    @property
    def arguments(self) -> list[str]:
        arguments = ["--listen", self.bootstrap]
        for folder in self.data_dirs:
            arguments += ["--data-dir", str(folder)]
        for name, value in {**self.settings, **self._own_settings}.items():
            arguments += ["--set", f"{name}={value}"]
        return arguments

    def begin_start(self) -> None:
        command = [*self.kwire, "serve", *self.arguments]
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def start(self) -> None:
        log_size_before = self.log_file.stat().st_size if self.log_file.exists() else 0
        self.begin_start()
        process = self._process
        assert process is not None

        def listening() -> bool:
            logged = self.log_file.read_bytes()[log_size_before:]
            assert process.poll() is None, f"kwire serve ended: {logged[-2000:].decode(errors='replace')}"
            return f"listening on {self.bootstrap}".encode() in logged

        eventually(listening, "kwire serve says that it is listening")
        if "node.id" in self._own_settings:
            nodes.wait_until_in_service(self.bootstrap, int(self._own_settings["node.id"]))

    def begin_stop(self) -> None:
        assert self._process is not None
        self._process.terminate()

    def stop(self) -> None:
        self._end_with(signal.SIGTERM)

    def kill(self) -> None:
        self._end_with(signal.SIGKILL)

    def restart(self) -> None:
        self.stop()
        self.start()

    def kill_and_restart(self) -> None:
        self.kill()
        self.start()

    def _end_with(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(how)
        try:
            self.exit_code = process.wait(_STOP_WITHIN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise AssertionError(f"kwire serve did not end within {_STOP_WITHIN_S} s of {how.name}") from None


@attrs.frozen
class _InProcess:
    bootstrap: str
    data_dir: Path
    settings: dict[str, str]


class _Kafka:
    """Apache Kafka, as devtools starts it, or the first of three; `folders` are how many log dirs it has.

    It has coordinators when it is entered, or with `coordinates=False` no topic at all.
    """

    def __init__(self, settings: dict[str, str], *, folders: int = 1, coordinates: bool = True) -> None:
        from devtools.apache_kafka import ApacheKafka
        from devtools.apache_kafka_cluster import ApacheKafkaCluster

        self.settings = settings
        self._coordinates = coordinates
        all_settings = {**_ONLY_FOR_KAFKA, **settings}
        kind = ApacheKafkaCluster if IS_CLUSTER else ApacheKafka
        self._all = kind(version=KAFKA_VERSION, settings=all_settings)
        self._kafka = self._all.nodes[1] if isinstance(self._all, ApacheKafkaCluster) else self._all
        self.data_dirs = self._kafka.add_log_dirs(folders - 1)
        self.log_file = self._kafka.log_file

    @property
    def bootstrap(self) -> str:
        return self._kafka.bootstrap

    @property
    def data_dir(self) -> Path:
        return self._kafka.data_dir

    @property
    def metadata_dir(self) -> Path:
        return self._kafka.data_dir

    def restart(self) -> None:
        self.stop()
        self.start()

    def stop(self) -> None:
        self._kafka.stop()

    def kill(self) -> None:
        self._kafka.kill()

    def start(self) -> None:
        self._kafka.start()
        if IS_CLUSTER:
            nodes.wait_until_in_service(self.bootstrap, nodes.NODE)

    def begin_stop(self) -> None:
        self._kafka.begin_stop()

    def begin_start(self) -> None:
        self._kafka.begin_start()

    def kill_and_restart(self) -> None:
        self.kill()
        self.start()

    def __enter__(self) -> _Kafka:
        self._all.__enter__()
        if self._coordinates:
            groups.wait_until_served(self.bootstrap)
        return self

    def __exit__(self, *about: object) -> None:
        self._all.__exit__(None, None, None)


@contextmanager
def shared_broker() -> Iterator[Broker]:
    """The broker that all tests share that do not stop it."""
    if KIND == "kwire":
        with _in_a_thread() as broker:
            yield broker
    else:
        with restartable_broker() as broker:
            yield broker


@contextmanager
def restartable_broker(**more: str) -> Iterator[RestartableBroker]:
    """A broker. `more` are additional settings, with underscores for dots."""
    settings = {**SETTINGS, **{name.replace("_", "."): value for name, value in more.items()}}
    if IS_KAFKA:
        with _Kafka(settings) as kafka:
            yield kafka
        return
    with _served(settings) as broker:
        yield broker


@contextmanager
def fresh_broker() -> Iterator[Broker]:
    """A broker without topics, its internal ones included."""
    if IS_KAFKA:
        with _Kafka(dict(SETTINGS), coordinates=False) as kafka:
            yield kafka
    elif IS_CLUSTER:
        with _served(dict(SETTINGS), coordinates=False) as broker:
            yield broker
    else:
        with _in_a_thread() as broker:
            yield broker


@contextmanager
def broker_of_two_folders() -> Iterator[tuple[RestartableBroker, list[Path]]]:
    """A broker whose log.dirs are these."""
    if IS_KAFKA:
        with _Kafka(dict(SETTINGS), folders=2) as kafka:
            yield kafka, kafka.data_dirs
        return
    with _served(dict(SETTINGS), folders=2) as broker:
        yield broker, broker.data_dirs


@contextmanager
def three_nodes(
    settings: Mapping[str, str] | None = None, node_settings: Mapping[int, Mapping[str, str]] | None = None
) -> Iterator[Cluster]:
    """A cluster for one test. That of kwire is in this process, because that is the cheapest.

    node_settings: those of one node, by its id.
    """
    if IS_KAFKA:
        from devtools.apache_kafka_cluster import ApacheKafkaCluster

        with ApacheKafkaCluster(
            settings={**_ONLY_FOR_KAFKA, **(settings or {})}, node_settings=node_settings, version=KAFKA_VERSION
        ) as kafkas:
            yield kafkas
    else:
        from kwire.testing import Cluster as InProcess

        with InProcess(3, settings or {}, node_settings or {}) as kwires:
            yield kwires


@contextmanager
def _served(settings: dict[str, str], *, folders: int = 1, coordinates: bool = True) -> Iterator[KwireServe]:
    """A `kwire serve` process, or the first of three; `folders` are how many log dirs it has."""
    with ExitStack() as ended:
        root = Path(tempfile.mkdtemp(prefix="kwire-compat-"))
        ended.callback(shutil.rmtree, root)
        more = [root / f"data-{number}" for number in range(2, folders + 1)]
        if IS_CLUSTER:
            started = [_node(root, number, settings, *(more if number == 1 else [])) for number in NODES]
        else:
            started = [KwireServe(root, settings, *more)]
        for node in started:
            ended.callback(node.kill)
            node.start()
        if IS_CLUSTER and coordinates:
            groups.wait_until_served(started[0].bootstrap)
        yield started[0]
        for node in started:
            node.stop()


def _node(root: Path, node_id: int, settings: dict[str, str], *more_folders: Path) -> KwireServe:
    folder = root / f"node-{node_id}"
    folder.mkdir()
    own_settings = {"node.id": str(node_id), "kwire.cluster.dir": str(root / "c")}
    return KwireServe(folder, settings, *more_folders, own_settings=own_settings)


@contextmanager
def _in_a_thread() -> Iterator[Broker]:
    from kwire.testing import Broker as InProcess

    # On disk: there a fetch goes out by sendfile, as it does for users.
    with tempfile.TemporaryDirectory(prefix="kwire-compat-") as root:
        data_dir = Path(root, "data")
        with InProcess(data_dir=data_dir, settings=SETTINGS) as running:
            yield _InProcess(running.address, data_dir, SETTINGS)
