"""The commands behind `make soak`: a scenario each, killed for as long as one likes.

python -m testkit.kills bank --kills 200 --seed 7
python -m testkit.kills bank --cluster zookeeper --kills 100
KWIRE_COMPAT=kafka python -m testkit.kills sigkill --kills 20
"""

from __future__ import annotations

import random
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from testkit.clients.streams import CLASSIC, PROTOCOLS
from testkit.java.java_host import java_host
from testkit.kills import jobs as pipeline
from testkit.kills.bank.cluster import BankOfNodes, three_nodes
from testkit.kills.bank.scenario import Bank
from testkit.kills.cluster_faults.kinds import ALL
from testkit.kills.cluster_faults.scenario import Faults
from testkit.kills.group_kills.scenario import Groups
from testkit.kills.harness import A, Account, Scenario, run
from testkit.kills.sigkill.scenario import Sigkills
from testkit.kills.streams.scenario import Counting
from testkit.servers.brokers import KIND, restartable_broker
from testkit.worlds.simulation.mistakes import MISTAKES

Option: TypeAlias = Callable[[Callable[..., None]], Callable[..., None]]


def kills_option(default: int, name: str = "--kills", what: str = "How often something is killed.") -> Option:
    return click.option(name, "kills", type=click.IntRange(1), default=default, show_default=True, help=what)


def seed_option() -> Option:
    """A new one unless a run is to be repeated."""
    return click.option(
        "--seed",
        type=int,
        callback=lambda _context, _parameter, seed: random.randrange(1 << 32) if seed is None else seed,
        help="Of a run to repeat, as far as scheduling can be. [default: a new one]",
    )


def soak(scenario: Scenario[A], kills: int, seed: int, *, what: str) -> None:
    """Runs with a progress bar, and shows a table in the end. Ends the process with 1 at the first failure.

    `what` is the name of what is killed.
    """
    console = Console(stderr=True)
    console.print(f"{kills} {scenario.account.what} of {what}, seed {seed}")
    with _progress_bar(console, kills) as show:
        try:
            account = run(scenario, kills=kills, seed=seed, on_kill=show)
        except AssertionError as problem:
            failure = str(problem)
        else:
            failure = ""
    if failure:
        console.print(failure, style="red", markup=False)
        sys.exit(1)
    table = Table(*account.columns)
    for way in sorted(account.kills):
        table.add_row(*account.row(way))
    Console().print(table)
    click.echo(account)


@contextmanager
def _progress_bar(console: Console, total: int) -> Iterator[Callable[[Account], None]]:
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, TextColumn("{task.description}"), console=console) as progress:
        task = progress.add_task("", total=total)

        def show(account: Account) -> None:
            progress.update(task, completed=account.kills.total(), description=account.progress)

        yield show


@click.group()
def main() -> None:
    """Kills brokers, nodes and clients under load, and proves that they keep what they promised.

    With KWIRE_COMPAT=kafka those with one broker kill Apache Kafka instead. Ends with 1 at the first thing that is
    wrong.
    """


@main.command()
@kills_option(1000)
@seed_option()
def sigkill(kills: int, seed: int) -> None:
    """Kills a broker, and proves that it lost, repeated and reordered nothing."""
    with java_host() as java, restartable_broker() as broker:
        soak(Sigkills(broker, java, "soak"), kills, seed, what=KIND)


@main.command()
@kills_option(500)
@seed_option()
def groups(kills: int, seed: int) -> None:
    """Kills the members of two groups and their broker, and proves that no record is skipped.

    Of those that a share group got, each comes to one end: accepted, or in the dead-letter topic.
    """
    with restartable_broker() as broker:
        soak(Groups(broker, "soak"), kills, seed, what=KIND)


@main.command()
@kills_option(300)
@seed_option()
@click.option("--cluster", type=click.Choice(["local", "zookeeper"]), help="Three nodes, in this form.")
def bank(kills: int, seed: int, cluster: str | None) -> None:
    """Kills a broker and the clients that move money in it, and proves that transactions keep it together."""
    with tempfile.TemporaryDirectory(prefix="kwire-bank-") as name:
        folder = Path(name)
        if cluster is None:
            with restartable_broker() as broker:
                soak(Bank(broker, folder, "soak"), kills, seed, what=KIND)
        else:
            with three_nodes(folder, cluster, seed) as nodes:
                soak(BankOfNodes(nodes, folder, "soak"), kills, seed, what=f"three nodes ({cluster})")


@main.command()
@kills_option(20)
@seed_option()
@click.option("--protocol", type=click.Choice(PROTOCOLS), default=CLASSIC, help="What the application's group speaks.")
def streams(kills: int, seed: int, protocol: str) -> None:
    """Kills Kafka Streams and its broker together, and proves that each word was counted once."""
    with tempfile.TemporaryDirectory(prefix="kwire-streams-") as folder, restartable_broker() as broker:
        soak(Counting(broker, Path(folder), "soak", protocol), kills, seed, what=KIND)


@main.command()
@kills_option(200)
@seed_option()
def jobs(kills: int, seed: int) -> None:
    """Kills a job and its two brokers, and proves that tables and copies lost and doubled nothing."""
    with pipeline.scene() as scenario:
        soak(scenario, kills, seed, what="a job and its brokers")


@main.command()
@kills_option(500, "--faults", "How many in all.")
@click.option("--form", type=click.Choice(sorted(ALL)), help="Of the cluster. [default: each, half of the faults]")
@click.option("--kind", "kinds", multiple=True, help="Only faults of this kind. Repeatable.")
@click.option(
    "--longest", "longest_s", type=float, default=5.0, show_default=True, help="Seconds a pause or cut lasts."
)
@click.option(
    "--keep", type=click.Path(path_type=Path), help="Folder for the nodes' folders, which must be new or empty."
)
@click.option("--mistake", type=click.Choice(sorted(MISTAKES)), help="That all nodes make, to see that it is found.")
@seed_option()
def cluster(
    kills: int,
    form: str | None,
    kinds: tuple[str, ...],
    longest_s: float,
    keep: Path | None,
    mistake: str | None,
    seed: int,
) -> None:
    """Kills, stops, cuts off, replaces, adds and removes nodes of a cluster, and proves that it keeps its promises."""
    forms = [form] if form else sorted(ALL)
    with tempfile.TemporaryDirectory(prefix="kwire-faults-") as temporary, java_host() as java:
        for number, name in enumerate(forms):
            folder = (keep or Path(temporary)) / name
            folder.mkdir(parents=True)
            count = kills // len(forms) + (number < kills % len(forms))
            chosen = {kind: suffer for kind, suffer in ALL[name].items() if not kinds or kind in kinds}
            scenario = Faults(name, folder, java, chosen, longest_s=longest_s, mistake=mistake)
            soak(scenario, count, seed, what=f"a cluster ({name})")


if __name__ == "__main__":
    main(prog_name="python -m testkit.kills")
