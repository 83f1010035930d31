"""Reports a job's progress: bars on a terminal, JSON lines elsewhere, and Prometheus metrics on request.

A JSON line is an object with `event`: "commit" or "warning"; a replay's last one is "done" or "stopped". These names
are stable.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Protocol, TextIO

import attrs

from kwire.pipeline.errors import PipelineError

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


@attrs.frozen(kw_only=True)
class Step:
    """A finished batch of one table or topic. `lag` counts the offsets after `offsets`, by partition."""

    name: str
    records: int
    errors: int
    took_s: float
    offsets: Mapping[int, int]
    lag: Mapping[int, int]


class Report(Protocol):
    """A receiver of a job's progress. Called from any thread, one call at a time."""

    def step(self, step: Step) -> None: ...

    def warning(self, text: str) -> None: ...


@attrs.define(eq=False)
class JsonLines:
    """Writes one JSON object per line."""

    out: TextIO

    def step(self, step: Step) -> None:
        self._write(
            {
                "event": "commit",
                "name": step.name,
                "records": step.records,
                "errors": step.errors,
                "records_per_s": round(step.records / step.took_s) if step.took_s else None,
                "took_s": round(step.took_s, 3),
                "offsets": {str(partition): offset for partition, offset in sorted(step.offsets.items())},
                "lag": {str(partition): count for partition, count in sorted(step.lag.items())},
            }
        )

    def warning(self, text: str) -> None:
        self._write({"event": "warning", "text": text})

    def _write(self, found: Mapping[str, object]) -> None:
        print(json.dumps({"at_s": round(time.time(), 3), **found}), file=self.out, flush=True)


@attrs.define(eq=False)
class Bars:
    """A bar for each table: the part of its topic that it has."""

    progress: Progress
    _tasks: dict[str, TaskID] = attrs.field(factory=dict)
    _done: dict[str, int] = attrs.field(factory=dict)
    _errors: dict[str, int] = attrs.field(factory=dict)

    def step(self, step: Step) -> None:
        if step.name not in self._tasks:
            self._tasks[step.name] = self.progress.add_task(step.name, total=None, rate="", lag="", errors="")
        done = self._done[step.name] = self._done.get(step.name, 0) + step.records
        errors = self._errors[step.name] = self._errors.get(step.name, 0) + step.errors
        lag = sum(step.lag.values())
        self.progress.update(
            self._tasks[step.name],
            completed=done,
            total=done + lag,
            rate=f"{step.records / step.took_s:,.0f} rows/s" if step.took_s else "",
            lag=f"lag {lag:,}",
            errors=f"{errors:,} errors" if errors else "",
        )

    def warning(self, text: str) -> None:
        self.progress.console.print(f"warning: {text}", style="yellow", markup=False, highlight=False)


class Metrics:
    """Prometheus metrics, all named kwire_pipeline_*, served by HTTP on loopback until `close`."""

    def __init__(self, port: int) -> None:
        """Port 0 selects any free one; `port` is the actual one. Raises PipelineError if the port is not available."""
        from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server

        found = CollectorRegistry()
        name, by_partition = ["name"], ["name", "partition"]
        self._records = Counter("kwire_pipeline_records", "Records that were committed.", name, registry=found)
        self._errors = Counter("kwire_pipeline_errors", "Of these, what could not be decoded.", name, registry=found)
        self._lag = Gauge("kwire_pipeline_lag", "Offsets that are not committed yet.", by_partition, registry=found)
        self._offset = Gauge("kwire_pipeline_offset", "The next offset to be read.", by_partition, registry=found)
        self._at = Gauge("kwire_pipeline_last_commit_timestamp_seconds", "Of the last batch.", name, registry=found)
        self._took = Histogram("kwire_pipeline_commit_seconds", "How long a batch took.", name, registry=found)
        self._warnings = Counter("kwire_pipeline_warnings", "Restarts, and other warnings.", registry=found)
        try:
            self._server, self._thread = start_http_server(port, addr="127.0.0.1", registry=found)
        except OSError as error:
            raise PipelineError(f"metrics cannot be served on 127.0.0.1:{port}: {error.strerror}") from None
        self.port = self._server.server_port

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def step(self, step: Step) -> None:
        self._records.labels(step.name).inc(step.records)
        self._errors.labels(step.name).inc(step.errors)
        self._took.labels(step.name).observe(step.took_s)
        self._at.labels(step.name).set_to_current_time()
        for partition, offset in step.offsets.items():
            self._offset.labels(step.name, str(partition)).set(offset)
        for partition, lag in step.lag.items():
            self._lag.labels(step.name, str(partition)).set(lag)

    def warning(self, _text: str) -> None:
        self._warnings.inc()


class Reports:
    """Several reports as one; calls are serialized."""

    def __init__(self, *reports: Report) -> None:
        self._reports = reports
        self._lock = threading.Lock()

    def step(self, step: Step) -> None:
        with self._lock:
            for report in self._reports:
                report.step(step)

    def warning(self, text: str) -> None:
        with self._lock:
            for report in self._reports:
                report.warning(text)


@contextmanager
def reporting(*, as_json: bool, metrics_port: int | None) -> Iterator[Reports]:
    """Bars if standard output is a terminal, lines otherwise."""
    with ExitStack() as stack:
        reports: list[Report] = []
        if metrics_port is not None:
            metrics = Metrics(metrics_port)
            stack.callback(metrics.close)
            reports.append(metrics)
        if as_json or not sys.stdout.isatty():
            reports.append(JsonLines(sys.stdout))
        else:
            reports.append(Bars(stack.enter_context(_progress())))
        yield Reports(*reports)


def _progress() -> Progress:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TextColumn("{task.fields[lag]}"),
        TextColumn("{task.fields[errors]}", style="red"),
        TimeElapsedColumn(),
    )
