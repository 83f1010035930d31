"""Producers that commit one transaction after the other, as bare connections that cost less than a broker.

A transaction is what the Java client sends for 100 records without keys that are there at once: a Produce with one
batch to one partition, which opens the transaction (transaction version 2, KIP-890: the broker adds the partition), and
when that is acknowledged an EndTxn, whose answer has the producer id and epoch of the next one. The next transaction
goes to the next partition.

A broker may refuse a transaction while the markers of the one before are still being written: CONCURRENT_TRANSACTIONS.
The load repeats it after a pause, as clients do, and the transaction takes longer. Any other error ends the load.
"""

from __future__ import annotations

import select
import socket
import time
from array import array
from collections import deque
from collections.abc import Sequence
from itertools import cycle
from struct import Struct

import attrs
from crc32c import crc32c
from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages.end_txn import EndTxnRequest
from kwire_protocol.messages.find_coordinator import FindCoordinatorRequest
from kwire_protocol.messages.init_producer_id import InitProducerIdRequest
from kwire_protocol.messages.produce import ProduceRequest

from benchmarks.load.answers import BadAnswer
from benchmarks.load.connection import Connection
from benchmarks.load.requests import decode, encode, produce
from benchmarks.machine import Meter, Usage

STALL_S = 60.0
RETRY_PAUSE_S = 0.02  # the Java client's pause after this error; for a refused Produce it takes 0.1

_TRANSACTION_COORDINATOR = 1
_TIMEOUT_MS = 60_000
_CRC, _PRODUCER = Struct(">I"), Struct(">qh")
_CRC_AT, _COVERED_AT, _PRODUCER_AT = 17, 21, 43  # in a batch: its checksum, what that is of, producer id and epoch


@attrs.frozen
class Committed:
    """The figures of a measurement."""

    usage: Usage
    transactions: int
    refused: int  # CONCURRENT_TRANSACTIONS
    latencies_ns: Sequence[int] = attrs.field(repr=False)  # from a transaction's first request to its last answer


class _Producer:
    """A producer with a transactional id, and with a transaction open or none."""

    def __init__(self, sock: socket.socket, transactional_id: str, topic: str, partitions: int, batch: bytes) -> None:
        self.socket = sock
        self.transactional_id = transactional_id
        self.producer_id = self.producer_epoch = -1
        self.received = bytearray()
        self.began_ns = 0
        self.request: bytes | bytearray = b""  # the one in flight, or to be sent again
        self.is_ending = False
        frames = [bytearray(produce(topic, [index], batch, transactional_id)) for index in range(partitions)]
        self._batches = cycle((frame, frame.index(batch)) for frame in frames)
        self._batch_bytes = len(batch)

    def begin(self) -> None:
        frame, at = next(self._batches)
        _PRODUCER.pack_into(frame, at + _PRODUCER_AT, self.producer_id, self.producer_epoch)
        with memoryview(frame) as view:
            checksum = crc32c(view[at + _COVERED_AT : at + self._batch_bytes])
        _CRC.pack_into(frame, at + _CRC_AT, checksum)
        self.request, self.is_ending = frame, False
        self.began_ns = time.perf_counter_ns()
        self.send()

    def end(self) -> None:
        request = EndTxnRequest(self.transactional_id, self.producer_id, self.producer_epoch, committed=True)
        self.request, self.is_ending = encode(request), True
        self.send()

    def send(self) -> None:
        """A connection has room for one request: the one before is answered."""
        if self.socket.send(self.request) < len(self.request):
            raise BadAnswer(f"the broker does not read {len(self.request)} bytes")

    def receive(self) -> bytearray | None:
        """The answer without its size, when it is complete."""
        data = self.socket.recv(1 << 16)
        if not data:
            raise BadAnswer("the broker hung up")
        self.received += data
        if len(self.received) < 4 or len(self.received) < 4 + int.from_bytes(self.received[:4], "big"):
            return None
        answer, self.received = self.received[4:], bytearray()
        return answer


class Producers:
    """A producer on each of the sockets, which stay connected (and do not block)."""

    def __init__(self, port: int, sockets: Sequence[socket.socket], topic: str, partitions: int, batch: bytes) -> None:
        self._producers = [
            _Producer(sock, f"bench-{number}", topic, partitions, batch) for number, sock in enumerate(sockets)
        ]
        self._by_descriptor = {producer.socket.fileno(): producer for producer in self._producers}
        self._open = 0
        self._continues = False
        self._resting: deque[tuple[float, _Producer]] = deque()  # refused, and when to send the request again
        self.refused = 0  # so far, or since it began to be measured
        self._latencies_ns = array("q")
        self._epoll = select.epoll()
        for sock in sockets:
            self._epoll.register(sock, select.EPOLLIN)
        with Connection(port) as connection:
            for producer in self._producers:
                _initialize(connection, producer)

    def close(self) -> None:
        self._epoll.close()

    def run(self, seconds: float) -> None:
        """Runs one transaction after the other for so long; returns when none is open."""
        self._begin()
        self._until_passed(seconds)
        self._finish()

    def measure(self, meter: Meter, *, lead_s: float, run_s: float) -> Committed:
        """Measures for `run_s` seconds, after `lead_s` seconds of the same load."""
        self._begin()
        self._until_passed(lead_s)
        self._latencies_ns, self.refused = array("q"), 0
        start = meter.read()
        self._until_passed(run_s)
        usage = meter.since(start)
        latencies_ns, self._latencies_ns = self._latencies_ns, array("q")
        refused = self.refused
        self._finish()
        return Committed(usage, len(latencies_ns), refused, latencies_ns)

    def _begin(self) -> None:
        self._continues = True
        self._open = len(self._producers)
        for producer in self._producers:
            producer.begin()

    def _finish(self) -> None:
        self._continues = False
        while self._open:
            self._turn()

    def _until_passed(self, seconds: float) -> None:
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            self._turn()

    def _turn(self) -> None:
        wait_s = max(self._resting[0][0] - time.monotonic(), 0.0) if self._resting else STALL_S
        events = self._epoll.poll(wait_s)
        if not events and not self._resting:
            raise BadAnswer(f"no answer within {STALL_S:.0f} s")
        for descriptor, _ in events:
            producer = self._by_descriptor[descriptor]
            answer = producer.receive()
            if answer is not None:
                self._take(producer, answer)
        while self._resting and self._resting[0][0] <= time.monotonic():
            self._resting.popleft()[1].send()

    def _take(self, producer: _Producer, answer: bytearray) -> None:
        if producer.is_ending:
            ended = decode(answer, EndTxnRequest.api_key)
            if self._is_taken(producer, ended.error_code):
                producer.producer_id, producer.producer_epoch = ended.producer_id, ended.producer_epoch
                self._committed(producer)
        else:
            (topic,) = decode(answer, ProduceRequest.api_key).responses
            (partition,) = topic.partition_responses
            if self._is_taken(producer, partition.error_code):
                producer.end()

    def _is_taken(self, producer: _Producer, code: int) -> bool:
        """Returns whether a request was accepted; if not, it is repeated later."""
        if code == ErrorCode.NONE:
            return True
        if code != ErrorCode.CONCURRENT_TRANSACTIONS:
            what = "EndTxn" if producer.is_ending else "Produce"
            raise BadAnswer(f"{what} of {producer.transactional_id}: {code}")
        self.refused += 1
        self._resting.append((time.monotonic() + RETRY_PAUSE_S, producer))
        return False

    def _committed(self, producer: _Producer) -> None:
        self._latencies_ns.append(time.perf_counter_ns() - producer.began_ns)
        if self._continues:
            producer.begin()
        else:
            self._open -= 1


def _initialize(connection: Connection, producer: _Producer) -> None:
    """Gets a producer id. Apache Kafka creates __transaction_state at the first search for a coordinator."""
    name = producer.transactional_id
    connection.request_until_accepted(FindCoordinatorRequest(key=name, key_type=_TRANSACTION_COORDINATOR))
    answer = connection.request_until_accepted(InitProducerIdRequest(name, transaction_timeout_ms=_TIMEOUT_MS))
    producer.producer_id, producer.producer_epoch = answer.producer_id, answer.producer_epoch
