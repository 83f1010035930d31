"""`kwire pipeline` and `kwire query` at work on a topic of millions of JSON records.

What is measured are the commands themselves, each from its start to its end, with the Java process that it starts. All
of them run on the cores of the clients, as does the job written by hand that the table's is held against; the broker
has its own. A command's CPU time is that of all its processes.
"""

from __future__ import annotations

import json
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import Final

import attrs

from benchmarks.bench import Bench, Figures, Round, scenario
from benchmarks.load.answers import BadAnswer
from benchmarks.scenarios import logs
from devtools.jars import jars
from devtools.java import java_environment
from kwire.pipeline.index.found import FoundRecord
from kwire.pipeline.index.query import Query, execute
from kwire.pipeline.tables.plan import TablePlan
from kwire.pipeline.warehouse import NAMESPACE, index_table_name, parse_warehouse

MASTER: Final = "local[*]"
MEMORY: Final = "2g"
MAX_OFFSETS: Final = attrs.fields(TablePlan).max_records_per_commit.default
QUERIES, COMMANDS = 30, 3
COMMAND_TIMEOUT_S = 3600.0

_KWIRE = [sys.executable, "-m", "kwire"]
_BY_HAND = [sys.executable, "-m", "benchmarks.by_hand"]


@attrs.frozen
class Ran:
    """A command that has ended well: seconds by the clock, CPU seconds of all its processes, what it printed."""

    seconds: float
    cpu_s: float
    out: str


@attrs.define(eq=False)
class _Commands:
    """Commands on the topic of one broker, and the folders that they write to."""

    bench: Bench

    def folder(self) -> Path:
        """A new one; it goes with the broker at the latest."""
        return Path(tempfile.mkdtemp(prefix="pipeline-", dir=self.bench.broker.root))

    def table(self, folder: Path) -> Ran:
        schema = folder / "logs.ddl"
        schema.write_text(logs.SCHEMA, encoding="utf-8")
        return self._on_spark(
            folder, "table", "-b", self.bench.bootstrap, "--value", "json", "--schema", schema, "--once", "--json"
        )

    def verify(self, folder: Path) -> Ran:
        return self._on_spark(folder, "verify", "-b", self.bench.bootstrap, "--json")

    def index(self, folder: Path) -> Ran:
        return self._on_spark(folder, "index", "-b", self.bench.bootstrap, "--fields", logs.FIELDS, "--once", "--json")

    def maintain(self, folder: Path) -> Ran:
        return self._on_spark(folder, "maintain", "--json")

    def by_hand(self, folder: Path) -> Ran:
        return _run(
            *_BY_HAND,
            logs.TOPIC,
            "--to",
            folder,
            *("--bootstrap-server", self.bench.bootstrap),
            *("--schema", logs.SCHEMA),
            *("--checkpoint", folder / "checkpoint"),
            *("--max-offsets-per-trigger", MAX_OFFSETS),
            *self._spark(),
        )

    def query(self, folder: Path, where: str) -> Ran:
        return _run(
            *_KWIRE, "query", logs.TOPIC, "-b", self.bench.bootstrap, "--to", folder, "--where", where, "--json"
        )

    def _on_spark(self, folder: Path, command: str, *options: object) -> Ran:
        return _run(*_KWIRE, "pipeline", command, logs.TOPIC, "--to", folder, *options, *self._spark())

    def _spark(self) -> Sequence[str]:
        settings = {
            "spark.jars": ",".join(map(str, jars("spark-kafka") + jars("spark-iceberg"))),
            "spark.driver.memory": MEMORY,
            "spark.local.dir": str(self.bench.broker.root),
        }
        return ["--master", MASTER, *(part for it in settings.items() for part in ("--conf", "=".join(it)))]


def _run(*command: object) -> Ran:
    """Raises BadAnswer for a command that fails."""
    before, began = _childrens_cpu_s(), time.monotonic()
    done = subprocess.run(
        [*map(str, command)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=java_environment(),
        timeout=COMMAND_TIMEOUT_S,
        check=False,
    )
    seconds = time.monotonic() - began
    if done.returncode:
        words = " ".join(map(str, command[1:5]))
        raise BadAnswer(f"{words} ended with {done.returncode}: {done.stderr.strip()[-1000:]} {done.stdout[-1000:]}")
    return Ran(seconds, _childrens_cpu_s() - before, done.stdout)


def _childrens_cpu_s() -> float:
    """Returns the CPU time of child processes that have ended; brokers run on meanwhile."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _rows(folder: Path, table: str) -> int:
    """Returns the number of a table's rows."""
    catalog = parse_warehouse(str(folder), {}).pyiceberg_catalog()
    try:
        snapshot = catalog.load_table((NAMESPACE, table)).current_snapshot()
    finally:
        catalog.close()
    assert snapshot is not None
    assert snapshot.summary is not None
    return int(snapshot.summary["total-records"] or 0)


def _must_be(what: str, found: int, wanted: int) -> None:
    if found != wanted:
        raise BadAnswer(f"{what}: {found:,} instead of {wanted:,}")


@scenario(
    "pipeline-table",
    "JSON records into an Iceberg table by kwire pipeline table --once, and by a Spark job written by hand; "
    "then kwire pipeline verify",
    needs_java=True,
)
def pipeline_table(bench: Bench) -> Round:
    records = bench.options.table_records
    logs.fill(bench, records)
    commands, numbers = _Commands(bench), count()

    def measure() -> Figures:
        ours, theirs = commands.folder(), commands.folder()
        figures: Figures = {}

        def by_kwire() -> None:
            start = bench.meter.read()
            ran = commands.table(ours)
            usage = bench.meter.since(start)
            figures["rows_per_s"] = records / ran.seconds
            figures["job_cpu_s_per_mrow"] = ran.cpu_s / records * 1e6
            figures["cpu_s_per_mrecord"] = usage.cpu_s / records * 1e6
            figures["others_core"] = usage.others_s / usage.seconds

        def by_hand() -> None:
            ran = commands.by_hand(theirs)
            figures["by_hand_rows_per_s"] = records / ran.seconds
            figures["by_hand_cpu_s_per_mrow"] = ran.cpu_s / records * 1e6

        both = (by_kwire, by_hand)
        try:
            for job in both if next(numbers) % 2 == 0 else reversed(both):
                job()
            _must_be("rows by hand", _rows(theirs, logs.TOPIC), records)
            checked = commands.verify(ours)
        finally:
            shutil.rmtree(ours)
            shutil.rmtree(theirs)
        found = json.loads(checked.out)
        _must_be("records that verify compared", sum(it["rows"] for it in found["partitions"]), records)
        return figures | {
            "rows_of_by_hand": figures["rows_per_s"] / figures["by_hand_rows_per_s"],
            "verified_per_cpu_s": records / checked.cpu_s,
            "verify_s": checked.seconds,
        }

    return measure


@scenario(
    "pipeline-query",
    "kwire query by what identifies records, in an index that kwire pipeline index wrote and maintain merged",
    needs_java=True,
)
def pipeline_query(bench: Bench) -> Round:
    records = bench.options.table_records
    logs.fill(bench, records)
    commands = _Commands(bench)
    folder = commands.folder()
    bench.figures["index_rows_per_s"] = records / commands.index(folder).seconds
    bench.figures["maintain_s"] = commands.maintain(folder).seconds
    queries = bench.options.scaled(QUERIES, least=2)

    def measure() -> Figures:
        figures: Figures = {}
        for name, condition in _CONDITIONS.items():
            wanted = [(place * 7919 * 7919) % records for place in range(queries)]
            _find_ms(bench, folder, condition, wanted[0])  # what is first needed is loaded then
            figures[name] = statistics.median(_find_ms(bench, folder, condition, n) for n in wanted)
        commands_s = [commands.query(folder, _CONDITIONS["log_id_ms"](n)).seconds for n in range(COMMANDS)]
        return {**figures, "query_s": statistics.median(commands_s)}

    return measure


# The condition that finds record n, by the figure for the time that this takes.
_CONDITIONS: Final[dict[str, Callable[[int], str]]] = {
    "user_id_ms": lambda n: f"user_id = {logs.user_id(n)}",
    "log_id_ms": lambda n: f"log_id = '{logs.log_id(n)}'",
    "key_ms": lambda n: f"key = '{logs.key(n)}'",
    "offset_ms": lambda n: f"offset = {logs.place(n)[1]}",
    "either_ms": lambda n: f"user_id = {logs.user_id(n)} OR log_id = '{logs.log_id(n + 1)}'",
}


def _find_ms(bench: Bench, folder: Path, condition: Callable[[int], str], n: int) -> float:
    """Returns the milliseconds until record `n` is found. Raises BadAnswer if it is not."""
    query = Query(
        topic=logs.TOPIC,
        bootstrap=bench.bootstrap,
        warehouse=parse_warehouse(str(folder), {}),
        table=index_table_name(logs.TOPIC),
        where=condition(n),
        limit=1000,
    )
    began = time.monotonic()
    answer = execute(query, now_ms=time.time_ns() // 1_000_000)
    took_ms = (time.monotonic() - began) * 1e3
    if not any(_is_it(found, n) for found in answer.records) or answer.freshness.rows != bench.options.table_records:
        raise BadAnswer(f"{query.where} found {len(answer.records)} records, and record {n} is not among them")
    return took_ms


def _is_it(found: FoundRecord, n: int) -> bool:
    return (found.partition, found.offset) == logs.place(n) and found.value == logs.value(n)
