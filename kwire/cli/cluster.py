"""A client for the commands: Kafka's protocol over blocking sockets, one request at a time.

kwire needs no client library to run, and the messages are all in kwire_protocol; what is missing is this file. It talks
to any Kafka cluster that listens in plain text: each broker is asked once which versions it serves, and every request
goes out in the newest one that both sides know.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Self

import click
from kwire_protocol.errors import ErrorCode
from kwire_protocol.headers import RequestHeader, read_response_header, write_request_header
from kwire_protocol.messages import APIS
from kwire_protocol.messages.api_versions import ApiVersionsRequest
from kwire_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from kwire_protocol.wire import NULL_UUID, ApiMessage, ProtocolError, Reader, Writer

MAX_REPLY_BYTES: Final = 64 * 1024 * 1024
_CLIENT_ID: Final = "kwire-cli"
_FIRST_CORRELATION_ID: Final = 1
_PIECE_BYTES: Final = 1 << 16

Address = tuple[str, int]


class ClusterError(click.ClickException):
    """What a command cannot do with the cluster, told to its user in one line; the exit code is 1."""


class BrokerConnection:
    """One broker, asked one thing after the other. Raises ClusterError for whatever it does not do."""

    def __init__(self, address: Address, timeout_s: float) -> None:
        self._name = f"{address[0]}:{address[1]}"
        self._correlation_id = _FIRST_CORRELATION_ID
        try:
            self._socket = socket.create_connection(address, timeout=timeout_s)
        except OSError as error:
            raise ClusterError(f"cannot reach {self._name}: {_reason(error)}") from None
        self._versions: dict[int, range] = {}
        try:
            # Every broker knows version 0, and answers it without features.
            for api in self._exchange(ApiVersionsRequest(), 0).api_keys:
                self._versions[api.api_key] = range(api.min_version, api.max_version + 1)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        with suppress(OSError):
            self._socket.close()

    def call(self, request: ApiMessage, *, at_least: int = 0) -> Any:
        """The answer to `request`, in the newest version that both know, and none before `at_least`."""
        ours = request.versions
        served = self._versions.get(request.api_key, range(0))
        version = min(ours.stop, served.stop) - 1
        if version < max(ours.start, served.start, at_least):
            raise ClusterError(
                f"the broker at {self._name} does not serve {APIS[request.api_key].name} "
                f"{max(ours.start, at_least)} to {ours.stop - 1}: it is too old, or too new, for this"
            )
        return self._exchange(request, version)

    def _exchange(self, request: ApiMessage, version: int) -> Any:
        self._correlation_id += 1
        writer = Writer()
        write_request_header(writer, RequestHeader(request.api_key, version, self._correlation_id, _CLIENT_ID))
        request.write(writer, version)
        body = writer.getvalue()
        try:
            self._socket.sendall(len(body).to_bytes(4, "big") + body)
            size = int.from_bytes(self._receive(4), "big", signed=True)
            if not 4 <= size <= MAX_REPLY_BYTES:
                raise ProtocolError(f"a reply of {size} bytes")
            reader = Reader(memoryview(self._receive(size)))
            correlation_id = read_response_header(reader, request.api_key, version)
            if correlation_id != self._correlation_id:
                raise ProtocolError(f"a reply to request {correlation_id}, not to {self._correlation_id}")
            return APIS[request.api_key].response_class.read(reader, version)
        except ProtocolError as error:
            raise ClusterError(f"what answers at {self._name} is no Kafka broker in plain text: {error}") from None
        except OSError as error:
            raise ClusterError(
                f"the broker at {self._name} did not answer {APIS[request.api_key].name}: {_reason(error)}"
            ) from None

    def _receive(self, size: int) -> bytes:
        received = bytearray()
        while len(received) < size:
            piece = self._socket.recv(min(_PIECE_BYTES, size - len(received)))
            if not piece:
                raise ConnectionResetError(0, "it closed the connection")
            received += piece
        return bytes(received)


class Cluster:
    """All brokers of a cluster, each connected to when it is first asked. A context manager."""

    def __init__(self, bootstrap: str, *, timeout_s: float) -> None:
        """`bootstrap` is HOST:PORT, or several with commas: the first that can be reached tells of the others."""
        self._timeout_s = timeout_s
        self._addresses: dict[int, Address] = {}
        self._connections: dict[int, BrokerConnection] = {}
        self._bootstrap = self._connect_to_any(parse_addresses(bootstrap))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for connection in (self._bootstrap, *self._connections.values()):
            connection.close()

    def metadata(self, topics: Sequence[str] | None) -> MetadataResponse:
        """The brokers, and these topics, or all of them, internal ones included."""
        asked = None if topics is None else [MetadataRequestTopic(NULL_UUID, topic) for topic in topics]
        # Version 4 is the first in which asking for a topic does not create it.
        response: MetadataResponse = self._bootstrap.call(MetadataRequest(asked, False), at_least=4)
        if response.error_code:
            raise ClusterError(f"the cluster does not tell its metadata: {error_name(response.error_code)}")
        self._addresses = {it.node_id: (it.host, it.port) for it in response.brokers}
        return response

    def node_ids(self) -> list[int]:
        """The brokers, as the last `metadata` told them."""
        if not self._addresses:
            self.metadata([])
        return sorted(self._addresses)

    def call(self, request: ApiMessage, *, node_id: int | None = None, at_least: int = 0) -> Any:
        """Asks one broker; without `node_id` that of the bootstrap address."""
        if node_id is None:
            return self._bootstrap.call(request, at_least=at_least)
        connection = self._connections.get(node_id)
        if connection is None:
            if node_id not in self.node_ids():
                raise ClusterError(f"broker {node_id} is none of the cluster's: {self.node_ids()}")
            connection = BrokerConnection(self._addresses[node_id], self._timeout_s)
            self._connections[node_id] = connection
        return connection.call(request, at_least=at_least)

    def pause(self, seconds: float) -> None:
        """Before something is asked once more."""
        time.sleep(seconds)

    def _connect_to_any(self, addresses: list[Address]) -> BrokerConnection:
        problems = []
        for address in addresses:
            try:
                return BrokerConnection(address, self._timeout_s)
            except ClusterError as error:
                problems.append(error.message)
        raise ClusterError(f"{'; '.join(problems)}. --bootstrap-server names the broker to ask")


def parse_addresses(text: str) -> list[Address]:
    """HOST:PORT, or several with commas; an IPv6 address in brackets. Raises click.UsageError."""
    addresses = []
    for part in text.split(","):
        host, _, port = part.strip().rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 1 << 16:
            raise click.UsageError(f"--bootstrap-server {part.strip()!r} is not HOST:PORT, such as 127.0.0.1:9092")
        addresses.append((host, int(port)))
    return addresses


def error_name(code: int) -> str:
    """An error code as Kafka calls it."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"


def _reason(error: OSError) -> str:
    return "it took too long" if isinstance(error, TimeoutError) else error.strerror or str(error)
