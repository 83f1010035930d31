"""The growth of cost: with connections, partitions, segments, members of a group, and the size of a record.

A figure stands for one step. What should stay level is CPU for a request, for a member, for a GiB; what may grow is
time to create and memory, by as much for each one as for those before. Java has no time to warm up at every step, so
here Apache Kafka's figures are dearer than in the other scenarios; compare the steps rather than the brokers.
"""

from __future__ import annotations

import socket
import statistics
import time
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import count

from benchmarks import machine
from benchmarks.bench import Bench, Figures, Round, scenario, work
from benchmarks.load.answers import check_api_versions, check_fetch, check_list_offsets, check_produce
from benchmarks.load.members import Group, Settled, wait_for_coordinator
from benchmarks.load.replay import Replayer, connect, percentiles_ms
from benchmarks.load.requests import api_versions, fetch, list_offsets, numbered, produce, value_batch
from benchmarks.scenarios.lifecycle import idle
from benchmarks.scenarios.raw import BATCH_RECORDS, BATCHES_PER_FETCH, RECORD_BYTES, TAPE

CONNECTIONS = PARTITIONS = (10, 100, 1000, 10_000)
MEMBERS = (1, 10, 100, 1000)
SEGMENTS = (10, 100, 1000)
RECORD_SIZES_BYTES = (100, 1024, 10_240, 102_400, 1_048_000)  # the last is about what max.message.bytes allows

WAVE = 32  # connections made at once: the listen backlog is 50 in Apache Kafka
PARTITIONS_IN_REQUEST = 10
SEGMENT_BYTES = 1 << 20  # the least that Apache Kafka takes

_groups = count()


def _steps(bench: Bench, steps: Sequence[int], share: float = 1.0) -> list[int]:
    return [step for step in steps if step <= bench.options.growth_to * share]


def _at(step: int, figures: Figures) -> Figures:
    """The figures of a step, without what only explains them."""
    hidden = ("broker_core", "others_core", "wake_ups_per_s")
    return {f"{name}@{step}": value for name, value in figures.items() if name not in hidden}


def _connect(bench: Bench, connections: int) -> list[socket.socket]:
    """Waits for an answer on each wave before the next, lest the backlog overflow and TCP try again a second later."""
    sockets: list[socket.socket] = []
    while len(sockets) < connections:
        wave = connect(bench.broker.port, min(WAVE, connections - len(sockets)))
        sockets += wave
        greeting = Replayer(wave, numbered([api_versions()]), check_api_versions(), depth=1)
        greeting.send(len(wave))
        greeting.close()
    return sockets


@scenario(
    "growth-connections", "10 to 10,000 connections: idle, then each with one Produce of a record of 100 B in flight"
)
def growth_connections(bench: Bench) -> Round:
    bench.create({"t": 1})
    bench.warm_produce("t", 1, share=0.5)
    batch, check = value_batch(1, 100), check_produce("t", 1)

    def measure() -> Figures:
        figures: Figures = {}
        with ExitStack() as stack:
            sockets: list[socket.socket] = []
            for step in _steps(bench, CONNECTIONS):
                began_s = time.monotonic()
                sockets += [stack.enter_context(sock) for sock in _connect(bench, step - len(sockets))]
                found = {"connect_s": time.monotonic() - began_s}
                found |= idle(bench, bench.options.idle_s / 3, settle_s=0.0)
                requests = numbered([produce("t", [0], batch)] * min(step, 1000))
                played = bench.replay_on(sockets, requests, check, depth=1)
                p50_ms, p99_ms = percentiles_ms(played.latencies_ns, 0.5, 0.99)
                found |= work(played.usage, requests=played.requests) | {"p50_ms": p50_ms, "p99_ms": p99_ms}
                found["resident_mib"] = machine.resident_mib(bench.broker.pid)
                figures |= _at(step, found)
        return figures

    return measure


@scenario(
    "growth-partitions",
    f"10 to 10,000 partitions: to create the last nine tenths; idle; Produce to {PARTITIONS_IN_REQUEST} in turn",
    alone=True,
)
def growth_partitions(bench: Bench) -> Round:
    bench.create({"warm": PARTITIONS_IN_REQUEST})
    bench.warm_produce("warm", PARTITIONS_IN_REQUEST, share=0.5)
    batch = value_batch(1, 100)

    def measure() -> Figures:
        figures: Figures = {}
        there = 0
        for step in _steps(bench, PARTITIONS):
            began_s, new, topic = time.monotonic(), step - there, f"t{step}"
            bench.create({topic: new})
            found = {"create_s": time.monotonic() - began_s}
            found |= idle(bench, bench.options.idle_s / 3, settle_s=bench.options.settle_s / 5)
            groups = [range(at, at + PARTITIONS_IN_REQUEST) for at in range(0, new, PARTITIONS_IN_REQUEST)]
            requests = numbered(produce(topic, group, batch) for group in groups)
            check = check_produce(topic, PARTITIONS_IN_REQUEST)
            played = bench.replay(requests, check, connections=4, depth=2)
            found |= work(played.usage, requests=played.requests)
            found["resident_mib"] = machine.resident_mib(bench.broker.pid)
            figures |= _at(step, found)
            there = step
        return figures

    return measure


@scenario(
    "growth-segments",
    "10 to 1,000 segments of 1 MiB in a partition: ListOffsets by time and small Fetches, all over it",
    alone=True,
)
def growth_segments(bench: Bench) -> Round:
    bench.create({"t": 1}, {"segment.bytes": str(SEGMENT_BYTES)})
    bench.create({"warm": 1})
    bench.warm_produce("warm", 1, share=0.3)
    # Eight batches of 120 KiB are one segment.
    fills = numbered([produce("t", [0], value_batch(BATCH_RECORDS, RECORD_BYTES))] * 8)
    started_ms = int(time.time() * 1000)

    def measure() -> Figures:
        figures: Figures = {}
        there = 0
        for step in _steps(bench, SEGMENTS, share=0.1):
            with ExitStack() as stack:
                sockets = [stack.enter_context(sock) for sock in connect(bench.broker.port, 1)]
                writer = Replayer(sockets, fills, check_produce("t", 1), depth=2)
                writer.send((step - there) * BATCHES_PER_FETCH)
                writer.close()
            there = step
            records = step * BATCHES_PER_FETCH * BATCH_RECORDS
            offsets = [place * records // TAPE for place in range(TAPE)]
            requests = numbered(list_offsets({"t": [0]}, started_ms + place) for place in range(TAPE))
            reads = numbered(fetch("t", 0, offset, max_bytes=1024) for offset in offsets)
            listed = bench.replay(requests, check_list_offsets("t", 1), connections=1, depth=4)
            read = bench.replay(reads, check_fetch("t", RECORD_BYTES), connections=1, depth=4)
            figures |= {
                f"list_cpu_s_per_mrequest@{step}": work(listed.usage, requests=listed.requests)["cpu_s_per_mrequest"],
                f"fetch_cpu_s_per_mrequest@{step}": work(read.usage, requests=read.requests)["cpu_s_per_mrequest"],
                f"resident_mib@{step}": machine.resident_mib(bench.broker.pid),
            }
        return figures

    return measure


@scenario("growth-members", "1 to 1,000 bare members join one group at once, until all are assigned")
def growth_members(bench: Bench) -> Round:
    bench.create({"t": 1})
    bench.warm_produce("t", 1, share=0.3)
    for _ in range(3):
        _settle(bench, 10)

    def measure() -> Figures:
        figures: Figures = {}
        for step in _steps(bench, MEMBERS, share=0.1):
            # CPU time comes in ticks of 10 ms: small groups are joined many times.
            groups = [_settle(bench, step) for _ in range(max(min(400 // step, bench.options.scaled(100)), 1))]
            joined = {
                "join_s": statistics.median(settled.seconds for settled, _ in groups),
                "generations": statistics.median(settled.generations for settled, _ in groups),
                "cpu_ms_per_member": sum(cpu_s for _, cpu_s in groups) * 1e3 / (step * len(groups)),
            }
            figures |= _at(step, joined)
        return figures

    return measure


def _settle(bench: Bench, members: int) -> tuple[Settled, float]:
    """Lets a new group join, and the broker's CPU seconds until it has settled."""
    name = f"group-{next(_groups)}"
    wait_for_coordinator(bench.broker.port, name)
    with ExitStack() as stack:
        sockets = [stack.enter_context(sock) for sock in _connect(bench, members)]
        group = Group(name, sockets)
        start = bench.meter.read()
        settled = group.settle()
        usage = bench.meter.since(start)
        group.leave(bench.broker.port)
    return settled, usage.cpu_s


@scenario("growth-record-size", "replayed Produce of one record of 100 B to 1 MiB; 4 connections, 2 in flight on each")
def growth_record_size(bench: Bench) -> Round:
    bench.create({"t": 1})
    bench.warm_produce("t", 1, share=0.5)
    check = check_produce("t", 1)

    def measure() -> Figures:
        figures: Figures = {}
        for size_bytes in RECORD_SIZES_BYTES:
            requests = numbered([produce("t", [0], value_batch(1, size_bytes))] * 8)
            played = bench.replay(requests, check, connections=4, depth=2)
            bench.drop_cached()
            size = played.requests * size_bytes
            figures |= _at(size_bytes, work(played.usage, requests=played.requests, size_bytes=size))
        return figures

    return measure
