"""`make soak-kills`: the SIGKILL loop of test_sigkill.py for as long as one likes, 1,000 kills by default.

make soak-kills ARGS="--kills 200 --seed 7"
KWIRE_COMPAT=kafka make soak-kills ARGS="--kills 20"

What the other loops of `make soak` share with it (testkit.kills.bank, testkit.kills.streams) is here, too.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any, Protocol, TypeAlias

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from testkit.java.java_host import java_host
from testkit.kills.sigkill import laps
from testkit.servers.brokers import KIND, restartable_broker


class Account(Protocol):
    """What a run has come to so far; as text the whole of it."""

    @property
    def kills(self) -> Counter[str]: ...

    @property
    def progress(self) -> str: ...


class Loop(Protocol):
    """Kills `broker` so many times. AssertionError tells what is wrong, and the seed."""

    def __call__(
        self, broker: Any, /, *, kills: int, seed: int, name: str, on_kill: Callable[[Account], None]
    ) -> Account: ...


Option: TypeAlias = Callable[[Callable[..., None]], Callable[..., None]]


def kills_option(default: int) -> Option:
    return click.option(
        "--kills", type=click.IntRange(1), default=default, show_default=True, help="How often something is killed."
    )


def seed_option() -> Option:
    return click.option(
        "--seed", type=int, help="Of a run to repeat, as far as scheduling can be. [default: a new one]"
    )


@contextmanager
def progress_bar(console: Console, total: int) -> Iterator[Callable[[Account], None]]:
    """It gets what a run has come to so far, and shows that."""
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, TextColumn("{task.description}"), console=console) as progress:
        task = progress.add_task("", total=total)

        def show(account: Account) -> None:
            progress.update(task, completed=account.kills.total(), description=account.progress)

        yield show


def soak(
    loop: Loop,
    kills: int,
    seed: int | None,
    *,
    what: str = KIND,
    opened: Callable[[], AbstractContextManager[Any]] = restartable_broker,
) -> None:
    """With a progress bar, and a table in the end. Ends the process with 1 at the first thing that is wrong.

    `opened` gives what `loop` kills, and `what` is its name.
    """
    seed = random.randrange(1 << 32) if seed is None else seed
    console = Console(stderr=True)
    console.print(f"{kills} kills of {what}, seed {seed}")
    failure = ""
    with progress_bar(console, kills) as on_kill, opened() as broker:
        try:
            account = loop(broker, kills=kills, seed=seed, name="soak", on_kill=on_kill)
        except AssertionError as problem:
            failure = str(problem)
    if failure:
        console.print(failure, style="red", markup=False)
        sys.exit(1)
    table = Table("killed", "times")
    for way, times in sorted(account.kills.items()):
        table.add_row(way, f"{times:,}")
    Console().print(table)
    click.echo(account)


@click.command()
@kills_option(1000)
@seed_option()
def main(kills: int, seed: int | None) -> None:
    """Kills a broker under load, again and again, and proves that it lost, repeated and reordered nothing.

    KWIRE_COMPAT=kafka kills Apache Kafka instead. Ends with 1 at the first thing that is wrong.
    """
    with java_host() as java:
        soak(partial(laps.run, java=java), kills, seed)


if __name__ == "__main__":
    main(prog_name="python -m testkit.kills.soak")
