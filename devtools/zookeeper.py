"""Starts Apache ZooKeeper from its jars, alone or as an ensemble, for tests of what kwire keeps there.

    with ZooKeeper() as zookeeper:
        KazooClient(zookeeper.connect)

    with Ensemble(3) as ensemble:
        ensemble.servers[0].kill()

Everything lies in a temporary folder, and nothing is synced: a test of ours is not a test of ZooKeeper's disks.
"""

from __future__ import annotations

import atexit
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from devtools.jars import classpath
from devtools.java import SHORT_LIVED, java, java_environment
from devtools.ports import LOOPBACK, free_port

VERSION: Final = "3.9.4"
START_SECONDS: Final = 60.0
TICK_MS: Final = 500
"""A session lasts at least one tick here, and ends up to one tick late."""
_JVM: Final = (
    "-Xmx192m",
    *SHORT_LIVED,
    "-Dzookeeper.forceSync=no",
    "-Dzookeeper.preAllocSize=1024",
    "-Dzookeeper.jmx.log4j.disable=true",
)


class ZooKeeperStartError(Exception):
    """It did not start; the message has its output."""


class ZooKeeper:
    """One server in a process of its own, on loopback. `connect` stays the same over `restart()`.

    `settings` are lines of its zoo.cfg; `port` is a free one by default.
    """

    def __init__(self, settings: Mapping[str, object] | None = None, *, port: int | None = None) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="zookeeper-"))
        self.port = free_port() if port is None else port
        self.settings: dict[str, object] = {
            "tickTime": TICK_MS,
            "minSessionTimeout": TICK_MS,
            "maxSessionTimeout": 60_000,
            "dataDir": self.folder / "data",
            "clientPort": self.port,
            "clientPortAddress": LOOPBACK,
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "*",
            "maxClientCnxns": 0,
            **(settings or {}),
        }
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None

    @property
    def connect(self) -> str:
        return f"{LOOPBACK}:{self.port}"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start(self) -> None:
        """Starts and waits until it serves."""
        self.launch()
        self.wait_until_up()

    def launch(self) -> None:
        """Starts, and does not wait."""
        atexit.register(self.close)
        (self.folder / "data").mkdir(exist_ok=True)
        config = self.folder / "zoo.cfg"
        config.write_text("".join(f"{name}={value}\n" for name, value in self.settings.items()), encoding="utf-8")
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        with (self.folder / "zookeeper.out").open("wb") as output:
            self._process = subprocess.Popen(
                [java(), *_JVM, main, config],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self.folder,
                env=java_environment() | {"CLASSPATH": classpath(f"zookeeper-{VERSION}")},
                start_new_session=True,
            )
        # If we are killed, the guard's pipe closes, and it kills the server.
        self._guard = subprocess.Popen(
            ["sh", "-c", 'cat; kill -9 "$0"', str(self._process.pid)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def wait_until_up(self) -> None:
        """Raises ZooKeeperStartError."""
        deadline = time.monotonic() + START_SECONDS
        while self._process is not None and self._process.poll() is None and time.monotonic() < deadline:
            if "Mode: " in self.reply_to("srvr"):
                return
            time.sleep(0.05)
        output = (self.folder / "zookeeper.out").read_text(encoding="utf-8", errors="replace")
        self.kill()
        raise ZooKeeperStartError(f"ZooKeeper {VERSION} did not start:\n{output[-4000:]}")

    def reply_to(self, command: str) -> str:
        """Returns the reply to a command of four letters; nothing while the server does not listen."""
        try:
            with socket.create_connection((LOOPBACK, self.port), timeout=5) as connection:
                connection.sendall(command.encode())
                return b"".join(iter(lambda: connection.recv(4096), b"")).decode()
        except OSError:
            return ""

    def pause(self) -> None:
        """Stops the server's process until `resume`: it keeps its connections and replies to nothing."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """Pulls the plug (SIGKILL)."""
        process, self._process = self._process, None
        guard, self._guard = self._guard, None
        if guard is not None:
            guard.kill()
            guard.communicate()
        if process is not None:
            process.kill()
            process.wait()

    def close(self) -> None:
        """Kills it and removes all that it wrote."""
        atexit.unregister(self.close)
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


class Ensemble:
    """Several servers that elect a leader; a majority of them serves."""

    def __init__(self, size: int) -> None:
        members = {f"server.{number}": f"{LOOPBACK}:{free_port()}:{free_port()}" for number in range(1, size + 1)}
        self.servers = [ZooKeeper({"initLimit": 20, "syncLimit": 10, **members}) for _ in members]

    @property
    def connect(self) -> str:
        return ",".join(it.connect for it in self.servers)

    def __enter__(self) -> Self:
        for number, server in enumerate(self.servers, start=1):
            (server.folder / "data").mkdir()
            (server.folder / "data" / "myid").write_text(str(number))
            server.launch()
        for server in self.servers:
            server.wait_until_up()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for server in self.servers:
            server.close()

    def leader(self) -> ZooKeeper:
        """The server that leads now."""
        return next(it for it in self.servers if "Mode: leader" in it.reply_to("srvr"))
