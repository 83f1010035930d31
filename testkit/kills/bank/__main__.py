"""`make soak-bank`: the loop of test_bank.py for as long as one likes, 300 kills by default.

python -m testkit.kills.bank --kills 200 --seed 7
python -m testkit.kills.bank --cluster zookeeper --kills 100
KWIRE_COMPAT=kafka python -m testkit.kills.bank --kills 20
"""

from __future__ import annotations

import random
import tempfile
from functools import partial
from pathlib import Path

import click

from testkit.kills.bank import bank
from testkit.kills.bank.cluster import run, three_nodes
from testkit.kills.soak import kills_option, seed_option, soak


@click.command()
@kills_option(300)
@seed_option()
@click.option("--cluster", type=click.Choice(["local", "zookeeper"]), help="Three nodes, in this form.")
def main(kills: int, seed: int | None, cluster: str | None) -> None:
    """Kills a broker and the clients that move money in it, and proves that transactions keep it together.

    KWIRE_COMPAT=kafka kills Apache Kafka instead. Ends with 1 at the first thing that is wrong.
    """
    with tempfile.TemporaryDirectory(prefix="kwire-bank-") as name:
        folder = Path(name)
        if cluster is None:
            soak(partial(bank.run, folder=folder), kills, seed)
        else:
            seed = random.randrange(1 << 32) if seed is None else seed
            opened = partial(three_nodes, folder, cluster, seed)
            soak(partial(run, folder=folder), kills, seed, what=f"three nodes ({cluster})", opened=opened)


if __name__ == "__main__":
    main(prog_name="python -m testkit.kills.bank")
