"""Many connections, many partitions."""

from __future__ import annotations

import time

from benchmarks import machine
from benchmarks.bench import Bench, Figures, Round, latencies, scenario, work
from benchmarks.load.answers import check_api_versions, check_produce
from benchmarks.load.replay import Replayer
from benchmarks.load.requests import api_versions, numbered, produce, value_batch
from benchmarks.scenarios.lifecycle import idle

CONNECTIONS = 1000
MANY_PARTITIONS = 2000
PER_REQUEST = 50


@scenario(
    "connections",
    f"{CONNECTIONS:,} connections: idle, then each with one Produce of a record of 100 B in flight",
)
def connections(bench: Bench) -> Round:
    count = bench.options.scaled(CONNECTIONS)
    bench.create({"t": 1})
    bench.warm_produce("t", 1)
    before_mib, began = machine.resident_mib(bench.broker.pid), time.monotonic()
    sockets = bench.connect(count)
    # A connection may wait in the listen backlog; with an answer it is there.
    greeting = Replayer(sockets, numbered([api_versions()]), check_api_versions(), depth=1)
    greeting.send(count)
    greeting.close()
    bench.figures["connect_s"] = time.monotonic() - began
    grown_mib = machine.resident_mib(bench.broker.pid) - before_mib
    bench.figures["kib_per_connection"] = grown_mib * 1024 / count
    requests, check = numbered([produce("t", [0], value_batch(1, 100))] * count), check_produce("t", 1)

    def measure() -> Figures:
        figures = idle(bench, bench.options.idle_s / 2, settle_s=bench.options.settle_s / 5)
        played = bench.replay_on(sockets, requests, check, depth=1)
        return figures | work(played.usage, requests=played.requests) | latencies(played.latencies_ns)

    return measure


@scenario(
    "many-partitions",
    f"{MANY_PARTITIONS:,} partitions; replayed Produce to {PER_REQUEST} of them, 10 records of 100 B each",
)
def many_partitions(bench: Bench) -> Round:
    count = bench.options.scaled(MANY_PARTITIONS, least=PER_REQUEST)
    count -= count % PER_REQUEST
    began = time.monotonic()
    bench.create({"t": count})
    bench.figures["create_s"] = time.monotonic() - began
    batch = value_batch(10, 100)
    frames = (produce("t", range(first, first + PER_REQUEST), batch) for first in range(0, count, PER_REQUEST))
    requests, check = numbered(frames), check_produce("t", PER_REQUEST)
    bench.warm(requests, check)

    def measure() -> Figures:
        played = bench.replay(requests, check, connections=4, depth=2)
        records = played.requests * PER_REQUEST * 10
        return work(played.usage, records=records, requests=played.requests) | latencies(played.latencies_ns)

    return measure
