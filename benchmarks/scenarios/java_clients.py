"""Kafka's own performance tools, with its Java client.

They print their progress several times a second. The broker's CPU is read when such a line comes, and figures are
taken between two lines: behind the first part of a run, in which the tool itself has yet to be compiled, and the last
line that it prints.
"""

from __future__ import annotations

import re
from itertools import pairwise

import attrs

from benchmarks.bench import Bench, Figures, Round, scenario, work
from benchmarks.brokers.kafka_java import ToolFailed, run_load
from benchmarks.machine import Reading
from benchmarks.scenarios.raw import PARTITIONS, check_fetches, fetches, fill

PRODUCER = "org.apache.kafka.tools.ProducerPerformance"
CONSUMER = "org.apache.kafka.tools.ConsumerPerformance"
END_TO_END = "org.apache.kafka.tools.EndToEndLatency"

BATCHED = {"acks": "all", "batch.size": "131072", "linger.ms": "5", "enable.idempotence": "false"}
RATE_LINES = 8  # that a producer prints at least before its rate is believed
END_TO_END_RECORDS = 5000

_WINDOW = re.compile(r"(\d+) records sent, ([\d.]+) records/sec .*max latency\.")
_LATENCIES = re.compile(
    r"([\d.]+) ms avg latency.* ([\d.]+) ms 50th, ([\d.]+) ms 95th, ([\d.]+) ms 99th, ([\d.]+) ms 99.9th"
)
_TOTALS = re.compile(r"producer-metrics:(record-send-total|request-total):\{.*\}\s*: ([\d.]+)")
_END_TO_END = re.compile(r"50th = ([\d.]+), 99th = ([\d.]+), 99.9th = ([\d.]+)")

LEAST_RUN_S = 1.5


@attrs.frozen
class _Point:
    """The broker's clocks when a tool had done so much."""

    reading: Reading
    records: float
    mib: float = 0.0


@attrs.frozen
class _Producer:
    """ProducerPerformance against one broker, with settings that stay."""

    bench: Bench
    record_bytes: int
    properties: dict[str, str]

    def run(
        self, count: int, per_s: int, *, warm_up: int = 0, until_rate: bool = False
    ) -> tuple[list[_Point], list[str]]:
        """The points and lines of a run; with `until_rate` it is ended when its rate is known and the broker warm."""
        points: list[_Point] = []
        options, meter = self.bench.options, self.bench.meter
        start, lines_wanted = meter.read(), options.scaled(RATE_LINES, least=3)

        def watch(line: str) -> bool:
            window = _WINDOW.match(line)
            if window is None:
                return False
            points.append(_Point(meter.read(), (points[-1].records if points else 0) + int(window[1])))
            usage = meter.between(start, points[-1].reading)
            if until_rate:
                warm = usage.cpu_s >= 0.3 * options.warm_cpu_s or usage.seconds >= 0.3 * options.warm_s
                return warm and len(points) > lines_wanted
            return usage.seconds > 4 * options.run_s + 30  # it is slower than it was

        arguments = ["--bootstrap-server", self.bench.bootstrap, "--topic", "t", "--print-metrics"]
        arguments += ["--record-size", str(self.record_bytes), "--num-records", str(count), "--throughput", str(per_s)]
        arguments += ["--reporting-interval", str(options.report_ms)]
        arguments += ["--warmup-records", str(warm_up)] if warm_up else []
        arguments += ["--command-property", *(f"{name}={value}" for name, value in self.properties.items())]
        lines = run_load(PRODUCER, *arguments, on_line=watch)
        if len(points) < 2:
            raise ToolFailed("\n".join(["ProducerPerformance printed too little:", *lines[-5:]]))
        return points, lines


def _produce(
    bench: Bench,
    properties: dict[str, str],
    *,
    record_bytes: int,
    partitions: int = PARTITIONS,
    per_s: int = -1,
    by_size: bool = True,
) -> Round:
    """Runs once to warm both sides and to learn the rate; then a round sends for about one and a half `run_s`."""
    bench.create({"t": partitions})
    bench.warm_produce("t", partitions, share=0.7)
    producer = _Producer(bench, record_bytes, properties)
    rate = float(per_s)
    if per_s < 0:
        points, _ = producer.run(10**10, -1, until_rate=True)
        pairs = pairwise(points)
        rate = max((b.records - a.records) / (b.reading.clock_s - a.reading.clock_s) for a, b in pairs)
    else:
        producer.run(10**10, per_s, until_rate=True)
    # Long enough for some lines, however short a round is and however long Java takes to get going.
    seconds = max(1.5 * bench.options.run_s, 8 * bench.options.report_ms / 1000, LEAST_RUN_S)
    count = int(rate * seconds)
    bench.drop_cached()

    def measure() -> Figures:
        points, lines = producer.run(count, per_s, warm_up=count // 3)
        bench.drop_cached()
        warm = next((point for point in points[:-1] if point.records >= count // 3), points[-2])
        usage = bench.meter.between(warm.reading, points[-1].reading)
        records = points[-1].records - warm.records
        totals = {found[1]: float(found[2]) for line in lines if (found := _TOTALS.match(line))}
        in_request = totals["record-send-total"] / totals["request-total"] if totals.get("request-total") else 0.0
        requests = records / in_request if in_request else 0.0
        figures = work(usage, records=records, requests=requests, size_bytes=records * record_bytes * by_size)
        figures["records_per_request"] = in_request
        latencies = [found for line in lines if (found := _LATENCIES.search(line))]
        if latencies:  # of the records behind the warm-up
            names = ("mean_ms", "p50_ms", "p95_ms", "p99_ms", "p999_ms")
            figures |= dict(zip(names, map(float, latencies[-1].groups()), strict=True))
        return figures

    return measure


@scenario(
    "unbatched",
    "ProducerPerformance, 100 B records, batch.size=0, 1 partition: a request for each record",
    needs_java=True,
)
def unbatched(bench: Bench) -> Round:
    properties = BATCHED | {"batch.size": "0", "linger.ms": "0"}
    return _produce(bench, properties, record_bytes=100, partitions=1, by_size=False)


@scenario(
    "produce-1k",
    f"ProducerPerformance, 1 KiB records, acks=all, batch.size=131072, linger.ms=5, {PARTITIONS} partitions",
    needs_java=True,
)
def produce_1k(bench: Bench) -> Round:
    return _produce(bench, BATCHED, record_bytes=1024)


@scenario("produce-100b", "the same with records of 100 B", needs_java=True)
def produce_100b(bench: Bench) -> Round:
    return _produce(bench, BATCHED, record_bytes=100)


@scenario("produce-1k-lz4", "produce-1k compressed with lz4; sizes are those before it", needs_java=True)
def produce_1k_lz4(bench: Bench) -> Round:
    return _produce(bench, BATCHED | {"compression.type": "lz4"}, record_bytes=1024)


@scenario("produce-1k-idempotent", "produce-1k with an idempotent producer, the client's default", needs_java=True)
def produce_1k_idempotent(bench: Bench) -> Round:
    return _produce(bench, BATCHED | {"enable.idempotence": "true"}, record_bytes=1024)


@scenario(
    "paced-20k",
    "ProducerPerformance held to 20,000 records/s of 100 B, linger.ms=0: latency away from saturation",
    needs_java=True,
)
def paced_20k(bench: Bench) -> Round:
    return _produce(bench, BATCHED | {"linger.ms": "0"}, record_bytes=100, per_s=20_000)


def _consume(bench: Bench, *, cold: bool) -> Round:
    records = fill(bench) * PARTITIONS
    bench.warm(fetches(records // PARTITIONS), check_fetches(), share=0.7)
    # Another way through the broker than replayed requests take: sessions, topic ids, a group.
    _consume_all(bench, records)

    def measure() -> Figures:
        if cold:
            bench.drop_cached()
        points = _consume_all(bench, records)
        warm = next((point for point in points[:-1] if point.records >= records / 4), points[-2])
        usage = bench.meter.between(warm.reading, points[-1].reading)
        size_bytes = (points[-1].mib - warm.mib) * 2**20
        return work(usage, records=points[-1].records - warm.records, size_bytes=size_bytes)

    return measure


def _consume_all(bench: Bench, records: int) -> list[_Point]:
    points: list[_Point] = [_Point(bench.meter.read(), 0.0)]

    def watch(line: str) -> None:
        # time, id, MiB so far, MiB/s, records so far, records/s, ...
        fields = line.split(",")
        if len(fields) == 10 and fields[1].strip().isdigit():
            points.append(_Point(bench.meter.read(), float(fields[4]), float(fields[2])))

    arguments = ["--bootstrap-server", bench.bootstrap, "--topic", "t", "--num-records", str(records)]
    arguments += ["--show-detailed-stats", "--hide-header", "--timeout", "30000"]
    arguments += ["--reporting-interval", str(min(bench.options.report_ms, 200))]
    lines = run_load(CONSUMER, *arguments, on_line=watch)
    if len(points) < 2 or any("Exiting before consuming" in line for line in lines):
        raise ToolFailed("\n".join(["ConsumerPerformance printed:", *lines[-5:]]))
    return points


@scenario(
    "consume", f"ConsumerPerformance, 1 KiB records from {PARTITIONS} partitions, in the page cache", needs_java=True
)
def consume(bench: Bench) -> Round:
    return _consume(bench, cold=False)


@scenario("consume-cold", "the same when the page cache has dropped the broker's files", needs_java=True)
def consume_cold(bench: Bench) -> Round:
    return _consume(bench, cold=True)


@scenario(
    "e2e", "EndToEndLatency: one record of 100 B at a time, producer to consumer; whole milliseconds", needs_java=True
)
def e2e(bench: Bench) -> Round:
    bench.create({"t": 1})
    bench.warm_produce("t", 1, share=0.6)
    records = bench.options.scaled(END_TO_END_RECORDS)

    def run(records: int) -> Figures:
        text = "\n".join(run_load(END_TO_END, bench.bootstrap, "t", str(records), "all", "100"))
        mean, shares = re.search(r"Avg latency: ([\d.]+)", text), _END_TO_END.search(text)
        if mean is None or shares is None:
            raise ToolFailed(f"EndToEndLatency printed:\n{text[-500:]}")
        p50_ms, p99_ms, p999_ms = map(float, shares.groups())
        return {"mean_ms": float(mean[1]), "p50_ms": p50_ms, "p99_ms": p99_ms, "p999_ms": p999_ms}

    run(max(records * 2 // 5, 10))
    return lambda: run(records)
