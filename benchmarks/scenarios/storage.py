"""The cost of the log beside the bytes: of a start, of idle partitions, of a sync at each record.

Starts are measured on what was written once for all rounds: a broker is stopped, or killed, and started on its data.
"""

from __future__ import annotations

import time

from benchmarks.bench import Bench, Figures, Round, latencies, scenario, work
from benchmarks.load.answers import BadAnswer, check_produce
from benchmarks.load.replay import Replayer, connect
from benchmarks.load.requests import numbered, produce, value_batch
from benchmarks.scenarios.lifecycle import idle
from benchmarks.scenarios.raw import BATCH_RECORDS, PARTITIONS, RECORD_BYTES

STORED_PARTITIONS, IN_REQUEST = 1000, 10
SEGMENT_BYTES = 4 << 20  # so that the size of the default has sealed segments and one that is not, in each partition
IDLE_PARTITIONS, PER_TOPIC = 10_000, 100
PRODUCERS = 64
LEADING_TIMEOUT_S = 60.0


def _batches(bench: Bench, partitions: int, each: int) -> None:
    """Writes so many batches of 120 KiB to each partition of topic `t`."""
    batch = value_batch(BATCH_RECORDS, RECORD_BYTES)
    requests = numbered(produce("t", range(at, at + IN_REQUEST), batch) for at in range(0, partitions, IN_REQUEST))
    sockets = connect(bench.broker.port, 2)
    replayer = Replayer(sockets, requests, check_produce("t", IN_REQUEST), depth=2)
    try:
        replayer.send(len(requests) * each)
    finally:
        replayer.close()
        for sock in sockets:
            sock.close()


def _batch_more(bench: Bench, partitions: int) -> None:
    """Apache Kafka acknowledges a first record before it leads all partitions."""
    deadline_s = time.monotonic() + LEADING_TIMEOUT_S
    while True:
        try:
            _batches(bench, partitions, 1)
        except BadAnswer:
            if time.monotonic() > deadline_s:
                raise
            time.sleep(0.5)
        else:
            return


def _store(bench: Bench) -> int:
    """Creates topic `t` and writes --stored-mib to it; returns its partitions."""
    partitions = bench.options.scaled(STORED_PARTITIONS // IN_REQUEST) * IN_REQUEST
    bench.create({"t": partitions}, {"segment.bytes": str(SEGMENT_BYTES), "retention.ms": "-1"})
    each = max(bench.options.stored_mib * 2**20 // (partitions * BATCH_RECORDS * RECORD_BYTES), 1)
    began = time.monotonic()
    _batches(bench, partitions, each)
    bench.figures["store_s"] = time.monotonic() - began
    bench.drop_cached()
    # So that every broker has checkpointed all of it, however long it took to write.
    bench.broker.stop()
    _start_again(bench)
    # Each round starts another process, the last of which is stopped before its data goes.
    bench.keep.callback(lambda: bench.broker.stop())
    return partitions


def _start_again(bench: Bench) -> Figures:
    bench.broker = bench.lab.start(bench.spec, bench.broker.root)
    return {"restart_s": bench.broker.startup_s, "restart_cpu_s": bench.broker.startup_cpu_s}


@scenario(
    "start-clean", f"a clean stop, and a start on {STORED_PARTITIONS:,} partitions that hold what --stored-mib says"
)
def start_clean(bench: Bench) -> Round:
    _store(bench)

    def measure() -> Figures:
        bench.broker.stop()
        return {"stop_s": bench.broker.stop_s} | _start_again(bench)

    return measure


@scenario("start-killed", "a batch more to every partition, a SIGKILL, and a start on what start-clean has")
def start_killed(bench: Bench) -> Round:
    partitions = _store(bench)

    def measure() -> Figures:
        _batch_more(bench, partitions)
        bench.broker.kill()
        return _start_again(bench)

    return measure


@scenario(
    "idle-10k",
    f"nobody asks anything, three times as long; {IDLE_PARTITIONS:,} partitions in topics of {PER_TOPIC}",
    alone=True,
)
def idle_10k(bench: Bench) -> Round:
    began = time.monotonic()
    for number in range(bench.options.scaled(IDLE_PARTITIONS // PER_TOPIC)):
        bench.create({f"idle-{number}": PER_TOPIC})
    bench.figures["create_s"] = time.monotonic() - began

    def measure() -> Figures:
        seconds = bench.options.idle_s * 3
        figures = idle(bench, seconds, settle_s=bench.options.settle_s * 2)
        return figures | {"idle_cpu_s": figures["idle_core"] * seconds}

    return measure


@scenario(
    "flush-each",
    f"flush.messages=1, {PARTITIONS} partitions; {PRODUCERS} connections, each with one Produce of 100 B in flight",
)
def flush_each(bench: Bench) -> Round:
    bench.create({"warm": PARTITIONS})
    bench.create({"t": PARTITIONS}, {"flush.messages": "1"})
    bench.warm_produce("warm", PARTITIONS, share=0.7)
    batch = value_batch(1, 100)
    requests = numbered(produce("t", [number % PARTITIONS], batch) for number in range(PRODUCERS * PARTITIONS))
    check = check_produce("t", 1)
    bench.warm(requests, check, share=0.3)

    def measure() -> Figures:
        played = bench.replay(requests, check, connections=PRODUCERS, depth=1)
        return work(played.usage, requests=played.requests) | latencies(played.latencies_ns)

    return measure
