"""Spark Structured Streaming, with its own connector and default settings.

A query reads two partitions and throws the rows away. Each time it has nothing left to read, 20 rows are written, ten
to each partition. What Spark says its trigger took holds planning and bookkeeping of its own, and every question that
it asks the broker on the way.

There is one Spark in a process: the brokers of a run share it, each with a query of its own while it has its turn.
"""

from __future__ import annotations

import statistics
import tempfile
from contextlib import ExitStack
from itertools import count
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.answers import BadAnswer, check_produce
from benchmarks.bench import Bench, Figures, Round, scenario
from benchmarks.connection import Connection
from benchmarks.requests import produce, value_batch
from spark_tests.session import spark_session

PARTITIONS, ROWS = 2, 20
TRIGGERS, TRIGGERS_TO_WARM = 30, 10
WARM_ROUNDS = 2

_numbers = count()


class _Shared:
    """The session, while somebody uses it."""

    def __init__(self) -> None:
        self._users = 0
        self._running = ExitStack()
        self._session: SparkSession | None = None

    def use(self, keep: ExitStack) -> SparkSession:
        """Starts it if need be; it ends when the last of those who keep it goes."""
        if self._session is None:
            folder = self._running.enter_context(tempfile.TemporaryDirectory(prefix="kwire-bench-spark-"))
            self._session = self._running.enter_context(spark_session(Path(folder)))
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
    bench.create({"t": PARTITIONS})
    bench.warm_produce("t", PARTITIONS, share=0.1)
    spark = _shared.use(bench.keep)
    triggers, to_warm = bench.options.scaled(TRIGGERS), bench.options.scaled(TRIGGERS_TO_WARM)

    def measure() -> Figures:
        return _trigger_times(bench, spark, triggers, to_warm)

    for _ in range(bench.options.scaled(WARM_ROUNDS, least=0)):
        measure()
    return measure


def _trigger_times(bench: Bench, spark: SparkSession, triggers: int, to_warm: int) -> Figures:
    rows = spark.readStream.format("kafka").option("kafka.bootstrap.servers", bench.bootstrap)
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
