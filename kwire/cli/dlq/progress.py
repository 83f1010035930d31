"""A bar on standard error that counts records; nothing if that is not a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from kwire.runtime.callbacks import ignore

_STEPS: Final = 1_000

Advance = Callable[[int, int], None]


@contextmanager
def counting_bar(what: str) -> Iterator[Advance]:
    """Yields a function to call with the number of records done, and their total."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield ignore
        return
    columns = TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=console, transient=True, redirect_stdout=False, redirect_stderr=False) as bars:
        task = bars.add_task(what, total=None)
        shown = 0

        def advance(done: int, total: int) -> None:
            nonlocal shown
            # An update for every record would cost more than the record.
            if done >= total or done - shown >= total // _STEPS:
                bars.update(task, completed=done, total=total)
                shown = done

        yield advance
