"""Consumers at the end of a log, waiting for records that come at a steady rate.

One producer sends a record every two milliseconds, each in a request of its own. Every consumer keeps one Fetch
waiting at the broker, and sends the next when a record came. A latency is the time from sending a record to its
arrival at one consumer; each consumer must get every record, once and in order.
"""

from __future__ import annotations

import select
import socket
import time

from kwire_protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

from benchmarks.bench import Bench, Figures, Round, scenario, work
from benchmarks.load.answers import BadAnswer, Tailing, check_produce
from benchmarks.load.connection import Connection
from benchmarks.load.requests import LATEST, produce, value_batch
from benchmarks.machine import Usage

PER_S = 500
WAIT_S = 10.0  # for the last records of a run


@scenario("fetch-fanout", f"10 consumers wait at the end of a partition that gets {PER_S} records/s of 100 B")
def fetch_fanout(bench: Bench) -> Round:
    return _tail(bench, consumers=10)


@scenario("e2e-raw", "the same with one consumer: from sending a record to receiving it, with hardly any client")
def e2e_raw(bench: Bench) -> Round:
    return _tail(bench, consumers=1)


def _tail(bench: Bench, *, consumers: int) -> Round:
    options = bench.options
    bench.create({"t": 1})
    bench.warm_produce("t", 1, share=0.3)
    crowd = _Crowd(bench, consumers)
    start = bench.meter.read()
    warmed = Usage(0.0, 0.0, 0.0)
    while warmed.cpu_s < 0.7 * options.warm_cpu_s and warmed.seconds < 0.7 * options.warm_s:
        crowd.run(min(1.0, options.run_s))
        warmed = bench.meter.since(start)

    def measure() -> Figures:
        crowd.run(options.run_s / 6)
        crowd.latencies_s.clear()
        start = bench.meter.read()
        crowd.run(options.run_s)
        usage, latencies_s = bench.meter.since(start), sorted(crowd.latencies_s)
        figures = work(usage, records=len(latencies_s))
        for name, share in (("p50_ms", 0.5), ("p95_ms", 0.95), ("p99_ms", 0.99)):
            figures[name] = latencies_s[int(len(latencies_s) * share)] * 1e3
        return figures

    return measure


class _Consumer:
    def __init__(self, sock: socket.socket, offset: int) -> None:
        self.socket = sock
        self.offset = offset
        self.tailing = Tailing("t", 0, offset)
        self.received = bytearray()


class _Crowd:
    """The producer and all consumers, each on a connection that stays."""

    def __init__(self, bench: Bench, consumers: int) -> None:
        self.latencies_s: list[float] = []
        self._record = produce("t", [0], value_batch(1, 100))
        self._check = check_produce("t", 1)
        self._end = _end_of_log(bench.broker.port)
        self._sent_s: dict[int, float] = {}
        self._producer, *sockets = bench.connect(consumers + 1)
        self._acks = bytearray()
        self._consumers = {sock.fileno(): _Consumer(sock, self._end) for sock in sockets}
        self._epoll = select.epoll()
        bench.keep.callback(self._epoll.close)
        self._epoll.register(self._producer, select.EPOLLIN)
        for consumer in self._consumers.values():
            self._epoll.register(consumer.socket, select.EPOLLIN)
            consumer.socket.sendall(consumer.tailing.frame)

    def run(self, seconds: float) -> None:
        """Sends at the steady rate for so long; returns when everyone has everything."""
        due_s = time.monotonic()
        until_s = due_s + seconds
        while True:
            now_s = time.monotonic()
            while due_s <= now_s < until_s:
                self._sent_s[self._end] = now_s
                self._end += 1
                self._producer.sendall(self._record)
                due_s += 1 / PER_S
            if now_s >= until_s:
                if all(consumer.offset == self._end for consumer in self._consumers.values()):
                    self._sent_s.clear()
                    return
                if now_s > until_s + WAIT_S:
                    offsets = [consumer.offset for consumer in self._consumers.values()]
                    raise BadAnswer(f"the log ends at {self._end}, but consumers are at {offsets}")
            wait_s = max(min(due_s, until_s) - time.monotonic(), 0.0) if now_s < until_s else 0.1
            for descriptor, _ in self._epoll.poll(wait_s):
                if descriptor in self._consumers:
                    self._deliver(self._consumers[descriptor])
                else:
                    self._acknowledge()

    def _deliver(self, consumer: _Consumer) -> None:
        for answer in _answers(consumer.socket, consumer.received):
            now_s = time.monotonic()
            for base_offset, count in consumer.tailing.batches(answer):
                if base_offset != consumer.offset:
                    raise BadAnswer(f"a batch at offset {base_offset}, not {consumer.offset}")
                sent = range(base_offset, base_offset + count)
                self.latencies_s += [now_s - self._sent_s[offset] for offset in sent]
                consumer.offset += count
            consumer.tailing.seek(consumer.offset)
            consumer.socket.sendall(consumer.tailing.frame)

    def _acknowledge(self) -> None:
        for answer in _answers(self._producer, self._acks):
            self._check(answer, 0, len(answer))


def _answers(sock: socket.socket, received: bytearray) -> list[bytearray]:
    """Reads once, and returns the answers that are complete, without sizes."""
    data = sock.recv(1 << 18)
    if not data:
        raise BadAnswer("the broker hung up")
    received += data
    complete = []
    while len(received) >= 4 and len(received) >= (end := 4 + int.from_bytes(received[:4], "big")):
        complete.append(received[4:end])
        del received[:end]
    return complete


def _end_of_log(port: int) -> int:
    request = ListOffsetsRequest(-1, topics=[ListOffsetsTopic("t", [ListOffsetsPartition(0, timestamp=LATEST)])])
    with Connection(port) as connection:
        offset: int = connection.request(request).topics[0].partitions[0].offset
    return offset
