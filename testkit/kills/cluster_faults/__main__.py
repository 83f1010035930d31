"""`make soak-cluster`: nodes of clusters suffer under load for as long as one likes, 500 faults by default.

python -m testkit.kills.cluster_faults --faults 60 --form zookeeper --seed 7
"""

from __future__ import annotations

import random
import sys
import tempfile
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from testkit.java.java_host import java_host
from testkit.kills.cluster_faults.kinds import ALL
from testkit.kills.cluster_faults.proof import Account, run
from testkit.kills.soak import progress_bar, seed_option
from testkit.worlds.simulation.mistakes import MISTAKES


@click.command()
@click.option("--faults", type=click.IntRange(1), default=500, show_default=True, help="How many in all.")
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
def main(
    faults: int,
    form: str | None,
    kinds: tuple[str, ...],
    longest_s: float,
    keep: Path | None,
    mistake: str | None,
    seed: int | None,
) -> None:
    """Kills, stops, cuts off, replaces, adds and removes nodes of a cluster, and proves that it keeps its promises.

    Ends with 1 at the first thing that is wrong.
    """
    seed = random.randrange(1 << 32) if seed is None else seed
    console = Console(stderr=True)
    console.print(f"{faults} faults, seed {seed}")
    forms = [form] if form else sorted(ALL)
    with tempfile.TemporaryDirectory(prefix="kwire-faults-") as temporary, java_host() as java:
        for number, name in enumerate(forms):
            folder = (keep or Path(temporary)) / name
            folder.mkdir(parents=True)
            count = faults // len(forms) + (number < faults % len(forms))
            chosen = {kind: suffer for kind, suffer in ALL[name].items() if not kinds or kind in kinds}
            with progress_bar(console, count) as on_fault:
                try:
                    account = run(
                        name,
                        folder=folder,
                        java=java,
                        count=count,
                        seed=seed,
                        kinds=chosen,
                        longest_s=longest_s,
                        mistake=mistake,
                        on_fault=on_fault,
                    )
                except AssertionError as problem:
                    failure = str(problem)
                else:
                    failure = ""
            if failure:
                console.print(failure, style="red", markup=False)
                sys.exit(1)
            _show(account)


def _show(account: Account) -> None:
    table = Table(f"fault ({account.form})", "times", "longest wait of a write")
    for kind, times in sorted(account.kills.items()):
        table.add_row(kind, f"{times:,}", f"{account.longest_wait_s[kind]:.1f} s")
    Console().print(table)
    click.echo(account)


if __name__ == "__main__":
    main(prog_name="python -m testkit.kills.cluster_faults")
