"""`make soak`: the word count of test_streams.py, killed together with the broker for as long as one likes.

.venv/bin/python -m compat_tests.streams --kills 20
KWIRE_COMPAT=kafka .venv/bin/python -m compat_tests.streams --kills 3
"""

from __future__ import annotations

import random
import sys
import tempfile
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn, TimeRemainingColumn

from ..brokers import KIND, restartable_broker
from . import counting


@click.command()
@click.option(
    "--kills", type=click.IntRange(1), default=20, show_default=True, help="How often Streams and broker are killed."
)
@click.option("--seed", type=int, help="Of a run to repeat, as far as scheduling can be. [default: a new one]")
def main(kills: int, seed: int | None) -> None:
    """Kills Kafka Streams and its broker together, again and again, and proves that each word was counted once.

    KWIRE_COMPAT=kafka kills Apache Kafka instead. Ends with 1 at the first thing that is wrong.
    """
    seed = random.randrange(1 << 32) if seed is None else seed
    console = Console(stderr=True)
    console.print(f"{kills} kills of Kafka Streams and {KIND}, seed {seed}")
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as progress, tempfile.TemporaryDirectory() as folder:
        task = progress.add_task("", total=kills)

        def on_kill(number: int) -> None:
            progress.update(task, completed=number)

        with restartable_broker() as broker:
            try:
                words = counting.run(broker, Path(folder), kills=kills, seed=seed, name="soak", on_kill=on_kill)
            except AssertionError as problem:
                progress.stop()
                console.print(str(problem), style="red", markup=False)
                sys.exit(1)
    click.echo(f"{kills} kills of Kafka Streams and broker; {words:,} words, each counted once")


if __name__ == "__main__":
    main(prog_name="python -m compat_tests.streams")
