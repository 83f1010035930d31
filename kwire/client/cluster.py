"""All brokers of a cluster. Connects to each when it is first needed, and again if its connection has failed.

The leaders of a topic's partitions, and the coordinators of groups and transactional ids, are looked up once and
cached. A caller that detects a change (NOT_LEADER_OR_FOLLOWER, NOT_COORDINATOR, a failed connection) calls
`forget_topic` or `forget_coordinator` and retries; `until_done` does that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeVar

import attrs
from kwire_protocol.conversation import Ticket
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import quoted
from kwire_protocol.messages.find_coordinator import FindCoordinatorRequest
from kwire_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from kwire_protocol.wire import NULL_UUID, ApiMessage, Uuid

from kwire.client.connection import BrokerConnection
from kwire.client.errors import (
    ClientError,
    ConnectionFailed,
    NoBrokerReached,
    Refused,
    UnknownTopic,
    refused,
)
from kwire.client.exchange import DEFAULT_CLIENT_ID, DEFAULT_TIMEOUT_S
from kwire.client.login import LoginFailed, NewExchange
from kwire.client.transport import Address, Connect, connect_plain_text, parse_addresses
from kwire.client.waiting import Clock, SystemClock, until_done

T = TypeVar("T")


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class CoordinatorKind(IntEnum):
    """The kind of a coordinator: FindCoordinator's key type."""

    GROUP = 0
    TRANSACTION = 1


@attrs.frozen
class Topic:
    """A topic, from the cluster's metadata."""

    name: str
    topic_id: Uuid
    """All zeros if the brokers have no topic ids (before Kafka 2.8)."""
    leaders: dict[int, int]
    """The broker that leads each partition; -1 for none at the moment."""


class Cluster:
    """A cluster, found through some of its brokers' addresses. A context manager. Raises ClientError."""

    def __init__(
        self,
        bootstrap: str,
        *,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        client_id: str = DEFAULT_CLIENT_ID,
        connect: Connect = connect_plain_text,
        new_exchange: NewExchange | None = None,
        clock: Clock | None = None,
    ) -> None:
        """`bootstrap` is HOST:PORT, or several separated by commas: the first that can be reached returns the others.

        connect, new_exchange: the security of connections; see `kwire.client.security`.
        timeout_s: for connecting to a broker, for each response, and for all attempts of an operation that is retried.
        """
        self.timeout_s = timeout_s
        self.clock: Clock = clock or SystemClock()
        self._client_id = client_id
        self._connect_transport = connect
        self._new_exchange = new_exchange
        self._bootstrap_addresses = parse_addresses(bootstrap)
        self._addresses: dict[int, Address] = {}
        self._connections: dict[int, BrokerConnection] = {}
        self._topics: dict[str, Topic] = {}
        self._coordinators: dict[tuple[CoordinatorKind, str], int] = {}
        self._cluster_id: str | None = None
        self._controller_id = -1
        self._bootstrap = self._connect_to_any()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        for connection in (self._bootstrap, *self._connections.values()):
            connection.close()

    # Requests

    def call(
        self, request: ApiMessage, *, node_id: int | None = None, at_least: int = 0, at_most: int | None = None
    ) -> Any:
        """Sends a request once to one broker, or to any broker without `node_id`. Returns the response."""
        connection = self.any_connection() if node_id is None else self.connection(node_id)
        return connection.call(request, at_least=at_least, at_most=at_most)

    def call_each(
        self, requests: Mapping[int, ApiMessage], *, at_least: int = 0, at_most: int | None = None
    ) -> dict[int, Any]:
        """Sends requests to several brokers at once. Returns each broker's response or ClientError, by node id."""
        answers: dict[int, Any] = {}
        sent: dict[int, tuple[BrokerConnection, Ticket]] = {}
        for node_id, request in requests.items():
            try:
                connection = self.connection(node_id)
                sent[node_id] = connection, connection.send(request, at_least=at_least, at_most=at_most)
            except ClientError as error:
                answers[node_id] = error
        for node_id, (connection, ticket) in sent.items():
            try:
                answers[node_id] = connection.receive(ticket)
            except ClientError as error:
                answers[node_id] = error
        return answers

    def connection(self, node_id: int) -> BrokerConnection:
        """Returns the connection to a broker that all users of this `Cluster` share."""
        connection = self._connections.get(node_id)
        if connection is None or connection.is_closed:
            connection = self._connections[node_id] = self.open_connection(node_id)
        return connection

    def open_connection(self, node_id: int) -> BrokerConnection:
        """Returns a connection for the caller alone, for requests that would delay others. The caller closes it."""
        if node_id not in self._addresses:
            self.metadata([])
        if node_id not in self._addresses:
            raise ClientError(f"broker {node_id} is none of the cluster's: {self.node_ids()}")
        try:
            return self._connect(self._addresses[node_id])
        except ConnectionFailed:
            del self._addresses[node_id]  # it may have changed: the next call looks it up
            raise

    def until_done(self, attempt: Callable[[], T], before_again: Callable[[ClientError], None] | None = None) -> T:
        """Retries until the attempt succeeds, for at most `timeout_s`; see `waiting.until_done`."""
        return until_done(attempt, clock=self.clock, timeout_s=self.timeout_s, before_again=before_again)

    def pause(self, seconds: float) -> None:
        """Called before a retry."""
        self.clock.sleep(seconds)

    # Metadata

    def metadata(self, topics: Sequence[str] | None) -> MetadataResponse:
        """Returns the brokers, and these topics, or all topics including internal ones. Creates no topics."""
        requested = None if topics is None else [MetadataRequestTopic(NULL_UUID, topic) for topic in topics]
        # Version 4 is the first in which a request for a topic does not create it.
        response: MetadataResponse = self.any_connection().call(MetadataRequest(requested, False), at_least=4)
        if response.error_code:
            raise refused("the cluster does not return its metadata", response.error_code)
        self._addresses = {it.node_id: (it.host, it.port) for it in response.brokers}
        self._cluster_id = response.cluster_id
        self._controller_id = response.controller_id
        for it in response.topics:
            if it.name is not None:
                self._topics.pop(it.name, None)
                if not it.error_code:
                    leaders = {entry.partition_index: entry.leader_id for entry in it.partitions}
                    self._topics[it.name] = Topic(it.name, it.topic_id, leaders)
        return response

    def node_ids(self) -> list[int]:
        """The brokers that the last `metadata` returned."""
        if not self._addresses:
            self.metadata([])
        return sorted(self._addresses)

    @property
    def cluster_id(self) -> str | None:
        """The cluster's id; None if the brokers do not report it (before Kafka 0.10.1)."""
        if self._cluster_id is None:
            self.metadata([])
        return self._cluster_id

    def controller_id(self) -> int:
        """The broker that changes topics, or forwards such requests. Looked up each time. Raises Refused."""
        self.metadata([])
        if self._controller_id < 0:
            raise Refused("the cluster has no controller at the moment", ErrorCode.NOT_CONTROLLER)
        return self._controller_id

    def topic(self, name: str) -> Topic:
        """Returns a topic, from the cache if it is there. Raises UnknownTopic, or Refused for another error."""
        if name not in self._topics:
            for it in self.metadata([name]).topics:
                if it.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise UnknownTopic(f"there is no topic {quoted(name)}")
                if it.error_code:
                    raise refused(f"topic {quoted(name)} cannot be looked at", it.error_code)
        return self._topics[name]

    def leader(self, at: TopicPartition) -> int:
        """The broker that leads a partition. Raises UnknownTopic, or Refused if there is no leader at the moment."""
        leaders = self.topic(at.topic).leaders
        if at.partition not in leaders:
            raise UnknownTopic(
                f"topic {quoted(at.topic)} has no partition {at.partition}, but {len(leaders)} of them, from 0"
            )
        if leaders[at.partition] < 0:
            raise Refused(f"{at} has no leader", ErrorCode.LEADER_NOT_AVAILABLE)
        return leaders[at.partition]

    def forget_topic(self, name: str) -> None:
        """Drops the cached topic; it is looked up again when it is next needed."""
        self._topics.pop(name, None)

    # Coordinators

    def coordinator(self, kind: CoordinatorKind, key: str) -> int:
        """The broker that coordinates a group or a transactional id, from the cache if it is there.

        Raises Refused: COORDINATOR_NOT_AVAILABLE if the partition of the internal topic has no leader at the moment.
        """
        node_id = self._coordinators.get((kind, key))
        if node_id is None:
            # Version 4 is the first with several keys.
            response = self.call(FindCoordinatorRequest(key_type=kind, coordinator_keys=[key]), at_least=4)
            for it in response.coordinators:
                if it.error_code:
                    what = f"no coordinator of {kind.name.lower()} {quoted(key)}"
                    raise refused(what, it.error_code, it.error_message)
                node_id = self._coordinators[kind, key] = it.node_id
        if node_id is None:
            raise ClientError(f"the cluster does not return the coordinator of {kind.name.lower()} {quoted(key)}")
        return node_id

    def forget_coordinator(self, kind: CoordinatorKind, key: str) -> None:
        self._coordinators.pop((kind, key), None)

    def call_coordinator(
        self,
        kind: CoordinatorKind,
        key: str,
        call: Callable[[BrokerConnection], T],
    ) -> T:
        """Returns the result of `call` with a connection to the coordinator. `call` raises Refused for error codes.

        Retries with the current coordinator, for at most `timeout_s`.
        """

        def attempt() -> T:
            return call(self.connection(self.coordinator(kind, key)))

        return self.until_done(attempt, lambda _: self.forget_coordinator(kind, key))

    # Connections

    def _connect(self, address: Address) -> BrokerConnection:
        return BrokerConnection(
            address,
            self.timeout_s,
            client_id=self._client_id,
            connect=self._connect_transport,
            new_exchange=self._new_exchange,
            clock=self.clock,
        )

    def any_connection(self) -> BrokerConnection:
        """Returns the connection to any broker that all users of this `Cluster` share."""
        if not self._bootstrap.is_closed:
            return self._bootstrap
        for connection in self._connections.values():
            if not connection.is_closed:
                return connection
        self._bootstrap = self._connect_to_any()
        return self._bootstrap

    def _connect_to_any(self) -> BrokerConnection:
        """Connects to a bootstrap address, or else to a known broker: the bootstrap brokers may all be gone."""
        problems = []
        for address in dict.fromkeys([*self._bootstrap_addresses, *self._addresses.values()]):
            try:
                return self._connect(address)
            except LoginFailed:
                raise  # other brokers would fail in the same way
            except ClientError as error:
                problems.append(error.message)
        raise NoBrokerReached("; ".join(problems))
