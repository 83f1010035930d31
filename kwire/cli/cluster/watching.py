"""Watches reassignments until they have ended: a bar for each on a terminal, and elsewhere a line for each change."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Protocol

import attrs
import click
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, TaskID, TextColumn, TimeRemainingColumn, TransferSpeedColumn
from rich.progress import Progress as Bars

from kwire.admin.reassignments import Outcome, Progress, Reassignment, list_reassignments, measure, outcome
from kwire.cli.cluster.showing import nodes_text
from kwire.cli.columns import printable, size_text
from kwire.client.cluster import Cluster, TopicPartition

POLL_INTERVAL_S: Final = 1.0


class Shown(Protocol):
    """A display of progress."""

    def update(self, it: Reassignment, progress: Progress) -> None: ...

    def end(self, it: Reassignment, how: Outcome) -> None: ...


def watch_until_ended(cluster: Cluster, only: Reassignment | None = None) -> list[Outcome]:
    """Watches one reassignment, or all, including those that begin meanwhile. Returns their outcomes.

    Raises ClientError.
    """
    known = {} if only is None else {only.at: only}
    outcomes = []
    with _shown() as shown:
        while True:
            now = {it.at: it for it in list_reassignments(cluster, None if only is None else only.at)}
            for at in sorted(known.keys() - now.keys()):
                how = outcome(cluster, known[at])
                outcomes.append(how)
                shown.end(known[at], how)
            if not now:
                return outcomes
            known = now
            for at, progress in measure(cluster, now.values()).items():
                shown.update(now[at], progress)
            cluster.pause(POLL_INTERVAL_S)


@contextmanager
def _shown() -> Iterator[Shown]:
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _Lines()
        return
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    # click writes past the streams that rich puts in place of the standard ones.
    with Bars(*columns, console=console, transient=True, redirect_stdout=False, redirect_stderr=False) as bars:
        yield _Bars(bars)


@attrs.define(eq=False)
class _Lines:
    """Prints a line for a reassignment whenever its text has changed."""

    _last: dict[TopicPartition, str] = attrs.field(factory=dict)

    def update(self, it: Reassignment, progress: Progress) -> None:
        text = f"{size_text(progress.copied_bytes)} copied"
        if progress.total_bytes is not None:
            text = f"{progress.percent}% of {size_text(progress.total_bytes)} copied"
        line = _line(it, text)
        if self._last.get(it.at) != line:
            self._last[it.at] = line
            click.echo(line)

    def end(self, it: Reassignment, how: Outcome) -> None:
        self._last.pop(it.at, None)
        click.echo(_line(it, how.value))


@attrs.define(eq=False)
class _Bars:
    """A bar for each reassignment. Ended ones are printed, above the bars if standard output is a terminal."""

    _bars: Bars
    _tasks: dict[TopicPartition, TaskID] = attrs.field(factory=dict)

    def update(self, it: Reassignment, progress: Progress) -> None:
        if it.at not in self._tasks:
            self._tasks[it.at] = self._bars.add_task("", total=None)
        self._bars.update(
            self._tasks[it.at],
            description=_what(it),
            completed=progress.copied_bytes,
            total=progress.total_bytes,
            refresh=True,
        )

    def end(self, it: Reassignment, how: Outcome) -> None:
        task = self._tasks.pop(it.at, None)
        if task is not None:
            self._bars.remove_task(task)
        if sys.stdout.isatty():
            self._bars.console.print(_line(it, how.value), markup=False, highlight=False, soft_wrap=True)
        else:
            click.echo(_line(it, how.value))


def _what(it: Reassignment) -> str:
    return printable(f"{it.at} -> {nodes_text(it.target)}")


def _line(it: Reassignment, text: str) -> str:
    return f"{_what(it)}: {text}"
