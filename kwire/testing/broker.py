"""The in-process broker of `kwire.testing`: a thread that runs trio, and a handle to it."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

import attrs
import trio
from kwire_storage.disk.files import Disk, RealDisk
from kwire_storage.disk.memory_disk import MemoryDisk

from kwire.config.server import ServerConfig, load_config
from kwire.network.server import BoundListener
from kwire.node import broker as broker_module
from kwire.node.running import Body, bind_all, close_broker, hand_over, metrics_listener, open_broker, serve
from kwire.runtime.clock import SystemClock
from kwire.runtime.descriptors import Budget

if TYPE_CHECKING:
    from kwire.security.tls.dev_certificates import DevAuthority

START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 30.0

_DEFAULTS = {"kwire.spin.us": "0", "kwire.log.reserve.bytes": "0"}
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
    users: passwords by name. Clients have to log in as one of them, by PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512. Their
    permissions depend on `settings` (authorizer.class.name, super.users); without these, everything is allowed.
    tls: encrypt. The certificate is for `host` and localhost. It is made at the start, and so is the authority that
    clients have to trust: `ca_file`.

    The security protocol, `security_protocol`, follows from `users` and `tls`. `settings` override the settings that
    these two make. Users that exist in a kept folder can still log in by SCRAM.

    `start` raises StartError or ConfigError if the broker cannot start, and
    ValueError for a user without a name or a password.
    """

    data_dir: Path | str | None = None
    on_disk: bool = False
    settings: Mapping[str, str] = attrs.field(factory=dict)
    port: int = 0
    host: str = "127.0.0.1"
    metrics: bool = False
    users: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    tls: bool = False
    _thread: threading.Thread | None = attrs.field(default=None, init=False)
    _running: _Running | None = attrs.field(default=None, init=False)
    _temporary: tempfile.TemporaryDirectory[str] | None = attrs.field(default=None, init=False)
    _authority: DevAuthority | None = attrs.field(default=None, init=False)
    """The certificate authority. It is kept over a restart, so that clients still trust the broker."""
    _public: tempfile.TemporaryDirectory[str] | None = attrs.field(default=None, init=False)
    """The folder of `ca_file`."""

    @property
    def address(self) -> str:
        """`host:port`, for a client's bootstrap.servers."""
        return f"{self.host}:{self.port}"

    @property
    def metrics_url(self) -> str:
        """The URL of the metrics, for Prometheus or a browser. Only while the broker runs with `metrics`."""
        assert self._running is not None, "the broker is not running"
        assert self._running.metrics is not None, "the broker was started without metrics"
        return f"http://{self._running.metrics}/metrics"

    @property
    def security_protocol(self) -> str:
        """PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL, for a client's security.protocol."""
        return ("SASL_" if self.users else "") + ("SSL" if self.tls else "PLAINTEXT")

    @property
    def ca_file(self) -> str:
        """The path of the authority's certificate in PEM, for a client's ssl.ca.location, ssl_cafile or
        ssl.truststore.location. Only while the broker runs with `tls`."""
        assert self._public is not None, "the broker does not run with tls"
        return str(Path(self._public.name) / "ca.pem")

    def start(self) -> Broker:
        """Starts the broker. Clients can connect when this returns."""
        assert self._thread is None, "the broker is running"
        security = self._security()
        started = _Started()
        self._thread = threading.Thread(
            target=self._run, args=(self._open_disk(), security, started), name=f"kwire {self.host}", daemon=True
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

        If the broker has stopped on its own, raises the reason, such as BrokerEnded after a disk failure.
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

    def _defaults(self) -> Mapping[str, str]:
        """Returns the defaults of settings that depend on whether the broker is part of a cluster."""
        return {}

    def _open_disk(self) -> Disk:
        if self.data_dir is not None:
            return RealDisk(str(self.data_dir))
        if self.on_disk:
            self._temporary = tempfile.TemporaryDirectory(prefix="kwire-")
            return RealDisk(self._temporary.name)
        return MemoryDisk()

    def _remove_temporary(self) -> None:
        for folder in (self._temporary, self._public):
            if folder is not None:
                folder.cleanup()
        self._temporary = self._public = None

    def _security(self) -> dict[str, str]:
        """Returns the settings for `users` and `tls`."""
        settings: dict[str, str] = {}
        if self.users or self.tls:
            # Imported here, so that a broker in plain text does not load their modules.
            from kwire.security.tls.dev_certificates import DevAuthority
            from kwire.testing import secured

            if self.users:
                settings |= secured.settings_of_users(self.users, self.security_protocol)
            if self.tls:
                if self._authority is None:
                    self._authority = DevAuthority.new()
                self._public = tempfile.TemporaryDirectory(prefix="kwire-tls-")
                Path(self.ca_file).write_bytes(self._authority.certificate)
                if not any("ssl.keystore." in name for name in self.settings):
                    settings |= secured.settings_of_tls(self._authority, self.host)
        return settings

    def _open(self, config: ServerConfig, disk: Disk, listeners: list[BoundListener]) -> broker_module.Broker:
        return open_broker(config, disk, SystemClock(), listeners)

    def _serve(
        self,
        broker: broker_module.Broker,
        listeners: list[BoundListener],
        beside: Body,
        metrics: BoundListener | None,
    ) -> None:
        serve(broker, listeners, body=beside, metrics=metrics)

    def _run(self, disk: Disk, security: Mapping[str, str], started: _Started) -> None:
        of_metrics = {"kwire.metrics.listen": f"{self.host}:0"} if self.metrics else {}
        try:
            config = load_config(
                "",
                settings=[f"{name}={value}" for name, value in {**of_metrics, **security, **self.settings}.items()],
                defaults={**_DEFAULTS, **self._defaults()},
                listen=[f"{self.security_protocol}://{self.host}:{self.port}"],
                data_dirs=[] if self.data_dir is None else [str(Path(self.data_dir).absolute())],
            )
            if isinstance(disk, RealDisk):
                disk.open_files = Budget.of(config).open_files()
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
        if self.users:
            from kwire.testing import secured

            try:
                secured.put_users(broker, self.users)
            except ValueError:
                close_broker(broker)
                raise

        async def run_until_stopped(scope: trio.CancelScope) -> None:
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

        self._serve(broker, listeners, run_until_stopped, metrics)


@attrs.define(eq=False)
class _Running:
    port: int
    token: trio.lowlevel.TrioToken
    scope: trio.CancelScope
    metrics: str | None
    """The address of the metrics, host:port."""
    stop: trio.Event = attrs.field(factory=trio.Event)
    """Set in the loop's thread."""
    error: BaseException | None = None

    def call(self, call: Callable[[], object]) -> None:
        """Calls `call` in the loop's thread, unless the run has ended on its own; `Broker.stop` raises the reason."""
        with suppress(trio.RunFinishedError):
            self.token.run_sync_soon(call)


@attrs.define(eq=False)
class _Started:
    event: threading.Event = attrs.field(factory=threading.Event)
    running: _Running | None = None
    error: BaseException | None = None
