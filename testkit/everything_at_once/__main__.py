"""The command; see `--help`."""

from __future__ import annotations

import json
import random
import sys
from collections import Counter
from pathlib import Path

import attrs
import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from testkit.everything_at_once.run import Account, run
from testkit.java.java_host import java_host


@click.command()
@click.option("--seconds", type=click.FloatRange(1), default=60.0, show_default=True, help="Of load, in each run.")
@click.option("--minutes", type=click.FloatRange(0.1), help="Of load, of all runs together, instead of --seconds.")
@click.option(
    "--seeds", type=click.IntRange(1), default=1, show_default=True, help="How many runs, each of its own seed."
)
@click.option("--seed", type=int, help="Of the first run; the next have the numbers behind it. [default: a new one]")
@click.option(
    "--descriptors",
    type=click.IntRange(128),
    help="The most that the broker may have open, while twice as many connections come and go.",
)
@click.option(
    "--keep", type=click.Path(file_okay=False, path_type=Path), help="Copy data and log there if a run fails."
)
@click.option("--json", "as_json", is_flag=True, help="The figures as one JSON object on standard output.")
def main(
    seconds: float,
    minutes: float | None,
    seeds: int,
    seed: int | None,
    descriptors: int | None,
    keep: Path | None,
    as_json: bool,
) -> None:
    """Everything at once: a broker under all its own clocks and all that clients can do, killed now and then.

    Topics come and go, change and move; producers and members vanish; the disk fills up; the broker is killed. In the
    end whatever was acknowledged must be there, the files sound, and the broker as small as before. Every choice comes
    from the seed. Ends with 1 at the first run that finds something.
    """
    if minutes is not None:
        seconds = minutes * 60 / seeds
    first = random.randrange(1 << 32) if seed is None else seed
    console = Console(stderr=True)
    accounts: list[Account] = []
    columns = (BarColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with java_host() as java, Progress(*columns, console=console) as progress:
        task = progress.add_task("", total=seconds * seeds)
        for number in range(first, first + seeds):

            def report_phase(what: str, passed_s: float, number: int = number) -> None:
                before = (number - first) * seconds
                progress.update(task, completed=before + passed_s, description=f"seed {number}: {what}")

            accounts.append(
                run(seconds, number, java=java, descriptors=descriptors, keep=keep, report_phase=report_phase)
            )
            if accounts[-1].complaints:
                break
    _show(accounts, as_json=as_json, console=console)
    sys.exit(1 if accounts[-1].complaints else 0)


def _show(accounts: list[Account], *, as_json: bool, console: Console) -> None:
    counts: Counter[str] = Counter()
    for account in accounts:
        counts.update(account.counts)
    if as_json:
        runs = [attrs.asdict(account) for account in accounts]
        click.echo(json.dumps({"runs": runs, "counts": counts, "found": sum(len(it.complaints) for it in accounts)}))
    else:
        table = Table("what", "times")
        table.columns[1].justify = "right"
        for what, count in sorted(counts.items()):
            table.add_row(what, f"{count:,}")
        Console().print(table)
    for account in accounts:
        for skipped in account.skipped:
            console.print(f"seed {account.seed}: skipped {skipped}", style="yellow", markup=False)
        for complaint in account.complaints:
            console.print(
                f"seed {account.seed}, after {account.found_after_s:.1f} s: {complaint}", style="red", markup=False
            )
    found = sum(len(it.complaints) for it in accounts)
    records = sum(it.records for it in accounts)
    console.print(f"{len(accounts)} runs of {accounts[0].seconds:g} s: {records:,} records acknowledged, {found} found")


if __name__ == "__main__":
    main(prog_name="python -m testkit.everything_at_once")
