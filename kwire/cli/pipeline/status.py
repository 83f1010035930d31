"""`kwire pipeline status`: prints the state of each table."""

from __future__ import annotations

import json
from contextlib import nullcontext
from datetime import UTC, datetime

import attrs
import click
from rich.console import Console
from rich.table import Table

from kwire.pipeline.tables.status import TableStatus, statuses
from kwire.pipeline.topics import Topics
from kwire.pipeline.warehouse import parse_warehouse


def run_status(*, warehouse: str, bootstrap: str | None, conf: dict[str, str], as_json: bool) -> None:
    """Raises PipelineError."""
    location = parse_warehouse(warehouse, conf)
    with nullcontext() if bootstrap is None else Topics(bootstrap) as topics:
        found = statuses(location, topics)
    if as_json:
        for it in found:
            click.echo(json.dumps(attrs.asdict(it)))
    else:
        _print(found)


def _print(found: list[TableStatus]) -> None:
    table = Table()
    for name in ("table", "topic", "value", "mode", "rows", "errors", "lag", "last commit", "files"):
        table.add_column(
            name, justify="left" if name in ("table", "topic", "value", "mode", "last commit") else "right"
        )
    for it in found:
        table.add_row(
            it.table,
            it.topic,
            it.value,
            it.mode,
            f"{it.rows:,}",
            f"{it.errors:,}",
            "-" if it.lag is None else f"{it.lag:,}",
            _moment(it.last_commit_ms),
            f"{it.files:,}",
            style="red" if it.problem else None,
        )
    console = Console()
    console.print(table)
    for it in found:
        if it.problem:
            console.print(f"{it.table}: {it.problem}", style="red", markup=False)


def _moment(ms: int | None) -> str:
    return "never" if ms is None else f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
