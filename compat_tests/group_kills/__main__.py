"""`make soak-groups`: the loop of test_group_kills.py for as long as one likes, 500 kills by default.

python -m compat_tests.group_kills --kills 50 --seed 7
KWIRE_COMPAT=kafka python -m compat_tests.group_kills --kills 20
"""

from __future__ import annotations

import click

from ..soak import kills_option, seed_option, soak
from .run import run


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
    main(prog_name="python -m compat_tests.group_kills")
