"""Starts Apache Kafka from its jars, to compare kwire with, and runs its command line tools.

    with ApacheKafka(settings={"group.initial.rebalance.delay.ms": "0"}) as kafka:
        run_tool("org.apache.kafka.tools.TopicCommand", "--bootstrap-server", kafka.bootstrap, "--list")

One process is broker and controller, as in Kafka's quick start. Its settings are Kafka's defaults, except that internal
topics have one replica, because there is one broker. A new log dir is a copy of one that Kafka's StorageTool
formatted once, which saves a Java process at each start. Clients reach it at the listener PLAINTEXT, and at those of
`more_listeners`, whose names are security protocols or are in the setting listener.security.protocol.map.

After `kill()`, a restarted broker waits until its previous session expires, so such a test sets shorter values of
`broker.session.timeout.ms` (9 s) and `broker.heartbeat.interval.ms` (2 s).
"""

from __future__ import annotations

import atexit
import base64
import hashlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from devtools.jars import classpath
from devtools.java import SHORT_LIVED, java, java_environment
from devtools.places import CACHE, exclusive
from devtools.ports import LOOPBACK, free_port

VERSION = "4.3.1"
START_SECONDS = 90.0
STOP_SECONDS = 30.0

_HERE = Path(__file__).parent
_UP = "Kafka Server started"
_TAKEN = "Address already in use"
_CLUSTER_ID = "a3dpcmUtY29tcGF0LXRlcw"
# Quick to start rather than quick for ever; benchmarks pass their own.
BROKER_JVM = ("-Xms128m", "-Xmx768m", *SHORT_LIVED)
_TOOL_JVM = ("-Xmx256m", *SHORT_LIVED)

Setting = str | int | bool


class ApacheKafkaError(Exception):
    """It did not start, stop or answer as it should; the message holds the end of its log."""


class ApacheKafka:
    """One Apache Kafka in a process of its own, on loopback.

    `bootstrap` stays the same over `restart()`. Without `folder` everything lies in a temporary folder that goes away
    with `close()`; with one, it stays, and a later instance continues on it. Instances with the same `cluster_id` are
    nodes of one cluster (`ApacheKafkaCluster`); without one, it is a cluster of its own.
    """

    def __init__(
        self,
        version: str = VERSION,
        settings: Mapping[str, Setting] | None = None,
        *,
        more_listeners: Sequence[str] = (),
        folder: Path | None = None,
        jvm_options: tuple[str, ...] = BROKER_JVM,
        cluster_id: str | None = None,
    ) -> None:
        self.version = version
        self.settings = {name: _text(value) for name, value in (settings or {}).items()}
        self.jvm_options = jvm_options
        self.folder = folder or Path(tempfile.mkdtemp(prefix="apache-kafka-"))
        self.data_dir = self.folder / "data"
        self.log_file = self.folder / "kafka.log"
        self.port = 0
        self._controller_port = 0
        self._more_ports = dict.fromkeys(more_listeners, 0)
        self._cluster_id = cluster_id or new_id()
        self._keep_folder = folder is not None
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        return f"{LOOPBACK}:{self.port}"

    def address(self, listener: str) -> str:
        """The address of a listener, by its name: `host:port`."""
        return self.bootstrap if listener == "PLAINTEXT" else f"{LOOPBACK}:{self._more_ports[listener]}"

    @property
    def controller(self) -> str:
        """The address for controllers: `host:port`."""
        return f"{LOOPBACK}:{self._controller_port}"

    @property
    def pid(self) -> int:
        if self._process is None:
            raise ApacheKafkaError("not running")
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def add_log_dirs(self, count: int) -> list[Path]:
        """Before the first start: creates and formats `count` more folders for log.dirs. Returns all of them."""
        folders = [self.data_dir, *(self.folder / f"data-{number}" for number in range(2, count + 2))]
        for folder in folders[1:]:
            self._lay_out_data(folder, self.settings.get("node.id", "1"))
        self.settings["log.dirs"] = ",".join(map(str, folders))
        return folders

    def start(self) -> None:
        """Starts and waits until requests are served. The first start chooses the ports and formats the folder."""
        if self.running:
            raise ApacheKafkaError("runs already")
        ports_are_fixed = self.port != 0
        for _ in range(3):
            if not ports_are_fixed:
                self.choose_ports()
            self._lay_out_folder()
            self._launch()
            if self._is_up():
                return
            if ports_are_fixed or _TAKEN not in self._log():
                break
        raise self._did_not_start()

    def choose_ports(self) -> None:
        """Chooses free ports before the first start, for a caller that needs them by then."""
        self.port, self._controller_port = free_port(), free_port()
        self._more_ports = {listener: free_port() for listener in self._more_ports}

    def begin_start(self) -> None:
        """Starts on the chosen ports, without waiting until it serves; `kill()` ends that."""
        if self.running or self.port == 0:
            raise ApacheKafkaError("it runs, or has no ports yet")
        self._lay_out_folder()
        self._launch()

    def wait_until_up(self) -> None:
        """After `begin_start`: returns when requests are served."""
        if not self._is_up():
            raise self._did_not_start()

    def begin_stop(self) -> None:
        """Sends SIGTERM, without waiting; `kill()` does not wait for that either."""
        os.kill(self.pid, signal.SIGTERM)

    def stop(self) -> None:
        """Stops in good order (SIGTERM)."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Pulls the plug (SIGKILL)."""
        self._end(signal.SIGKILL)

    def restart(self, settings: Mapping[str, Setting] | None = None) -> None:
        """Stops if it still runs, and starts on the same data and address; `settings` change or add to the old ones."""
        if self.running:
            self.stop()
        self.settings.update({name: _text(value) for name, value in (settings or {}).items()})
        self.start()

    def close(self) -> None:
        """Kills it and, unless the folder was given, removes everything it wrote."""
        atexit.unregister(self.close)
        self.kill()
        if not self._keep_folder:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        guard, self._guard = self._guard, None
        if guard is not None:
            guard.kill()
            guard.communicate()
        if process is None:
            return
        process.send_signal(how)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise ApacheKafkaError(f"did not stop within {STOP_SECONDS} s:\n{self._log()[-4000:]}") from None

    def _lay_out_folder(self) -> None:
        self.write_properties()
        if not self.data_dir.exists():
            self._lay_out_data(self.data_dir, self._properties()["node.id"])

    def write_properties(self) -> Path:
        """Writes its server.properties, for its next start or another broker's, once the ports are chosen."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / "server.properties"
        _write_properties(path, self._properties())
        return path

    def _lay_out_data(self, folder: Path, node_id: str) -> None:
        """A formatted folder with ids of its own: two instances are two clusters."""
        shutil.copytree(_formatted_folder(self.version, node_id), folder)
        meta = folder / "meta.properties"
        text = re.sub("(?m)^directory.id=.*$", f"directory.id={new_id()}", meta.read_text())
        meta.write_text(re.sub("(?m)^cluster.id=.*$", f"cluster.id={self._cluster_id}", text))

    def _properties(self) -> dict[str, str]:
        node_id = self.settings.get("node.id", "1")
        clients = [f"{name}://{self.address(name)}" for name in ("PLAINTEXT", *self._more_ports)]
        return {
            "process.roles": "broker,controller",
            "node.id": node_id,
            "listeners": ",".join([*clients, f"CONTROLLER://{self.controller}"]),
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": f"{node_id}@{self.controller}",
            "log.dirs": str(self.data_dir),
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
        } | self.settings

    def _launch(self) -> None:
        atexit.register(self.close)
        self.log_file.unlink(missing_ok=True)
        command = [str(java()), *self.jvm_options, f"-Dkwire.log={self.log_file}"]
        command += [f"-Dlog4j2.configurationFile={_HERE / 'log4j2-broker.properties'}"]
        command += ["kafka.Kafka", str(self.folder / "server.properties")]
        with (self.folder / "kafka.out").open("wb") as output:
            # A session of its own: Ctrl-C at the terminal is for the process that started us, which then stops it.
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self.folder,
                env=_environment(self.version),
                start_new_session=True,
            )
        # If we are killed, the guard's pipe closes, and it kills the broker.
        self._guard = subprocess.Popen(
            ["sh", "-c", 'cat; kill -9 "$0"', str(self._process.pid)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def _is_up(self) -> bool:
        """Waits; False if it ended, or took too long and was killed."""
        deadline = time.monotonic() + START_SECONDS
        while self.running and time.monotonic() < deadline:
            if _UP in self._log():
                return True
            time.sleep(0.05)
        self.kill()
        return False

    def _did_not_start(self) -> ApacheKafkaError:
        return ApacheKafkaError(f"Apache Kafka {self.version} did not start:\n{self._log()[-4000:]}")

    def _log(self) -> str:
        """The broker's log, then its output, which has the reason of an early death."""
        files = (self.log_file, self.folder / "kafka.out")
        return "".join(file.read_text(encoding="utf-8", errors="replace") for file in files if file.exists())


def run_tool(
    main_class: str,
    *arguments: str | Path,
    input: str | None = None,  # noqa: A002 - as in subprocess.run
    timeout: float = 120.0,
    check: bool = True,
    version: str = VERSION,
) -> subprocess.CompletedProcess[str]:
    """Runs one of Kafka's tools to its end, e.g. `org.apache.kafka.tools.TopicCommand`.

    With `check`, a tool that fails raises ApacheKafkaError with its output.
    """
    done = subprocess.run(
        _tool_command(main_class, arguments),
        input=input,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        env=_environment(version),
    )
    if check and done.returncode != 0:
        raise ApacheKafkaError(f"{main_class} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done


def start_tool(main_class: str, *arguments: str | Path, version: str = VERSION) -> subprocess.Popen[str]:
    """Starts one of Kafka's tools with pipes to all its streams; the caller ends it."""
    return subprocess.Popen(
        _tool_command(main_class, arguments),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=_environment(version),
    )


def dump_log(path: Path, *options: str) -> str:
    """Returns the output of Kafka's DumpLogSegments for a log or index file; `options` such as "--deep-iteration".

    Complaints of the tool (it ends with 0 whatever it finds) are in the text.
    """
    done = run_tool("org.apache.kafka.tools.DumpLogSegments", "--files", path, *options)
    return done.stdout + done.stderr


def _tool_command(main_class: str, arguments: tuple[str | Path, ...]) -> list[str]:
    log4j = f"-Dlog4j2.configurationFile={_HERE / 'log4j2-tool.properties'}"
    return [str(java()), *_TOOL_JVM, log4j, main_class, *map(str, arguments)]


def _environment(version: str) -> dict[str, str]:
    # The class path travels here, so that a failed command's line stays readable.
    return java_environment() | {"CLASSPATH": classpath(f"kafka-{version}")}


def new_id() -> str:
    """Returns a new id in Kafka's text form."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes)[:22].decode()


def _text(value: Setting) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _write_properties(path: Path, properties: Mapping[str, str]) -> None:
    path.write_text("".join(f"{name}={value}\n" for name, value in properties.items()), encoding="utf-8")


def _formatted_folder(version: str, node_id: str) -> Path:
    """An empty log dir as StorageTool leaves it, made once."""
    key = hashlib.sha256(f"{version}/{node_id}/{_CLUSTER_ID}".encode()).hexdigest()[:12]
    template = CACHE / "formatted" / key
    with exclusive("formatted"):
        if not template.exists():
            template.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=template.parent) as folder:
                data, properties = Path(folder, "data"), Path(folder, "server.properties")
                controller = f"{LOOPBACK}:{free_port()}"
                fixed = {"process.roles": "broker,controller", "node.id": node_id, "log.dirs": str(data)}
                fixed |= {"listeners": f"PLAINTEXT://{LOOPBACK}:{free_port()},CONTROLLER://{controller}"}
                fixed |= {"controller.listener.names": "CONTROLLER"}
                fixed |= {"controller.quorum.voters": f"{node_id}@{controller}"}
                _write_properties(properties, fixed)
                tool = "kafka.tools.StorageTool"
                run_tool(tool, "format", "-t", _CLUSTER_ID, "-c", properties, version=version)
                os.rename(data, template)  # noqa: PTH104 - the folder must not be moved into another
    return template
