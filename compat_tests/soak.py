"""`make soak`: the SIGKILL loop of test_sigkill.py for as long as one likes, 1,000 kills by default.

make soak ARGS="--kills 200 --seed 7"
KWIRE_COMPAT=kafka make soak ARGS="--kills 20"
"""

from __future__ import annotations

import random
import sys

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from .brokers import KIND, restartable_broker
from .java_host import java_host
from .sigkill import laps
from .sigkill.laps import Account


@click.command()
@click.option(
    "--kills", type=click.IntRange(1), default=1000, show_default=True, help="How often the broker is killed."
)
@click.option("--seed", type=int, help="Of a run to repeat, as far as scheduling can be. [default: a new one]")
def main(kills: int, seed: int | None) -> None:
    """Kills a broker under load, again and again, and proves that it lost, repeated and reordered nothing.

    KWIRE_COMPAT=kafka kills Apache Kafka instead. Ends with 1 at the first thing that is wrong.
    """
    seed = random.randrange(1 << 32) if seed is None else seed
    console = Console(stderr=True)
    console.print(f"{kills} kills of {KIND}, seed {seed}")
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, TextColumn("{task.description}"), console=console) as progress:
        task = progress.add_task("", total=kills)

        def on_kill(account: Account) -> None:
            progress.update(
                task, completed=account.kills.total(), description=f"{account.records:,} records acknowledged"
            )

        with restartable_broker() as broker, java_host() as java:
            try:
                account = laps.run(broker, java, kills=kills, seed=seed, name="soak", on_kill=on_kill)
            except AssertionError as problem:
                progress.stop()
                console.print(str(problem), style="red", markup=False)
                sys.exit(1)
    click.echo(account)


if __name__ == "__main__":
    main(prog_name="python -m compat_tests.soak")
