"""`make soak-groups`: the loop of test_group_kills.py for as long as one likes, 500 kills by default.

python -m testkit.kills.group_kills --kills 50 --seed 7
KWIRE_COMPAT=kafka python -m testkit.kills.group_kills --kills 20
"""

from __future__ import annotations

import click

from testkit.kills.group_kills.run import run
from testkit.kills.soak import kills_option, seed_option, soak


@click.command()
@kills_option(500)
@seed_option()
def main(kills: int, seed: int | None) -> None:
    """Kills the members of two groups and their broker, and proves that no record is skipped.

    Of those that a share group got, each comes to one end: accepted, or in the dead-letter topic.

    KWIRE_COMPAT=kafka kills Apache Kafka instead. Ends with 1 at the first thing that is wrong.
    """
    soak(run, kills, seed)


if __name__ == "__main__":
    main(prog_name="python -m testkit.kills.group_kills")
