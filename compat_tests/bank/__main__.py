"""`make soak-bank`: the loop of test_bank.py for as long as one likes, 300 kills by default.

python -m compat_tests.bank --kills 200 --seed 7
KWIRE_COMPAT=kafka python -m compat_tests.bank --kills 20
"""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path

import click

from ..soak import kills_option, seed_option, soak
from . import bank


@click.command()
@kills_option(300)
@seed_option()
def main(kills: int, seed: int | None) -> None:
    """Kills a broker and the clients that move money in it, and proves that transactions keep it together.

    KWIRE_COMPAT=kafka kills Apache Kafka instead. Ends with 1 at the first thing that is wrong.
    """
    with tempfile.TemporaryDirectory(prefix="kwire-bank-") as folder:
        soak(partial(bank.run, folder=Path(folder)), kills, seed)


if __name__ == "__main__":
    main(prog_name="python -m compat_tests.bank")
