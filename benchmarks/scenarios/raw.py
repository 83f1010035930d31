"""Requests encoded once and sent over and over: the broker's own ceiling.

Kafka's Java client on one core is about as quick as a broker on one core, and so hides what distinguishes brokers. The
load of these scenarios costs a fraction of a broker.
"""

from __future__ import annotations

from benchmarks.bench import Bench, Figures, Round, latencies, scenario, work
from benchmarks.load.answers import Check, check_fetch, check_list_offsets, check_produce
from benchmarks.load.replay import Replayer, connect
from benchmarks.load.requests import fetch, list_offsets, numbered, produce, value_batch

PARTITIONS = 6
RECORD_BYTES = 1024
BATCH_RECORDS = 120  # 120 KiB: what a producer with batch.size=131072 sends
BATCHES_PER_FETCH = 8
TAPE = 64  # requests on a tape of small ones


def large_produce() -> list[bytes]:
    """Requests of 720 KiB: a batch for each partition."""
    return numbered([produce("t", range(PARTITIONS), value_batch(BATCH_RECORDS, RECORD_BYTES))] * 8)


def small_produce() -> list[bytes]:
    """Requests of one record of 100 bytes."""
    return numbered([produce("t", [0], value_batch(1, 100))] * TAPE)


def fetches(records: int) -> list[bytes]:
    """Requests of about 1 MiB each, over all that `fill` wrote, the partitions in turn."""
    step = BATCH_RECORDS * BATCHES_PER_FETCH
    return numbered(
        fetch("t", partition, offset) for offset in range(0, records, step) for partition in range(PARTITIONS)
    )


def check_fetches() -> Check:
    return check_fetch("t", BATCHES_PER_FETCH * BATCH_RECORDS * RECORD_BYTES)


def fill(bench: Bench) -> int:
    """Creates topic `t` and writes about `fill_mib`; returns the records in each partition."""
    bench.create({"t": PARTITIONS})
    requests = large_produce()
    rounds = max(bench.options.fill_mib * 2**20 // len(requests[0]), BATCHES_PER_FETCH)
    rounds -= rounds % BATCHES_PER_FETCH
    sockets = connect(bench.broker.port, 4)
    replayer = Replayer(sockets, requests, check_produce("t", PARTITIONS), depth=2)
    try:
        replayer.send(rounds)
    finally:
        replayer.close()
        for sock in sockets:
            sock.close()
    return rounds * BATCH_RECORDS


@scenario(
    "raw-produce",
    "replayed Produce of 6 batches of 120 records of 1 KiB; 4 connections, 2 in flight on each",
    limit="sink-large",
)
def raw_produce(bench: Bench) -> Round:
    bench.create({"t": PARTITIONS})
    requests, check = large_produce(), check_produce("t", PARTITIONS)
    # Mostly with little data, which spares the disk; but a JVM compiles long loops over large batches again.
    bench.warm_produce("t", PARTITIONS, share=0.7)
    bench.warm(requests, check, share=0.3)
    bench.drop_cached()

    def measure() -> Figures:
        played = bench.replay(requests, check, connections=4, depth=2)
        bench.drop_cached()
        records = played.requests * PARTITIONS * BATCH_RECORDS
        size_bytes = played.requests * len(requests[0])
        figures = work(played.usage, records=records, requests=played.requests, size_bytes=size_bytes)
        return figures | latencies(played.latencies_ns)

    return measure


@scenario(
    "raw-fetch", "replayed Fetch of 1 MiB from the page cache; 4 connections, 2 in flight on each", limit="sendfile"
)
def raw_fetch(bench: Bench) -> Round:
    requests, check = fetches(fill(bench)), check_fetches()
    bench.warm(requests, check)

    def measure() -> Figures:
        played = bench.replay(requests, check, connections=4, depth=2)
        return work(played.usage, requests=played.requests, size_bytes=played.bytes_in) | latencies(played.latencies_ns)

    return measure


def _small(bench: Bench, *, connections: int, depth: int) -> Round:
    bench.create({"t": 1})
    requests, check = small_produce(), check_produce("t", 1)
    bench.warm(requests, check)

    def measure() -> Figures:
        played = bench.replay(requests, check, connections=connections, depth=depth)
        return work(played.usage, requests=played.requests) | latencies(played.latencies_ns)

    return measure


@scenario(
    "raw-small", "replayed Produce of one record of 100 B; 8 connections, 8 in flight on each", limit="sink-small"
)
def raw_small(bench: Bench) -> Round:
    return _small(bench, connections=8, depth=8)


@scenario("raw-rtt", "the same one at a time, on one connection: a round trip")
def raw_rtt(bench: Bench) -> Round:
    return _small(bench, connections=1, depth=1)


@scenario("raw-list-offsets", "replayed ListOffsets of 6 partitions; 4 connections, 4 in flight on each")
def raw_list_offsets(bench: Bench) -> Round:
    bench.create({"t": PARTITIONS})
    requests = numbered([list_offsets({"t": range(PARTITIONS)})] * TAPE)
    check = check_list_offsets("t", PARTITIONS)
    bench.warm(requests, check)

    def measure() -> Figures:
        played = bench.replay(requests, check, connections=4, depth=4)
        return work(played.usage, requests=played.requests) | latencies(played.latencies_ns)

    return measure
