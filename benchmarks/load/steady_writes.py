"""A steady stream of small writes over many partitions, whoever leads them: how long does one of them wait?

    with SteadyWrites(ports, partitions, per_s=1000) as writes:
        ...                                         # a node is killed, or restarted
    writes.longest_s()

A write is one record of 100 bytes with acks=all, to the next partition that has none under way. It goes to the leader
that Metadata named. When that refuses it, or its connection fails, the client requests that topic's Metadata from a
node, the nodes in turn, and sends the write again as soon as the answer is there. After a second failure in a row it
pauses for 2 ms before that; so its own pauses hardly count. The wait of a write runs from when it was first sent to its
acknowledgement. A broker handles one request of a connection at a time, so a write also waits for those before it.
There are many connections, so that this is seldom: a wait is that of a write, not of a queue. As clients do, it begins
a connection with ApiVersions, and requests Metadata only from nodes that have answered that; from another after 50 ms,
since one that is about to end may not answer any more.
"""

from __future__ import annotations

import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic

from benchmarks.load.answers import BadAnswer
from benchmarks.load.connection import LOOPBACK
from benchmarks.load.requests import api_versions, decode, encode, produce, value_batch

PAUSE_S = 0.002
NEXT_NODE_S = 0.05
CONNECTIONS = 16  # to each node
LAST_WITHIN_S = 60.0
"""How long those under way at the end are waited for."""

_PRODUCE, _METADATA = 0, 3
_GREETING = api_versions()
_MOVING = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.KAFKA_STORAGE_ERROR,
}
"""What a producer retries."""

Partition = tuple[str, int]


@attrs.frozen
class Acknowledged:
    """A write; times by time.monotonic()."""

    partition: Partition
    node_id: int
    sent_s: float
    acknowledged_s: float
    attempts: int


@attrs.define(eq=False)
class _Write:
    partition: Partition
    frame: bytes
    sent_s: float
    attempts: int = 0


@attrs.define(eq=False)
class _Link:
    """A connection, and what its answers will be to, in order: the greeting, a write, or the Metadata of a topic."""

    node_id: int
    sock: socket.socket
    pending: deque[_Write | str | None] = attrs.field(factory=lambda: deque([None]))
    is_up: bool = False
    received: bytearray = attrs.field(factory=bytearray)


class SteadyWrites:
    """Runs in a thread, from `with` to its end, which waits for the writes under way. Raises BadAnswer there."""

    def __init__(self, ports: Mapping[int, int], leaders: Mapping[Partition, int], *, per_s: float) -> None:
        """`ports` by node id; `leaders` of the partitions to write to, at the beginning."""
        self.acknowledged: list[Acknowledged] = []
        self._ports = dict(ports)
        self._leaders = dict(leaders)
        batch = value_batch(1, 100)
        self._frames = {(topic, index): produce(topic, [index], batch) for topic, index in leaders}
        self._idle = deque(self._frames)  # partitions with no write under way
        self._period_s = 1 / per_s
        self._links: dict[int, list[_Link]] = {node_id: [] for node_id in ports}
        self._selector = selectors.DefaultSelector()
        self._failed: dict[str, list[_Write]] = {}  # by topic: they wait for its Metadata
        self._requests_at: dict[str, float] = {}  # topics whose Metadata are wanted, and when to send the next request
        self._turn = 0
        self._is_over = threading.Event()
        self._problem: BaseException | None = None
        self._thread = threading.Thread(target=self._run_noting_problems, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over.set()
        self._thread.join()
        for links in self._links.values():
            for link in links:
                link.sock.close()
        self._selector.close()
        if self._problem is not None and error is None:
            raise self._problem

    def longest_s(self, since_s: float = 0.0) -> float:
        """The longest wait of a write that was sent at that time or later, or was under way then."""
        return max(
            (it.acknowledged_s - it.sent_s for it in self.acknowledged if it.acknowledged_s >= since_s), default=0
        )

    def first_after(self, moment_s: float, *, not_by: int) -> dict[Partition, float]:
        """When the first acknowledgement of each partition came that another node than `not_by` gave after a moment."""
        found: dict[Partition, float] = {}
        for it in self.acknowledged.copy():
            if it.acknowledged_s >= moment_s and it.node_id != not_by:
                found.setdefault(it.partition, it.acknowledged_s)
        return found

    # In the thread

    def _run_noting_problems(self) -> None:
        try:
            self._run()
        except BaseException as problem:
            self._problem = problem

    def _run(self) -> None:
        for node_id in self._ports:
            self._connected(node_id)
        due_s, give_up_s = time.monotonic(), 0.0
        while True:
            now_s = time.monotonic()
            if self._is_over.is_set():
                if len(self._idle) == len(self._frames):
                    return
                give_up_s = give_up_s or now_s + LAST_WITHIN_S
                if now_s > give_up_s:
                    raise BadAnswer(f"{len(self._frames) - len(self._idle)} writes had no answer at the end")
            elif now_s >= due_s:
                due_s = max(due_s + self._period_s, now_s - 0.05)  # what a stall held up is not made up for
                if self._idle:
                    partition = self._idle.popleft()
                    self._send(_Write(partition, self._frames[partition], now_s))
            for topic in [topic for topic, at_s in self._requests_at.items() if at_s <= now_s]:
                self._request_metadata(topic)
            wait_s = min(due_s, *self._requests_at.values(), due_s) - time.monotonic()
            for key, _ in self._selector.select(max(min(wait_s, 0.05), 0.0)):
                self._receive(key.data)

    def _send(self, write: _Write) -> None:
        write.attempts += 1
        if not self._put(self._leaders.get(write.partition, -1), write.frame, write):
            self._fail(write)

    def _fail(self, write: _Write) -> None:
        topic = write.partition[0]
        self._failed.setdefault(topic, []).append(write)
        if topic not in self._requests_at:
            self._requests_at[topic] = time.monotonic() + (PAUSE_S if write.attempts > 1 else 0.0)

    def _request_metadata(self, topic: str) -> None:
        """Requests a topic's Metadata from the next node in turn."""
        frame = encode(MetadataRequest([MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False))
        for _ in self._ports:
            self._turn += 1
            node_id = list(self._ports)[self._turn % len(self._ports)]
            if any(link.is_up for link in self._connected(node_id)) and self._put(node_id, frame, topic):
                self._requests_at[topic] = time.monotonic() + NEXT_NODE_S
                return
        self._requests_at[topic] = time.monotonic() + PAUSE_S

    def _put(self, node_id: int, frame: bytes, what: _Write | str) -> bool:
        """Sends it to a node, over the connection with the least under way; False if it cannot be reached."""
        links = self._connected(node_id)
        if not links:
            return False
        link = min(links, key=lambda it: (not it.is_up, len(it.pending)))
        link.pending.append(what)
        try:
            link.sock.sendall(frame)  # small enough to fit into what the kernel buffers
        except OSError:
            link.pending.pop()
            self._drop(link)
            return False
        return True

    def _connected(self, node_id: int) -> list[_Link]:
        """The connections to a node; none if it cannot be reached, or is none of the nodes."""
        links = self._links.get(node_id, [])
        while node_id in self._ports and len(links) < CONNECTIONS:
            try:
                sock = socket.create_connection((LOOPBACK, self._ports[node_id]), timeout=1.0)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                sock.sendall(_GREETING)
            except OSError:
                return []
            links.append(_Link(node_id, sock))
            self._selector.register(sock, selectors.EVENT_READ, links[-1])
        return links

    def _receive(self, link: _Link) -> None:
        try:
            data = link.sock.recv(1 << 16)
        except OSError:
            data = b""
        if not data:
            if link in self._links[link.node_id]:
                self._drop(link)
            return
        link.received += data
        while len(link.received) >= 4:
            end = 4 + int.from_bytes(link.received[:4], "big")
            if len(link.received) < end:
                return
            answer = bytes(link.received[4:end])
            del link.received[:end]
            link.is_up = True
            what = link.pending.popleft()
            if what is not None:
                self._take(what, answer, link.node_id)

    def _drop(self, link: _Link) -> None:
        self._selector.unregister(link.sock)
        link.sock.close()
        self._links[link.node_id].remove(link)
        pending, link.pending = link.pending, deque()
        link.received.clear()
        for what in pending:
            if isinstance(what, _Write):
                self._fail(what)
            elif what in self._requests_at:
                self._requests_at[what] = time.monotonic() + PAUSE_S

    def _take(self, what: _Write | str, answer: bytes, node_id: int) -> None:
        now_s = time.monotonic()
        if isinstance(what, str):
            self._take_metadata(what, answer)
            return
        (topic,) = decode(answer, _PRODUCE).responses
        (part,) = topic.partition_responses
        if part.error_code == 0:
            self.acknowledged.append(Acknowledged(what.partition, node_id, what.sent_s, now_s, what.attempts))
            self._idle.append(what.partition)
        elif part.error_code in _MOVING:
            self._fail(what)
        else:
            raise BadAnswer(f"Produce to {what.partition}: {part.error_code} {part.error_message}")

    def _take_metadata(self, topic: str, answer: bytes) -> None:
        if topic not in self._requests_at:
            return  # another node was first
        (described,) = decode(answer, _METADATA).topics
        for part in described.partitions:
            self._leaders[topic, part.partition_index] = part.leader_id
        del self._requests_at[topic]
        for write in self._failed.pop(topic, []):
            self._send(write)


def partitions_of(leaders: Mapping[Partition, int], node_id: int, most: int) -> Sequence[Partition]:
    """Up to so many of the partitions that a node leads, evenly from all of them."""
    led = [partition for partition, leader in leaders.items() if leader == node_id]
    return [led[place * len(led) // most] for place in range(most)] if len(led) > most else led
