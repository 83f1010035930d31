"""`kwire pipeline table` as a process, with a Java process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from devtools.jars import jars
from devtools.java import java_environment
from devtools.ports import free_port
from devtools.spark_session import QUICK
from kwire.pipeline.tables.writer import AnotherJob
from testkit.basics.waiting import eventually
from testkit.spark.jobs import Jobs
from testkit.spark.records import Record, numbered

Sent = Callable[..., None]

_ENDS_WITHIN_S = 120


@contextmanager
def _command(jobs: Jobs, tmp_path: Path, topic: str, *flags: str) -> Iterator[subprocess.Popen[str]]:
    """Its standard output and error are files in `tmp_path`."""
    jar_files = ",".join(map(str, jars("spark-kafka") + jars("spark-iceberg")))
    conf = ["--conf", f"spark.jars={jar_files}", "--conf", "spark.sql.shuffle.partitions=1", "--master", "local[2]"]
    command = [sys.executable, "-m", "kwire", "pipeline", "table", topic, "--to", str(jobs.warehouse.folder)]
    with (tmp_path / "out").open("w") as out, (tmp_path / "err").open("w") as err:
        process = subprocess.Popen(
            [*command, "-b", jobs.bootstrap, *conf, *flags],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            text=True,
            env={**os.environ, **java_environment(), "TMPDIR": str(tmp_path), "JAVA_TOOL_OPTIONS": " ".join(QUICK)},
        )
        try:
            yield process
        finally:
            process.kill()
            process.wait()


def _events(tmp_path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (tmp_path / "out").read_text().splitlines()]


def _stderr_lines(tmp_path: Path) -> list[str]:
    """Standard error, but for the Java machine's own words at its start."""
    lines = (tmp_path / "err").read_text().splitlines()
    return [line for line in lines if not line.startswith(("WARNING: ", "Picked up "))]


@pytest.mark.more
def test_a_signal_ends_the_command_in_good_order(jobs: Jobs, topic: str, sent: Sent, tmp_path: Path) -> None:
    sent(topic, numbered(20))
    port = free_port()
    with _command(jobs, tmp_path, topic, "--json", "--interval", "0.2", "--metrics-port", str(port)) as process:
        eventually(lambda: process.poll() is not None or _events(tmp_path), "a commit", within_s=_ENDS_WITHIN_S)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
            metrics = answer.read().decode()
        process.send_signal(signal.SIGTERM)
        assert process.wait(_ENDS_WITHIN_S) == 0
    (commit,) = _events(tmp_path)
    assert (commit["event"], commit["records"], commit["lag"]) == ("commit", 20, {"0": 0})
    assert 'partition="0"} 20.0' in metrics
    assert _stderr_lines(tmp_path) == []
    assert len(jobs.rows(topic)) == 20
    assert jobs.branches(topic) == set()
    assert sorted(it.name for it in tmp_path.iterdir() if it.is_dir()) == []
    assert tempfile.gettempdir() != str(tmp_path)


@pytest.mark.soak  # two of them; in one process it is in test_append.py
def test_a_table_that_another_job_writes_ends_the_command_in_a_line(
    jobs: Jobs, topic: str, sent: Sent, tmp_path: Path
) -> None:
    sent(topic, numbered(1))
    with _command(jobs, tmp_path, topic, "--interval", "1") as process:
        eventually(lambda: process.poll() is not None or _events(tmp_path), "a commit", within_s=_ENDS_WITHIN_S)
        for _ in range(20):
            sent(topic, numbered(1))
            with suppress(AnotherJob):  # whoever comes second
                jobs.once(topic)
            if process.poll() is not None:
                break
        assert process.wait(_ENDS_WITHIN_S) == 2
    (line,) = _stderr_lines(tmp_path)
    assert line.startswith("kwire pipeline: another job writes the table ")
    jobs.once(topic)
    assert [row["kafka"]["offset"] for row in jobs.rows(topic)] == list(range(jobs.position(topic).offsets[0]))


@pytest.mark.soak  # a Java process for one line
def test_a_schema_that_only_spark_can_refuse_is_a_line(
    jobs: Jobs, topic: str, sent: Sent, tmp_path: Path, schema_file: Callable[[str, str], Path]
) -> None:
    sent(topic, [Record(b"{}")])
    schema = schema_file("wrong.ddl", "id BIGNUMBER,, name")
    with _command(jobs, tmp_path, topic, "--once", "--value", "json", "--schema", str(schema)) as process:
        assert process.wait(_ENDS_WITHIN_S) == 2
    (line,) = _stderr_lines(tmp_path)
    assert line.startswith("kwire pipeline: the schema cannot be read, neither as DDL nor as Spark's JSON: ")
    assert _events(tmp_path) == []
