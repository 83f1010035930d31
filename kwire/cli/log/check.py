"""`kwire log check`: prints each finding when it is found, and a summary at the end."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import attrs
import click
from kwire_storage import names
from kwire_storage.inspection import Finding, Kind, Severity, check_folder, check_partition, read_state
from kwire_storage.inspection.log_dir_check import FolderState, is_folder
from kwire_storage.inspection.partition_check import PartitionSummary
from rich.console import Console
from rich.table import Table

from kwire.cli.log.progress import progress_bar
from kwire.cli.log.target import Shape, Target, disk_errors, find_target
from kwire.cli.log.topics import read_topics

_COLOURS = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.NOTE: "cyan"}
_WIDE = 160
"""The width in columns if standard output is not a terminal."""


def run(folders: tuple[Path, ...], *, as_json: bool, check_records: bool, notes: bool) -> None:
    """Exits with 1 after errors or warnings. Raises click.UsageError for a folder without logs."""
    targets = [find_target(folder) for folder in folders]
    show = show_json if as_json else show_line
    counts: Counter[tuple[Severity, Kind]] = Counter()
    severities: Counter[Severity] = Counter()
    checked = Checked()
    with disk_errors(), progress_bar("checking", sum(map(log_bytes, targets))) as progress:
        for target in targets:
            for finding in checked.findings(target, progress, check_records=check_records):
                severities[finding.severity] += 1
                if finding.severity is not Severity.NOTE or notes:
                    counts[finding.severity, finding.kind] += 1
                    show(finding, target)
    if as_json:
        sys.stdout.write(json.dumps({"type": "summary", **checked.sums(), **_severity_sums(severities)}) + "\n")
    else:
        show_sums(checked, severities, counts)
    sys.stdout.flush()
    if severities[Severity.ERROR] or severities[Severity.WARNING]:
        raise click.exceptions.Exit(1)


@attrs.define
class Checked:
    """The partitions checked so far, over several log dirs, because no partition may be in two."""

    summaries: dict[tuple[str, int], PartitionSummary] = attrs.field(factory=dict)
    lone: list[PartitionSummary] = attrs.field(factory=list)
    _seen: dict[tuple[str, int], str] = attrs.field(factory=dict)

    def findings(
        self, target: Target, progress: Callable[[int], None], *, check_records: bool = True
    ) -> Iterator[Finding]:
        state = read_state(target.disk, read_topics(target.disk))
        if target.shape is Shape.FOLDER:
            summaries: dict[tuple[str, int], PartitionSummary] = {}
            yield from check_folder(
                target.disk, state, check_records=check_records, progress=progress, summaries=summaries
            )
            for key, summary in summaries.items():
                if key in self._seen:
                    what = f"it is in {self._seen[key]} too"
                    yield Finding(Kind.DUPLICATE_PARTITION, names.partition_folder(*key), what)
                self._seen.setdefault(key, target.disk.root)
                self.lone.append(summary)
        elif not target.partition:
            yield from (finding for finding in state.findings if finding.path == target.path)
        else:
            for finding in partition_findings(target, state, self, progress, check_records=check_records):
                if target.shape is Shape.PARTITION or finding.path == target.path:
                    yield finding

    def sums(self) -> dict[str, int]:
        return {
            "partitions": len(self.lone),
            "segments": sum(summary.segments for summary in self.lone),
            "batches": sum(summary.batches for summary in self.lone),
            "bytes": sum(summary.bytes_read for summary in self.lone),
        }


def partition_findings(
    target: Target,
    state: FolderState,
    checked: Checked,
    progress: Callable[[int], None],
    *,
    check_records: bool = True,
) -> Iterator[Finding]:
    """The findings of one partition, checked against the checkpoints of its log dir too."""
    summary = PartitionSummary()
    checked.lone.append(summary)
    folder = target.partition
    try:
        yield from check_partition(
            target.disk, folder, state.context(folder, check_records=check_records), summary, progress
        )
    except OSError as error:
        yield Finding(Kind.UNREADABLE, folder, error.strerror or str(error))
        return
    key = names.parse_partition_folder(folder)
    if key is not None:
        checked.summaries[key] = summary
        yield from state.broken_promises({key: summary})


def log_bytes(target: Target) -> int:
    """Returns the size of the batches to read, for the progress bar."""
    disk, folders = target.disk, [target.partition]
    try:
        if target.shape is Shape.FOLDER:
            folders = [
                name for name in disk.listdir("") if names.parse_partition_folder(name) and is_folder(disk, name)
            ]
        return sum(
            disk.size(f"{folder}/{name}")
            for folder in folders
            for name in (disk.listdir(folder) if folder else ())
            if name.endswith(names.LOG)
        )
    except OSError:
        # A running broker deleted a file, or the disk failed. The bar is inexact then, and the check reports the error.
        return 0


def show_json(finding: Finding, target: Target) -> None:
    row = {
        "type": "finding",
        "severity": finding.severity.name.lower(),
        "kind": finding.kind.code,
        "folder": target.disk.root,
        "path": finding.path,
        "position": finding.position,
        "end_position": finding.end_position,
        "offset": finding.offset,
        "what": finding.what,
        "advice": finding.kind.advice,
        "repair": finding.kind.remedy.name.lower(),
    }
    sys.stdout.write(json.dumps(row) + "\n")


def show_line(finding: Finding, target: Target) -> None:  # noqa: ARG001 - takes what show_json takes
    where = finding.path
    if finding.position is not None:
        where += f" at {finding.position}"
    if finding.offset is not None:
        where += f" (offset {finding.offset})"
    severity = click.style(f"{finding.severity.name:7}", fg=_COLOURS[finding.severity])
    what = finding.what if finding.what.isprintable() else ascii(finding.what)
    if finding.severity is Severity.NOTE:
        click.echo(f"{severity} {finding.kind.code}  {where}: {what}")
    else:
        click.echo(f"{severity} {finding.kind.code}  {where}\n        {what}\n        -> {finding.kind.advice}")


def console() -> Console:
    plain = Console(file=sys.stdout)
    return plain if plain.is_terminal else Console(file=sys.stdout, width=_WIDE)


def _severity_sums(severities: Counter[Severity]) -> dict[str, int]:
    return {f"{severity.name.lower()}s": severities[severity] for severity in reversed(Severity)}


def show_sums(checked: Checked, severities: Counter[Severity], counts: Counter[tuple[Severity, Kind]]) -> None:
    if counts:
        table = Table(title="findings", title_justify="left")
        for heading in ("severity", "kind", "count", "repair"):
            table.add_column(heading, justify="right" if heading == "count" else "left")
        for (severity, kind), count in sorted(counts.items(), key=lambda item: (-item[0][0], item[0][1].code)):
            table.add_row(severity.name.lower(), kind.code, str(count), kind.remedy.value)
        console().print(table)
    sums = checked.sums()
    totals = ", ".join(f"{count:,} {name}" for name, count in sums.items())
    found = ", ".join(f"{count} {name}" for name, count in _severity_sums(severities).items())
    click.echo(f"checked {totals}: {found}")
