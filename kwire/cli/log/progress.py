"""A bar on standard error while bytes go by; nothing where that is no terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn


@contextmanager
def progress_bar(what: str, total_bytes: int) -> Iterator[Callable[[int], None]]:
    """Yields what is to be told of every so many bytes done."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda _bytes: None
        return
    columns = TextColumn("{task.description}"), BarColumn(), DownloadColumn(binary_units=True), TimeRemainingColumn()
    # What goes to standard output must get there. Where that is the same terminal, it goes above the bar.
    shared = sys.stdout.isatty()
    with Progress(
        *columns, console=console, transient=True, redirect_stdout=shared, redirect_stderr=shared
    ) as progress:
        task = progress.add_task(what, total=total_bytes)
        pending = 0

        def advance(size: int) -> None:
            nonlocal pending
            pending += size
            # A bar that is told of every batch costs more than the batch.
            if pending >= 1 << 20:
                progress.advance(task, pending)
                pending = 0

        yield advance
