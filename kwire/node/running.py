"""Opens a broker and runs it, for `kwire serve` and `kwire.testing`.

    addresses -> cluster -> disk -> broker (replays its logs) -> server, until it is cancelled -> broker.close

The broker is always closed, and closed last, so that the next start finds checkpoints and the clean-shutdown file.
"""

from __future__ import annotations

import gc
import ipaddress
import logging
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import attrs
import trio
from kwire_protocol.kafka_error import KafkaError
from kwire_storage.disk.files import Disk, RealDisk
from kwire_storage.errors import CorruptLogError, FolderLockedError

import kwire
from kwire.cluster.joining import join
from kwire.cluster.membership import Membership, NodeIdTakenError
from kwire.config.definition import ConfigError
from kwire.config.listeners import Listener
from kwire.config.reading import ConfigReader
from kwire.config.server import ServerConfig
from kwire.network.listener_security import securities_of
from kwire.network.server import BoundListener, Server, bind, listen
from kwire.node.broker import Broker
from kwire.peers.connecting import Connect, connect_with
from kwire.peers.peers import endpoint_of, peer_security
from kwire.replication.connection import FetcherEnvironment
from kwire.replication.followers import ReplicaFollowers
from kwire.runtime import workers
from kwire.runtime.address_lookup import AddressLookup
from kwire.runtime.callbacks import ignore
from kwire.runtime.clock import Clock, SystemClock
from kwire.runtime.descriptors import Budget, raise_limit
from kwire.runtime.loop import Host, Loop
from kwire.runtime.processor import Processor, Timer
from kwire.runtime.tasks import in_this_task
from kwire.runtime.workers import Worker

if TYPE_CHECKING:
    from kwire.metrics.endpoint import MetricsEndpoint

log = logging.getLogger(__name__)

Join = Callable[[ServerConfig, Clock, Loop], Membership | None]
"""Joins a cluster: `kwire.cluster.joining.join`."""

SYNC_THREADS = 32
"""Threads that fsync during a stop. The disk combines concurrent fsyncs, so more threads make the stop faster."""


PROGRESS_INTERVAL_S = 1.0
"""The interval at which a long start logs its progress."""


STDIN = 0
"""The descriptor of the standard input."""

HAND_OVER_TIMEOUT_S = 10.0
"""The longest time that a stop waits for a cluster whose metadata log cannot be written."""


class StartError(Exception):
    """The broker cannot start. The text has the reason and the remedy."""


class BrokerEnded(Exception):
    """The broker stopped because it could not continue. The text has the reason."""


def open_broker(
    config: ServerConfig,
    disks: Disk | Mapping[str, Disk],
    clock: Clock,
    listeners: Sequence[BoundListener] = (),
    join: Join = join,
) -> Broker:
    """Joins the cluster, if there is one, and opens the data on `disks`; see `Broker.open`.

    The `listeners` are closed if that fails. Raises StartError.
    """
    try:
        return _open(config, disks, clock, listeners, join)
    except BaseException:
        for listener in listeners:
            listener.sock.close()
        raise


def _open(
    config: ServerConfig,
    disks: Disk | Mapping[str, Disk],
    clock: Clock,
    listeners: Sequence[BoundListener],
    join: Join,
) -> Broker:
    folder = config.metadata_log_dir
    loop = Loop()
    # Other brokers get these addresses, so a port 0 must not be among them.
    ports = {listener.name: listener.port for listener in listeners}
    bound = attrs.evolve(
        config, listeners=tuple(attrs.evolve(it, port=ports.get(it.name, it.port)) for it in config.listeners)
    )
    membership = _join(bound, clock, loop, join)
    if membership is not None:
        config = bound
    try:
        return Broker.open(config, disks, clock, run_all=_with_progress, membership=membership, loop=loop)
    except FolderLockedError as error:
        raise StartError(
            f"another broker is using the log dir {folder}: stop it, or choose another folder with --data-dir"
        ) from error
    except CorruptLogError as error:
        raise StartError(
            f"the data in {folder} is corrupt, and the broker cannot start without it: {error}. "
            "`kwire log check` shows details, `kwire log repair` repairs what it can"
        ) from error
    except ConfigError as error:
        raise StartError(str(error)) from error
    except OSError as error:
        raise StartError(f"cannot open the log dir {folder}: {error}") from error


def _join(config: ServerConfig, clock: Clock, loop: Loop, join: Join) -> Membership | None:
    try:
        return join(config, clock, loop)
    except (NodeIdTakenError, ConfigError) as error:
        raise StartError(str(error)) from error
    except (OSError, CorruptLogError) as error:
        where = config.kwire_cluster_dir or config.properties.get("zookeeper.connect")
        raise StartError(f"cannot join the cluster at {where}: {error}") from error


def _with_whole_paths(config: ServerConfig) -> ServerConfig:
    # As in Kafka: DescribeLogDirs returns absolute paths, and AlterReplicaLogDirs expects them.
    return attrs.evolve(
        config,
        log_dirs=tuple(os.path.abspath(path) for path in config.log_dirs),  # noqa: PTH100 - texts are wanted
        metadata_log_dir=os.path.abspath(config.metadata_log_dir),  # noqa: PTH100
    )


def _with_progress(tasks: list[Callable[[], None]], progress: Callable[[], str], threads: int) -> None:
    if not tasks:
        return
    is_long = False
    for _ in workers.side_by_side(Worker.RECOVERY, tasks, threads, every_s=PROGRESS_INTERVAL_S):
        is_long = True
        log.info("%s", progress())
    if is_long:
        log.info("%s", progress())


def bind_all(config: ServerConfig) -> list[BoundListener]:
    """Binds every listener, or none; clients cannot connect yet. Raises StartError."""
    bound: list[BoundListener] = []
    try:
        for listener in config.listeners:
            bound += [bind(listener, config)]
    except OSError as error:
        for opened in bound:
            opened.sock.close()
        raise StartError(f"{error.strerror or error}; is another broker running there?") from error
    return bound


@contextmanager
def metrics_listener(config: ServerConfig) -> Iterator[BoundListener | None]:
    """Binds the listener of kwire.metrics.listen, if that is set, and closes it after the block. Raises StartError."""
    listener = config.kwire_metrics_listen
    if listener is None:
        yield None
        return
    try:
        bound = bind(listener, config)
    except OSError as error:
        raise StartError(f"{listener.name} cannot be {listener.host}:{listener.port}: {error.strerror}") from error
    with bound.sock:
        _warn_of_strangers(bound, "see all metrics")
        yield bound


def listen_all(config: ServerConfig, listeners: Sequence[BoundListener]) -> None:
    """Begins to listen, so that clients can connect. Raises StartError."""
    try:
        for listener in listeners:
            listen(listener, config)
    except OSError as error:
        raise StartError(f"{error.strerror or error}; is another broker running there?") from error


Body = Callable[[trio.CancelScope], Awaitable[None]]


def serve(
    broker: Broker,
    listeners: list[BoundListener],
    *,
    body: Body,
    close: Callable[[Broker], None] | None = None,
    connect: Connect | None = None,
    metrics: BoundListener | None = None,
) -> None:
    """Serves until `body` cancels the scope that it is passed, then closes the broker, or calls `close` for that.
    `body` is a task that starts when clients can connect. `connect` connects to a leader that is followed. `metrics`
    is the listener of `metrics_listener`.

    Raises StartError, and BrokerEnded if the broker stopped because it could not continue.
    """
    processor = Processor(spin_s=broker.config.kwire_spin_us / 1e6)
    try:
        workers.start()
        securities = securities_of(broker)
    except (ConfigError, OSError) as error:
        processor.close()
        for listener in listeners:
            listener.sock.close()
        (close or close_broker)(broker)
        raise StartError(str(error)) from error

    async def main() -> None:
        trio.socket.set_custom_hostname_resolver(AddressLookup())
        async with trio.open_nursery() as nursery:
            broker.on_fatal = nursery.cancel_scope.cancel

            def on_ready() -> None:
                if metrics is not None:
                    nursery.start_soon(_metrics_endpoint(broker, metrics).run)
                nursery.start_soon(body, nursery.cancel_scope)

            server = Server(
                broker,
                listeners,
                processor,
                securities=securities,
                descriptors=Budget.of(broker.config),
            )
            await run(broker, server, connect=connect, on_ready=on_ready)

    try:
        listen_all(broker.config, listeners if metrics is None else [*listeners, metrics])
        processor.host(main)
    finally:
        processor.close()
        try:
            (close or close_broker)(broker)
        except BrokerEnded as error:
            if broker.fatal is None:
                raise
            log.error("%s", error)
    if broker.fatal is not None:
        raise BrokerEnded(broker.fatal)


async def run(
    broker: Broker, server: Server, *, connect: Connect | None = None, on_ready: Callable[[], None] = ignore
) -> None:
    """Runs the services of a broker and its server until it is cancelled, then closes the connections.

    `on_ready` is called when clients can connect; `connect` as in `serve`.
    """
    # The tasks besides the requests have their own nursery, which is open until the last connection is closed: a
    # request may arrive when all services have ended.
    async with trio.open_nursery() as tasks:
        broker.loop.host = Host(server.processor.call_soon, tasks.start_soon)
        try:
            async with trio.open_nursery() as nursery:
                for service in broker.services:
                    nursery.start_soon(service.run)
                if broker.member is not None:
                    nursery.start_soon(_followers(broker, server.processor, nursery, connect).run)
                nursery.start_soon(server.serve)
                on_ready()
        finally:
            broker.loop.host = None
            server.close()


def _followers(
    broker: Broker, processor: Processor, nursery: trio.Nursery, connect: Connect | None
) -> ReplicaFollowers:
    security = peer_security(broker.metadata)
    around = FetcherEnvironment(
        processor,
        Timer,
        nursery.start_soon,
        broker.clock.monotonic_ms,
        lambda node_id: endpoint_of(broker.metadata.image, broker.config, node_id),
        lambda: broker.config.replica_socket_timeout_ms,
        f"broker-{broker.config.node_id}-fetcher",
        connect or connect_with(security),
        security.new_exchange,
    )
    return ReplicaFollowers(
        broker.metadata,
        broker.partitions,
        broker.in_sync,
        broker.follower_quota,
        around,
        lambda key: broker.moves.forget_partition(key, "its log was cut"),
    )


def _metrics_endpoint(broker: Broker, listener: BoundListener) -> MetricsEndpoint:
    from kwire.metrics.endpoint import MetricsEndpoint  # Most brokers have none, and need not load Python's http.

    log.info("metrics are at http://%s/metrics", listener.address)
    return MetricsEndpoint(broker, listener.sock)


async def hand_over(broker: Broker) -> None:
    """Lets other brokers of the cluster lead what they can lead before a stop, so that clients need not wait."""
    if broker.member is not None:
        with trio.move_on_after(HAND_OVER_TIMEOUT_S):
            try:
                await in_this_task(broker.member.shut_down())
            except KafkaError as error:
                log.warning("the other brokers learn of the stop only when it is over: %s", error.message)


def close_broker(broker: Broker) -> None:
    """Stops a broker cleanly. Raises BrokerEnded."""
    try:
        broker.close(_side_by_side)
    except OSError as error:
        raise BrokerEnded(f"could not stop cleanly: {error}; the next start will check the logs") from error


def _side_by_side(syncs: list[Callable[[], None]]) -> None:
    for _ in workers.side_by_side(Worker.STOP, syncs, SYNC_THREADS):
        pass


def run_until_signalled(
    config: ServerConfig, *, announce: Callable[[str], None], stops_with_stdin: bool = False
) -> None:
    """Runs a broker on the real disk until SIGINT or SIGTERM. Passes the start-up line to `announce`.

    With `stops_with_stdin` the end of the standard input stops it, too. Raises StartError, BrokerEnded.
    """
    raise_limit()
    folders = ", ".join(config.log_dirs)
    config = _with_whole_paths(config)
    files = Budget.of(config).open_files()
    disks = {path: RealDisk(path, files) for path in {config.metadata_log_dir, *config.log_dirs}}
    with metrics_listener(config) as metrics:
        listeners = bind_all(config)
        broker = open_broker(config, disks, SystemClock(), listeners)
        for listener, configured in zip(listeners, config.listeners, strict=True):
            if not _requires_authentication(broker, configured):
                _warn_of_strangers(listener, "read and change all data")
            elif not configured.has_tls:
                _warn_of_clear_text(listener, config)

        async def stop_when_signalled(scope: trio.CancelScope) -> None:
            with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
                # Objects that exist by now are permanent, so the garbage collector need not scan them again.
                gc.freeze()
                addresses = ", ".join(listener.address for listener in listeners)
                announce(
                    f"kwire {kwire.__version__} listening on {addresses} (node {config.node_id}, "
                    f"cluster {broker.metadata.cluster_id}, data in {folders})"
                )
                log.info("stopping: %s", await _reason_to_stop(signals, stops_with_stdin=stops_with_stdin))
                await hand_over(broker)
                scope.cancel()

        serve(broker, listeners, body=stop_when_signalled, metrics=metrics)
    log.info("stopped")


def _requires_authentication(broker: Broker, listener: Listener) -> bool:
    if listener.security_protocol == "SSL":
        properties = broker.metadata.configs.effective
        return ConfigReader(properties).of_listener(listener.name).text("ssl.client.auth") == "required"
    return listener.has_sasl


def _warn_of_strangers(listener: BoundListener, what: str) -> None:
    if not _is_loopback(listener):
        log.warning(
            "listening on %s without authentication: anyone who reaches this address can %s", listener.address, what
        )


def _warn_of_clear_text(listener: BoundListener, config: ServerConfig) -> None:
    """Warns of mechanisms other than SCRAM on a listener without encryption."""
    names = [it.name for it in config.sasl[listener.name] if not it.name.startswith("SCRAM-")]
    if names and not _is_loopback(listener):
        log.warning(
            "listening on %s for %s without encryption: anyone who sees the network's traffic learns passwords; use "
            "SASL_SSL, or SCRAM only",
            listener.address,
            " and ".join(names),
        )


def _is_loopback(listener: BoundListener) -> bool:
    return ipaddress.ip_address(listener.host.partition("%")[0]).is_loopback


async def _reason_to_stop(signals: AsyncIterator[int], *, stops_with_stdin: bool) -> str:
    """Waits for a signal, or the end of the standard input, and returns it as the reason."""
    reasons: list[str] = []
    async with trio.open_nursery() as nursery:

        async def wait_for_signal() -> None:
            reasons.append(f"received {signal.Signals(await anext(signals)).name}")
            nursery.cancel_scope.cancel()

        async def wait_for_stdin() -> None:
            await trio.lowlevel.wait_readable(STDIN)
            while os.read(STDIN, 4096):
                await trio.lowlevel.wait_readable(STDIN)
            reasons.append("the standard input has ended")
            nursery.cancel_scope.cancel()

        nursery.start_soon(wait_for_signal)
        if stops_with_stdin:
            nursery.start_soon(wait_for_stdin)
    return reasons[0]
