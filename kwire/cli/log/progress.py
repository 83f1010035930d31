"""A progress bar on standard error; nothing if that is not a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from kwire.runtime.callbacks import ignore


@contextmanager
def progress_bar(what: str, total_bytes: int) -> Iterator[Callable[[int], None]]:
    """Yields a function to call with each number of bytes done."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield ignore
        return
    columns = TextColumn("{task.description}"), BarColumn(), DownloadColumn(binary_units=True), TimeRemainingColumn()
    # Standard output must not be swallowed. On the same terminal it is printed above the bar.
    shared = sys.stdout.isatty()
    with Progress(
        *columns, console=console, transient=True, redirect_stdout=shared, redirect_stderr=shared
    ) as progress:
        task = progress.add_task(what, total=total_bytes)
        pending = 0

        def advance(size: int) -> None:
            nonlocal pending
            pending += size
            # Updating the bar for every batch would cost more than the batch.
            if pending >= 1 << 20:
                progress.advance(task, pending)
                pending = 0

        yield advance
