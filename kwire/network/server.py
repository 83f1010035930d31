"""Listening sockets, and the connections they accept.

`serve` runs until it is cancelled. Connections have no tasks of their own: one `Processor` calls them. One reaper task
closes connections that are idle for connections.max.idle.ms. It sleeps until the earliest time at which one could have
been idle for so long, so a thousand idle connections cost nothing.
"""

from __future__ import annotations

import errno
import logging
import math
import socket
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial

import attrs
import trio
from kwire_protocol.frames import BufferPool

from kwire.config.server import Listener, ServerConfig
from kwire.handlers.apis import Api, bound_apis
from kwire.metadata.image import Changes
from kwire.network.connection import LONGEST_STARVED_S, Connection, PeerAddress
from kwire.network.decoding import Shapes
from kwire.network.listener_security import ListenerSecurity
from kwire.network.peer_log import LineLimit, PeerLogs
from kwire.network.services import Node
from kwire.quotas.connections import ConnectionLimits, ConnectionQuotas, canonical
from kwire.quotas.rates import Window
from kwire.runtime.descriptors import Budget
from kwire.runtime.processor import Processor, Timer
from kwire.runtime.transport import PlainTransport, Transport

log = logging.getLogger(__name__)

ACCEPTS_PER_TURN = 64
"""The number of new connections after which the existing ones have a turn."""

MOST_REFUSED = 1000
"""The maximum number of refused connections that stay open for a while. More are closed at once."""

RETRY_ACCEPT_S = 0.1
"""The delay before accepting is retried when the system lacks descriptors or memory. Existing connections continue."""

WAITING_LOG_INTERVAL_S = 60.0
"""The minimum interval of log lines that report waiting connections."""

_PASSING_ACCEPT_ERRNOS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


@attrs.frozen
class BoundListener:
    """A listener and its bound socket. If port 0 was requested, `port` is the one that was assigned."""

    name: str
    host: str
    port: int
    sock: socket.socket

    @property
    def address(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def bind(listener: Listener, config: ServerConfig) -> BoundListener:
    """Binds a socket; `Server.serve` listens on it. Raises OSError with the address in its message.

    Sets the sizes of the socket's buffers too, because accepted sockets inherit them.
    """
    host = listener.host or "0.0.0.0"
    family, kind, proto, _, address = socket.getaddrinfo(host, listener.port, type=socket.SOCK_STREAM)[0]
    sock = socket.socket(family, kind, proto)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if config.socket_receive_buffer_bytes > 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, config.socket_receive_buffer_bytes)
        if config.socket_send_buffer_bytes > 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, config.socket_send_buffer_bytes)
        sock.setblocking(False)
        sock.bind(address)
    except OSError as error:
        sock.close()
        raise OSError(error.errno, f"cannot listen on {host}:{listener.port}: {error.strerror}") from error
    bound = sock.getsockname()
    return BoundListener(listener.name, bound[0], bound[1], sock)


def listen(listener: BoundListener, config: ServerConfig) -> None:
    """Lets clients connect; `Server.serve` accepts them. Raises OSError with the address in its message."""
    try:
        listener.sock.listen(config.socket_listen_backlog_size)
    except OSError as error:
        raise OSError(error.errno, f"cannot listen on {listener.address}: {error.strerror}") from error


@attrs.define(eq=False)
class Server:
    """Accepts and serves connections for one broker.

    As in Kafka, connections above max.connections wait in the listeners' backlogs until another one ends, and those
    above max.connections.per.ip are closed at once. `kwire.quotas.connections` limits the rate of new connections.
    If there is a listener for other brokers only, other brokers do not wait: the connection of another listener that
    has been idle for longest is closed for them.

    Connections above the number that `descriptors` allows wait in the same way, so that files can always be opened.
    """

    node: Node
    listeners: list[BoundListener]
    processor: Processor
    """Calls the connections. The code that runs the server runs the processor too."""
    new_transport: Callable[[socket.socket], Transport] = PlainTransport
    """Makes the transport of an accepted socket, if its listener is not in `securities`."""
    securities: Mapping[str, ListenerSecurity] = attrs.field(factory=dict)
    """The security of listeners, by name. Connections of other listeners are in plain text, without authentication."""
    descriptors: Budget | None = None
    """The budget of file descriptors; None if they are not limited."""
    connections: dict[Connection, str] = attrs.field(factory=dict)
    """The open connections, each with the name of its listener."""
    _connections_by_host: Counter[str] = attrs.field(factory=Counter)
    _waiting_for_room: trio.lowlevel.ParkingLot = attrs.field(factory=trio.lowlevel.ParkingLot)
    _pool: BufferPool = attrs.field(init=False)
    _apis: Mapping[int, Api] = attrs.field(init=False)
    _shapes: Shapes = attrs.field(factory=Shapes)
    _connected: trio.Event = attrs.field(factory=trio.Event)
    _logs: PeerLogs = attrs.field(init=False)
    _connection_quotas: ConnectionQuotas = attrs.field(init=False)
    _limits: tuple[ServerConfig, ConnectionLimits] | None = None
    """The limits, with the configuration from which they were read."""
    _checked_stalled_at: float = -math.inf
    _waiting_log_limit: LineLimit = attrs.field(factory=lambda: LineLimit(1, WAITING_LOG_INTERVAL_S))
    _refused: dict[socket.socket, Timer] = attrs.field(factory=dict)
    """Connections that are not served, and are closed when their addresses have paused."""

    def __attrs_post_init__(self) -> None:
        config = self.node.config
        self._apis = bound_apis(
            self.node, unstable=config.unstable_api_versions_enable, fast_paths=config.kwire_fast_paths_enable
        )
        self._pool = BufferPool(max_bytes=config.queued_max_request_bytes)
        self._connection_quotas = ConnectionQuotas(
            Window.of(config.quota_window_num, config.quota_window_size_seconds),
            self._connection_limits,
            self._protected,
        )
        self._connection_quotas.follow(self.node.metadata.image.access.quotas)
        self._logs = PeerLogs(self.processor, self.node.config.kwire_audit_log_max_lines_per_second)
        self.node.audit.write = self._write_audit

    def _write_audit(self, level: int, line: str) -> None:
        self._logs.audit.write(level, "%s", line, now=self.processor.now)

    async def serve(self) -> None:
        """Accepts and serves connections until it is cancelled. Call `close` then."""
        self.node.metadata.watch(self._follow)
        async with trio.open_nursery() as nursery:
            for security in self.securities.values():
                if security.start is not None:
                    security.start(nursery.start_soon)
            for listener in self.listeners:
                nursery.start_soon(self._accept, listener)
            nursery.start_soon(self._reap_idle)

    def close(self) -> None:
        """Closes the listeners and the connections."""
        for listener in self.listeners:
            listener.sock.close()
        for connection in list(self.connections):
            connection.close()
        for sock in list(self._refused):
            self._close_refused(sock)
        self._logs.log_left_out()

    async def _accept(self, listener: BoundListener) -> None:
        while True:
            await self._wait_for_room(listener)
            await trio.lowlevel.wait_readable(listener.sock)
            for _ in range(ACCEPTS_PER_TURN):
                if not self._has_room(listener):
                    break
                try:
                    sock, peer = listener.sock.accept()
                except BlockingIOError:
                    break
                except OSError as error:
                    if error.errno in _PASSING_ACCEPT_ERRNOS:
                        self._log_waiting(
                            f"cannot accept connections on {listener.address}, which have to wait: {error.strerror}. "
                            "Something else takes descriptors or memory; a limit is raised with ulimit -n"
                        )
                        await trio.sleep(RETRY_ACCEPT_S)
                    # Any other error means that the connection was closed before it was accepted.
                    break
                if listener.name == self._protected:
                    self._make_room()
                await self._take(sock, peer, listener)

    async def _take(self, sock: socket.socket, peer: PeerAddress, listener: BoundListener) -> None:
        """Serves a new connection, perhaps after a pause, or refuses it.

        The peer's address is the one from `accept`. A socket that the peer has reset by now has no address any more,
        but the requests that the peer sent before are in the socket, and are served as in Kafka.
        """
        quotas, now_ms = self._connection_quotas, self.node.clock.monotonic_ms
        pause_ms = quotas.pause_ms(listener.name, now_ms())
        if pause_ms:
            await self._pause(sock, listener, pause_ms)
        host = peer[0]
        refused_ms = quotas.refused_for_ms(listener.name, host, now_ms())
        if refused_ms:
            self._refuse(sock, host, refused_ms)
        else:
            self._start(sock, peer, listener)

    async def _pause(self, sock: socket.socket, listener: BoundListener, pause_ms: int) -> None:
        """Stops accepting connections for `pause_ms`, and after that until there is room."""
        self._logs.closings.write(
            logging.WARNING,
            "%s: connections come faster than max.connection.creation.rate allows, and wait",
            listener.address,
            now=trio.current_time(),
        )
        is_over = False
        try:
            await trio.sleep(pause_ms / 1000)
            await self._wait_for_room(listener)
            is_over = True
        finally:
            if not is_over:
                sock.close()  # nothing else refers to it

    def _refuse(self, sock: socket.socket, host: str, refused_ms: int) -> None:
        self._logs.closings.write(
            logging.WARNING,
            "closing a connection from %s: they come faster than connection_creation_rate allows",
            host,
            now=trio.current_time(),
        )
        if len(self._refused) >= MOST_REFUSED or self._taken >= self._most_for_descriptors:
            sock.close()
            return
        self._refused[sock] = Timer(partial(self._close_refused, sock))
        self.processor.start_timer(self._refused[sock], trio.current_time() + refused_ms / 1000)

    def _close_refused(self, sock: socket.socket) -> None:
        self._refused.pop(sock).forget()
        sock.close()
        self._waiting_for_room.unpark_all()

    def _connection_limits(self) -> ConnectionLimits:
        config = self.node.config
        if self._limits is None or self._limits[0] is not config:
            overrides = config.max_connections_per_ip_overrides
            limits = ConnectionLimits(
                config.max_connection_creation_rate,
                config.max_connection_creation_rates,
                config.max_connections_per_ip,
                {address: most for host, most in overrides.items() for address in _addresses(host)},
            )
            self._limits = config, limits
        return self._limits[1]

    def _follow(self, changes: Changes) -> None:
        if changes.configs or changes.brokers:
            # max.connections may have been raised, or a broker has left, for which descriptors were reserved.
            self._waiting_for_room.unpark_all()
        if changes.access.quotas:
            self._connection_quotas.follow(self.node.metadata.image.access.quotas)
            for connection in self.connections:
                connection.follow_quotas()

    # Room for connections

    @property
    def _protected(self) -> str | None:
        """The listener of other brokers; None if clients share it."""
        return self.node.config.inter_broker_listener_name if len(self.listeners) > 1 else None

    @property
    def _taken(self) -> int:
        """The number of connections that have a descriptor, refused ones included."""
        return len(self.connections) + len(self._refused)

    @property
    def _most_for_descriptors(self) -> int:
        if self.descriptors is None:
            return sys.maxsize
        others = len(self.node.metadata.image.brokers.keys() - {self.node.config.node_id})
        return self.descriptors.connections(others, self.node.config.num_replica_fetchers)

    def _has_room(self, listener: BoundListener) -> bool:
        """Returns True if the listener may accept one more connection."""
        is_protected = listener.name == self._protected
        if self._taken >= self._most_for_descriptors:
            return is_protected and any(name != self._protected for name in self.connections.values())
        return is_protected or len(self.connections) < self.node.config.max_connections

    def _make_room(self) -> None:
        """If there is no room for another broker, closes the connection that has been idle for longest elsewhere."""
        is_full = len(self.connections) >= self.node.config.max_connections
        if not is_full and self._taken < self._most_for_descriptors:
            return
        at_others = [it for it, name in self.connections.items() if name != self._protected]
        if at_others:
            idle = min(at_others, key=lambda it: it.last_active)
            self._logs.closings.write(
                logging.WARNING,
                "closing the connection from %s, which has been idle for longest: another broker needs the room",
                idle.name,
                now=trio.current_time(),
            )
            idle.close()

    async def _wait_for_room(self, listener: BoundListener) -> None:
        while not self._has_room(listener):
            self._log_waiting(self._why_full())
            await self._waiting_for_room.park()

    def _why_full(self) -> str:
        if len(self.connections) >= self.node.config.max_connections:
            return f"{len(self.connections)} connections, as many as max.connections allows: others wait"
        assert self.descriptors is not None
        return (
            f"{self._taken} connections, as many as a limit of {self.descriptors.limit} open files leaves room for: "
            "others wait. Raise the limit (ulimit -n) to let them in"
        )

    def _log_waiting(self, line: str) -> None:
        if self._waiting_log_limit.admits(trio.current_time()):
            log.warning("%s", line)

    def _start(self, sock: socket.socket, peer: PeerAddress, listener: BoundListener) -> None:
        security = self.securities.get(listener.name)
        new_transport = self.new_transport if security is None else security.new_transport
        transport: Transport | None = None
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            transport = new_transport(sock)
            connection = Connection(
                self.node,
                self._apis,
                transport,
                self.processor,
                peer=peer,
                listener_name=listener.name,
                sasl=None if security is None or security.new_session is None else security.new_session(),
                pool=self._pool,
                shapes=self._shapes,
                logs=self._logs,
                on_closed=self._forget,
                on_starved=self._close_stalled,
                now=trio.current_time(),
            )
        except OSError:  # a socket that cannot be set up
            if transport is None:
                sock.close()
            else:
                transport.close()
            return
        allowed = self._connection_quotas.most_of(connection.client_host)
        if self._connections_by_host[connection.client_host] >= allowed:
            self._logs.closings.write(
                logging.WARNING,
                "closed %s: max.connections.per.ip allows %d connections",
                connection.name,
                allowed,
                now=trio.current_time(),
            )
            transport.close()
            return
        self._connections_by_host[connection.client_host] += 1
        self.connections[connection] = listener.name
        self._connected.set()
        connection.open()

    def _forget(self, connection: Connection) -> None:
        self.connections.pop(connection, None)
        self._connections_by_host[connection.client_host] -= 1
        if not self._connections_by_host[connection.client_host]:
            del self._connections_by_host[connection.client_host]
        self._waiting_for_room.unpark_all()

    def _close_stalled(self) -> None:
        """Closes connections that hold memory and send next to nothing, while another has no memory for its request.

        Many connections may wait for memory, and each of them calls this.
        """
        now = trio.current_time()
        if now < self._checked_stalled_at + LONGEST_STARVED_S:
            return
        self._checked_stalled_at = now
        for connection in list(self.connections):
            if connection.has_stalled():
                connection.close_stalled(now)

    async def _reap_idle(self) -> None:
        max_idle_s = self.node.config.connections_max_idle_ms / 1000
        if max_idle_s < 0:
            return
        while True:
            if not self.connections:
                self._connected = trio.Event()
                await self._connected.wait()
            oldest = min((connection.last_active for connection in self.connections), default=trio.current_time())
            await trio.sleep_until(oldest + max_idle_s)
            now = trio.current_time()
            for connection in list(self.connections):
                if now - connection.last_active >= max_idle_s:
                    connection.close_idle(now)


def _addresses(host: str) -> list[str]:
    """Returns the addresses of a host in max.connections.per.ip.overrides.

    A name is looked up when it is configured, as in Kafka.
    """
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError as error:
        log.warning("max.connections.per.ip.overrides has %a, which has no address: %s", host, error)
        return []
    return [canonical(str(address[0])) for *_, address in found]
