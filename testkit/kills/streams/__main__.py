"""`make soak-streams`: the word count of test_streams.py, killed together with the broker for as long as one likes.

python -m testkit.kills.streams --kills 20 --protocol streams
KWIRE_COMPAT=kafka python -m testkit.kills.streams --kills 3
"""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path

import click

from testkit.clients.streams import CLASSIC, PROTOCOLS
from testkit.kills.soak import kills_option, seed_option, soak
from testkit.kills.streams import counting


@click.command()
@kills_option(20)
@seed_option()
@click.option("--protocol", type=click.Choice(PROTOCOLS), default=CLASSIC, help="What the application's group speaks.")
def main(kills: int, seed: int | None, protocol: str) -> None:
    """Kills Kafka Streams and its broker together, again and again, and proves that each word was counted once.

    KWIRE_COMPAT=kafka kills Apache Kafka instead. Ends with 1 at the first thing that is wrong.
    """
    with tempfile.TemporaryDirectory(prefix="kwire-streams-") as folder:
        soak(partial(counting.run, folder=Path(folder), protocol=protocol), kills, seed)


if __name__ == "__main__":
    main(prog_name="python -m testkit.kills.streams")
