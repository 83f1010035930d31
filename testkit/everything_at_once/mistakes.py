"""Makes one race after the other and checks that a run finds it: `python -m testkit.everything_at_once.mistakes`."""

from __future__ import annotations

import re
import sys

import click
from rich.console import Console
from rich.table import Table

from testkit.everything_at_once.races import RACES
from testkit.everything_at_once.run import run
from testkit.java.java_host import java_host

WITHIN_S = 60.0
MOST_TRIES = 3

_ERROR = re.compile(r"^[\s|]*(\w*(?<!Group)(?:Error|Exception): .*)$", re.MULTILINE)


def _gist(complaint: str) -> str:
    """Returns the error of a traceback, and any other complaint as it is."""
    found = _ERROR.search(complaint)
    return (found[1] if found and "Traceback" in complaint else complaint)[:300]


@click.command()
@click.argument("chosen", nargs=-1, type=click.Choice(list(RACES)))
@click.option("--seconds", type=click.FloatRange(1), default=WITHIN_S, show_default=True, help="Of load, at most.")
@click.option("--seed", type=int, default=1, show_default=True, help="Of the first try; each has one of its own.")
@click.option("--tries", type=click.IntRange(1), default=MOST_TRIES, show_default=True, help="Of a mistake, at most.")
def main(chosen: tuple[str, ...], seconds: float, seed: int, tries: int) -> None:
    """Makes one deliberate mistake after the other, and prints after how many seconds of load each was found.

    Mostly that is a matter of seconds. But something has to happen at the right moment, and a busy machine may not see
    that in a minute: then the mistake is made again. Ends with 1 if one was never found.
    """
    table = Table("mistake", "try", "found after", "by")
    missed = False
    with java_host() as java:
        for name in chosen or RACES:
            for number in range(1, tries + 1):
                account = run(seconds, seed + number - 1, java=java, mistake=name)
                after = "not found" if account.found_after_s is None else f"{account.found_after_s:.1f} s"
                by = _gist(account.complaints[0]) if account.complaints else ""
                table.add_row(name, str(number), after, by)
                Console(stderr=True).print(name, after, by, markup=False)
                if account.complaints:
                    break
            else:
                missed = True
    Console().print(table)
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main(prog_name="python -m testkit.everything_at_once.mistakes")
