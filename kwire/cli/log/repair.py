"""`kwire log repair`: check, show the steps, ask, take the steps, and check again."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import click
from kwire_storage import names
from kwire_storage.errors import FolderLockedError
from kwire_storage.inspection import Finding, Severity, check_folder, read_state
from kwire_storage.inspection.copies import Copies
from kwire_storage.inspection.findings import Remedy
from kwire_storage.inspection.log_dir_check import FolderState
from kwire_storage.inspection.repair import Checkup, Step, plan, repair
from rich.table import Table

from kwire.cli.log.check import Checked, console, log_bytes, partition_findings, show_line
from kwire.cli.log.progress import progress_bar
from kwire.cli.log.target import Shape, Target, disk_errors, find_target
from kwire.cli.log.topics import read_topics
from kwire.runtime.clock import SystemClock


def run(folder: Path, *, confirm: bool, dry_run: bool, drop_corrupt_ranges: bool) -> None:
    """Exits with 1 if findings are left. Raises click exceptions if `folder` is not one of logs, or is in use."""
    target = find_target(folder)
    if target.shape is Shape.FILE:
        raise click.UsageError(f"{folder} is a file; repair works on whole partitions: {folder.resolve().parent}")
    with _locked(target, needed=not dry_run), disk_errors():
        _Session(target, drop_corrupt_ranges=drop_corrupt_ranges).run(confirm=confirm, dry_run=dry_run)


@contextmanager
def _locked(target: Target, *, needed: bool) -> Iterator[None]:
    """Holds the log dir's lock. A folder without a lock file, such as a copy of a partition, needs none."""
    if not needed or not (target.shape is Shape.FOLDER or target.disk.exists(names.LOCK)):
        yield
        return
    try:
        lock = target.disk.lock(names.LOCK)
    except FolderLockedError:
        raise click.ClickException(f"a broker uses {target.disk.root}: stop it first") from None
    except OSError as error:
        raise click.ClickException(f"cannot lock {target.disk.root}: {error.strerror}") from None
    try:
        yield
    finally:
        lock.release()


class _Session:
    def __init__(self, target: Target, *, drop_corrupt_ranges: bool) -> None:
        self._target = target
        self._drop = drop_corrupt_ranges
        now = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=SystemClock().now_ms())
        self._copies = Copies(target.disk, f"{now:%Y%m%dT%H%M%SZ}")

    def run(self, *, confirm: bool, dry_run: bool) -> None:
        checkup = self._check()
        for finding in checkup.findings:
            show_line(finding, self._target)
        steps = plan(checkup.findings, checkup.state, drop_corrupt_ranges=self._drop)
        if not steps:
            self._conclude(checkup.findings)
            return
        _show_steps(steps)
        if dry_run:
            raise click.exceptions.Exit(1)
        if confirm:
            if not sys.stdin.isatty():
                raise click.UsageError(
                    "standard input is not a terminal: pass --yes to repair, or --dry-run to see what it would do"
                )
            click.confirm("Repair, and rebuild the files that depend on this?", abort=True)
        disk, copies = self._target.disk, self._copies
        try:
            checkup = repair(disk, checkup, self._check, copies, drop_corrupt_ranges=self._drop)
        except OSError as error:
            raise click.ClickException(
                f"the repair stopped: {error.filename or ''} {error.strerror or error}. Earlier steps are complete. "
                "Check the disk, then run it again"
            ) from None
        finally:
            for copy in copies.paths:
                click.echo(f"kept {disk.root}/{copy}")
        self._conclude(checkup.findings)

    def _check(self) -> Checkup:
        target = self._target
        state = read_state(target.disk, read_topics(target.disk))
        # Either we hold the lock, or there is none.
        state.in_use = False
        checked = Checked()
        with progress_bar("checking", log_bytes(target)) as progress:
            findings = list(self._findings(state, checked, progress))
        return Checkup(state, findings, checked.summaries)

    def _findings(self, state: FolderState, checked: Checked, progress: Callable[[int], None]) -> Iterator[Finding]:
        if self._target.shape is Shape.FOLDER:
            yield from check_folder(self._target.disk, state, progress=progress, summaries=checked.summaries)
        else:
            yield from partition_findings(self._target, state, checked, progress)

    def _conclude(self, findings: list[Finding]) -> None:
        left = [finding for finding in findings if finding.severity is not Severity.NOTE]
        if not left:
            click.echo("sound: nothing to repair" if not self._copies.paths else "repaired: sound")
            return
        click.echo(f"findings left: {len(left)}")
        for finding in left:
            show_line(finding, self._target)
        raise click.exceptions.Exit(1)


def _show_steps(steps: list[Step]) -> None:
    table = Table(title="repair steps", title_justify="left")
    table.add_column("file", overflow="fold")
    table.add_column("step")
    table.add_column("bytes", justify="right")
    for step in steps:
        size = f"{step.start}..{step.end}" if step.start >= 0 else ""
        what = "removed" if step.remedy is Remedy.DROP else step.remedy.value
        table.add_row(step.path, what, size)
    console().print(table)
