"""`kwire pipeline verify`: prints the report as a table or as JSON."""

from __future__ import annotations

import click
from rich.console import Console
from rich.table import Table

from kwire.cli.pipeline.existing import ExistingTable, opened
from kwire.pipeline.tables.verify import SHOWN, Report, verify


def run_verify(existing: ExistingTable, *, as_json: bool) -> bool:
    """Returns True if the table is sound. Raises PipelineError."""
    with opened(existing, "verify") as it:
        report = verify(it.plan, it.writer, it.spark, it.topics)
    if as_json:
        click.echo(report.to_json())
    else:
        _print(report)
    return report.sound


def _print(report: Report) -> None:
    table = Table(title=f"topic {report.topic} and table {report.table}, snapshot {report.snapshot_id}")
    for name in ("partition", "offsets", "lag", "records", "rows", "errors", "result"):
        table.add_column(name, justify="left" if name in ("offsets", "result") else "right")
    for it in report.partitions:
        wrong = {
            kind: count
            for kind in ("missing", "doubled", "different", "unexpected", "compacted", "older_schema")
            if (count := getattr(it, kind))
        }
        result = ", ".join(f"{count:,} {kind.replace('_', ' ')}" for kind, count in wrong.items()) or "the same"
        table.add_row(
            str(it.partition),
            f"{it.first} to {it.until - 1}" if it.until > it.first else "none",
            f"{it.lag:,}",
            f"{it.records:,}",
            f"{it.rows:,}",
            f"{it.errors:,}",
            result,
            style=None if it.sound else "red",
        )
    console = Console()
    console.print(table)
    for finding in report.findings:
        console.print(f"{finding.kind}: partition {finding.partition} offset {finding.offset}")
    if len(report.findings) >= SHOWN:
        console.print(f"only the first {SHOWN} are shown")
    console.print("sound" if report.sound else "not sound", style="green" if report.sound else "red")
