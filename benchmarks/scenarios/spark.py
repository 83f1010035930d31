"""Spark, with its own connector and with kwire's `format("kwire")`, and default settings.

A stream reads two partitions and throws the rows away. Each time it has nothing left to read, 20 rows are written, ten
to each partition. The duration of a trigger that Spark reports includes its own planning and bookkeeping, and all its
requests to the broker.

A batch reads a whole topic and adds up its columns. It is all about the work of many rows, so here Java compiles as
well as it can. For the streams it compiles quickly, as in the tests: triggers are short, and most of them is waiting.

There is one Spark in a process: the brokers of a run share it, each with a query of its own while it has its turn.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from itertools import count
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.bench import Bench, Figures, Round, scenario, work
from benchmarks.load.answers import BadAnswer, check_produce
from benchmarks.load.connection import Connection
from benchmarks.load.requests import produce, value_batch
from benchmarks.scenarios import logs
from devtools.spark_session import QUICK, spark_session
from kwire.pipeline.spark_source import register

CONNECTOR, OURS = "kafka", "kwire"
BATCH_PART = 10  # of --table-records
PARTITIONS, ROWS = 2, 20
TRIGGERS, TRIGGERS_TO_WARM = 30, 10
WARM_ROUNDS = 2

_numbers = count()


class _Shared:
    """The Spark session, started by its first user and stopped after its last."""

    def __init__(self) -> None:
        self._users = 0
        self._running = ExitStack()
        self._session: SparkSession | None = None

    def use(self, keep: ExitStack, java_options: Sequence[str] = QUICK) -> SparkSession:
        """Starts it if need be; it ends when the last of those who keep it goes, with the scenario."""
        if self._session is None:
            folder = self._running.enter_context(tempfile.TemporaryDirectory(prefix="kwire-bench-spark-"))
            self._session = self._running.enter_context(spark_session(Path(folder), java_options))
            register(self._session)
        self._users += 1
        keep.callback(self._give_back)
        return self._session

    def _give_back(self) -> None:
        self._users -= 1
        if self._users == 0:
            self._session = None
            self._running.close()


_shared = _Shared()


@scenario(
    "spark-trigger",
    f"Structured Streaming fed {ROWS} rows a batch over {PARTITIONS} partitions, default settings: time of a trigger",
    needs_java=True,
)
def spark_trigger(bench: Bench) -> Round:
    triggers = _prepare_triggers(bench)
    return _warmed(bench, lambda: triggers(CONNECTOR))


@scenario(
    "kwire-source-trigger",
    f"spark-trigger with format({OURS!r}), and with Spark's connector",
    needs_java=True,
)
def kwire_source_trigger(bench: Bench) -> Round:
    triggers = _prepare_triggers(bench)

    def measure() -> Figures:
        theirs, ours = triggers(CONNECTOR), triggers(OURS)
        return {
            **ours,
            "connector_trigger_ms": theirs["trigger_ms"],
            "trigger_of_connector": ours["trigger_ms"] / theirs["trigger_ms"],
        }

    return _warmed(bench, measure)


def _prepare_triggers(bench: Bench) -> Callable[[str], Figures]:
    """Returns what runs a query that reads by a format."""
    bench.create({"t": PARTITIONS})
    bench.warm_produce("t", PARTITIONS, share=0.1)
    spark = _shared.use(bench.keep)
    triggers, to_warm = bench.options.scaled(TRIGGERS), bench.options.scaled(TRIGGERS_TO_WARM)
    return lambda kind: _trigger_times(bench, spark, kind, triggers, to_warm)


def _warmed(bench: Bench, measure: Round) -> Round:
    for _ in range(bench.options.scaled(WARM_ROUNDS, least=0)):
        measure()
    return measure


@scenario(
    "kwire-source-batch",
    f"a topic read by Spark with format({OURS!r}), and with Spark's connector",
    needs_java=True,
)
def kwire_source_batch(bench: Bench) -> Round:
    records = bench.options.table_records // BATCH_PART
    logs.fill(bench, records)
    spark = _shared.use(bench.keep, ["-XX:+UseSerialGC"])

    def measure() -> Figures:
        theirs_s = _batch_s(bench, spark, CONNECTOR, records)
        start = bench.meter.read()
        ours_s = _batch_s(bench, spark, OURS, records)
        usage = bench.meter.since(start)
        return {
            **work(usage, records=records),
            "records_per_s": records / ours_s,
            "connector_records_per_s": records / theirs_s,
            "records_of_connector": theirs_s / ours_s,
        }

    measure()
    return measure


def _batch_s(bench: Bench, spark: SparkSession, kind: str, records: int) -> float:
    """Seconds to read the topic whole. Raises BadAnswer unless all of it was read."""
    rows = spark.read.format(kind).option("kafka.bootstrap.servers", bench.bootstrap).option("subscribe", logs.TOPIC)
    sums = rows.load().selectExpr("count(1)", "sum(length(value))", "sum(length(key))", "sum(offset)", "max(timestamp)")
    began = time.monotonic()
    (found,) = sums.collect()
    took_s = time.monotonic() - began
    if (found[0], found[1]) != (records, records * logs.VALUE_BYTES):
        raise BadAnswer(f"format {kind} read {found[0]:,} rows of {found[1]:,} bytes, of {records:,} records")
    return took_s


def _trigger_times(bench: Bench, spark: SparkSession, kind: str, triggers: int, to_warm: int) -> Figures:
    rows = spark.readStream.format(kind).option("kafka.bootstrap.servers", bench.bootstrap)
    checkpoint = bench.broker.root / f"checkpoint-{next(_numbers)}"
    writer = rows.option("subscribe", "t").load().writeStream.format("noop")
    frame, check = produce("t", range(PARTITIONS), value_batch(ROWS // PARTITIONS, 100)), check_produce("t", PARTITIONS)
    query = writer.option("checkpointLocation", str(checkpoint)).start()
    times_ms: list[int] = []
    read = 0
    try:
        query.processAllAvailable()  # where the log ends is decided by now
        with Connection(bench.broker.port) as connection:
            start = bench.meter.read()
            for number in range(to_warm + triggers):
                if number == to_warm:
                    start = bench.meter.read()
                answer = connection.call(frame)
                check(answer, 0, len(answer))
                query.processAllAvailable()
            usage = bench.meter.since(start)
        progresses = [progress for progress in query.recentProgress if progress.numInputRows]
        read = sum(progress.numInputRows for progress in progresses)
        times_ms = [progress.durationMs["triggerExecution"] for progress in progresses][to_warm:]
    finally:
        query.stop()
    if read != ROWS * (to_warm + triggers):
        raise BadAnswer(f"Spark read {read} rows of {ROWS * (to_warm + triggers)}")
    return {
        "trigger_ms": statistics.median(times_ms),
        "trigger_p95_ms": sorted(times_ms)[int(len(times_ms) * 0.95)],
        "cpu_ms_per_trigger": usage.cpu_s * 1e3 / triggers,
        "broker_core": usage.cpu_s / usage.seconds,
        "others_core": usage.others_s / usage.seconds,
    }
