"""A cluster made of functions, behind the client's `connect`: no sockets, no threads, a clock that only sleeps move.

A test gives the answers of requests; other requests get those of a healthy cluster.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import attrs
from kwire_protocol.frames import ReplyBuffer
from kwire_protocol.headers import read_request_header, response_head
from kwire_protocol.messages import APIS
from kwire_protocol.messages.api_versions import ApiVersion, ApiVersionsResponse, FinalizedFeatureKey
from kwire_protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from kwire_protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kwire_protocol.wire import Buffer, Reader, Writer

from kwire.client.cluster import Cluster
from kwire.client.transport import Address

HOST = "node"
Answer = Callable[[int, Any], Any]
"""Node and request to the response; None for no answer at all. A ConnectionError hangs up."""


@attrs.define(eq=False)
class FakeClock:
    now_s: float = 0.0
    slept_s: list[float] = attrs.field(factory=list)

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.slept_s.append(seconds)
        self.now_s += seconds


@attrs.define(eq=False)
class FakeBrokers:
    """`leaders`: topic to its partitions' leaders. `answers`: by the request's class."""

    leaders: dict[str, list[int]] = attrs.field(factory=dict)
    answers: dict[type, Answer] = attrs.field(factory=dict)
    node_ids: list[int] = attrs.field(factory=lambda: [1, 2])
    coordinator_id: int = 1
    features: dict[str, int] = attrs.field(factory=lambda: {"transaction.version": 2})
    newest: dict[int, int] = attrs.field(factory=dict)
    """The newest version that is served, by API key, where it is not ours."""
    down: set[int] = attrs.field(factory=set)
    received: list[tuple[int, Any]] = attrs.field(factory=list)
    versions: dict[type, int] = attrs.field(factory=dict)
    """The version of the last request of each class."""
    connected: list[int] = attrs.field(factory=list)
    clock: FakeClock = attrs.field(factory=FakeClock)
    trickle_s: float = 0.0
    """Answers come byte by byte, each after so many seconds."""

    def cluster(self, timeout_s: float = 30.0) -> Cluster:
        bootstrap = ",".join(f"{HOST}:{node_id}" for node_id in self.node_ids)
        return Cluster(bootstrap, timeout_s=timeout_s, connect=self.connect, clock=self.clock)

    def connect(self, address: Address, timeout_s: float) -> FakeTransport:
        _, node_id = address
        if node_id in self.down:
            raise ConnectionRefusedError(111, "Connection refused")
        self.connected.append(node_id)
        return FakeTransport(self, node_id)

    def requests(self, kind: type) -> list[Any]:
        return [request for _, request in self.received if isinstance(request, kind)]

    def receivers_of(self, kind: type) -> list[int]:
        return [node_id for node_id, request in self.received if isinstance(request, kind)]

    def answer(self, node_id: int, request: Any) -> Any:
        self.received.append((node_id, request))
        respond = self.answers.get(type(request))
        if respond is not None:
            return respond(node_id, request)
        match request:
            case MetadataRequest():
                return self.metadata(request)
            case FindCoordinatorRequest():
                found = [Coordinator(key, self.coordinator_id, HOST, 0) for key in request.coordinator_keys]
                return FindCoordinatorResponse(coordinators=found)
            case _:
                raise AssertionError(f"nobody answers {request!r}")

    def api_versions(self) -> ApiVersionsResponse:
        served = [ApiVersion(key, api.min_version, self.newest.get(key, api.max_version)) for key, api in APIS.items()]
        features = [FinalizedFeatureKey(name, level, 1) for name, level in self.features.items()]
        return ApiVersionsResponse(0, served, finalized_features=features)

    def metadata(self, request: MetadataRequest) -> MetadataResponse:
        names = sorted(self.leaders) if request.topics is None else [it.name or "" for it in request.topics]
        topics = [
            MetadataResponseTopic(0, name, name.encode().ljust(16), partitions=_partitions(self.leaders[name]))
            if name in self.leaders
            else MetadataResponseTopic(3, name)
            for name in names
        ]
        brokers = [MetadataResponseBroker(node_id, HOST, node_id) for node_id in self.node_ids]
        return MetadataResponse(0, brokers, "a cluster", 1, topics)


def _partitions(leaders: list[int]) -> list[MetadataResponsePartition]:
    return [MetadataResponsePartition(0, index, leader, 0) for index, leader in enumerate(leaders)]


class FakeTransport:
    """A connection to one of them."""

    def __init__(self, brokers: FakeBrokers, node_id: int) -> None:
        self._brokers = brokers
        self._node_id = node_id
        self._requests = ReplyBuffer(1 << 30)
        self._replies = bytearray()
        self._timeout_s: float = 0
        self._is_closed = False

    def settimeout(self, value: float | None) -> None:
        assert value is not None
        assert value > 0
        self._timeout_s = value

    def sendall(self, data: Buffer) -> None:
        self._check()
        left = memoryview(data)
        while left:
            room = self._requests.writable()
            count = min(len(room), len(left))
            room[:count] = left[:count]
            self._requests.received(count)
            left = left[count:]
            while (frame := self._requests.next_frame()) is not None:
                self._answer(frame)

    def recv_into(self, buffer: memoryview) -> int:
        self._check()
        if not self._replies:
            self._brokers.clock.now_s += self._timeout_s
            raise TimeoutError
        count = min(len(buffer), len(self._replies))
        if self._brokers.trickle_s:
            self._brokers.clock.now_s += self._brokers.trickle_s
            count = 1
        buffer[:count] = self._replies[:count]
        del self._replies[:count]
        return count

    def take_replies(self) -> bytes:
        """Returns all replies at once, and removes them."""
        replies = bytes(self._replies)
        self._replies.clear()
        return replies

    def close(self) -> None:
        self._is_closed = True

    def _check(self) -> None:
        assert not self._is_closed, "the client uses a connection that it has closed"
        if self._node_id in self._brokers.down:
            raise ConnectionResetError(104, "Connection reset by peer")

    def _answer(self, frame: memoryview) -> None:
        reader = Reader(frame)
        header = read_request_header(reader)
        request = APIS[header.api_key].request_class.read(reader, header.api_version)
        if header.api_key == 18:
            response: Any = self._brokers.api_versions()
        else:
            self._brokers.versions[type(request)] = header.api_version
            response = self._brokers.answer(self._node_id, request)
        if response is not None:
            writer = Writer()
            writer.begin_frame(response_head(header.api_key, header.api_version, header.correlation_id))
            response.write(writer, header.api_version)
            writer.end_frame()
            self._replies += writer.getvalue()


def in_sequence(*answers: Any) -> Answer:
    """Gives one answer after the other, the last for ever. An exception is raised."""
    given: dict[str, int] = defaultdict(int)

    def answer(node_id: int, request: Any) -> Any:
        at = min(given["so far"], len(answers) - 1)
        given["so far"] += 1
        if isinstance(answers[at], Exception):
            raise answers[at]
        return answers[at]

    return answer
