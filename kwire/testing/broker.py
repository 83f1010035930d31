"""The in-process broker of `kwire.testing`: a thread that runs trio, and a handle to it."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType

import attrs
import trio
from kwire_storage.disk.files import Disk, RealDisk
from kwire_storage.disk.memory_disk import MemoryDisk

from kwire import broker as broker_module
from kwire import descriptors
from kwire.clock import SystemClock
from kwire.config.server import ServerConfig, load_config
from kwire.network.server import BoundListener
from kwire.running import Body, bind_all, hand_over, metrics_listener, open_broker, serve

START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 30.0

_SETTINGS = {"kwire.spin.us": "0", "kwire.log.reserve.bytes": "0"}
"""No spinning, because the client probably needs the same interpreter. No reserved disk space, because /tmp may be
small."""


@attrs.define(eq=False)
class Broker:
    """A broker on a free port of 127.0.0.1, in a thread.

    data_dir: folder for the data. It is kept, so a later Broker can use it again.
    on_disk: without a data_dir, use a temporary folder instead of memory. It is removed at the end.
    settings: Kafka's broker settings, such as {"num.partitions": "3"}.
    port: 0 picks a free port.
    metrics: serve metrics over HTTP on a free port, at `metrics_url`.

    `start` raises kwire.running.StartError or kwire.config.server.ConfigError if the broker cannot start.
    """

    data_dir: Path | str | None = None
    on_disk: bool = False
    settings: Mapping[str, str] = attrs.field(factory=dict)
    port: int = 0
    host: str = "127.0.0.1"
    metrics: bool = False
    _thread: threading.Thread | None = attrs.field(default=None, init=False)
    _running: _Running | None = attrs.field(default=None, init=False)
    _temporary: tempfile.TemporaryDirectory[str] | None = attrs.field(default=None, init=False)

    @property
    def address(self) -> str:
        """`host:port`, for a client's bootstrap.servers."""
        return f"{self.host}:{self.port}"

    @property
    def metrics_url(self) -> str:
        """For Prometheus, or a browser. Only while the broker runs with `metrics`."""
        assert self._running is not None, "the broker is not running"
        assert self._running.metrics is not None, "the broker was started without metrics"
        return f"http://{self._running.metrics}/metrics"

    def start(self) -> Broker:
        """Starts the broker. Clients can connect when this returns."""
        assert self._thread is None, "the broker is running"
        started = _Started()
        self._thread = threading.Thread(
            target=self._run, args=(self._open_disk(), started), name=f"kwire {self.host}", daemon=True
        )
        self._thread.start()
        if not started.event.wait(START_TIMEOUT_S):
            raise TimeoutError(f"the broker did not start within {START_TIMEOUT_S:.0f} s")
        if started.error is not None:
            self._thread.join()
            self._thread = None
            self._remove_temporary()
            raise started.error
        assert started.running is not None
        self._running = started.running
        self.port = started.running.port
        return self

    def stop(self) -> None:
        """Stops the broker cleanly, as SIGTERM would.

        If the broker stopped by itself, raises the reason, such as kwire.running.BrokerEnded after a disk failure.
        """
        thread, running = self._thread, self._running
        if thread is None or running is None:
            return
        running.call(running.stop.set)
        self._join(thread)
        self._thread = self._running = None
        self._remove_temporary()
        if running.error is not None:
            raise running.error

    def _join(self, thread: threading.Thread) -> None:
        thread.join(STOP_TIMEOUT_S)
        if thread.is_alive():
            raise TimeoutError(f"the broker did not stop within {STOP_TIMEOUT_S:.0f} s")

    def __enter__(self) -> Broker:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def _open_disk(self) -> Disk:
        if self.data_dir is not None:
            return RealDisk(str(self.data_dir))
        if self.on_disk:
            self._temporary = tempfile.TemporaryDirectory(prefix="kwire-")
            return RealDisk(self._temporary.name)
        return MemoryDisk()

    def _remove_temporary(self) -> None:
        if self._temporary is not None:
            self._temporary.cleanup()
            self._temporary = None

    def _open(self, config: ServerConfig, disk: Disk, listeners: list[BoundListener]) -> broker_module.Broker:
        return open_broker(config, disk, SystemClock(), listeners)

    def _serve(
        self,
        broker: broker_module.Broker,
        listeners: list[BoundListener],
        beside: Body,
        metrics: BoundListener | None,
    ) -> None:
        serve(broker, listeners, beside=beside, metrics=metrics)

    def _run(self, disk: Disk, started: _Started) -> None:
        of_metrics = {"kwire.metrics.listen": f"{self.host}:0"} if self.metrics else {}
        try:
            config = load_config(
                "",
                settings=[f"{name}={value}" for name, value in {**_SETTINGS, **of_metrics, **self.settings}.items()],
                listen=[f"{self.host}:{self.port}"],
                data_dirs=[] if self.data_dir is None else [str(Path(self.data_dir).absolute())],
            )
            if isinstance(disk, RealDisk):
                disk.open_files = descriptors.open_files(config)
            with metrics_listener(config) as metrics:
                self._open_and_serve(config, disk, started, metrics)
        except BaseException as error:
            if started.running is None:
                started.error = error
                started.event.set()
            else:
                started.running.error = error

    def _open_and_serve(
        self, config: ServerConfig, disk: Disk, started: _Started, metrics: BoundListener | None
    ) -> None:
        listeners = bind_all(config)
        broker = self._open(config, disk, listeners)

        async def tell(scope: trio.CancelScope) -> None:
            running = started.running = _Running(
                listeners[0].port,
                trio.lowlevel.current_trio_token(),
                scope,
                None if metrics is None else metrics.address,
            )
            started.event.set()
            await running.stop.wait()
            await hand_over(broker)
            scope.cancel()

        self._serve(broker, listeners, tell, metrics)


@attrs.define(eq=False)
class _Running:
    port: int
    token: trio.lowlevel.TrioToken
    scope: trio.CancelScope
    metrics: str | None
    """Where metrics are served, host:port."""
    stop: trio.Event = attrs.field(factory=trio.Event)
    """Set in the loop's thread."""
    error: BaseException | None = None

    def call(self, call: Callable[[], object]) -> None:
        """Calls it in the loop's thread, unless the run has ended by itself; `Broker.stop` raises the reason."""
        with suppress(trio.RunFinishedError):
            self.token.run_sync_soon(call)


@attrs.define(eq=False)
class _Started:
    event: threading.Event = attrs.field(factory=threading.Event)
    running: _Running | None = None
    error: BaseException | None = None
