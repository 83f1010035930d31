"""The brokers that are measured: how they are named, started, watched and stopped.

Each runs in a session of its own on the broker's cores, with a folder of its own that goes away with it. It counts as
started when it has acknowledged a record: that is when a user can begin, whatever the broker printed before. Several
that are one cluster are in clusters.py.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import attrs

from benchmarks.brokers import kafka_java, listeners
from benchmarks.brokers.listeners import PLAINTEXT
from benchmarks.load.connection import LOOPBACK, wait_for_first_ack
from benchmarks.load.requests import value_batch
from benchmarks.machine import Cores, Meter, cpu_s, pinned
from devtools.ports import free_port

START_TIMEOUT_S = 180.0
STOP_TIMEOUT_S = 180.0

_KWIRE = [sys.executable, "-m", "kwire", "serve", "--data-dir", "{data}"]
# The delay before a group's first rebalance is 3 s by default: it would be all that a joining group shows, so here it
# is kwire's default.
_KAFKA_PROPERTIES = {
    "process.roles": "broker,controller",
    "controller.listener.names": "CONTROLLER",
    "group.initial.rebalance.delay.ms": "0",
}
_ONE_REPLICA = {
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}


class NotStarted(Exception):
    """A broker ended or acknowledged nothing; the message has its last output."""


@attrs.frozen
class Spec:
    """A broker as the command line names it.

    `kafka` and `kwire`; either with settings, `NAME=kafka:num.io.threads=2,log.segment.bytes=1048576`; or any command,
    `NAME='program --data {data} --listen 127.0.0.1:{port}'`, which stays in the foreground and ends on SIGTERM.
    """

    name: str
    command: str

    @classmethod
    def parse(cls, text: str) -> Spec:
        name, given, command = text.partition("=")
        if given and not set(name) & set(": "):
            return cls(name, command)
        return cls(text.partition(":")[0], text)  # it stands for itself

    @property
    def kind(self) -> str:
        """`kafka`, `kwire` or `command`."""
        first = self.command.partition(":")[0]
        return first if first in ("kafka", "kwire") else "command"

    @property
    def settings(self) -> dict[str, str]:
        """ValueError when one has no value."""
        pairs = [item.partition("=") for item in self.command.partition(":")[2].split(",") if item]
        if any(not equals for _, equals, _ in pairs):
            raise ValueError(f"{self.command}: settings are NAME=VALUE,NAME=VALUE")
        return {name: value for name, _, value in pairs}

    def with_defaults(self, settings: Mapping[str, str]) -> Spec:
        """Adds these settings, unless it has others. A command stays as it is."""
        if self.kind == "command" or not settings:
            return self
        pairs = (f"{name}={value}" for name, value in {**settings, **self.settings}.items())
        return attrs.evolve(self, command=f"{self.kind}:{','.join(pairs)}")


@attrs.frozen
class Seat:
    """A broker's ports, and its settings as a node of a cluster. It keeps both when it starts again."""

    port: int = attrs.field(factory=free_port)
    controller_port: int = attrs.field(factory=free_port)  # for Apache Kafka
    node_id: int = 1
    settings: Mapping[str, str] = attrs.field(factory=dict)
    more_ports: Mapping[str, int] = attrs.field(factory=dict)  # of the listeners beside the plain one

    @property
    def voter(self) -> str:
        """The node's entry in controller.quorum.voters."""
        return f"{self.node_id}@{LOOPBACK}:{self.controller_port}"


@attrs.define(eq=False)
class RunningBroker:
    port: int
    root: Path
    process: subprocess.Popen[bytes]
    meter: Meter
    more_ports: Mapping[str, int]  # of the listeners beside the plain one
    launched_s: float  # by time.monotonic(), just before its process was made
    startup_s: float = 0.0  # from then to the first acknowledged record
    startup_cpu_s: float = 0.0
    stop_s: float = 0.0
    _is_ending: bool = attrs.field(default=False, init=False)

    @property
    def bootstrap(self) -> str:
        return f"{LOOPBACK}:{self.port}"

    def port_of(self, listener: str) -> int:
        return self.port if listener == PLAINTEXT else self.more_ports[listener]

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    @property
    def data(self) -> Path:
        return self.root / "data"

    def last_words(self) -> str:
        logs = [path.read_text(encoding="utf-8", errors="replace") for path in sorted(self.root.glob("*.log"))]
        return "\n".join(line for log in logs for line in log.splitlines()[-15:])

    def kill(self) -> None:
        """SIGKILL, with its children: the session is its own."""
        os.killpg(self.pid, signal.SIGKILL)
        self.process.wait()

    def begin_stop(self) -> None:
        """SIGTERM, without waiting; only once, since a second one may mean haste."""
        if self.running and not self._is_ending:
            self._is_ending = True
            self.process.send_signal(signal.SIGTERM)

    def stop(self) -> None:
        """SIGTERM; for one that does not heed it, SIGKILL."""
        if not self.running:
            return
        began = time.monotonic()
        self.begin_stop()
        try:
            self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
        self.stop_s = time.monotonic() - began


@attrs.define(eq=False)
class Lab:
    """The cores that brokers run on, and the folder of their data (below the temporary one, by default)."""

    broker_cores: Cores
    data_root: Path | None = None
    _formatted: dict[tuple[str, int], tempfile.TemporaryDirectory[str]] = attrs.field(factory=dict, init=False)

    @contextmanager
    def broker(self, spec: Spec, more_listeners: Sequence[str] = ()) -> Iterator[RunningBroker]:
        """A broker on an empty folder; it and its data are gone afterwards.

        more_listeners: see listeners.py. Raises NotStarted.
        """
        root = Path(tempfile.mkdtemp(prefix="kwire-bench-", dir=self.data_root))
        broker = None
        try:
            broker = self.start(spec, root, more_listeners)
            yield broker
        finally:
            if broker is not None:
                broker.stop()
            shutil.rmtree(root, ignore_errors=True)

    def start(self, spec: Spec, root: Path, more_listeners: Sequence[str] = ()) -> RunningBroker:
        """Starts a broker on the data below `root`, new or not, and waits for its first acknowledged record."""
        if more_listeners and spec.kind == "command":
            raise NotStarted(f"{spec.name} is a command, which has one listener: it gets no {more_listeners[0]}")
        seat, probe = Seat(more_ports={name: free_port() for name in more_listeners}), value_batch(1, 16)
        if spec.kind == "kafka":
            seat = attrs.evolve(seat, settings=_ONE_REPLICA | {"controller.quorum.voters": seat.voter})
        broker = self.launch(spec, root, seat)
        began = broker.launched_s
        try:
            deadline_s = began + START_TIMEOUT_S
            wait_for_first_ack(seat.port, "bench-ready", probe, deadline_s=deadline_s, alive=lambda: broker.running)
        except BaseException as error:
            broker.stop()
            if isinstance(error, TimeoutError):
                raise NotStarted(f"{spec.name} did not start:\n{broker.last_words()}") from None
            raise
        broker.startup_s = time.monotonic() - began
        broker.startup_cpu_s = cpu_s(broker.pid)
        return broker

    def launch(self, spec: Spec, root: Path, seat: Seat) -> RunningBroker:
        """Starts a broker on the data below `root`, and does not wait for it."""
        command, environment = self._command(spec, root, seat)
        with (root / "broker.log").open("ab") as log, pinned(self.broker_cores):
            launched_s = time.monotonic()
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=root,
                env=environment,
                start_new_session=True,
            )
        meter = Meter([process.pid], self.broker_cores)
        return RunningBroker(seat.port, root, process, meter, seat.more_ports, launched_s)

    def close(self) -> None:
        for folder in self._formatted.values():
            folder.cleanup()

    def _command(self, spec: Spec, root: Path, seat: Seat) -> tuple[list[str], dict[str, str]]:
        if spec.kind == "kafka":
            return self._kafka_command(spec, root, seat), kafka_java.environment()
        (root / "data").mkdir(exist_ok=True)
        command = _KWIRE if spec.kind == "kwire" else shlex.split(spec.command)
        command = [part.format(data=root / "data", port=seat.port) for part in command]
        if spec.kind == "kwire":
            settings = {
                "listeners": listeners.addresses({PLAINTEXT: seat.port, **seat.more_ports}),
                **listeners.settings(seat.more_ports, root),
                **seat.settings,
                **spec.settings,
            }
            command += [part for item in settings.items() for part in ("--set", "=".join(item))]
        return command, dict(os.environ)

    def _kafka_command(self, spec: Spec, root: Path, seat: Seat) -> list[str]:
        ports = {PLAINTEXT: seat.port, **seat.more_ports}
        properties = {
            **_KAFKA_PROPERTIES,
            "node.id": str(seat.node_id),
            "listeners": listeners.addresses({**ports, "CONTROLLER": seat.controller_port}),
            "listener.security.protocol.map": ",".join(f"{it}:{it}" for it in ports) + ",CONTROLLER:PLAINTEXT",
            **listeners.settings(seat.more_ports, root),
            "log.dirs": str(root / "data"),
            **seat.settings,
            **spec.settings,
        }
        path = root / "server.properties"
        kafka_java.write_properties(path, properties)
        if not (root / "data").exists():
            # A step of its own in another process, which is not part of a start: done once, then copied.
            made_for = spec.command, seat.node_id
            if made_for not in self._formatted:
                kafka_java.format_storage(path)
                keep = tempfile.TemporaryDirectory(prefix="kwire-bench-formatted-", dir=self.data_root)
                shutil.copytree(root / "data", Path(keep.name, "data"))
                self._formatted[made_for] = keep
            else:
                shutil.copytree(Path(self._formatted[made_for].name, "data"), root / "data")
        return kafka_java.broker_command(path, root / "kafka.log")
