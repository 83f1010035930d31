"""The reports of a job: lines of JSON, bars, and Prometheus' metrics over HTTP."""

from __future__ import annotations

import io
import json
import socket
import sys
import urllib.request

import pytest
from rich.console import Console
from rich.progress import Progress, TextColumn

from kwire.pipeline.errors import PipelineError
from kwire.pipeline.report import Bars, JsonLines, Metrics, Reports, Step, reporting
from testkit.cli.json_page import check_all_keys

STEP = Step(name="orders", records=10, errors=2, took_s=0.5, offsets={1: 7, 0: 5}, lag={0: 0, 1: 3})


def test_a_line_has_all_of_a_step_under_names_that_stay() -> None:
    out = io.StringIO()
    lines = JsonLines(out)
    lines.step(STEP)
    lines.warning("two\nlines")
    commit, warning = (json.loads(line) for line in out.getvalue().splitlines())
    check_all_keys("jobs of pipeline", [commit, warning])
    assert commit.pop("at_s") > 1.7e9
    assert commit == {
        "event": "commit",
        "name": "orders",
        "records": 10,
        "errors": 2,
        "records_per_s": 20,
        "took_s": 0.5,
        "offsets": {"0": 5, "1": 7},
        "lag": {"0": 0, "1": 3},
    }
    assert (warning["event"], warning["text"]) == ("warning", "two\nlines")


def test_a_step_that_took_no_time_has_no_rate() -> None:
    out = io.StringIO()
    JsonLines(out).step(Step(name="t", records=0, errors=0, took_s=0.0, offsets={}, lag={}))
    assert json.loads(out.getvalue())["records_per_s"] is None


def test_bars_show_what_is_there_of_what_there_is() -> None:
    console = Console(file=io.StringIO(), width=200)
    fields = [
        TextColumn(text) for text in ("{task.description}", "{task.completed}/{task.total}", "{task.fields[lag]}")
    ]
    progress = Progress(*fields, TextColumn("{task.fields[rate]} {task.fields[errors]}"), console=console)
    bars = Bars(progress)
    bars.step(STEP)
    bars.step(STEP)
    bars.warning("[not markup]")
    console.print(progress)
    assert isinstance(console.file, io.StringIO)
    shown = console.file.getvalue()
    assert "warning: [not markup]" in shown
    for part in ("orders", "20/23", "lag 3", "20 rows/s", "4 errors"):
        assert part in shown


def _get(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        return str(answer.read().decode())


def test_prometheus_gets_counts_offsets_and_lag_over_http() -> None:
    metrics = Metrics(0)
    try:
        metrics.step(STEP)
        metrics.step(STEP)
        metrics.warning("restarted")
        body = _get(metrics.port)
    finally:
        metrics.close()
    for line in (
        'kwire_pipeline_records_total{name="orders"} 20.0',
        'kwire_pipeline_errors_total{name="orders"} 4.0',
        'kwire_pipeline_lag{name="orders",partition="1"} 3.0',
        'kwire_pipeline_offset{name="orders",partition="0"} 5.0',
        'kwire_pipeline_commit_seconds_count{name="orders"} 2.0',
        "kwire_pipeline_warnings_total 1.0",
    ):
        assert line in body.splitlines()
    assert "kwire_pipeline_last_commit_timestamp_seconds" in body
    with pytest.raises(OSError):
        _get(metrics.port)


def test_a_port_that_is_taken_is_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(PipelineError, match=f"127.0.0.1:{port}: Address already in use") as caught:
            Metrics(port)
    assert "\n" not in str(caught.value)


def test_several_reports_receive_the_same() -> None:
    first, second = io.StringIO(), io.StringIO()
    both = Reports(JsonLines(first), JsonLines(second))
    both.step(STEP)
    both.warning("w")
    for out in (first, second):
        assert [json.loads(line)["event"] for line in out.getvalue().splitlines()] == ["commit", "warning"]


def test_what_is_no_terminal_gets_lines(capsys: pytest.CaptureFixture[str]) -> None:
    assert not sys.stdout.isatty()
    with reporting(as_json=False, metrics_port=0) as report:
        report.step(STEP)
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line)["event"] == "commit"
