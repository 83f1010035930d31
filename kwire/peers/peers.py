"""Requests from this broker to the other brokers of its cluster.

    future = peers.send(2, WriteTxnMarkersRequest(...), timeout_s=30)
    outcome = await future    # in a handler; other code uses future.when_set

Each other broker has one connection. It is opened by the first request, and closed when the broker has another address
or is fenced, or when there was no request for connections.max.idle.ms. After a failure the next one is opened after a
pause, which doubles with each failure; until then requests fail at once. A request is never sent twice: only the caller
can decide if that is safe.

A broker answers the requests of a connection in their order. So requests with late responses, such as WriteTxnMarkers,
need their own `Peers`, or others would wait behind them. Like Kafka's `InterBrokerSendThread`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeAlias

import attrs
import trio
from kwire_protocol.wire import ApiMessage, UnsupportedField
from outcome import Error, Outcome, Value

from kwire.backoff import Backoff
from kwire.client.async_connection import AsyncBrokerConnection, AsyncConnect
from kwire.client.errors import ClientError, ConnectionFailed, VersionNotServed
from kwire.client.login import NewExchange
from kwire.client.security import PLAIN_TEXT, ClientSecurity
from kwire.client.transport import Address
from kwire.config.server import ServerConfig
from kwire.metadata.image import Changes, MetadataImage
from kwire.metadata.service import MetadataService
from kwire.peers.connecting import connect_with, over_streams
from kwire.runtime.clock import secret_of
from kwire.runtime.futures import Future
from kwire.runtime.loop import Loop

MAX_IN_FLIGHT: Final = 100
"""The maximum number of unanswered requests to one broker. Further ones fail at once."""

CONNECT_TIMEOUT_S: Final = 10.0
"""The timeout of the connection and its ApiVersions; a request with less time waits less."""

PAUSES_S: Final = Backoff(first=0.05, longest=1.0)
"""Kafka's reconnect.backoff.ms and reconnect.backoff.max.ms."""

Answer: TypeAlias = Outcome[Any]
"""The response, or a ClientError."""


class TooManyRequests(ClientError):
    """MAX_IN_FLIGHT requests to that broker wait for their responses already."""

    may_pass = True


def endpoint_of(image: MetadataImage, config: ServerConfig, node_id: int) -> Address | None:
    """The address at which this broker reaches another one: that of its inter-broker listener, as it is registered.

    None if the broker is not registered, is fenced, or has no such listener.
    """
    registered = image.brokers.get(node_id)
    if registered is None or registered.fenced:
        return None
    endpoint = registered.endpoints.get(config.inter_broker_listener_name)
    return None if endpoint is None else (endpoint.host, endpoint.port)


def peer_security(metadata: MetadataService) -> ClientSecurity:
    """The security of connections to the others, by the settings of the inter-broker listener. Raises ConfigError."""
    config = metadata.config
    listener = next(it for it in config.listeners if it.name == config.inter_broker_listener_name)
    if metadata.is_alone or listener.security_protocol == "PLAINTEXT":
        return PLAIN_TEXT
    # Imported here, so that a broker in plain text does not load the modules of TLS and SASL.
    from kwire.config.client_security import inter_broker_security

    clock = metadata.clock
    return inter_broker_security(lambda: metadata.configs.effective, listener, lambda: secret_of(clock).hex())


def peers_of(metadata: MetadataService, loop: Loop, purpose: str) -> Peers:
    """Returns the `Peers` of the brokers in the metadata. `purpose` is part of the client id. Raises ConfigError."""

    def find(node_id: int) -> Address | None:
        return endpoint_of(metadata.image, metadata.config, node_id)

    security = peer_security(metadata)
    peers = Peers(
        find,
        loop,
        lambda: metadata.config.connections_max_idle_ms,
        f"broker-{metadata.config.node_id}-{purpose}",
        over_streams(connect_with(security)),
        security.new_exchange,
    )
    metadata.watch(peers.follow)
    return peers


@attrs.define(eq=False)
class _Open:
    """An open connection. `ended` is set when it must be closed."""

    connection: AsyncBrokerConnection
    address: Address
    ended: trio.Event = attrs.field(factory=trio.Event)


@attrs.define(eq=False)
class _Peer:
    """Another broker. Times are of trio's clock."""

    node_id: int
    in_flight: int = 0
    """The number of requests that are not answered yet."""
    used_at: float = -math.inf
    open: _Open | None = None
    opening: trio.Lock = attrs.field(factory=trio.Lock)
    failures: int = 0
    paused_until: float = -math.inf

    def failed(self) -> None:
        self.failures += 1
        self.paused_until = trio.current_time() + PAUSES_S.after(self.failures)

    def answered(self) -> None:
        self.failures, self.paused_until = 0, -math.inf

    def close(self) -> None:
        """Ends the connection: the task that keeps it closes it."""
        if self.open is not None:
            self.open.ended.set()
            self.open = None


@attrs.define(eq=False)
class Peers:
    """`find` returns the address of a node id, or None if it has none now. Its tasks run in `loop`.

    Call `follow` with every change of the metadata. A server that stops cancels the requests in flight: their futures
    are never set.
    """

    find: Callable[[int], Address | None]
    loop: Loop
    max_idle_ms: Callable[[], int]
    """connections.max.idle.ms; negative for no limit."""
    client_id: str
    """The name of this broker in the log lines of the others."""
    connect: AsyncConnect
    new_exchange: NewExchange | None = None
    """Begins the authentication that the other brokers require."""
    _peers: dict[int, _Peer] = attrs.field(factory=dict)

    def send(self, node_id: int, request: ApiMessage, *, timeout_s: float, at_least: int = 0) -> Future[Answer]:
        """Sends a request, in the newest version from `at_least` on that both brokers support.

        The future gets the response, or a ClientError: ConnectionFailed (also for a node without an address),
        NotABroker, VersionNotServed, TooManyRequests. `timeout_s` includes the time to connect.
        """
        future: Future[Answer] = Future()
        loop = self.loop.host
        if loop is None:
            future.set(Error(ConnectionFailed(f"node {node_id} cannot be reached: this broker is not running yet")))
            return future
        peer = self._peers.setdefault(node_id, _Peer(node_id))
        if peer.in_flight >= MAX_IN_FLIGHT:
            future.set(Error(TooManyRequests(f"node {node_id} has not answered {MAX_IN_FLIGHT} requests")))
            return future
        peer.in_flight += 1
        loop.start_soon(partial(self._send, peer, request, future, timeout_s, at_least))
        return future

    def pause(self, seconds: float) -> Future[None]:
        """Returns a future that is set after that time, for a request to be repeated; at once without a server."""
        future: Future[None] = Future()
        if self.loop.host is None:
            future.set(None)
            return future

        async def run() -> None:
            await trio.sleep(seconds)
            future.set(None)

        self.loop.host.start_soon(run)
        return future

    def follow(self, changes: Changes) -> None:
        """Follows a change of the metadata."""
        if not changes.brokers:
            return
        for peer in list(self._peers.values()):
            address = self.find(peer.node_id)
            if peer.open is not None and peer.open.address != address:
                peer.close()
            # The reason of earlier failures may be gone now.
            peer.answered()
            if address is None and not peer.in_flight:
                del self._peers[peer.node_id]

    async def _send(
        self, peer: _Peer, request: ApiMessage, future: Future[Answer], timeout_s: float, at_least: int
    ) -> None:
        answer: Answer
        try:
            answer = Value(await self._answer(peer, request, timeout_s, at_least))
        except ClientError as error:
            answer = Error(error)
        except UnsupportedField as error:
            answer = Error(VersionNotServed(f"node {peer.node_id} is too old for this request: {error}"))
        finally:
            peer.in_flight -= 1
            peer.used_at = trio.current_time()
        future.set(answer)

    async def _answer(self, peer: _Peer, request: ApiMessage, timeout_s: float, at_least: int) -> Any:
        deadline = trio.current_time() + timeout_s
        opened = await self._opened(peer, timeout_s)
        try:
            response = await opened.connection.call(
                request, at_least=at_least, timeout_s=max(0.0, deadline - trio.current_time())
            )
        finally:
            if opened.connection.is_closed and peer.open is opened:
                peer.close()
                peer.failed()
        peer.answered()
        return response

    async def _opened(self, peer: _Peer, timeout_s: float) -> _Open:
        """Returns the connection, and opens it if there is none. One request at a time does that; the others wait."""
        with trio.move_on_after(timeout_s):
            async with peer.opening:
                if peer.open is None or peer.open.connection.is_closed:
                    peer.open = await self._open(peer)
                return peer.open
        raise ConnectionFailed(f"node {peer.node_id} could not be connected to within {timeout_s:g} s")

    async def _open(self, peer: _Peer) -> _Open:
        address = self.find(peer.node_id)
        if address is None:
            raise ConnectionFailed(f"node {peer.node_id} has no address at the inter-broker listener, or is fenced")
        left_s = peer.paused_until - trio.current_time()
        if left_s > 0:
            raise ConnectionFailed(
                f"node {peer.node_id} could not be reached just now, and is tried again in {left_s * 1000:.0f} ms"
            )
        try:
            connection = await AsyncBrokerConnection.open(
                address,
                CONNECT_TIMEOUT_S,
                client_id=self.client_id,
                connect=self.connect,
                new_exchange=self.new_exchange,
            )
        except ClientError:
            peer.failed()
            raise
        opened = _Open(connection, address)
        if self.loop.host is None or self.find(peer.node_id) != address:
            connection.close()
            raise ConnectionFailed(f"node {peer.node_id} is no longer at {connection.name}")
        self.loop.host.start_soon(partial(self._keep, peer, opened))
        return opened

    async def _keep(self, peer: _Peer, opened: _Open) -> None:
        """Keeps the connection until it has ended or is idle for too long, then closes it."""
        try:
            while not opened.ended.is_set():
                max_idle_ms = self.max_idle_ms()
                max_idle_s = max_idle_ms / 1000 if max_idle_ms >= 0 else math.inf
                now = trio.current_time()
                idle_since = now if peer.in_flight else peer.used_at
                if now - idle_since >= max_idle_s:
                    break
                with trio.move_on_at(idle_since + max_idle_s):
                    await opened.ended.wait()
        finally:
            if peer.open is opened:
                peer.open = None
            opened.connection.close()
