"""The steady load against nodes that move partitions, die and come back."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from struct import Struct

import attrs
import pytest
from kwire_protocol.errors import ErrorCode
from kwire_protocol.headers import response_head
from kwire_protocol.messages.api_versions import ApiVersionsResponse
from kwire_protocol.messages.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic
from kwire_protocol.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from kwire_protocol.wire import ApiMessage, Writer

from benchmarks.load.answers import BadAnswer
from benchmarks.load.requests import VERSIONS
from benchmarks.load.steady_writes import CONNECTIONS, SteadyWrites, partitions_of
from benchmarks.scenarios.cluster import loads
from testkit.basics.waiting import eventually

PRODUCE, METADATA = 0, 3
_API_KEY = Struct(">h")


@attrs.define
class Fake:
    """Nodes that answer for one partition, `t-0`; `leader` leads, and all nodes name it."""

    leader: int
    error: ErrorCode = ErrorCode.NOT_LEADER_OR_FOLLOWER
    listeners: dict[int, socket.socket] = attrs.field(factory=dict)
    connections: dict[int, list[socket.socket]] = attrs.field(factory=dict)
    threads: dict[int, list[threading.Thread]] = attrs.field(factory=dict)
    """The first accepts, the others serve a connection each."""
    is_silent: set[int] = attrs.field(factory=set)
    """These accept connections, and answer nothing."""
    refused: int = 0
    described: int = 0
    unanswered: int = 0
    """Requests that they got."""

    def start(self, node_id: int, port: int = 0) -> None:
        listener = self.listeners[node_id] = socket.create_server(("127.0.0.1", port))
        self.connections[node_id], self.threads[node_id] = [], []
        self._run(node_id, self._accept, node_id, listener)

    @property
    def ports(self) -> dict[int, int]:
        return {node_id: listener.getsockname()[1] for node_id, listener in self.listeners.items()}

    def _run(self, node_id: int, target: Callable[..., None], *args: object) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)
        self.threads[node_id].append(thread)
        thread.start()

    def kill(self, node_id: int) -> None:
        """Ends a node, and returns when it has read its last request: a socket gives what it had got before."""
        listener = self.listeners.pop(node_id)
        listener.shutdown(socket.SHUT_RDWR)
        accepting, *_ = self.threads[node_id]
        accepting.join()
        listener.close()
        for sock in self.connections[node_id]:
            with suppress(OSError):  # the client was first
                sock.shutdown(socket.SHUT_RDWR)
        for thread in self.threads.pop(node_id):
            thread.join()

    def close(self) -> None:
        for node_id in list(self.listeners):
            self.kill(node_id)

    def _accept(self, node_id: int, listener: socket.socket) -> None:
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            self.connections[node_id].append(sock)
            self._run(node_id, self._serve, node_id, sock)

    def _serve(self, node_id: int, sock: socket.socket) -> None:
        with suppress(OSError), sock, sock.makefile("rb") as stream:
            while size := stream.read(4):
                request = stream.read(int.from_bytes(size, "big"))
                if node_id in self.is_silent:
                    self.unanswered += 1
                    continue
                sock.sendall(framed(self._answer(node_id, *_API_KEY.unpack_from(request))))

    def _answer(self, node_id: int, api_key: int) -> ApiMessage:
        if api_key == METADATA:
            self.described += 1
            parts = [MetadataResponsePartition(partition_index=0, leader_id=self.leader)]
            return MetadataResponse(topics=[MetadataResponseTopic(name="t", partitions=parts)])
        if api_key == PRODUCE:
            code = ErrorCode.NONE if node_id == self.leader else self.error
            self.refused += code != ErrorCode.NONE
            return ProduceResponse(
                [TopicProduceResponse("t", partition_responses=[PartitionProduceResponse(error_code=code)])]
            )
        return ApiVersionsResponse()


def framed(answer: ApiMessage) -> bytes:
    writer = Writer()
    version = VERSIONS[answer.api_key]
    writer.begin_frame(response_head(answer.api_key, version, 0))
    answer.write(writer, version)
    body = writer.getvalue()[4:]
    return len(body).to_bytes(4, "big") + body


@contextmanager
def fakes(leader: int) -> Iterator[Fake]:
    fake = Fake(leader)
    try:
        for node_id in (1, 2):
            fake.start(node_id)
        yield fake
    finally:
        fake.close()


def writing(fake: Fake) -> SteadyWrites:
    return SteadyWrites(fake.ports, {("t", 0): fake.leader}, per_s=500)


def until_acknowledged(writes: SteadyWrites, by: int) -> None:
    """A write that was sent after this was called."""
    began_s = time.monotonic()

    def is_there() -> bool:
        return any(it.node_id == by and it.sent_s >= began_s for it in writes.acknowledged.copy())

    eventually(is_there, f"node {by} acknowledges a write")


def test_a_write_goes_to_the_leader() -> None:
    with fakes(leader=1) as fake, writing(fake) as writes:
        until_acknowledged(writes, by=1)
    assert {(it.partition, it.node_id, it.attempts) for it in writes.acknowledged} == {(("t", 0), 1, 1)}


def test_a_write_follows_its_partition_to_another_leader() -> None:
    with fakes(leader=1) as fake, writing(fake) as writes:
        until_acknowledged(writes, by=1)
        fake.leader = 2
        moved_s = time.monotonic()
        until_acknowledged(writes, by=2)
        first = writes.first_after(moved_s, not_by=1)
    assert list(first) == [("t", 0)]
    assert any(it.attempts > 1 for it in writes.acknowledged)


def test_a_write_that_a_dead_node_did_not_answer_is_sent_again_and_its_whole_wait_counts() -> None:
    with fakes(leader=1) as fake, writing(fake) as writes:
        until_acknowledged(writes, by=1)
        fake.is_silent = {1}
        eventually(lambda: fake.unanswered > 0, "a write is under way")
        fake.leader = 2
        killed_s = time.monotonic()
        fake.kill(1)
        until_acknowledged(writes, by=2)
        first = writes.first_after(killed_s, not_by=1)
    (again,) = [it for it in writes.acknowledged if it.attempts > 1]
    assert again.sent_s < killed_s < again.acknowledged_s
    assert writes.longest_s(killed_s) >= again.acknowledged_s - again.sent_s
    assert first["t", 0] >= killed_s


def test_a_node_that_does_not_answer_yet_gets_no_metadata_request() -> None:
    with fakes(leader=1) as fake, writing(fake) as writes:
        until_acknowledged(writes, by=1)
        eventually(lambda: len(fake.connections[2]) == CONNECTIONS, "node 2 has all connections, and can close them")
        port = fake.ports[2]
        fake.kill(2)
        fake.is_silent = {2}
        fake.start(2, port)
        fake.leader = -1  # node 1 refuses, and names no leader
        eventually(lambda: fake.unanswered >= CONNECTIONS, "it connects to node 2 again")
        eventually(lambda: fake.described > 5, "it requests Metadata several times")
        fake.leader = 1
        until_acknowledged(writes, by=1)
    assert fake.unanswered == CONNECTIONS, "node 2 got more than a greeting"


def write_until_refused(fake: Fake, writes: SteadyWrites) -> None:
    with writes:
        eventually(lambda: fake.refused > 0, "a write is refused")


def test_another_node_gets_the_request_when_one_does_not_answer_any_more() -> None:
    with fakes(leader=1) as fake, writing(fake) as writes:
        until_acknowledged(writes, by=1)
        fake.is_silent = {2}
        fake.leader = -1
        eventually(lambda: fake.unanswered > 0 and fake.described > 5, "both get requests for Metadata")
        fake.leader = 1
        until_acknowledged(writes, by=1)


def test_an_error_that_does_not_pass_ends_the_load() -> None:
    with fakes(leader=1) as fake:
        fake.error = ErrorCode.INVALID_TOPIC_EXCEPTION
        load_for_the_other = writing(fake)
        fake.leader = 2
        with pytest.raises(BadAnswer, match="Produce to .* 17"):
            write_until_refused(fake, load_for_the_other)


def test_a_sample_of_the_partitions_of_a_node_is_spread_over_all_of_them() -> None:
    leaders = {("t", index): index % 3 for index in range(300)}
    sample = [index for _, index in partitions_of(leaders, 1, 4)]
    assert sample == [1, 76, 151, 226]
    assert len(partitions_of(leaders, 1, 1000)) == 100


def test_each_node_is_sent_what_it_leads() -> None:
    found = loads({("t", 0): 1, ("t", 1): 2, ("t", 2): 1}, b"batch")
    assert {node_id: count for node_id, (_, count) in found.items()} == {1: 2, 2: 1}
    (first, *_), _ = found[1]
    assert first.count(b"batch") == 2
